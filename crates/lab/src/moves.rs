//! The moves that daemons made, by connection.

use std::{collections::BTreeMap, net::SocketAddrV6};

use crate::names::Names;

/// Moves by connection, seen from the end that moved it.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    by_ends: BTreeMap<(SocketAddrV6, SocketAddrV6), u64>,
}

impl Moves {
    /// Counts a move that the end `local` made of its connection with `remote`.
    pub fn count(&mut self, local: SocketAddrV6, remote: SocketAddrV6) {
        *self.by_ends.entry((local, remote)).or_default() += 1;
    }

    /// Adds the moves that `other` counted.
    pub(crate) fn add(&mut self, other: &Moves) {
        for (ends, moves) in &other.by_ends {
            *self.by_ends.entry(*ends).or_default() += moves;
        }
    }

    /// Number of moves that the end `local` made of its connection with `remote`.
    pub fn of(&self, local: SocketAddrV6, remote: SocketAddrV6) -> u64 {
        self.by_ends.get(&(local, remote)).copied().unwrap_or(0)
    }

    /// Number of moves of the connection of this name, made by the end that the name has first.
    pub fn of_name(&self, connection: &str, names: &Names) -> u64 {
        let named = self.by_ends.iter().filter(|((local, remote), _)| names.connection(*local, *remote) == connection);
        named.map(|(_, moves)| moves).sum()
    }
}
