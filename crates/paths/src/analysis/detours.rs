//! Detours around single links.

use super::{Net, disjoint::Marks, net::Hop};

/// How many links of a net have a detour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detours {
    /// All links.
    pub links: usize,
    /// Links by the number of their 1-hop detours: 1, 2, 3, 4, 5 or more.
    pub one_hop: [usize; 5],
    /// Links without a 1-hop detour that have a 2-hop detour: a path of three other links.
    pub two_hops: usize,
}

/// Counts the links with detours.
///
/// A 1-hop detour goes over a node that both ends have for a neighbour. Where loops are kept, a node with a loop is its
/// own neighbour, and loops are links: so INRPP's Table 1 counts. Parallel links are counted each, and are no detours.
pub fn detours(net: &Net) -> Detours {
    let mut found = Detours { links: net.link_count(), ..Detours::default() };
    let mut near = Marks::new(net.node_count());
    let mut met = Marks::new(net.node_count());
    for (link, [a, b]) in (0..).zip(net.links()) {
        near.clear();
        met.clear();
        // A detour leads around each direction that the link has.
        let around = Around { net, there: net.has(2 * link), back: net.has(2 * link + 1) };
        for hop in net.hops(*a).iter().filter(|hop| around.follows(hop.arc)) {
            near.add(hop.head);
        }
        let joins = |hop: &&Hop| around.follows(hop.arc ^ 1);
        let common = net.hops(*b).iter().filter(joins).filter(|hop| near.has(hop.head) && met.add(hop.head)).count();
        match found.one_hop.get_mut(common.min(5).wrapping_sub(1)) {
            Some(links) => *links += 1,
            None => found.two_hops += usize::from(around.has_two_hops(&near, *a, *b)),
        }
    }
    found
}

/// The directions of a link, which a detour must have too.
struct Around<'n> {
    net: &'n Net,
    there: bool,
    back: bool,
}

impl Around<'_> {
    /// Whether an arc can be part of a detour from the link's first end to its second, and its reverse of one back.
    fn follows(&self, arc: u32) -> bool {
        (self.net.has(arc) || !self.there) && (self.net.has(arc ^ 1) || !self.back)
    }

    /// Whether there is a path of three links around this one; `near` has the neighbours of `a`.
    fn has_two_hops(&self, near: &Marks, a: u32, b: u32) -> bool {
        let is_between = |node: u32| node != a && node != b;
        let first = |hop: &Hop, last: u32| {
            is_between(hop.head) && hop.head != last && near.has(hop.head) && self.follows(hop.arc ^ 1)
        };
        let joins = |hop: &&Hop| is_between(hop.head) && self.follows(hop.arc ^ 1);
        let mut last = self.net.hops(b).iter().filter(joins).map(|hop| hop.head);
        last.any(|last| self.net.hops(last).iter().any(|hop| first(hop, last)))
    }
}

impl Detours {
    /// Links with a 1-hop detour.
    pub fn with_one_hop(&self) -> usize {
        self.one_hop.iter().sum()
    }
}
