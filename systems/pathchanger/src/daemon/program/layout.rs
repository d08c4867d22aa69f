//! What another version of the agent left: it is known by the layout of its maps, and its connections are released.
//!
//! Maps of the same size may mean something else. So the pins have a number that follows from the names, the places and
//! the types of all fields in them, and an iterator over connections, `sidestep_release`. A process that reads that
//! file, of any version, runs the program that made the maps, and this knows how to give connections their marks back.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::OnceLock,
};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object,
    btf::{Btf, BtfKind, BtfType, types},
};
use sidestep_linux::{
    LinuxError, Result,
    bpf::{bytecode, failed, keys, load, map, open, program},
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::{HostConfig, HostProgram, Pins, read_prefix};

/// Counts changes of what a field means, and of `struct host_event`, which the layout's number does not follow from.
const REVISION: u32 = 2;
/// The types of what outlives an agent, with all that they contain.
const ROOTS: [&str; 8] =
    ["host_layout", "host_config", "host_prefix", "host_paths", "host_weights", "host_name_key", "host_name", "conn"];

/// The map with the number.
const MAP: &str = "sidestep_layout";
/// The iterator that releases connections when it is read.
pub(super) const RELEASE: &str = "sidestep_release";

/// Bytes of `struct host_config` in the first version without a number; later ones had more at its end.
const UNNUMBERED_CONFIG: u32 = 152;
/// Where the mask, the shift, the tables, the priority and the switch for dry runs are in it.
const UNNUMBERED_PLACE: usize = 112;

/// `struct host_layout`.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct HostLayout {
    number: u32,
    place: [u32; 5],
    netns_inode: u32,
    pad: u32,
    netns_cookie: u64,
    unused: [u64; 3],
}

const _: () = assert!(size_of::<HostLayout>() == 64);

/// What became of the state that an agent of another version left.
#[derive(Clone, Copy, Debug)]
pub struct Superseded {
    /// Its settings, of which only those are there that show where its marks, rules and routes are; `None` if they are not
    /// known.
    pub config: Option<HostConfig>,
}

impl HostProgram {
    /// Releases the connections of an agent of another version that left its state in `pins`, and removes the state; `None`
    /// if there is none, or it is of this version.
    ///
    /// Connections of the calling thread's network namespace get the marks back that they had. Its rules and routes stay.
    pub fn supersede(pins: &Pins) -> Result<Option<Superseded>> {
        if !pins.exist() || fits(pins)? {
            return Ok(None);
        }
        let config = place_of(pins);
        // Before the marks: what opens now must not get another.
        pins.unlink_programs()?;
        if let Err(error) = release(&pins.directory) {
            tracing::debug!(%error, "the state has no iterator of its own");
            match config {
                Some(config) => clear(&config, &pins.directory)?,
                None => tracing::warn!("nothing is known of an agent's marks: its connections stay where they are"),
            }
        }
        pins.remove()?;
        Ok(Some(Superseded { config }))
    }

    /// Notes the layout of the maps and where the agent's marks, rules and routes are, for other versions.
    pub(super) fn note_layout(&self, config: &HostConfig) -> Result<()> {
        let HostConfig { netns_inode, netns_cookie, .. } = *config;
        let (number, place) = (number()?, config.place());
        let layout = HostLayout { number, place, netns_inode, pad: 0, netns_cookie, unused: [0; 3] };
        let written = map(&self.object, MAP)?.update(&0u32.to_ne_bytes(), layout.as_bytes(), MapFlags::ANY);
        written.map_err(|error| failed("noting the layout of the maps", &error))
    }
}

/// Pins the iterator that releases the connections of the program in `object`.
pub(super) fn keep_release(object: &Object, directory: &Path) -> Result<()> {
    let path = directory.join(RELEASE);
    let what = || format!("keeping {}", path.display());
    let mut link = program(object, "sidestep_leave")?.attach().map_err(|error| failed(what(), &error))?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LinuxError::io(what(), error)),
        _ => link.pin(&path).map_err(|error| failed(what(), &error)),
    }
}

/// Whether what is pinned is laid out as the maps of this version are.
pub(super) fn fits(pins: &Pins) -> Result<bool> {
    let number = number()?;
    let same = read(&pins.directory)?.is_some_and(|layout| layout.number == number);
    Ok((same || is_blank(&pins.directory)) && pins.fit(&open("host", bytecode!("host"))?))
}

/// Whether no agent has configured what is pinned: one was ended before it began, and no map holds anything yet.
///
/// The configuration's map is pinned before the layout is noted, so there may be no number.
fn is_blank(directory: &Path) -> bool {
    let config = MapHandle::from_pinned_path(directory.join("sidestep_config"));
    let bytes = config.and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY));
    matches!(bytes, Ok(Some(bytes)) if bytes.iter().all(|byte| *byte == 0))
}

/// The layout that was noted; `None` if there is none. What cannot be read is an error: the state must not pass for one of
/// another version.
fn read(directory: &Path) -> Result<Option<HostLayout>> {
    let path = directory.join(MAP);
    if !path.exists() {
        return Ok(None);
    }
    let failed = |error: libbpf_rs::Error| failed(format!("reading {}", path.display()), &error);
    let map = MapHandle::from_pinned_path(&path).map_err(failed)?;
    if (map.key_size(), map.value_size()) != (4, 64) {
        return Ok(None);
    }
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
    Ok(bytes.and_then(|bytes| HostLayout::read_from_bytes(&bytes).ok()))
}

/// Where the marks, rules and routes are of the agent that left this; no other setting is known.
pub(super) fn place_of(pins: &Pins) -> Option<HostConfig> {
    let layout = read(&pins.directory).ok().flatten();
    let place = layout.map(|layout| layout.place).or_else(|| unnumbered_place(&pins.directory))?;
    let [mark_mask, mark_shift, table_base, priority, dry_run] = place;
    let (netns_inode, netns_cookie) = layout.map_or((0, 0), |layout| (layout.netns_inode, layout.netns_cookie));
    let known = HostConfig { mark_mask, mark_shift, table_base, priority, dry_run, ..HostConfig::new_zeroed() };
    (mark_mask != 0).then_some(HostConfig { netns_inode, netns_cookie, ..known })
}

fn unnumbered_place(directory: &Path) -> Option<[u32; 5]> {
    let map = MapHandle::from_pinned_path(directory.join("sidestep_config")).ok()?;
    if map.key_size() != 4 || map.value_size() < UNNUMBERED_CONFIG {
        return None;
    }
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(<[u32; 5]>::read_from_prefix(bytes.get(UNNUMBERED_PLACE..)?).ok()?.0)
}

/// Runs the iterator that another version left.
fn release(directory: &Path) -> io::Result<()> {
    File::open(directory.join(RELEASE))?.read_to_end(&mut Vec::new()).map(drop)
}

/// Takes the slots out of all marks of connections to the destinations in `directory`, by a program that comes and goes.
fn clear(config: &HostConfig, directory: &Path) -> Result<()> {
    let object = load("host", open("host", bytecode!("host"))?)?;
    let mut program = HostProgram::of(object);
    program.configure(config)?;
    // The keys have been the same in all versions.
    let left = MapHandle::from_pinned_path(directory.join("sidestep_dests"));
    let left = left.iter().map(keys).collect::<Result<Vec<_>>>()?;
    for destination in left.iter().flatten().filter_map(|key| read_prefix(key)) {
        program.set_paths(destination, &[])?;
    }
    program.iterate("sidestep_clear").map(drop)
}

/// The number of the layout of this version's maps, never zero.
fn number() -> Result<u32> {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    if let Some(number) = NUMBER.get() {
        return Ok(*number);
    }
    let failed = |error| failed("reading the types of the path changer's maps", &error);
    let missing =
        || LinuxError::io("finding the types of the path changer's maps", io::Error::from(io::ErrorKind::NotFound));
    let btf = Btf::from_raw("host", bytecode!("host")).map_err(failed)?.ok_or_else(missing)?;
    let text = describe(&btf).ok_or_else(missing)?;
    // FNV-1a.
    let hash = text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Ok(*NUMBER.get_or_init(|| hash.max(1)))
}

/// All types of what outlives an agent, field by field; `None` if one is missing.
fn describe(btf: &Btf<'_>) -> Option<String> {
    let mut text = format!("{REVISION};");
    for root in ROOTS {
        let root: types::Struct<'_> = btf.type_by_name(root)?;
        write_type(btf, *root, &mut text);
    }
    Some(text)
}

fn write_type(btf: &Btf<'_>, of: BtfType<'_>, text: &mut String) {
    let of = of.skip_mods_and_typedefs();
    let name = of.name().unwrap_or_default().to_string_lossy().into_owned();
    let _ = match of.kind() {
        BtfKind::Struct | BtfKind::Union => write!(text, "{:?} {name}{{", of.kind()),
        BtfKind::Array => write!(text, "["),
        _ => write!(text, "{name}"),
    };
    if let Ok(array) = types::Array::try_from(of) {
        write_type(btf, array.contained_type(), text);
        let _ = write!(text, ";{}]", array.capacity());
    } else if let Ok(composite) = types::Composite::try_from(of) {
        for member in composite.iter() {
            let name = member.name.unwrap_or_default().to_string_lossy();
            let _ = write!(text, "{name}@{:?}:", member.attr);
            if let Some(member) = btf.type_by_id(member.ty) {
                write_type(btf, member, text);
            }
            text.push(',');
        }
        text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use sidestep_linux::testing::root_or_skip;

    use super::*;

    /// As after a SIGKILL between the first pin and the first configuration.
    #[test]
    fn what_was_never_configured_is_no_other_version() {
        if !root_or_skip("state without a configuration") {
            return;
        }
        let room = tempfile::tempdir().unwrap();
        mount(Some("bpf"), room.path(), Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        let pins = Pins { directory: room.path().join("state"), program: true };
        let found = HostProgram::load(Some(pins.clone())).and_then(|mut program| {
            program.keep_state();
            drop(program);
            let noted = HostProgram::supersede(&pins)?;
            // Pinned after the configuration's map.
            let removed = fs::remove_file(pins.directory.join(MAP)).map_err(|error| error.kind());
            Ok((noted, removed, HostProgram::supersede(&pins)?, pins.config(), pins.exist()))
        });
        umount2(room.path(), MntFlags::MNT_DETACH).unwrap();
        assert!(matches!(found, Ok((None, Ok(()), None, None, true))), "{found:?}");
    }

    #[test]
    fn the_number_follows_from_every_field_that_outlives_an_agent() {
        let btf = Btf::from_raw("host", bytecode!("host")).unwrap().unwrap();
        let text = describe(&btf).unwrap();
        for field in [
            "Struct host_config{policy@",
            "mark_mask@",
            "slot@",
            "[unsigned char;16]",
            "log_weight@",
            "mark_before@",
            "added_ns@",
            "Struct conn{",
        ] {
            assert!(text.contains(field), "{field} is not in {text}");
        }
        assert!(!text.contains("skc_"), "nothing of the kernel's");
        assert_eq!(number().unwrap(), number().unwrap());
    }
}
