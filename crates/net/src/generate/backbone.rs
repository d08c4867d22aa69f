//! Large networks for measurements.

use super::{Builder, quiet};
use crate::{Channel, NodeId, NodeKind, QueueLimit, Span, Topology, TopologyError};

/// A provider's network on a square: backbone routers, and access routers with two uplinks each. Links weigh their
/// length; the same seed gives the same network.
///
/// Routers are named `r0`, …, those of the backbone first. There are no hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backbone {
    /// Routers of the backbone, 3 to 10 000.
    pub core: u32,
    /// Access routers; together with the backbone at most 20 000.
    pub access: u32,
    /// Links, those of access routers included: enough to connect all, and at most 8 for each backbone router.
    pub links: u32,
    /// Whether links lead to near routers, which makes long paths of many hops, instead of to any router.
    pub near: bool,
    /// Whether all links weigh 1, which makes many paths equal.
    pub hops: bool,
    /// Where the routers lie.
    pub seed: u64,
}

/// The side of the square.
const SIDE: u64 = 100_000;
/// Links of the backbone are drawn from those to this number of nearest neighbours.
const NEAREST: usize = 16;

type Point = (u64, u64);

impl Backbone {
    /// Builds the network, addresses assigned; fails where a number is out of range.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        self.check()?;
        let mut random = self.seed;
        let points: Vec<Point> =
            (0..self.core + self.access).map(|_| (draw(&mut random) % SIDE, draw(&mut random) % SIDE)).collect();
        let (core, access) = points.split_at(self.core as usize);
        let mut builder = Builder::default();
        for index in 0..points.len() {
            builder.node(format!("r{index}"), NodeKind::Router)?;
        }
        let mut links = if self.near { self.backbone(core) } else { self.anywhere(&mut random) };
        for (index, point) in (self.core..).zip(access) {
            let ends = match self.near {
                true => nearest(core, *point, NEAREST.min(core.len()), |_| true),
                false => (0..3).map(|next| (0, (below(&mut random, self.core) + next) % self.core)).collect(),
            };
            let mut ends: Vec<u32> = ends.into_iter().map(|(_, to)| to).collect();
            let first = ends.remove(0);
            ends.retain(|end| *end != first);
            let second = ends.get(below(&mut random, ends.len() as u32) as usize).copied();
            links.extend([first, second.unwrap_or((first + 1) % self.core)].map(|to| (index, to)));
        }
        for (a, b) in links {
            let weight = if self.hops { 1 } else { distance(points[a as usize], points[b as usize]).isqrt().max(1) };
            let channel = Channel { weight, ..quiet(Span::from_millis(1), QueueLimit::Packets(100)) };
            builder.link(NodeId(a), NodeId(b), channel, 1700)?;
        }
        Ok(builder.finish())
    }

    fn check(&self) -> Result<(), TopologyError> {
        let bad = |what, problem: &str| {
            Err(TopologyError::BadValue { what, name: "backbone".into(), problem: problem.into() })
        };
        if !(3..=10_000).contains(&self.core) {
            return bad("core", "must be between 3 and 10000");
        }
        if self.access > 20_000 - self.core {
            return bad("access", "must be so small that there are at most 20000 routers");
        }
        let least = u64::from(self.core) - 1 + 2 * u64::from(self.access);
        if !(least..=2 * u64::from(self.access) + 8 * u64::from(self.core)).contains(&u64::from(self.links)) {
            return bad("links", "must be enough to connect all routers, and at most 8 for each of the backbone");
        }
        Ok(())
    }

    /// A tree of links to earlier routers, and then any.
    fn anywhere(&self, random: &mut u64) -> Vec<(u32, u32)> {
        let wanted = self.links as usize - 2 * self.access as usize;
        let mut links: Vec<(u32, u32)> = (1..self.core).map(|index| (below(random, index), index)).collect();
        while links.len() < wanted {
            let a = below(random, self.core);
            links.push((a, (a + 1 + below(random, self.core - 1)) % self.core));
        }
        links
    }

    /// A tree of the shortest links to earlier routers, and then the shortest of all.
    fn backbone(&self, core: &[Point]) -> Vec<(u32, u32)> {
        let wanted = self.links as usize - 2 * self.access as usize;
        let tree = |index: usize| nearest(core, core[index], 1, |other| other < index).first().map(|(_, to)| *to);
        let mut links: Vec<(u32, u32)> =
            (1..core.len()).filter_map(|index| Some((tree(index)?, index as u32))).collect();
        let mut more: Vec<(u64, u32, u32)> = Vec::new();
        for index in 0..core.len() {
            let near = nearest(core, core[index], NEAREST.min(core.len() - 1), |other| other != index);
            more.extend(near.into_iter().map(|(far, to)| (far, to.min(index as u32), to.max(index as u32))));
        }
        more.sort_unstable();
        more.dedup();
        let known: std::collections::BTreeSet<(u32, u32)> = links.iter().copied().collect();
        let more = more.into_iter().map(|(_, a, b)| (a, b)).filter(|link| !known.contains(link));
        links.extend(more.take(wanted - known.len()));
        links
    }
}

/// The nearest of the points that may be taken, nearest first, each with its squared distance.
fn nearest(points: &[Point], here: Point, count: usize, may: impl Fn(usize) -> bool) -> Vec<(u64, u32)> {
    let mut near: Vec<(u64, u32)> = (0..points.len())
        .filter(|index| may(*index))
        .map(|index| (distance(points[index], here), index as u32))
        .collect();
    if near.len() > count {
        near.select_nth_unstable(count);
        near.truncate(count);
    }
    near.sort_unstable();
    near
}

/// The square of a number.
fn distance(a: Point, b: Point) -> u64 {
    a.0.abs_diff(b.0).pow(2) + a.1.abs_diff(b.1).pow(2)
}

/// A number below a limit, or 0.
fn below(state: &mut u64, limit: u32) -> u32 {
    (draw(state) % u64::from(limit.max(1))) as u32
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Backbone = Backbone { core: 60, access: 40, links: 320, near: true, hops: false, seed: 7 };

    #[test]
    fn it_is_connected_and_has_as_many_links_and_access_routers_as_asked() {
        for near in [true, false] {
            let topology = Backbone { near, ..SMALL }.build().expect("it builds");
            assert_eq!((topology.nodes().len(), topology.links().len()), (100, 320));
            assert!((60..100).all(|node| topology.outgoing(NodeId(node)).len() == 2));
            let mut reached = [false; 100];
            let mut open = vec![NodeId(0)];
            while let Some(node) = open.pop() {
                if !std::mem::replace(&mut reached[node.index()], true) {
                    open.extend(topology.outgoing(node).iter().map(|arc| topology.head(*arc)));
                }
            }
            assert!(reached.iter().all(|reached| *reached));
        }
    }

    #[test]
    fn the_seed_decides_and_numbers_out_of_range_are_refused() {
        assert_eq!(SMALL.build(), SMALL.build());
        assert_ne!(SMALL.build(), Backbone { seed: 8, ..SMALL }.build());
        let refusal = Backbone { links: 100, ..SMALL }.build().expect_err("too few");
        assert!(refusal.to_string().starts_with("links of `backbone` must be enough"), "{refusal}");
        assert!(
            Backbone { core: 2, ..SMALL }.build().is_err() && Backbone { access: 20_000, ..SMALL }.build().is_err()
        );
        assert!(Backbone { links: 80 + 481, ..SMALL }.build().is_err());
    }
}
