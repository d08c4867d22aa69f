//! Which seed an edge's hash has where its file gives none.
//!
//! Two edges that face each other have to choose alike, so they need one seed. Two edges behind each other must not: the second
//! one would get only flows whose hash led the first one to it, and put them all on a part of its paths. So a seed that is not
//! given is agreed by the two of a pair, and else is the router's own.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, fmt, fs, hash::Hasher, net::IpAddr};

use serde::{Deserialize, Deserializer, Serialize, de};
use sidestep_hostd::AgentError;
use sidestep_linux::{netlink::Netlink, netns::NetNsId};
use siphasher::sip::SipHasher24;

use super::EdgeConfig;
use crate::daemon::balancer;

/// Where the seed of an edge's hash comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeedOrigin {
    /// The file gives it.
    #[default]
    Given,
    /// It follows from what both edges of a pair know.
    Agreed,
    /// It follows from the identity of this router.
    Own,
    /// Packets go by it already: an earlier daemon had it.
    Kept,
}

/// What stands for a seed that the file does not give, as in the kernel's `fib_multipath_hash_seed`.
const AUTOMATIC: u32 = 0;
/// Sets our numbers apart from what others derive from the same identity (machine-id(5)).
const APPLICATION: (u64, u64) = (0x7369_6465_7374_6570, 0x6564_6765_2073_6565);
/// Where a machine keeps its identity.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// What differs from one start of a machine to the next, where there is nothing that lasts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads a seed: a number, or `"auto"`.
pub(super) fn read_seed<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a seed is a number below 2^32, or \"auto\"")]
    enum Seed {
        Number(u32),
        Word(String),
    }
    match Seed::deserialize(input)? {
        Seed::Number(number) => Ok(number),
        Seed::Word(word) if word == "auto" => Ok(AUTOMATIC),
        Seed::Word(word) => Err(de::Error::custom(format!("`{word}` is no seed: write a number, or \"auto\""))),
    }
}

impl EdgeConfig {
    /// Puts the seed into a configuration that gives none, and reports where it comes from. `kept` is that by which packets go
    /// already.
    pub fn settle_seed(&mut self, kept: Option<u32>) -> SeedOrigin {
        if self.edge.seed != AUTOMATIC {
            return SeedOrigin::Given;
        }
        let (seed, origin) = match (self.must_agree(), kept) {
            (true, _) => (self.agreed_seed(), SeedOrigin::Agreed),
            (false, Some(kept)) => (kept, SeedOrigin::Kept),
            (false, None) => (own_seed(&self.edge.inside), SeedOrigin::Own),
        };
        self.edge.seed = seed;
        origin
    }

    /// Whether another edge has to choose alike, as far as the file says.
    fn must_agree(&self) -> bool {
        self.edge.symmetric || self.edge.stateful || self.edge.peer.is_some() || self.probe.is_some()
    }

    /// What follows from the addresses of both edges; 0, which each has without a word, where the file does not name one of
    /// each.
    fn agreed_seed(&self) -> u32 {
        let compared = self.edge.listen.zip(self.edge.peer).filter(|(listen, _)| !listen.ip().is_unspecified());
        if let Some((listen, peer)) = compared {
            return number_of(&BTreeSet::from([listen.to_string(), peer.to_string()]));
        }
        let Some(probe) = &self.probe else { return 0 };
        let is_one = |list: &[IpAddr], v4: bool| list.iter().filter(|address| address.is_ipv4() == v4).count() <= 1;
        let is_pair = [true, false].into_iter().all(|v4| is_one(&probe.source, v4) && is_one(&probe.target, v4));
        let ends: BTreeSet<String> = probe.source.iter().chain(&probe.target).map(ToString::to_string).collect();
        if is_pair { number_of(&ends) } else { 0 }
    }
}

impl fmt::Display for SeedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SeedOrigin::Given => "given",
            SeedOrigin::Agreed => "agreed by both edges",
            SeedOrigin::Own => "this router's own",
            SeedOrigin::Kept => "kept from the daemon before",
        })
    }
}

/// The seed by which packets go already that come in by these interfaces: that of an earlier daemon's program.
pub(super) async fn in_place(netlink: &Netlink, inside: &[String]) -> Result<Option<u32>, AgentError> {
    for interface in netlink.interfaces().await?.iter().filter(|one| inside.contains(&one.name)) {
        if let Some(seed) = balancer::seed_in_place(netlink, interface.index).await? {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

/// A seed that differs from router to router: by the machine's identity, the addresses of the site's interfaces, as machines that
/// were cloned have one identity, and the network namespace.
fn own_seed(inside: &[String]) -> u32 {
    let mut identity = BTreeSet::new();
    identity.extend(MACHINE_ID.iter().find_map(|file| read_identity(file)));
    identity.extend(inside.iter().filter_map(|name| read_identity(&format!("/sys/class/net/{name}/address"))));
    if identity.is_empty() {
        identity.extend(read_identity(BOOT_ID));
    }
    identity.extend(NetNsId::current().ok().map(|namespace| format!("namespace {}", namespace.cookie)));
    number_of(&identity)
}

fn read_identity(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    // What systemd writes into an image that has not started yet, and what interfaces without an address have.
    let is_one = !text.is_empty() && text != "uninitialized" && text.chars().any(|c| c.is_ascii_hexdigit() && c != '0');
    is_one.then(|| text.to_string())
}

/// A number for these words that does not give them away; never zero.
fn number_of(words: &BTreeSet<String>) -> u32 {
    let mut hasher = SipHasher24::new_with_keys(APPLICATION.0, APPLICATION.1);
    for word in words {
        hasher.write(word.as_bytes());
        hasher.write_u8(0);
    }
    (hasher.finish() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESTINATION: &str =
        "[[destination]]\nprefix = \"10.2.0.0/16\"\npath = [ { name = \"a\", via = \"10.0.1.1\", dev = \"eth1\" } ]\n";

    fn settled(edge: &str, more: &str, kept: Option<u32>) -> (u32, SeedOrigin) {
        let text = format!("[edge]\ninside = [\"in\"]\n{edge}\n{more}\n{DESTINATION}");
        let mut config = EdgeConfig::parse(&text).unwrap();
        let origin = config.settle_seed(kept);
        (config.edge.seed, origin)
    }

    #[test]
    fn a_seed_that_is_given_is_taken_and_one_that_is_not_is_the_routers_own_and_stays() {
        assert_eq!(settled("seed = 7", "", Some(9)), (7, SeedOrigin::Given));
        let (own, origin) = settled("", "", None);
        assert_eq!(origin, SeedOrigin::Own);
        assert_ne!(own, 0);
        assert_eq!(settled("seed = 0", "", None), (own, SeedOrigin::Own), "as for the kernel's own seed");
        assert_eq!(settled("seed = \"auto\"", "", None), (own, SeedOrigin::Own));
        assert_eq!(settled("", "", Some(0)), (0, SeedOrigin::Kept), "no flow moves at an upgrade");
        assert_eq!(settled("", "", Some(own)), (own, SeedOrigin::Kept));
        let wrong = |seed: &str| EdgeConfig::parse(&format!("[edge]\ninside = [\"in\"]\nseed = {seed}\n{DESTINATION}"));
        assert!(wrong("\"none\"").unwrap_err().to_string().contains("3:8: "), "{}", wrong("\"none\"").unwrap_err());
        assert!(wrong("-1").is_err() && wrong("4294967296").is_err());
    }

    #[test]
    fn both_edges_of_a_pair_have_one_seed_and_another_pair_another() {
        let compared =
            |listen: &str, peer: &str| settled(&format!("listen = \"{listen}\"\npeer = \"{peer}\""), "", Some(5));
        let (here, there) = (compared("10.9.0.1:8400", "10.9.0.2:8400"), compared("10.9.0.2:8400", "10.9.0.1:8400"));
        assert_eq!(here, there);
        assert_eq!(here.1, SeedOrigin::Agreed);
        assert_ne!(here.0, compared("10.9.0.1:8400", "10.9.0.3:8400").0);
        assert_eq!(
            compared("[::]:8400", "[fd00::2]:8400"),
            (0, SeedOrigin::Agreed),
            "no address of this edge is known"
        );
        let probed = |source: &str, target: &str| {
            settled("health = \"probe\"", &format!("[probe]\nsource = [{source}]\ntarget = [{target}]"), None)
        };
        let (a, b) = ("\"10.1.0.1\"", "\"10.2.0.1\"");
        assert_eq!(probed(a, b).0, {
            // The other edge's destination is elsewhere, so it is read without one here.
            number_of(&["10.1.0.1".to_string(), "10.2.0.1".to_string()].into())
        });
        assert_eq!(
            probed(a, "\"10.2.0.1\", \"10.2.0.2\""),
            (0, SeedOrigin::Agreed),
            "of several edges nothing follows"
        );
        assert_eq!(settled("symmetric = true", "", None), (0, SeedOrigin::Agreed));
        assert_eq!(settled("stateful = true", "", None), (0, SeedOrigin::Agreed));
    }

    #[test]
    fn two_namespaces_of_one_machine_have_two_seeds() {
        if !sidestep_linux::testing::root_or_skip("network namespaces") {
            return;
        }
        let inside = ["in".to_string()];
        let of = || sidestep_linux::netns::NetNs::create().unwrap().run(|| Ok(own_seed(&inside))).unwrap();
        let (first, second) = (of(), of());
        assert!(first != second && first != own_seed(&inside), "{first} {second}");
        assert_eq!(own_seed(&inside), own_seed(&inside), "and each keeps it");
    }
}
