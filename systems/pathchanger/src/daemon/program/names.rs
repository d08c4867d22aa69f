//! What paths are called (map `sidestep_names`): for those who look at an agent's state, whether or not it runs.

use std::collections::BTreeMap;

use ipnet::IpNet;
use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sidestep_linux::{
    Result,
    bpf::{failed, keys, map},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{HostPrefix, HostProgram, read_prefix};

/// The names of paths, by destination and Path ID. ID zero stands for a note on the destination.
pub type Names = BTreeMap<(IpNet, u32), String>;

/// `struct host_name_key`.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct NameKey {
    destination: HostPrefix,
    path_id: u32,
}

const _: () = assert!(size_of::<NameKey>() == 28);

/// Bytes of a name, with at least one zero at its end.
const NAME_LEN: usize = 64;

impl HostProgram {
    /// Sets all names; those that were there before go.
    pub fn set_names(&mut self, names: &Names) -> Result<()> {
        let what = "writing the names of paths";
        let before = self.names()?;
        let map = map(&self.object, "sidestep_names")?;
        for ((destination, path_id), _) in before.iter().filter(|(key, _)| !names.contains_key(key)) {
            let key = NameKey { destination: (*destination).into(), path_id: *path_id };
            match map.delete(key.as_bytes()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(what, &error)),
                _ => {}
            }
        }
        for ((destination, path_id), name) in names.iter().filter(|(key, name)| before.get(key) != Some(name)) {
            let key = NameKey { destination: (*destination).into(), path_id: *path_id };
            map.update(key.as_bytes(), &write_name(name), MapFlags::ANY).map_err(|error| failed(what, &error))?;
        }
        Ok(())
    }

    /// The names of paths.
    pub fn names(&self) -> Result<Names> {
        let map = map(&self.object, "sidestep_names")?;
        let mut names = Names::new();
        for key in keys(&map)? {
            let read = map.lookup(&key, MapFlags::ANY).map_err(|error| failed("reading the names of paths", &error))?;
            let id = key.get(size_of::<HostPrefix>()..).and_then(|id| Some(u32::from_ne_bytes(*id.first_chunk()?)));
            let destination = key.get(..size_of::<HostPrefix>()).and_then(read_prefix);
            if let (Some(destination), Some(id), Some(name)) = (destination, id, read) {
                names.insert((destination, id), read_name(&name));
            }
        }
        Ok(names)
    }
}

fn write_name(name: &str) -> [u8; NAME_LEN] {
    let mut end = name.len().min(NAME_LEN - 1);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; NAME_LEN];
    for (byte, of_name) in bytes.iter_mut().zip(name.bytes().take(end)) {
        *byte = of_name;
    }
    bytes
}

pub(super) fn read_name(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_linux::testing::root_or_skip;

    #[test]
    fn a_name_that_is_too_long_is_cut_between_characters() {
        assert_eq!(read_name(&write_name("blue")), "blue");
        assert_eq!(read_name(&write_name(&"é".repeat(40))), "é".repeat(31));
        assert_eq!(read_name(b"a\x1b[31m\0rest"), "a [31m", "nothing that a terminal obeys");
        assert_eq!(read_name(&[0xff; NAME_LEN]).chars().count(), NAME_LEN);
    }

    #[test]
    fn names_are_those_that_were_set_last() {
        if !root_or_skip("names in a map") {
            return;
        }
        let mut program = HostProgram::load(None).unwrap();
        let names = |of: &[(&str, u32, &str)]| {
            let one = |(net, id, name): &(&str, u32, &str)| ((net.parse().unwrap(), *id), (*name).to_string());
            of.iter().map(one).collect::<Names>()
        };
        for set in [
            names(&[("fd02::/16", 1, "blue"), ("10.0.0.0/8", 1, "red"), ("::/0", 0, "a note")]),
            names(&[("fd02::/16", 1, "green"), ("fd02::/16", 2, "blue")]),
            Names::new(),
        ] {
            program.set_names(&set).unwrap();
            assert_eq!(program.names().unwrap(), set);
        }
    }
}
