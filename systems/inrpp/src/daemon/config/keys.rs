//! The keys that two routers share.

use std::{
    env,
    fs::File,
    io::{self, ErrorKind, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::Key;

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("the key {}: {source}; make one by `(umask 077; sidestep inrpp key > {})`, and copy it to the neighbour", path.display(), path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner may read it.
    #[error("the key {} can be read by others (mode {mode:03o}): `chmod 600 {}`", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It holds something else.
    #[error("{} is no key: it must be 32 hexadecimal digits, as `sidestep inrpp key` prints them", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl KeyError {
    /// Whether the file is not there, or not for this user to read.
    pub fn is_unread(&self) -> bool {
        matches!(self, KeyError::Unread { source, .. }
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied))
    }
}

/// Digits of a key.
const DIGITS: usize = 32;
/// Where systemd puts the files of `LoadCredential=`.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Reads a key: 32 hexadecimal digits in a file that only its owner may read.
///
/// Under a unit with `LoadCredential=DIRECTORY:PATH` the service manager's copy of the file is read, as its owner is root.
pub fn read_key(path: &Path) -> Result<Key, KeyError> {
    match env::var_os(CREDENTIALS).and_then(|directory| credential(Path::new(&directory), path)) {
        // The service manager lets the unit's user read it alone, by an access list that shows in the mode.
        Some(copy) => read_from(&copy, false),
        None => read_from(path, true),
    }
}

/// A new key, as digits.
pub fn fresh_key() -> io::Result<String> {
    let bytes = sidestep_linux::random::<{ DIGITS / 2 }>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The copy of `path` among the credentials: systemd joins the names of a directory and of a file in it by `_`.
fn credential(credentials: &Path, path: &Path) -> Option<PathBuf> {
    let (directory, file) = (path.parent()?.file_name()?.to_str()?, path.file_name()?.to_str()?);
    let copy = credentials.join(format!("{directory}_{file}"));
    copy.is_file().then_some(copy)
}

fn read_from(path: &Path, checks_mode: bool) -> Result<Key, KeyError> {
    let unread = |source| KeyError::Unread { path: path.into(), source };
    let file = File::open(path).map_err(unread)?;
    let mode = file.metadata().map_err(unread)?.permissions().mode() & 0o777;
    if checks_mode && mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.into(), mode });
    }
    let mut bytes = Vec::new();
    file.take(4 * DIGITS as u64).read_to_end(&mut bytes).map_err(unread)?;
    parse(&bytes).ok_or_else(|| KeyError::Malformed { path: path.into() })
}

fn parse(bytes: &[u8]) -> Option<Key> {
    let text = str::from_utf8(bytes).ok()?.trim();
    if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (high, low) = text.split_at(DIGITS / 2);
    Some(Key([u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?]))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_read_from_a_file_of_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r1.key");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_key(&path).map_err(|error| error.to_string())
        };
        let absent = read_key(&path).unwrap_err();
        assert!(absent.is_unread() && absent.to_string().contains("sidestep inrpp key > "), "{absent}");
        let digits = "0123456789abcdef00000000000000Ff";
        assert_eq!(write(&format!("{digits}\n"), 0o600), Ok(Key([0x0123_4567_89ab_cdef, 0xff])));
        assert!(write(digits, 0o640).unwrap_err().contains("(mode 640): `chmod 600 "));
        assert!(write(digits, 0o604).unwrap_err().contains("chmod"));
        for wrong in ["", "x", &digits[1..], &format!("{digits}0"), &format!("+{}", &digits[1..])] {
            assert!(write(wrong, 0o600).unwrap_err().contains("32 hexadecimal digits"), "{wrong}");
        }
        let (one, other) = (fresh_key().unwrap(), fresh_key().unwrap());
        assert_ne!(write(&one, 0o400).unwrap(), write(&other, 0o600).unwrap());
    }

    #[test]
    fn the_service_managers_copy_of_a_key_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = Path::new("/etc/sidestep/inrpp/r1.key");
        assert_eq!(credential(folder.path(), path), None);
        let copy = folder.path().join("inrpp_r1.key");
        fs::write(&copy, "00000000000000000000000000000001").unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o440)).unwrap();
        assert_eq!(credential(folder.path(), path), Some(copy.clone()));
        assert_eq!(read_from(&copy, false).unwrap(), Key([0, 1]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let hexadecimal = bytes.iter().all(u8::is_ascii_hexdigit);
            prop_assert!(parse(&bytes).is_none() || !hexadecimal || bytes.len() == DIGITS);
        }
    }
}
