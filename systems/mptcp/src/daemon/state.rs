//! What a path manager writes down for the next one, should it be killed.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sidestep_linux::mptcp::{ManagerSetting, Token};

/// What only the path manager knows of a connection: the kernel reports it once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    /// Whether the other end forbids further subflows to the address of the first.
    pub denies_first_address: bool,
    /// Addresses that it announced, by their numbers.
    pub announced: BTreeMap<u8, SocketAddr>,
}

/// The file in the state directory: one for each network namespace.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    written: State,
}

/// What is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// The network namespace that all of this is about.
    pub(super) namespace: u64,
    /// Who managed paths before: the name of a sysctl, and its value.
    pub(super) before: Option<(String, String)>,
    /// Connections, by their tokens.
    pub(super) connections: BTreeMap<u32, Remembered>,
}

impl StateFile {
    /// The file in `directory`, and what is in it about this namespace. One that cannot be read is as good as none.
    pub(super) fn open(directory: &Path, namespace: u64) -> io::Result<(Self, State)> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{namespace}.json"));
        let text = fs::read(&path).unwrap_or_default();
        let mut state: State = serde_json::from_slice(&text).unwrap_or_default();
        if state.namespace != namespace {
            state = State { namespace, ..State::default() };
        }
        Ok((StateFile { path, written: State::default() }, state))
    }

    /// Writes the state, if it is another than before.
    pub(super) fn write(&mut self, state: State) -> io::Result<()> {
        if state == self.written {
            return Ok(());
        }
        let beside = self.path.with_extension("new");
        fs::write(&beside, serde_json::to_vec(&state)?)?;
        fs::rename(&beside, &self.path)?;
        self.written = state;
        Ok(())
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl State {
    /// Who managed paths before.
    pub(super) fn setting_before(&self) -> Option<ManagerSetting> {
        let (sysctl, value) = self.before.as_ref()?;
        ManagerSetting::named(sysctl, value)
    }

    /// What was known of connections.
    pub(super) fn remembered(&self) -> BTreeMap<Token, Remembered> {
        self.connections.iter().map(|(token, remembered)| (Token(*token), remembered.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_that_of_its_namespace_and_of_a_file_that_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("state");
        let (mut file, state) = StateFile::open(&place, 7).unwrap();
        assert_eq!(state, State { namespace: 7, ..State::default() });
        let announced = BTreeMap::from([(3, "[2001:db8::1]:80".parse().unwrap())]);
        let known = Remembered { denies_first_address: true, announced };
        let before = Some(("pm_type".to_string(), "0".to_string()));
        let state = State { namespace: 7, before, connections: BTreeMap::from([(9, known.clone())]) };
        file.write(state.clone()).unwrap();
        let read = StateFile::open(&place, 7).unwrap().1;
        assert_eq!(read, state);
        assert_eq!(read.remembered(), BTreeMap::from([(Token(9), known)]));
        assert_eq!(read.setting_before().unwrap().value, "0");
        assert_eq!(StateFile::open(&place, 8).unwrap().1.before, None, "another namespace");
        fs::write(place.join("7.json"), "{\"names").unwrap();
        assert_eq!(StateFile::open(&place, 7).unwrap().1.before, None, "half a file");
        file.remove();
        assert!(!place.join("7.json").exists());
    }
}
