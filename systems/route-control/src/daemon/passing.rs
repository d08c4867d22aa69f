//! What passes the egresses, for the controller: the passive measurement on each of their interfaces.

use sidestep_hostd::AgentError;
use sidestep_linux::{
    counters,
    netlink::{Family, Interface, Netlink},
};
use sidestep_net::{Bytes, Ratio, Time};

use super::{EgressConfig, Moves, RouteControl, trial::Trials};
use crate::{
    Passage,
    daemon::passive::{self, Passive, PassiveSample},
};

/// This number of connections is remembered; those of which nothing was seen for longest are forgotten.
const CONNECTIONS: u32 = 65_536;

/// The measurement of passing traffic, and the trials of egresses that it accuses.
#[derive(Default)]
pub(super) struct Passing {
    /// What measures, if anything.
    pub(super) passive: Option<Passive>,
    pub(super) trials: Trials,
}

impl Passing {
    /// Measures each of these egresses that is there, and no other interface; nothing if it is not `wanted`.
    pub(super) async fn attach(
        &mut self,
        netlink: &Netlink,
        links: &[Option<Interface>],
        wanted: bool,
    ) -> Result<(), AgentError> {
        if !wanted {
            self.passive = None;
            return Ok(());
        }
        let passive = match &mut self.passive {
            Some(passive) => passive,
            none => none.insert(Passive::load(CONNECTIONS)?),
        };
        for (egress, link) in links.iter().enumerate() {
            let Some(link) = link else { continue };
            // Of egresses that share an interface the first one counts: packets do not show which next hop they take.
            let before = links.iter().take(egress).flatten();
            if before.clone().any(|other| other.index == link.index) || passive.is_attached(netlink, link.index).await?
            {
                continue;
            }
            passive.attach(netlink, link, egress).await?;
        }
        Ok(())
    }

    /// Whether another program has removed a program from one of these interfaces.
    pub(super) async fn is_lost(&self, netlink: &Netlink, links: &[Option<Interface>]) -> Result<bool, AgentError> {
        let Some(passive) = &self.passive else { return Ok(false) };
        for link in links.iter().flatten() {
            if !passive.is_attached(netlink, link.index).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl RouteControl {
    /// Reports to the controller of a family what of it has passed each egress.
    pub(super) fn report_passages(&mut self, family: Family, now: Time) -> Result<(), AgentError> {
        let Some(passive) = &mut self.passing.passive else { return Ok(()) };
        let samples = passive.sample_family(family)?;
        let (count, active) = (self.egresses.len(), self.active(family));
        // Of what was lost by another egress and is sent again by this one, the acknowledgement counts for the other. It shows
        // nothing of that, unless flows stay on their egress.
        let stays = self.options.config.route_control.moves == Moves::NewConnections;
        let passages = samples.iter().take(count).enumerate().map(|(egress, sample)| {
            let passage = passage(sample);
            if stays || egress == active { passage } else { Passage { last_advance: None, ..passage } }
        });
        let passages: Vec<Passage> = passages.collect();
        if let Some(side) = self.side_mut(family) {
            side.controller.handle_passages(now, &passages);
        }
        let mut samples = samples.iter().take(count).enumerate();
        samples.try_for_each(|(egress, sample)| self.suspect((family, egress), now, sample))
    }

    /// Reports to the controller of a family what the interface of each egress has sent, where load decides.
    pub(super) fn report_sent(&mut self, family: Family, now: Time) -> Result<(), AgentError> {
        let config = &self.options.config;
        if config.control.load == Ratio::ZERO {
            return Ok(());
        }
        let all = counters::sent()?;
        let total = |(number, of): (usize, &EgressConfig)| {
            // Of egresses that share an interface the first one counts, as above.
            let shares = config.egresses.iter().take(number).any(|other| other.dev == of.dev);
            all.iter().find(|(name, _)| *name == of.dev && !shares).map(|(_, bytes)| *bytes)
        };
        let totals: Vec<Option<u64>> = config.egresses.iter().enumerate().map(total).collect();
        let Some(side) = self.side_mut(family) else { return Ok(()) };
        let before = std::mem::replace(&mut side.sent, totals);
        // An interface that is new began again.
        let since = |(now, before): (&Option<u64>, Option<u64>)| {
            now.zip(before).map_or(0, |(now, before)| now.saturating_sub(before))
        };
        let before = before.into_iter().chain(std::iter::repeat(None));
        let sent: Vec<Bytes> = side.sent.iter().zip(before).map(since).map(Bytes::new).collect();
        side.controller.handle_sent(now, &sent);
        Ok(())
    }
}

/// Removes what a daemon left on the interfaces of this namespace; returns whether there was anything.
pub(super) async fn remove_all(netlink: &Netlink) -> Result<bool, AgentError> {
    let mut found = false;
    for interface in netlink.interfaces().await? {
        found |= passive::remove(netlink, interface.index).await?;
    }
    Ok(found)
}

fn passage(sample: &PassiveSample) -> Passage {
    let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Passage {
        // Both directions of a flow take the egress where its address is that of the egress.
        acked: Bytes::new(sample.acked.get().saturating_add(sample.received.get())),
        connections: sample.connections,
        segments: count(sample.data_segments),
        retransmitted: count(sample.retransmitted),
        rtt: sample.rtt.map(|rtt| rtt.mean),
        last_advance: sample.last_advance,
    }
}
