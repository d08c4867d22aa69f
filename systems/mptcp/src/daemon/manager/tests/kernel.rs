//! A kernel that is made up.

use std::{collections::BTreeSet, net::SocketAddr};

use sidestep_linux::{
    mptcp::{Subflow, TcpEnds, Window},
    sock_diag::TcpState,
};

use super::super::*;

pub(super) const RANGE: (u16, u16) = (32_768, 60_999);

/// A kernel that opens what it is asked for, unless it is set to refuse, and reports it.
pub(super) struct Kernel {
    pub(super) manager: Manager,
    pub(super) now: Time,
    pub(super) subflows: BTreeMap<Token, BTreeMap<Ends, Subflow>>,
    /// What it refuses with, and the number of subflows of a connection from which on.
    pub(super) refuses: Option<(i32, &'static str, usize)>,
    /// From which number of subflows on the other end resets further ones.
    pub(super) peer_limit: usize,
    /// Whether it answers their SYNs before.
    pub(super) peer_answers: bool,
    /// Subflows that it is about to reset.
    pub(super) refused: Vec<(Token, Ends)>,
    /// An address that it finds no route from.
    pub(super) unreachable: Option<IpAddr>,
    /// An address from which no route leads by its own interface.
    pub(super) unrouted: Option<IpAddr>,
    /// Numbers that it has given to other addresses or ports.
    pub(super) taken: BTreeSet<u8>,
    pub(super) created: Vec<NewSubflow>,
    pub(super) destroyed: Vec<Ends>,
    /// Numbers of addresses of which other ends were notified that they are gone.
    pub(super) withdrawn: Vec<u8>,
    pub(super) next_port: u16,
}

pub(super) fn kernel(config: &str) -> Kernel {
    let config = if config.is_empty() { MptcpPmConfig::default() } else { MptcpPmConfig::parse(config).unwrap() };
    Kernel {
        manager: Manager::new(config, RANGE, 1),
        now: Time::from_nanos(1_000_000_000),
        subflows: BTreeMap::new(),
        refuses: None,
        peer_limit: usize::MAX,
        peer_answers: false,
        refused: Vec::new(),
        unreachable: None,
        unrouted: None,
        taken: BTreeSet::new(),
        created: Vec::new(),
        destroyed: Vec::new(),
        withdrawn: Vec::new(),
        next_port: RANGE.0 + 1_000,
    }
}

pub(super) fn first(n: u32) -> FirstSubflow {
    let local = SocketAddr::new("10.0.0.1".parse().unwrap(), 20_000 + n as u16);
    let ends = Ends { local, remote: "10.0.0.2:80".parse().unwrap() };
    FirstSubflow { ends, accepted: false, denies_first_address: false }
}

pub(super) fn subflow(token: Token, is_first: bool) -> Subflow {
    Subflow {
        token,
        is_first,
        opened_here: true,
        fully_established: true,
        timeouts: 0,
        bytes: 0,
        window: Window::default(),
    }
}

impl Kernel {
    pub(super) fn event(&mut self, token: u32, what: MptcpChange) {
        self.manager.handle_event(self.now, &MptcpEvent { token: Token(token), what });
    }

    /// Opens a connection, which is not fully established yet.
    pub(super) fn open(&mut self, token: u32, first: FirstSubflow) {
        let opened = Subflow { fully_established: false, ..subflow(Token(token), true) };
        self.subflows.insert(Token(token), BTreeMap::from([(first.ends, opened)]));
        self.event(token, MptcpChange::Created(first));
    }

    pub(super) fn establish(&mut self, token: u32, first: FirstSubflow) {
        self.open(token, first);
        self.run();
        assert!(self.created.iter().all(|subflow| subflow.token != Token(token)), "before it is established");
        self.subflows.get_mut(&Token(token)).unwrap().get_mut(&first.ends).unwrap().fully_established = true;
        self.event(token, MptcpChange::Established(first));
        self.run();
    }

    /// Does what the path manager wants until it wants nothing more now.
    pub(super) fn run(&mut self) {
        for _ in 0..100_000 {
            let Some(command) = self.manager.poll_transmit(self.now) else {
                let refused = std::mem::take(&mut self.refused);
                if refused.is_empty() {
                    return;
                }
                refused.into_iter().for_each(|(token, ends)| self.reset(token, ends));
                continue;
            };
            if let Command::Create(subflow) = &command
                && self.manager.needs_route(subflow)
                && self.unrouted == Some(subflow.local.ip())
            {
                self.manager.handle_no_route(subflow);
                continue;
            }
            let result = self.carry_out(&command);
            self.manager.handle_result(self.now, &command, &result);
            match command {
                Command::Create(subflow) if result.is_ok() => self.report(&subflow),
                Command::Destroy(token, ends) => {
                    self.event(token.0, MptcpChange::SubflowClosed { ends, error: 0 });
                }
                Command::Create(_) | Command::Withdraw(..) => {}
            }
        }
        panic!("it never has enough");
    }

    pub(super) fn carry_out(&mut self, command: &Command) -> Result<(), Refusal> {
        match command {
            Command::Create(subflow) => {
                let there = self.subflows.get(&subflow.token);
                let there = there.ok_or_else(|| Refusal::new(libc::EINVAL, "invalid token".into()))?;
                match self.refuses {
                    Some((errno, words, from)) if there.len() >= from => Err(Refusal::new(errno, words.into())),
                    _ if self.unreachable == Some(subflow.local.ip()) => {
                        Err(Refusal::new(libc::ENETUNREACH, String::new()))
                    }
                    _ if self.taken.contains(&subflow.local_id) => {
                        Err(Refusal::new(libc::EINVAL, "did not match address and id".into()))
                    }
                    _ => {
                        self.created.push(*subflow);
                        Ok(())
                    }
                }
            }
            Command::Withdraw(_, number) => {
                self.withdrawn.push(*number);
                Ok(())
            }
            Command::Destroy(token, ends) => {
                self.destroyed.push(*ends);
                self.subflows.get_mut(token).unwrap().remove(ends);
                Ok(())
            }
        }
    }

    pub(super) fn report(&mut self, new: &NewSubflow) {
        self.next_port += 1;
        let port = if new.local.port() == 0 { self.next_port } else { new.local.port() };
        let ends = Ends { local: SocketAddr::new(new.local.ip(), port), remote: new.remote };
        let subflows = self.subflows.get_mut(&new.token).unwrap();
        let accepted = subflows.len() < self.peer_limit;
        if accepted {
            subflows.insert(ends, subflow(new.token, false));
        }
        if accepted || self.peer_answers {
            self.event(new.token.0, MptcpChange::SubflowEstablished(ends));
        }
        match (accepted, self.peer_answers) {
            (true, _) => {}
            (false, true) => self.refused.push((new.token, ends)),
            (false, false) => self.reset(new.token, ends),
        }
    }

    pub(super) fn reset(&mut self, token: Token, ends: Ends) {
        self.event(token.0, MptcpChange::SubflowClosed { ends, error: libc::ECONNRESET as u8 });
    }

    /// Makes the path manager look at all subflows, and do what it wants then.
    pub(super) fn list(&mut self) {
        let all = self.subflows.values().flatten();
        let all =
            all.map(|(ends, subflow)| TcpEnds { ends: *ends, state: TcpState::Established, subflow: Some(*subflow) });
        let all: Vec<TcpEnds> = all.collect();
        self.manager.handle_list(self.now, &all);
        self.run();
    }

    /// Lets time pass, and the path manager come back whenever it wants to.
    pub(super) fn pass(&mut self, millis: u64) {
        let end = self.now + Span::from_millis(millis);
        while let Some(due) = self.manager.poll_timeout().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.run();
        }
        self.now = end;
        self.run();
    }

    /// Ends a subflow without the path manager.
    pub(super) fn kill(&mut self, token: u32, ends: Ends) {
        self.subflows.get_mut(&Token(token)).unwrap().remove(&ends).unwrap();
        self.event(token, MptcpChange::SubflowClosed { ends, error: libc::ECONNRESET as u8 });
        self.run();
    }

    pub(super) fn count(&self, token: u32) -> usize {
        self.subflows[&Token(token)].len()
    }

    pub(super) fn further(&self, token: u32) -> Ends {
        *self.subflows[&Token(token)].iter().find(|(_, subflow)| !subflow.is_first).unwrap().0
    }
}
