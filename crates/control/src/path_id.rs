//! Path IDs, which are hashes of the paths themselves.
//!
//! The id of a path is the 32-bit FNV-1a hash (draft-eastlake-fnv) of its [`key`]. A restarted controller finds the
//! same ids, and a change elsewhere in the network leaves them alone. Zero and ids already taken are avoided by hashing
//! one more byte; keys take their turn in ascending order, so that the outcome does not depend on how the network was
//! read in. (When one of two colliding paths goes, the other's id may change: with 1,000 paths, one network in 8,600
//! has such a pair.)

use std::collections::{BTreeMap, BTreeSet};

use sidestep_net::PathId;

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// The key of a path: the names of its source router, its egress router and the links between, separated by NUL.
pub(crate) fn key<'a>(source: &'a str, egress: &'a str, links: impl IntoIterator<Item = &'a str>) -> String {
    [source, egress].into_iter().chain(links).collect::<Vec<_>>().join("\0")
}

/// Gives each key its Path ID: one that depends on the keys alone, and not on their order.
pub fn assign(mut keys: Vec<String>) -> BTreeMap<String, PathId> {
    keys.sort_unstable();
    keys.dedup();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeMap::new();
    for key in keys {
        let mut hash = fnv1a(FNV_OFFSET, key.as_bytes());
        let id = loop {
            match PathId::new(hash) {
                Some(id) if !taken.contains(&id) => break id,
                _ => hash = fnv1a(hash, &[1]),
            }
        };
        taken.insert(id);
        ids.insert(key, id);
    }
    ids
}

fn fnv1a(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Vectors of the draft's appendix.
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0x811c_9dc5);
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn the_id_of_a_path_never_changes_between_releases() {
        let key = key("A", "B", ["A-m1", "m1-B"]);
        assert_eq!(assign(vec![key.clone()])[&key].to_string(), "90f91607");
    }

    #[test]
    fn colliding_keys_get_different_ids_whatever_their_order() {
        // A known collision of 32-bit FNV-1a.
        let (first, second) = ("costarring".to_owned(), "liquid".to_owned());
        assert_eq!(fnv1a(FNV_OFFSET, first.as_bytes()), fnv1a(FNV_OFFSET, second.as_bytes()));
        let ids = assign(vec![first.clone(), second.clone()]);
        assert_ne!(ids[&first], ids[&second]);
        assert_eq!(ids, assign(vec![second, first]));
    }
}
