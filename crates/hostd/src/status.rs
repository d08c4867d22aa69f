//! A daemon's status, as JSON.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use sidestep_linux::LinuxError;

use crate::{AgentError, control};

/// The status of the daemon of the calling thread's network namespace that sends it at the socket `name`.
pub fn read_status<T: DeserializeOwned>(name: &str) -> Result<Option<T>, AgentError> {
    let Some(text) = control::read_status(name)? else { return Ok(None) };
    let malformed = |error: serde_json::Error| LinuxError::io("reading the daemon's status", io::Error::from(error));
    Ok(Some(serde_json::from_str(&text).map_err(malformed)?))
}

/// A status as peers read it.
pub fn to_json(status: &impl Serialize) -> Result<String, AgentError> {
    let failed = |error: serde_json::Error| LinuxError::io("writing the status", io::Error::from(error));
    Ok(serde_json::to_string(status).map_err(failed)?)
}
