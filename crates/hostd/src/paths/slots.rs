//! Which mark slot each path of a destination gets.
//!
//! A path keeps its slot as long as its destination has it. A path that comes takes a slot that no mark points at. So
//! its rule and its route can be installed before any connection takes it, and the route of a path that goes can be
//! removed after the last connection has left it: whatever is looked up in between leads along the connection's own path.
//!
//! A table holds one route for each destination, and the longest prefix wins. Where a destination lies within another, a
//! new route of the narrower one would catch connections of the wider one. So, among destinations that overlap, a slot
//! stands for one path only, and a path that several of them have gets the same slot in all.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::destination::{DestinationPaths, Slots};

/// Which slots may be given to paths that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Those that nothing points at. Paths without a slot wait for those that become free.
    Free,
    /// If no such slot is left, any that no other path of the destination keeps. Paths without a slot are left out.
    Any,
}

/// The slots that will be in place next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The slots; a path that is missing has none.
    pub slots: Slots,
    /// Whether paths wait for slots that become free once these are in place.
    pub waits: bool,
    /// Destinations for which a slot changes its path while connections may point at it.
    pub unsafe_for: BTreeSet<IpNet>,
}

/// Gives each of the `wanted` paths a slot in 1..=`most`, where `now` is in place and `marked` are the sockets whose marks
/// have a slot.
pub fn place(now: &Slots, wanted: &[DestinationPaths], most: u32, marked: &[(IpAddr, u32)], room: Room) -> Placement {
    let mut next = Placement { slots: staying(now, wanted, most), ..Placement::default() };
    let overlaps = overlaps(now.keys().copied().chain(wanted.iter().map(|set| set.destination)).collect());
    for set in wanted {
        let destination = set.destination;
        let has = |slots: &Slots, id| slots.get(&destination).is_some_and(|own| own.contains_key(&id));
        if set.paths.iter().all(|path| has(&next.slots, path.id)) {
            continue;
        }
        let near = overlaps.get(&destination).map(Vec::as_slice).unwrap_or_default();
        let mut taken = Taken::new(destination, near, [now, &next.slots], marked);
        for path in &set.paths {
            if has(&next.slots, path.id) {
                continue;
            }
            match taken.free(path.id, most) {
                Some(slot) => next.take(&mut taken, destination, path.id, slot),
                None if room == Room::Free => next.waits = true,
                None => next.take_any(&mut taken, near, (destination, path.id), most),
            }
        }
        // Nothing stays and nothing comes: connections would be released, although paths wait.
        if !next.slots.contains_key(&destination) {
            for path in &set.paths {
                next.take_any(&mut taken, near, (destination, path.id), most);
            }
        }
    }
    next
}

/// The paths of `now` that are still wanted.
fn staying(now: &Slots, wanted: &[DestinationPaths], most: u32) -> Slots {
    let mut slots = Slots::new();
    for set in wanted {
        let Some(before) = now.get(&set.destination) else { continue };
        let stays = set.paths.iter().filter_map(|path| Some((path.id, *before.get(&path.id)?)));
        let stays: BTreeMap<u32, u32> = stays.filter(|(_, slot)| (1..=most).contains(slot)).collect();
        if !stays.is_empty() {
            slots.insert(set.destination, stays);
        }
    }
    slots
}

/// The destinations that overlap with each one, itself included.
fn overlaps(all: BTreeSet<IpNet>) -> BTreeMap<IpNet, Vec<IpNet>> {
    let mut overlaps: BTreeMap<IpNet, Vec<IpNet>> = all.iter().map(|one| (*one, vec![*one])).collect();
    for narrow in &all {
        let wider = (0..narrow.prefix_len()).filter_map(|len| IpNet::new(narrow.network(), len).ok());
        for wide in wider.map(|net| net.trunc()).filter(|net| all.contains(net)) {
            overlaps.entry(wide).or_default().push(*narrow);
            overlaps.entry(*narrow).or_default().push(wide);
        }
    }
    overlaps
}

/// What points at the slots of a destination.
struct Taken {
    /// The paths that have them, now or next, to any destination that overlaps.
    paths: BTreeMap<u32, BTreeSet<u32>>,
    /// Those in the marks of sockets.
    marked: BTreeSet<u32>,
}

impl Taken {
    fn new(destination: IpNet, near: &[IpNet], slots: [&Slots; 2], marked: &[(IpAddr, u32)]) -> Self {
        let mut paths: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for own in near.iter().flat_map(|net| slots.into_iter().filter_map(|slots| slots.get(net))) {
            for (id, slot) in own {
                paths.entry(*slot).or_default().insert(*id);
            }
        }
        let marked = marked.iter().filter(|(remote, _)| destination.contains(remote)).map(|(_, slot)| *slot);
        Taken { paths, marked: marked.collect() }
    }

    /// A slot for path `id` at which nothing points that is not on this path.
    fn free(&self, id: u32, most: u32) -> Option<u32> {
        let same = |slot: &u32| self.paths.get(slot).is_some_and(|ids| ids.iter().eq([&id]));
        let unused = |slot: &u32| !self.paths.contains_key(slot) && !self.marked.contains(slot);
        (1..=most).find(same).or_else(|| (1..=most).find(unused))
    }
}

impl Placement {
    fn take(&mut self, taken: &mut Taken, destination: IpNet, id: u32, slot: u32) {
        taken.paths.entry(slot).or_default().insert(id);
        self.slots.entry(destination).or_default().insert(id, slot);
    }

    /// Takes the slot that does the least harm, if the destination has one left.
    fn take_any(&mut self, taken: &mut Taken, near: &[IpNet], (destination, id): (IpNet, u32), most: u32) {
        let keeps = |nets: &[IpNet]| -> BTreeSet<u32> {
            let own = nets.iter().filter_map(|net| self.slots.get(net));
            own.flat_map(|own| own.values().copied()).collect()
        };
        let (own, all) = (keeps(&[destination]), keeps(near));
        let unused = (1..=most).find(|slot| !taken.paths.contains_key(slot));
        let going = || (1..=most).find(|slot| !all.contains(slot));
        let Some(slot) = unused.or_else(going).or_else(|| (1..=most).find(|slot| !own.contains(slot))) else { return };
        self.unsafe_for.insert(destination);
        self.take(taken, destination, id, slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidestep_net::{Rate, Span};

    use super::{
        super::destination::{HostPath, PathRoute},
        *,
    };

    fn set(destination: &str, ids: &[u32]) -> DestinationPaths {
        let path = |id: &u32| HostPath {
            id: *id,
            slot: 0,
            name: format!("path-{id}"),
            route: PathRoute::Default,
            capacity: Rate::from_mbits(100),
            usage: Rate::default(),
            rtt: Span::from_millis(8),
            mtu: None,
            sources: Vec::new(),
        };
        DestinationPaths { destination: destination.parse().unwrap(), paths: ids.iter().map(path).collect() }
    }

    /// The slots of paths to one destination.
    fn slots(destination: &str, of: &[(u32, u32)]) -> (IpNet, BTreeMap<u32, u32>) {
        (destination.parse().unwrap(), of.iter().copied().collect())
    }

    fn placed(now: &Slots, wanted: &[DestinationPaths], most: u32) -> Placement {
        place(now, wanted, most, &[], Room::Free)
    }

    #[test]
    fn paths_get_slots_in_their_order_and_keep_them_in_any_other() {
        let first = placed(&Slots::new(), &[set("fd00::/16", &[7, 5, 9])], 63);
        assert_eq!(first.slots, Slots::from([slots("fd00::/16", &[(7, 1), (5, 2), (9, 3)])]));
        let swapped = placed(&first.slots, &[set("fd00::/16", &[9, 7, 5])], 63);
        assert_eq!(swapped, first);
        let other = placed(&first.slots, &[set("fd01::/16", &[1, 2]), set("fd00::/16", &[4, 9])], 63);
        let expected = [slots("fd00::/16", &[(4, 4), (9, 3)]), slots("fd01::/16", &[(1, 1), (2, 2)])];
        assert_eq!(other.slots, Slots::from(expected), "a slot that was in use a moment ago is not given to another");
    }

    #[test]
    fn a_slot_in_the_mark_of_any_socket_is_not_given_away() {
        let marked = [("fd00::9".parse().unwrap(), 1), ("fd01::9".parse().unwrap(), 2)];
        let wanted = [set("fd00::/16", &[7])];
        assert_eq!(place(&Slots::new(), &wanted, 63, &marked, Room::Free).slots[&wanted[0].destination][&7], 2);
        let narrow = place(&Slots::new(), &wanted, 1, &marked, Room::Free);
        assert_eq!(narrow.unsafe_for.len(), 1, "with one slot there is no choice, and that is said");
    }

    #[test]
    fn overlapping_destinations_share_the_slots_of_paths_that_both_have_and_no_others() {
        let now = placed(&Slots::new(), &[set("fd00::/16", &[7, 5])], 63).slots;
        // Connections to fd00:1::/32 are on path 5 by slot 2, and go on by slot 2.
        let marked = [("fd00:1::9".parse().unwrap(), 2)];
        let wanted = [set("fd00:1::/32", &[9, 5]), set("fd00::/16", &[7, 5])];
        let next = place(&now, &wanted, 63, &marked, Room::Free).slots;
        assert_eq!(next[&wanted[0].destination], BTreeMap::from([(9, 3), (5, 2)]));
    }

    #[test]
    fn marks_without_room_for_all_at_once_change_in_steps() {
        let now = Slots::from([slots("fd00::/16", &[(1, 1), (2, 2), (3, 3)])]);
        let wanted = [set("fd00::/16", &[4, 5, 3])];
        let step = placed(&now, &wanted, 3);
        assert_eq!((step.slots.clone(), step.waits), (Slots::from([slots("fd00::/16", &[(3, 3)])]), true));
        let last = placed(&step.slots, &wanted, 3);
        assert_eq!(last.slots, Slots::from([slots("fd00::/16", &[(3, 3), (4, 1), (5, 2)])]));
        assert!(!last.waits && last.unsafe_for.is_empty());
        // Five paths never fit; three are better than none.
        let crowd = place(&last.slots, &[set("fd00::/16", &[4, 5, 3, 6, 7])], 3, &[], Room::Any);
        assert_eq!(crowd.slots, last.slots);
    }

    /// What a kernel and its connections do while sets change.
    #[derive(Default)]
    struct Model {
        map: Slots,
        tables: BTreeMap<(u32, IpNet), u32>,
        /// The other end of each connection, its path and the slot of its mark.
        connections: Vec<(IpAddr, u32, u32)>,
    }

    impl Model {
        /// The longest of some prefixes that cover `address`.
        fn longest<'a>(nets: impl Iterator<Item = &'a IpNet>, address: IpAddr) -> Option<IpNet> {
            nets.filter(|net| net.contains(&address)).max_by_key(|net| net.prefix_len()).copied()
        }

        /// Every connection's packets take its own path.
        fn check(&self) {
            for (remote, id, slot) in &self.connections {
                let routes = self.tables.keys().filter(|(table, _)| table == slot).map(|(_, net)| net);
                let found = Self::longest(routes, *remote).map(|net| self.tables[&(*slot, net)]);
                assert!(*slot == 0 || found == Some(*id), "{remote} on {id} by slot {slot} meets {found:?}");
            }
        }

        /// The connection takes note of the map.
        fn adopt(&mut self, index: usize) {
            let (remote, id, slot) = &mut self.connections[index];
            let own = Self::longest(self.map.keys(), *remote).map(|net| &self.map[&net]);
            (*id, *slot) = match own {
                None => (0, 0),
                Some(own) => {
                    own.get_key_value(id).or_else(|| own.first_key_value()).map(|(id, slot)| (*id, *slot)).unwrap()
                }
            };
            self.check();
        }

        /// Does what `Host::reconcile` does, in its order, and looks after every step. Some connections have a signal at any
        /// time, and take note of the map then.
        fn reconcile(
            &mut self,
            wanted: &[DestinationPaths],
            most: u32,
            mut signals: impl FnMut() -> Option<usize>,
        ) -> bool {
            for room in [Room::Free, Room::Free, Room::Any] {
                let marked: Vec<_> = self.connections.iter().map(|(remote, _, slot)| (*remote, *slot)).collect();
                let next = place(&self.map, wanted, most, &marked, room);
                if !next.unsafe_for.is_empty() {
                    return false;
                }
                let routes: BTreeMap<(u32, IpNet), u32> = next
                    .slots
                    .iter()
                    .flat_map(|(net, own)| own.iter().map(|(id, slot)| ((*slot, *net), *id)))
                    .collect();
                for (key, id) in &routes {
                    self.tables.insert(*key, *id);
                    self.check();
                }
                let gone: Vec<_> = self.map.keys().filter(|net| !next.slots.contains_key(net)).copied().collect();
                let changes = next
                    .slots
                    .into_iter()
                    .map(|(net, own)| (net, Some(own)))
                    .chain(gone.into_iter().map(|net| (net, None)));
                for (net, own) in changes {
                    match own {
                        Some(own) => self.map.insert(net, own),
                        None => self.map.remove(&net),
                    };
                    if let Some(index) = signals().filter(|_| !self.connections.is_empty()) {
                        self.adopt(index % self.connections.len());
                    }
                }
                (0..self.connections.len()).for_each(|index| self.adopt(index));
                let old: Vec<_> = self.tables.keys().filter(|key| !routes.contains_key(key)).copied().collect();
                for key in old {
                    self.tables.remove(&key);
                    self.check();
                }
                if !next.waits {
                    break;
                }
            }
            true
        }
    }

    const NETS: [&str; 5] = ["::/0", "fd00::/16", "fd00:1::/32", "fd00:1:2::/48", "fd01::/16"];
    const ENDS: [&str; 5] = ["2001::1", "fd00:7::1", "fd00:1::1", "fd00:1:2::1", "fd01::1"];

    proptest! {
        #[test]
        fn no_packet_ever_leaves_by_a_path_that_is_not_its_connections(
            steps in prop::collection::vec(
                (prop::collection::btree_map(0..NETS.len(), prop::collection::btree_set(1..9_u32, 1..5), 0..5), any::<u64>()),
                1..12,
            ),
            most in 20..=63_u32,
        ) {
            let mut model = Model::default();
            for (sets, random) in steps {
                let wanted: Vec<_> =
                    sets.iter().map(|(net, ids)| set(NETS[*net], &ids.iter().copied().collect::<Vec<_>>())).collect();
                let mut random = random;
                let signals = || { random = random.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15); (random & 1 == 0).then_some(random as usize >> 8) };
                prop_assert!(model.reconcile(&wanted, most, signals), "there is room");
                let all: usize = model.map.values().map(BTreeMap::len).sum();
                prop_assert_eq!(all, wanted.iter().map(|set| set.paths.len()).sum::<usize>(), "every path has a slot");
                for end in ENDS {
                    let remote: IpAddr = end.parse().unwrap();
                    if let Some(net) = Model::longest(model.map.keys(), remote) {
                        let own: Vec<_> = model.map[&net].iter().map(|(id, slot)| (remote, *id, *slot)).collect();
                        model.connections.extend(own);
                    }
                }
            }
        }

        #[test]
        fn a_narrow_mark_never_gives_a_slot_to_two_paths_of_a_destination(
            before in prop::collection::btree_map(1..9_u32, 1..4_u32, 0..4),
            ids in prop::collection::btree_set(1..9_u32, 1..9),
            most in 1..4_u32,
            room in prop::sample::select(vec![Room::Free, Room::Any]),
        ) {
            let net = "fd00::/16".parse().unwrap();
            let mut seen = BTreeSet::new();
            let before = before.into_iter().filter(|(_, slot)| *slot <= most && seen.insert(*slot)).collect();
            let wanted = [set("fd00::/16", &ids.iter().copied().collect::<Vec<_>>())];
            let next = place(&Slots::from([(net, before)]), &wanted, most, &[], room);
            let own = &next.slots[&net];
            prop_assert_eq!(own.values().collect::<BTreeSet<_>>().len(), own.len());
            prop_assert!(own.values().all(|slot| (1..=most).contains(slot)) && !own.is_empty());
        }
    }
}
