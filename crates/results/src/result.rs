//! `result.json`: the numbers of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use sidestep_engine::Lateness;
use sidestep_net::Span;
use sidestep_scenario::{Catalogue, World};

use crate::{Difference, Doubt, Headline, Named, Recovery, Repeated, Validity, paired, roles::Roles, validity};

/// The version of `result.json` that this crate writes.
pub const SCHEMA: u32 = 1;

/// The results of one scenario under one or more systems; what `result.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of the format, [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Where it was run.
    pub world: World,
    /// Seed of every random choice.
    pub seed: u64,
    /// How many runs each system had, one for each seed from `seed` on.
    #[serde(default = "one")]
    pub seeds: u32,
    /// What the network can carry from the scenario's senders to its receivers, in Mbit/s: the mean over the measured part of the
    /// run, and over the seeds. `None` where that has no limit, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_mbps: Option<f64>,
    /// The run in a sentence or two; `None` until it is [concluded](Self::conclude).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
    /// Reasons to doubt the run.
    #[serde(default)]
    pub validity: Vec<Validity>,
    /// How far systems are from the baseline, seed by seed; empty of one seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Results by the systems' names, in the order in which they ran.
    pub systems: Named<SystemResult>,
}

/// The measures of one system in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemResult {
    /// Application bytes acknowledged after the warm-up, over that time, in Mbit/s; not a number, and `null` in the file, if the
    /// run was cut short within the warm-up.
    #[serde(deserialize_with = "number_or_null")]
    pub goodput_mbps: f64,
    /// Mean completion time in seconds of the flows that have a size and completed; `None` if none did.
    pub afct_s: Option<f64>,
    /// Median of those completion times, nearest rank, in seconds.
    pub fct_p50_s: Option<f64>,
    /// 99th percentile of those completion times, nearest rank, in seconds.
    pub fct_p99_s: Option<f64>,
    /// 90th percentile of those completion times, nearest rank, in seconds.
    #[serde(default)]
    pub fct_p90_s: Option<f64>,
    /// 95th percentile of those completion times, nearest rank, in seconds.
    #[serde(default)]
    pub fct_p95_s: Option<f64>,
    /// 99.9th percentile of those completion times, nearest rank, in seconds.
    #[serde(default)]
    pub fct_p999_s: Option<f64>,
    /// Completion times by the flows' sizes; only sizes that occurred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fct_by_size: Vec<SizeBucket>,
    /// Flows with a size that did not complete, and the completion times with them; `None` if all completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Unfinished>,
    /// Jain's index over the connections' goodput after the warm-up (of flows with sizes, each over its whole life);
    /// `None` if nothing was carried.
    pub fairness: Option<f64>,
    /// Jain's index over the goodput of those connections that carried flows without a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_endless: Option<f64>,
    /// Goodput after the warm-up of the slowest of those connections, in Mbit/s; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_mbps_min: Option<f64>,
    /// Number of connections of the whole run.
    #[serde(default)]
    pub connections: u64,
    /// Segments retransmitted in the whole run.
    #[serde(default)]
    pub retransmits: u64,
    /// Number of flows of the whole run.
    #[serde(default)]
    pub flows: u64,
    /// Number of these that had a retransmission timeout.
    #[serde(default)]
    pub flows_with_timeout: u64,
    /// What the TCP of all hosts counted in the whole run, by the kernel's names in `/proc/net/netstat`, zeros left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp: BTreeMap<String, u64>,
    /// Moves in the whole run by reason.
    pub moves: BTreeMap<String, u64>,
    /// How connections recovered from retransmission timeouts in the whole run; `None` where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// How long agents took to get new paths after each change of a link, in the order of the changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_updates: Vec<PathUpdates>,
    /// Measures by the reported paths' names, in the topology's order.
    pub paths: Named<PathResult>,
    /// Measures of each direction of each link that was sampled, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkResult>,
    /// Length of the run in seconds, warm-up included.
    #[serde(default)]
    pub duration_s: f64,
    /// What that length should have been; `None` unless the run was cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_s: Option<f64>,
    /// How late the lab's wires delivered a packet at worst, in milliseconds; `None` in the simulator.
    #[serde(default)]
    pub late_ms_max: Option<f64>,
    /// Share of the packets that the lab's wires delivered more than 1 ms late; `None` in the simulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_share: Option<f64>,
    /// How late the lab's wires delivered packets: a hundred times, each of the same share of the packets. Empty in the simulator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lateness: Vec<Span>,
    /// How late the lab's threads, programs and clock were, which the simulator can repeat; empty in the simulator.
    #[serde(flatten)]
    pub late: Lateness,
    /// Packets that were lost between the lab's hosts and its wires, which no link of the scenario lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_outside: u64,
    /// Packets dropped in the whole run, on links and in routers, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// Remarks for the reader, such as where a world departs from the scenario.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reasons to doubt the measures, of this seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validity: Vec<Doubt>,
    /// Why the measures lack something, one reason each; empty if the run was complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Means over several seeds, `None` of one seed; all other fields are of the first seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
    /// What the system alone measures, by the names that it gives; see [`own`](Self::own).
    // Last, as it takes every key that no field above has.
    #[serde(flatten)]
    pub own: serde_json::Map<String, serde_json::Value>,
}

/// Completion times of the flows of similar size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// Largest size in bytes; `None`: all that are larger than the bucket before.
    pub up_to_bytes: Option<u64>,
    /// Number of flows that completed.
    pub flows: u64,
    /// Their mean completion time in seconds.
    pub afct_s: f64,
    /// Median completion time in seconds, nearest rank.
    pub p50_s: f64,
    /// 99th percentile of the completion times in seconds, nearest rank.
    pub p99_s: f64,
}

/// The flows with a size that had not completed when the run ended, and what the completion times are with them.
///
/// Completion times of the completed flows alone flatter a system that stalls some. Here a flow that has not completed
/// counts with the time from its start to the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Number of flows that did not complete.
    pub flows: u64,
    /// Mean time in seconds of all flows with a size.
    pub mean_s: f64,
    /// Median of these times in seconds, nearest rank.
    pub p50_s: f64,
    /// 99th percentile of these times in seconds, nearest rank.
    pub p99_s: f64,
}

/// How long it took until all agents that a change of a link concerns had their new paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathUpdates {
    /// When the change was made, in seconds since the start.
    pub at_s: f64,
    /// `down` or `up`.
    pub change: String,
    /// Number of host agents that got new paths.
    pub agents: u64,
    /// Seconds from the change until the last of these agents had the new paths in place.
    pub last_s: f64,
}

/// The measures of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkResult {
    /// Mean utilisation after the warm-up, a share of the rate of the moment; `None` if that is not limited.
    pub utilisation: Option<f64>,
    /// Mean queue in bytes, of the samples after the warm-up.
    pub queue_bytes: f64,
    /// Packets dropped in the whole run.
    pub drops: u64,
    /// Packets marked CE in the whole run.
    pub marks: u64,
}

/// The measures of one reported path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// Capacity in Mbit/s, its mean after the warm-up where events change it; `None` if not limited.
    #[serde(default)]
    pub capacity_mbps: Option<f64>,
    /// Mean utilisation after the warm-up, a share of the capacity of the moment; `None` if never sampled.
    pub utilisation: Option<f64>,
    /// Mean utilisation in the second half of the run, where the system has settled.
    #[serde(default)]
    pub utilisation_second_half: Option<f64>,
    /// Coefficient of variation of the utilisation between the samples after the warm-up; `None` if it was never above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<f64>,
    /// Packets dropped in the whole run.
    pub drops: u64,
    /// Packets marked CE in the whole run.
    #[serde(default)]
    pub marks: u64,
}

impl RunResult {
    /// A run of which no system has results yet.
    pub fn new(scenario: impl Into<String>, world: World, seed: u64) -> Self {
        let (schema, scenario) = (SCHEMA, scenario.into());
        let (headline, ceiling_mbps, systems) = (None, None, Named::default());
        let (validity, differences) = (Vec::new(), Vec::new());
        RunResult { schema, scenario, world, seed, seeds: 1, ceiling_mbps, headline, validity, differences, systems }
    }

    /// Draws the conclusions from the systems' results: reasons to doubt them, differences, and the headline. The catalogue has
    /// the systems' standing, from which follows what is compared.
    pub fn conclude(&mut self, catalogue: &Catalogue) {
        let most = self.systems.values().filter_map(|system| Some(system.repeated.as_ref()?.seeds)).max();
        self.seeds = most.unwrap_or(1);
        for system in self.systems.values_mut() {
            if let Some(same) = system.repeated.as_ref().filter(|repeated| repeated.same) {
                let note = format!(
                    "the seeds make no difference here: all {} gave the same, so there is no interval",
                    same.seeds
                );
                if !system.notes.contains(&note) {
                    system.notes.push(note);
                }
            }
        }
        self.validity = validity::of(&self.systems);
        let roles = Roles::of(self, catalogue);
        let differences = paired::differences(self, roles.baseline.map(|baseline| baseline.name));
        let headline = Headline::of(self, &roles);
        (self.differences, self.headline) = (differences, Some(headline));
    }

    /// What is incomplete in which system, one line each.
    pub fn incomplete(&self) -> Vec<String> {
        let of = |(name, system): (&str, &SystemResult)| {
            system.incomplete.iter().map(|reason| format!("{name}: {reason}")).collect::<Vec<_>>()
        };
        self.systems.iter().flat_map(of).collect()
    }

    /// Whether the run of a system was cut short, and its measures are of the time until then.
    pub fn is_cut(&self) -> bool {
        self.systems.values().any(SystemResult::is_cut)
    }

    /// Whether all that is measured are transfers of a size: then what is carried is what is offered, and only their times
    /// distinguish systems.
    pub fn is_of_transfers(&self) -> bool {
        let has_transfers = |system: &SystemResult| system.afct_s.is_some() || system.unfinished.is_some();
        self.systems.values().any(has_transfers)
            && self.systems.values().all(|system| system.fairness_endless.is_none())
    }
}

impl SystemResult {
    /// What the system measures under `key`, such as `caches`; `None` where there is no such thing.
    pub fn own<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        T::deserialize(self.own.get(key)?).ok()
    }

    /// Whether the run was cut short, and its measures are of the time until then.
    pub fn is_cut(&self) -> bool {
        self.planned_s.is_some()
    }

    /// Reasons to doubt the measures, and then what else there is to remark.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.validity.iter().map(|doubt| doubt.text.as_str()).chain(self.notes.iter().map(String::as_str))
    }

    /// Moves of all reasons.
    pub fn total_moves(&self) -> u64 {
        self.moves.values().sum()
    }

    /// The share of its flows that had a retransmission timeout; `None` if there were no flows.
    pub fn timeout_share(&self) -> Option<f64> {
        (self.flows > 0).then(|| self.flows_with_timeout as f64 / self.flows as f64)
    }

    /// Packets dropped on all links and in all routers; where only paths were sampled, on these.
    pub fn total_drops(&self) -> u64 {
        if !self.drops.is_empty() {
            return self.drops.values().sum();
        }
        if !self.links.is_empty() {
            return self.links.values().map(|link| link.drops).sum();
        }
        self.paths.values().map(|path| path.drops).sum()
    }

    /// The path that was used least in the second half of the run, and its utilisation there.
    pub fn least_used_path(&self) -> Option<(&str, f64)> {
        let sampled = self.paths.iter().filter_map(|(name, path)| Some((name, path.utilisation_second_half?)));
        sampled.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// A number; what JSON has instead of one that is none is not a number.
fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn one() -> u32 {
    1
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_json_follows_the_contract() {
        let mut run = testing::run(&["tcp"], 1);
        run.systems.get_mut("tcp").unwrap().moves.insert("ecn".into(), 3);
        insta::assert_snapshot!(serde_json::to_string_pretty(&run).unwrap(), @r#"
        {
          "schema": 1,
          "scenario": "parallel-paths",
          "world": "lab",
          "seed": 7,
          "seeds": 1,
          "ceiling_mbps": 100.0,
          "validity": [],
          "systems": {
            "tcp": {
              "goodput_mbps": 88.5,
              "afct_s": null,
              "fct_p50_s": null,
              "fct_p99_s": null,
              "fct_p90_s": null,
              "fct_p95_s": null,
              "fct_p999_s": null,
              "fairness": 1.0,
              "fairness_endless": 1.0,
              "goodput_mbps_min": 88.5,
              "connections": 1,
              "retransmits": 0,
              "flows": 1,
              "flows_with_timeout": 0,
              "moves": {
                "ecn": 3
              },
              "paths": {
                "p1": {
                  "capacity_mbps": 100.0,
                  "utilisation": 0.8775574754178181,
                  "utilisation_second_half": 0.8794313335243257,
                  "variation": 0.05481259812120594,
                  "drops": 10,
                  "marks": 100
                }
              },
              "duration_s": 20.0,
              "late_ms_max": 3.14,
              "late_share": 0.0,
              "wires": {
                "threads": 0,
                "wakes": [],
                "reads": [],
                "writes": []
              },
              "notes": []
            }
          }
        }
        "#);
    }

    #[test]
    fn a_result_reads_back_as_it_was_written() {
        let run = testing::run(&["tcp", "pathchanger", "ecmp"], 6);
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&json).unwrap(), run);
    }

    #[test]
    fn a_result_with_the_contracts_fields_alone_is_read() {
        let json = r#"{"schema":1,"scenario":"s","world":"sim","seed":2,"systems":{"tcp":{"goodput_mbps":9.5,
            "afct_s":null,"fct_p50_s":null,"fct_p99_s":null,"fairness":1.0,"moves":{"rto":2},
            "paths":{"p1":{"utilisation":0.5,"drops":7}}}}}"#;
        let run: RunResult = serde_json::from_str(json).unwrap();
        let tcp = run.systems.get("tcp").unwrap();
        assert_eq!((run.world, tcp.total_moves(), tcp.total_drops()), (World::Sim, 2, 7));
    }
}
