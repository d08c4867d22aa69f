//! Systems under test, as they are written everywhere: `pathchanger:policy=exp3,gamma=0.2`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use super::{AgentKnobs, KnobError, MptcpKnobs, PolicyName, RcpKnobs};

/// A system to run, and the settings that it has to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemSpec {
    /// Which system.
    pub name: SystemName,
    /// Its parameters in the order in which they were written.
    pub params: Vec<(String, String)>,
}

/// The systems that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemName {
    /// Plain TCP on the shortest path.
    Tcp,
    /// Each flow hashed onto one of the equal-cost paths.
    Ecmp,
    /// Each connection starts on a random path, and moves to a random one.
    Random,
    /// Protective ReRoute: a new flow label after timeouts.
    Prr,
    /// Protective Load Balancing: a new flow label after congested rounds.
    Plb,
    /// The path changer: connections move, and a bandit chooses where to.
    Pathchanger,
    /// Plain MPTCP.
    Mptcp,
    /// MPTCP subflows hashed onto paths by a stateless edge router.
    Semper,
    /// The same with a table of subflows at the edge.
    SemperStateful,
    /// Intelligent route control at a multihomed edge.
    Irc,
    /// The Rate Control Protocol.
    Rcp,
    /// In-network resource pooling.
    Inrpp,
}

/// A system that cannot be read, or whose parameters do not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SystemError {
    /// No system has that name.
    #[error("there is no system `{0}`; known systems: {known}", known = known_systems())]
    UnknownSystem(String),
    /// A parameter without `=`.
    #[error("`{0}` is not a parameter; write `name=value`, with commas between several")]
    NoValue(String),
    /// The system has no such parameter.
    #[error("`{system}` has no parameter `{parameter}`; it has {known}")]
    UnknownParameter {
        /// The system.
        system: SystemName,
        /// The parameter read.
        parameter: String,
        /// Those that it has.
        known: String,
    },
    /// The same parameter twice.
    #[error("parameter `{0}` is given twice")]
    Twice(String),
    /// A value that the parameter cannot take.
    #[error("{parameter}: {problem}")]
    BadValue {
        /// The parameter.
        parameter: String,
        /// Why the value does not fit.
        problem: String,
    },
    /// The settings do not fit together.
    #[error(transparent)]
    Knob(#[from] KnobError),
}

impl SystemName {
    /// All systems in the order in which they are listed to people.
    pub const ALL: [SystemName; 12] = [
        SystemName::Tcp,
        SystemName::Ecmp,
        SystemName::Random,
        SystemName::Prr,
        SystemName::Plb,
        SystemName::Pathchanger,
        SystemName::Mptcp,
        SystemName::Semper,
        SystemName::SemperStateful,
        SystemName::Irc,
        SystemName::Rcp,
        SystemName::Inrpp,
    ];

    /// The name in files, on the command line and in results.
    pub const fn as_str(self) -> &'static str {
        match self {
            SystemName::Tcp => "tcp",
            SystemName::Ecmp => "ecmp",
            SystemName::Random => "random",
            SystemName::Prr => "prr",
            SystemName::Plb => "plb",
            SystemName::Pathchanger => "pathchanger",
            SystemName::Mptcp => "mptcp",
            SystemName::Semper => "semper",
            SystemName::SemperStateful => "semper-stateful",
            SystemName::Irc => "irc",
            SystemName::Rcp => "rcp",
            SystemName::Inrpp => "inrpp",
        }
    }

    /// The parameters that the system takes.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            SystemName::Pathchanger => AGENT_PARAMETERS,
            // `random` is the path changer with its policy fixed.
            SystemName::Random => AGENT_PARAMETERS.split_last().map_or(&[], |(_, rest)| rest),
            SystemName::Mptcp => &["subflows", "path_manager", "scheduler", "congestion_control", "receive_buffer"],
            SystemName::Rcp => &["alpha", "beta", "gamma", "slot", "initial_rate"],
            _ => &[],
        }
    }
}

/// Parameters that override [`AgentKnobs`]; `policy` is the last.
const AGENT_PARAMETERS: &[&str] = &[
    "gamma",
    "ce_share",
    "ce_rounds",
    "ce_window",
    "retransmit_burst",
    "jitter",
    "congestion_min",
    "congestion_max",
    "silence_min",
    "silence_max",
    "reward",
    "weights",
    "next_rtos",
    "ack_quiet",
    "settle_rounds",
    "rtt_guard",
    "reorder_guard",
    "plb_idle_rounds",
    "plb_rounds",
    "plb_pause",
    "policy",
];

impl SystemSpec {
    /// The system without parameters.
    pub const fn plain(name: SystemName) -> Self {
        SystemSpec { name, params: Vec::new() }
    }

    /// The path changer's settings for this system: `base` with the system's parameters over it.
    ///
    /// `random` is the path changer with the policy `random`, whatever `base` says. Fails on parameters that the
    /// system does not have, and on values out of range; `mark_mask` is not among them and is left to `base`.
    pub fn knobs(&self, base: &AgentKnobs) -> Result<AgentKnobs, SystemError> {
        let mut knobs = base.clone();
        if self.name == SystemName::Random {
            knobs.policy = PolicyName::Random;
        }
        for (parameter, value) in &self.params {
            if matches!(self.name, SystemName::Mptcp | SystemName::Rcp) {
                continue;
            }
            if !self.name.parameters().contains(&parameter.as_str()) {
                return Err(self.unknown(parameter));
            }
            set_knob(&mut knobs, parameter, value)
                .map_err(|problem| SystemError::BadValue { parameter: parameter.clone(), problem })?;
        }
        knobs.check(0)?;
        Ok(knobs)
    }

    /// MPTCP's settings for this system: `base` with the system's parameters over it.
    ///
    /// Fails on values out of range; a system other than MPTCP's has `base`.
    pub fn mptcp(&self, base: &MptcpKnobs) -> Result<MptcpKnobs, SystemError> {
        let mut knobs = *base;
        for (parameter, value) in self.params.iter().filter(|_| self.name == SystemName::Mptcp) {
            set_mptcp(&mut knobs, parameter, value)
                .map_err(|problem| SystemError::BadValue { parameter: parameter.clone(), problem })?;
        }
        knobs.check()?;
        Ok(knobs)
    }

    /// The Rate Control Protocol's settings for this system: `base` with the system's parameters over it.
    ///
    /// Fails on values out of range; a system other than RCP has `base`.
    pub fn rcp(&self, base: &RcpKnobs) -> Result<RcpKnobs, SystemError> {
        let mut knobs = *base;
        for (parameter, value) in self.params.iter().filter(|_| self.name == SystemName::Rcp) {
            set_rcp(&mut knobs, parameter, value)
                .map_err(|problem| SystemError::BadValue { parameter: parameter.clone(), problem })?;
        }
        knobs.check()?;
        Ok(knobs)
    }

    fn unknown(&self, parameter: &str) -> SystemError {
        let known = self.name.parameters();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        SystemError::UnknownParameter { system: self.name, parameter: parameter.into(), known }
    }
}

fn set_knob(knobs: &mut AgentKnobs, parameter: &str, value: &str) -> Result<(), String> {
    match parameter {
        "policy" => knobs.policy = read(value)?,
        "gamma" => knobs.gamma = read(value)?,
        "ce_share" => knobs.ce_share = read(value)?,
        "ce_rounds" => knobs.ce_rounds = read(value)?,
        "ce_window" => knobs.ce_window = read(value)?,
        "retransmit_burst" => knobs.retransmit_burst = read(value)?,
        "jitter" => knobs.jitter = read(value)?,
        "congestion_min" => knobs.congestion_backoff.min = read(value)?,
        "congestion_max" => knobs.congestion_backoff.max = read(value)?,
        "silence_min" => knobs.silence_backoff.min = read(value)?,
        "silence_max" => knobs.silence_backoff.max = read(value)?,
        "reward" => knobs.reward = read(value)?,
        "weights" => knobs.weights = read(value)?,
        "next_rtos" => knobs.next_rtos = read(value)?,
        "ack_quiet" => knobs.ack_quiet = read(value)?,
        "settle_rounds" => knobs.settle_rounds = read(value)?,
        "rtt_guard" => knobs.rtt_guard = read(value)?,
        "reorder_guard" => knobs.reorder_guard = read(value)?,
        "plb_idle_rounds" => knobs.plb_idle_rounds = read(value)?,
        "plb_rounds" => knobs.plb_rounds = read(value)?,
        "plb_pause" => knobs.plb_pause = read(value)?,
        _ => return Err("is not a parameter".into()),
    }
    Ok(())
}

fn set_mptcp(knobs: &mut MptcpKnobs, parameter: &str, value: &str) -> Result<(), String> {
    match parameter {
        "subflows" => knobs.subflows = read(value)?,
        "path_manager" => knobs.path_manager = read(value)?,
        "scheduler" => knobs.scheduler = read(value)?,
        "congestion_control" => knobs.congestion_control = read(value)?,
        "receive_buffer" => knobs.receive_buffer = read(value)?,
        _ => return Err("is not a parameter".into()),
    }
    Ok(())
}

fn set_rcp(knobs: &mut RcpKnobs, parameter: &str, value: &str) -> Result<(), String> {
    match parameter {
        "alpha" => knobs.alpha = read(value)?,
        "beta" => knobs.beta = read(value)?,
        "gamma" => knobs.gamma = read(value)?,
        "slot" => knobs.slot = read(value)?,
        "initial_rate" => knobs.initial_rate = read(value)?,
        _ => return Err("is not a parameter".into()),
    }
    Ok(())
}

fn read<T: FromStr<Err: fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| format!("`{value}`: {error}"))
}

fn known_systems() -> String {
    SystemName::ALL.map(SystemName::as_str).join(", ")
}

impl FromStr for SystemName {
    type Err = SystemError;
    fn from_str(text: &str) -> Result<Self, SystemError> {
        let found = SystemName::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| SystemError::UnknownSystem(text.into()))
    }
}

impl fmt::Display for SystemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SystemSpec {
    type Err = SystemError;
    fn from_str(text: &str) -> Result<Self, SystemError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = SystemSpec::plain(name.trim().parse()?);
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (parameter, value) = part.split_once('=').ok_or_else(|| SystemError::NoValue(part.into()))?;
            let (parameter, value) = (parameter.trim(), value.trim());
            if spec.params.iter().any(|(other, _)| other == parameter) {
                return Err(SystemError::Twice(parameter.into()));
            }
            if !spec.name.parameters().contains(&parameter) {
                return Err(spec.unknown(parameter));
            }
            spec.params.push((parameter.into(), value.into()));
        }
        // Values are read now so that a bad one is reported where it is written.
        let (mut scratch, mut mptcp, mut rcp) = (AgentKnobs::default(), MptcpKnobs::default(), RcpKnobs::default());
        for (parameter, value) in &spec.params {
            let set = match spec.name {
                SystemName::Mptcp => set_mptcp(&mut mptcp, parameter, value),
                SystemName::Rcp => set_rcp(&mut rcp, parameter, value),
                _ => set_knob(&mut scratch, parameter, value),
            };
            set.map_err(|problem| SystemError::BadValue { parameter: parameter.clone(), problem })?;
        }
        Ok(spec)
    }
}

impl fmt::Display for SystemSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)?;
        for (index, (parameter, value)) in self.params.iter().enumerate() {
            write!(f, "{}{parameter}={value}", if index == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for SystemSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SystemSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
