//! What a list of all TCP connections shows about those that are managed.

use std::collections::BTreeMap;

use sidestep_linux::{
    mptcp::{Ends, FirstSubflow, Subflow, TcpEnds, Token},
    sock_diag::TcpState,
};
use sidestep_net::{Span, Time};

use super::{super::connection::SubflowState, Manager};

/// How long the kernel may list no subflow of a connection before it is taken for gone: it may come back as long as the
/// kernel waits for a new subflow (`net.mptcp.close_timeout`, 60 s).
const ABSENT: Span = Span::from_secs(70);

/// A connection in the list.
#[derive(Default)]
struct Listed {
    subflows: BTreeMap<Ends, SubflowState>,
    /// Its first subflow, or else another.
    base: Option<(Ends, Subflow)>,
    can_join: bool,
    bytes: u64,
}

impl Manager {
    /// Takes all TCP connections of the namespace for the truth: also of connections of which no event was seen.
    pub fn handle_list(&mut self, now: Time, list: &[TcpEnds]) {
        let mut connections: BTreeMap<Token, Listed> = BTreeMap::new();
        for entry in list {
            if let Some(subflow) = entry.subflow {
                connections.entry(subflow.token).or_default().add(now, entry, subflow);
            }
        }
        for (token, listed) in &connections {
            self.take_listed(now, *token, listed);
        }
        self.look_for_absent(now, &connections);
        // Only now is it known which connections live.
        self.remembered.clear();
        self.count_anew();
        self.tally.clear_ports();
        for entry in list {
            // Whether it is a connection of MPTCP is not known before the other end has answered.
            match (entry.subflow, entry.state) {
                (None, TcpState::SynSent) => self.tally.add_early_port(entry.ends.local),
                _ => self.tally.add_port(entry.ends.local),
            }
        }
        self.look_at_all();
    }

    fn take_listed(&mut self, now: Time, token: Token, listed: &Listed) {
        if !self.connections.contains_key(&token) {
            let Some((ends, subflow)) = listed.base.filter(|_| !listed.subflows.is_empty()) else { return };
            let remembered = self.remembered.remove(&token).unwrap_or_default();
            let denies_first_address = remembered.denies_first_address;
            self.begin(now, token, FirstSubflow { ends, accepted: !subflow.opened_here, denies_first_address });
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.announced = remembered.announced;
                connection.completed = true;
            }
        }
        let timeouts = self.config.watch.timeouts;
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.replace(now, &listed.subflows, self.dry_run);
        connection.closing = listed.subflows.is_empty();
        connection.bytes = connection.bytes.max(listed.bytes);
        if listed.can_join {
            connection.established.get_or_insert(now);
        }
        if !connection.first.accepted && !connection.is_kernels {
            self.dead.extend(connection.dead(timeouts).map(|ends| (token, ends)));
        }
        self.end_stranded(token);
    }

    fn look_for_absent(&mut self, now: Time, listed: &BTreeMap<Token, Listed>) {
        let mut gone = Vec::new();
        for (token, connection) in &mut self.connections {
            if listed.contains_key(token) {
                continue;
            }
            connection.replace(now, &BTreeMap::new(), self.dry_run);
            // Of the other end's connections nothing is known that the next list would not show again.
            let is_over = connection.closing || connection.first.accepted;
            if is_over || connection.absent_since.is_some_and(|since| now.since(since) >= ABSENT) {
                gone.push(*token);
            }
        }
        gone.into_iter().for_each(|token| self.forget(token));
    }
}

impl Listed {
    fn add(&mut self, now: Time, entry: &TcpEnds, subflow: Subflow) {
        let established = match entry.state {
            TcpState::Established | TcpState::CloseWait => true,
            TcpState::SynSent => false,
            // It is being closed.
            _ => return,
        };
        let (timeouts, window) = (subflow.timeouts, subflow.window);
        self.subflows.insert(entry.ends, SubflowState { established, timeouts, since: now, window });
        if self.base.is_none() || subflow.is_first {
            self.base = Some((entry.ends, subflow));
        }
        self.can_join |= established && (subflow.fully_established || !subflow.is_first);
        self.bytes = self.bytes.saturating_add(subflow.bytes);
    }
}
