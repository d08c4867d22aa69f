//! What is not the route controller's own and must fit: others' marks, and settings of the kernel and its links.

use std::{collections::BTreeMap, fs};

use sidestep_hostd::AgentError;
use sidestep_linux::netlink::{Family, Interface, Netlink, PROTOCOL, Vrf};

use super::{RouteControlConfig, RouteControlOptions, kernel::Numbers};

/// Refuses bits of the mark that another program's routing rule matches, unless packets go by our marks already.
pub(super) async fn check_marks(
    netlink: &Netlink,
    options: &RouteControlOptions,
    inherited: bool,
) -> Result<(), AgentError> {
    let numbers = Numbers::of(options);
    let mask = numbers.mask;
    let ours = || (0..options.config.egresses.len()).map(|egress| numbers.mark(egress));
    let meets = netlink.rules().await?.into_iter().find(|rule| {
        let matches = |mark: u32| ((mark ^ rule.mark) & rule.mask == 0) != rule.inverted;
        rule.protocol != PROTOCOL && rule.mask != 0 && ours().any(|mark| matches(mark) != matches(0))
    });
    let Some(rule) = meets else { return Ok(()) };
    let with = format!("the rule `{rule}`");
    let advice = "set `mark_mask` in [route_control] to bits that nothing uses".to_string();
    if inherited || options.dry_run {
        tracing::warn!("mark_mask {mask:#x} meets {with}: {advice}");
        return Ok(());
    }
    Err(AgentError::MarkCollision { mask, with, advice })
}

/// Logs which settings of the kernel keep packets from being forwarded, or answers from being taken.
pub(super) fn warn_of_sysctls(config: &RouteControlConfig) {
    for (family, file) in [(Family::V4, "ipv4/ip_forward"), (Family::V6, "ipv6/conf/all/forwarding")] {
        if config.families().contains(&family) && read(file) == Some(0) {
            tracing::warn!("this router forwards no {family}: set net.{}=1", file.replace('/', "."));
        }
    }
    let probes_v4 = config.targets.iter().any(|target| target.family() == Family::V4);
    for egress in config.egresses.iter().filter(|_| probes_v4) {
        let dev = &egress.dev;
        let strict = [format!("ipv4/conf/{dev}/rp_filter"), "ipv4/conf/all/rp_filter".into()];
        // The kernel takes the greater of the two: 1 is strict, 2 is loose.
        if strict.iter().filter_map(|file| read(file)).max() == Some(1) {
            tracing::warn!(
                "the strict rp_filter of {dev} drops what comes by an egress that is not in use, answers to probes too: set \
                 net.ipv4.conf.{dev}.rp_filter=2"
            );
        }
    }
}

/// Logs what of the links makes moves harder than they look.
pub(super) fn warn_of_egresses(config: &RouteControlConfig, links: &[Option<Interface>], vrfs: &BTreeMap<String, Vrf>) {
    let mtu = |link: &Option<Interface>| link.as_ref().map(|link| link.mtu);
    let present = || config.egresses.iter().zip(links).filter_map(|(egress, link)| Some((egress, mtu(link)?)));
    if let (Some((small, least)), Some((large, most))) =
        (present().min_by_key(|of| of.1), present().max_by_key(|of| of.1))
        && least < most
    {
        tracing::warn!(
            "the MTU of {} is {least}, that of {} {most}: after a move flows depend on path MTU discovery; clamp the MSS of TCP to \
             {least} bytes less its headers",
            small.dev,
            large.dev
        );
    }
    for dev in config.egresses.iter().map(|egress| &egress.dev) {
        if let Some(Vrf { name, table }) = vrfs.get(dev) {
            tracing::warn!(
                "{dev} is in the VRF {name}: its packets are routed by table {table}, not by the rules of route control"
            );
        }
    }
}

/// A setting of the network namespace.
fn read(file: &str) -> Option<u32> {
    fs::read_to_string(format!("/proc/sys/net/{file}")).ok()?.trim().parse().ok()
}
