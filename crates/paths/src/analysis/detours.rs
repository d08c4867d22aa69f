//! Detours around single links.

use super::{Net, disjoint::Marks};

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
    for [a, b] in net.links() {
        near.clear();
        met.clear();
        for hop in net.hops(*a) {
            near.add(hop.head);
        }
        let common = net.hops(*b).iter().filter(|hop| near.has(hop.head) && met.add(hop.head)).count();
        match found.one_hop.get_mut(common.min(5).wrapping_sub(1)) {
            Some(links) => *links += 1,
            None => found.two_hops += usize::from(has_two_hops(net, &near, *a, *b)),
        }
    }
    found
}

/// Whether there is a path of three links around this one; `near` has the neighbours of `a`.
fn has_two_hops(net: &Net, near: &Marks, a: u32, b: u32) -> bool {
    let is_between = |node: u32| node != a && node != b;
    let first = |node: u32, last: u32| is_between(node) && node != last && near.has(node);
    let mut last = net.hops(b).iter().map(|hop| hop.head).filter(|node| is_between(*node));
    last.any(|last| net.hops(last).iter().any(|hop| first(hop.head, last)))
}

impl Detours {
    /// Links with a 1-hop detour.
    pub fn with_one_hop(&self) -> usize {
        self.one_hop.iter().sum()
    }
}
