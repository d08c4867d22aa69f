//! Whether flows can be moved among egresses: none is in a VRF, and packets of the same size get through by each.

mod packets;

use std::{collections::BTreeMap, net::IpAddr};

use packets::Reach;

use super::Finding;
use crate::{
    capabilities::Privileges,
    error::Result,
    netlink::{Vrf, block_on},
};

/// This number of targets of an egress is asked, or twice as many if some do not answer.
const MAX_TARGETS: usize = 3;
/// What of a packet is not TCP's segment: the headers of IPv4 or of IPv6, and of TCP.
const HEADERS: [u32; 2] = [40, 60];

/// A way out of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub dev: String,
    /// The mark of its probes.
    pub mark: Option<u32>,
    /// Who is asked behind it, at most three that answer.
    pub targets: Vec<IpAddr>,
}

/// What was read of the egresses where the process was started.
pub struct Egresses<'a> {
    all: std::result::Result<&'a [Egress], &'a str>,
    vrfs: Result<BTreeMap<String, Vrf>>,
}

impl<'a> Egresses<'a> {
    pub(super) fn read(all: std::result::Result<&'a [Egress], &'a str>) -> Self {
        Egresses { all, vrfs: block_on(async |netlink| netlink.vrfs().await) }
    }

    /// Whether an egress is in a VRF; `kernel` is what came of the trial of making one.
    pub(super) fn vrf(&self, kernel: Option<Finding>) -> Finding {
        let (all, vrfs) = match (self.all, &self.vrfs) {
            (Err(why), _) => return Finding::Untried(why.into()),
            (Ok(all), Ok(vrfs)) => (all, vrfs),
            (Ok(_), Err(error)) => return Finding::failed(error),
        };
        let inside = all.iter().filter_map(|egress| Some((&egress.dev, vrfs.get(&egress.dev)?)));
        let inside: Vec<_> = inside
            .map(|(dev, Vrf { name, table })| {
                format!("{dev} is in the VRF {name}, so table {table} decides: `ip link set dev {dev} nomaster`")
            })
            .collect();
        if !inside.is_empty() {
            return Finding::Missing(inside.join("; "));
        }
        Finding::Present(match kernel {
            Some(Finding::Present(_)) => "no egress is in one; this kernel has VRFs".into(),
            Some(Finding::Missing(_)) => "this kernel has no VRFs".into(),
            Some(Finding::Untried(_)) | None => "no egress is in one".into(),
        })
    }
}

/// Whether packets of the same size get through by all egresses, as their interfaces report, and as packets show that may not be
/// fragmented.
pub(super) fn path_mtu(all: std::result::Result<&[Egress], &str>, privileges: Privileges) -> Finding {
    let all = match all {
        Ok(all) => all,
        Err(why) => return Finding::Untried(why.into()),
    };
    let links = match block_on(async |netlink| netlink.interfaces().await) {
        Ok(links) => links,
        Err(error) => return Finding::failed(&error),
    };
    let mtu_of = |egress: &Egress| links.iter().find(|link| link.name == egress.dev).map(|link| link.mtu);
    let known: Vec<(&Egress, u32)> = all.iter().filter_map(|egress| Some((egress, mtu_of(egress)?))).collect();
    let mut wrong: Vec<String> = links_differ(&known).into_iter().collect();
    let mut seen = Vec::new();
    for (egress, mtu) in known {
        let Egress { name, dev, .. } = egress;
        if !privileges.has(Privileges::NET_ADMIN) {
            seen.push(format!("{mtu} by the interface of {name}, not tested without CAP_NET_ADMIN"));
            continue;
        }
        let asked = egress.targets.iter().take(MAX_TARGETS * 2);
        let asked = asked.map(|target| (target, packets::reach(*target, dev, egress.mark, mtu)));
        let reached: Vec<_> =
            asked.filter(|(_, reach)| !matches!(reach, Ok(Reach::Silent))).take(MAX_TARGETS).collect();
        if reached.is_empty() {
            seen.push(format!("{mtu} by the interface of {name}, behind which nobody answered"));
        }
        for (target, reach) in reached {
            match reach {
                Ok(Reach::All) => seen.push(format!("{mtu} by {name} to {target}")),
                Ok(Reach::Silent) => {}
                Ok(Reach::Reported { mtu: path, by }) => {
                    wrong.push(reported(name, *target, (path, mtu), by));
                }
                Ok(Reach::Hole { mtu: path }) => {
                    wrong.push(hole(name, *target, (path, mtu)));
                }
                Err(error) => {
                    seen.push(format!("{mtu} by the interface of {name}, and {target} cannot be asked: {error}"))
                }
            }
        }
    }
    if wrong.is_empty() { Finding::Present(seen.join("; ")) } else { Finding::Missing(wrong.join("; ")) }
}

fn links_differ(known: &[(&Egress, u32)]) -> Option<String> {
    let (small, least) = known.iter().min_by_key(|of| of.1)?;
    let (large, most) = known.iter().max_by_key(|of| of.1)?;
    (least < most).then(|| {
        format!(
            "the MTU of {} is {least}, that of {} {most}: what moves from there depends on path MTU discovery; {}",
            small.dev,
            large.dev,
            clamp(*least)
        )
    })
}

fn reported(name: &str, target: IpAddr, (path, mtu): (u32, u32), by: Option<IpAddr>) -> String {
    let by = by.map_or_else(|| "the kernel has learnt it".into(), |by| format!("{by} says so by ICMP"));
    format!(
        "of {name}'s {mtu} bytes {path} get to {target}; {by}, so flows that move lose a window and go on, unless ICMP is \
         filtered; {}",
        clamp(path)
    )
}

fn hole(name: &str, target: IpAddr, (path, mtu): (u32, u32)) -> String {
    format!(
        "of {name}'s {mtu} bytes {path} get to {target}, and no ICMP says so: a black hole, in which flows that move stand \
         still; {} or set the MTU of the interface",
        clamp(path)
    )
}

/// The advice for packets of `mtu` bytes.
fn clamp(mtu: u32) -> String {
    let [v4, v6] = HEADERS.map(|headers| mtu.saturating_sub(headers));
    format!("clamp the MSS of TCP to {v4} (IPv6: {v6})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_egress_in_a_vrf_is_named_with_the_table_that_decides() {
        let egress = |dev: &str| Egress { name: dev.into(), dev: dev.into(), mark: None, targets: Vec::new() };
        let all = [egress("wan"), egress("lte")];
        let found = |of: &str, kernel| {
            let blue = Vrf { name: "blue".into(), table: 10 };
            Egresses { all: Ok(&all), vrfs: Ok([(of.to_string(), blue)].into()) }.vrf(Some(kernel))
        };
        let text = "wan is in the VRF blue, so table 10 decides: `ip link set dev wan nomaster`";
        assert_eq!(found("wan", Finding::present()), Finding::Missing(text.into()));
        let outside = "no egress is in one; this kernel has VRFs";
        assert_eq!(found("lan", Finding::present()), Finding::Present(outside.into()));
        let none = Finding::Missing("not supported".into());
        assert_eq!(found("lan", none), Finding::Present("this kernel has no VRFs".into()));
    }
}
