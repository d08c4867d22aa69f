//! What is not the edge's own and must fit: numbers of tables and rules, others' marks, and settings of the kernel.

use std::{collections::BTreeSet, fs};

use sidestep_hostd::AgentError;
use sidestep_linux::{
    bpf::MAX_SLOTS,
    netlink::{Family, Interface, LOCAL, Netlink, PROTOCOL},
};
use sidestep_net::srv6;

use super::{Edge, EdgeConfig, EdgeOptions};

/// Refuses bits of the mark that another program's routing rule matches for packets that come in by the site's interfaces, unless
/// packets go by our marks already.
pub(super) async fn check_marks(netlink: &Netlink, options: &EdgeOptions, inherited: bool) -> Result<(), AgentError> {
    let settings = &options.config.edge;
    let mask = settings.mark_mask;
    let ours = || (1..=MAX_SLOTS).map(|slot| slot << mask.trailing_zeros()).filter(|mark| mark & !mask == 0);
    let meets = netlink.rules().await?.into_iter().find(|rule| {
        let matches = |mark: u32| ((mark ^ rule.mark) & rule.mask == 0) != rule.inverted;
        let probes = options.config.probing().is_some();
        let is_ours = |input: &String| settings.inside.contains(input) || probes && input == LOCAL;
        let sees_ours = rule.input.as_ref().is_none_or(is_ours);
        rule.protocol != PROTOCOL && rule.mask != 0 && sees_ours && ours().any(|mark| matches(mark) != matches(0))
    });
    let Some(rule) = meets else { return Ok(()) };
    let with = format!("the rule `{rule}`");
    let advice = "set `mark_mask` in [edge] to bits that nothing uses".to_string();
    if inherited || options.dry_run {
        tracing::warn!("mark_mask {mask:#x} meets {with}: {advice}");
        return Ok(());
    }
    Err(AgentError::MarkCollision { mask, with, advice })
}

/// Logs which settings of the kernel keep packets from being forwarded, or from being taken when they come by another path than
/// the router's own.
pub(super) fn warn_of_sysctls(config: &EdgeConfig) {
    let families: BTreeSet<_> = config.destinations.iter().map(|destination| Family::of(destination.prefix)).collect();
    for (family, file) in [(Family::V4, "ipv4/ip_forward"), (Family::V6, "ipv6/conf/all/forwarding")] {
        if families.contains(&family) && read(file) == Some(0) {
            tracing::warn!("this router forwards no {family}: set net.{}=1", file.replace('/', "."));
        }
    }
    if families.contains(&Family::V4) {
        for interface in config.outside() {
            let strict = [format!("ipv4/conf/{interface}/rp_filter"), "ipv4/conf/all/rp_filter".into()];
            // The kernel takes the greater of the two: 1 is strict, 2 is loose.
            if strict.iter().filter_map(|file| read(file)).max() == Some(1) {
                tracing::warn!(
                    "the strict rp_filter of {interface} drops packets whose source has its route elsewhere, and so the other \
                     edge's on this path: set net.ipv4.conf.{interface}.rp_filter=2"
                );
            }
        }
    }
}

/// Logs which paths have no room for the header that the edge puts around or into packets of the site. Errors about a packet
/// that is too large would go to this router, or name a size that is still too large.
pub(super) async fn warn_of_mtu(edge: &Edge) -> Result<(), AgentError> {
    let interfaces = edge.netlink.interfaces().await?;
    let mtu = |is_it: &dyn Fn(&Interface) -> bool| interfaces.iter().filter(|one| is_it(one)).map(|one| one.mtu).max();
    let site = mtu(&|one| edge.settings().inside.contains(&one.name)).unwrap_or(0);
    for path in edge.options.config.destinations.iter().flat_map(|set| &set.paths) {
        let (first, header) = match (&path.segments, path.path_id) {
            (Some(segments), _) => (segments.first().copied(), srv6::encap_len(segments.len())),
            // The list also has the packet's own destination.
            (None, path_id) => (path_id, srv6::srh_len(2)),
        };
        let hop = first.and_then(|first| edge.routing.underlay.hops.get(&first));
        let Some(room) = hop.and_then(|hop| mtu(&|one| one.index == hop.interface)) else { continue };
        let needed = site + header;
        if room < needed {
            tracing::warn!(
                path = path.name,
                room,
                needed,
                "packets of the site do not fit with their header of segments and are lost: give the links of the path a larger MTU, or \
                 the site a smaller one"
            );
        }
    }
    Ok(())
}

/// A setting of the network namespace.
fn read(file: &str) -> Option<u32> {
    fs::read_to_string(format!("/proc/sys/net/{file}")).ok()?.trim().parse().ok()
}
