//! Scenarios out of code that reads like the network; for tests, and for programs that make scenarios.
//!
//! What is built is TOML text, which [`Scenario::parse`] then reads: every default, every check and every error is that
//! of a file.
//!
//! ```
//! use sidestep_scenario::builder::{ScenarioBuilder, blackhole, bulk};
//!
//! let scenario = ScenarioBuilder::new("20 s")
//!     .parallel_paths(6)
//!     .network("rate", "20 Mbit/s")
//!     .flow(bulk("c1", "s1").with("connections", 4))
//!     .event(blackhole("5 s").path("path-1"))
//!     .set("tcp.congestion_control", "reno")
//!     .systems(["tcp", "pathchanger:gamma=0.2"])
//!     .build();
//! assert_eq!((scenario.topology.paths().len(), scenario.systems.len()), (6, 2));
//! ```

use toml::{Table, Value};

use super::{ParseError, Scenario};

/// A scenario under construction.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ScenarioBuilder {
    file: Table,
}

/// A flow, an event or an impairment under construction: a table of the file.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Part {
    table: Table,
}

impl ScenarioBuilder {
    /// A scenario of this duration, such as `"5 s"`, which has no network yet.
    pub fn new(duration: &str) -> Self {
        ScenarioBuilder { file: Table::new() }.set("duration", duration)
    }

    /// Clients `c1…` at router `A`, servers `s1…` at router `B`, and `paths` disjoint paths between them.
    pub fn parallel_paths(self, paths: u32) -> Self {
        self.set("topology.generator", "parallel-paths").network("paths", paths)
    }

    /// `hosts` hosts `l1…` and `r1…` on either side of the link `L-R`.
    pub fn dumbbell(self, hosts: u32) -> Self {
        self.set("topology.generator", "dumbbell").network("hosts", hosts)
    }

    /// A fat tree of switches with `k` ports.
    pub fn fat_tree(self, k: u32) -> Self {
        self.set("topology.generator", "fat-tree").network("k", k)
    }

    /// Sets a key of `[topology]`.
    pub fn network(self, key: &str, value: impl Into<Value>) -> Self {
        self.set(&format!("topology.{key}"), value)
    }

    /// Adds a host.
    pub fn host(self, name: &str) -> Self {
        self.listed("node", part([("name", name), ("kind", "host")]))
    }

    /// Adds a router.
    pub fn router(self, name: &str) -> Self {
        self.listed("node", part([("name", name)]))
    }

    /// Adds a link between two nodes.
    pub fn link(self, a: &str, b: &str, rate: &str, delay: &str) -> Self {
        self.link_with(a, b, part([("rate", rate), ("delay", delay)]))
    }

    /// Adds a link with these keys, such as `part([("rate", "1 Gbit/s"), ("delay", "1 ms")]).with("weight", 5)`.
    pub fn link_with(self, a: &str, b: &str, link: Part) -> Self {
        self.listed("link", link.with("ends", vec![a, b]))
    }

    /// Names a set of links that results are reported for.
    pub fn path<'l>(self, name: &str, links: impl IntoIterator<Item = &'l str>) -> Self {
        let links: Vec<Value> = links.into_iter().map(Value::from).collect();
        self.listed("path", part([("name", name)]).with("links", links))
    }

    /// Sets any key by its place in the file: `warmup`, `tcp.mss`, `agent.congestion_backoff.min`.
    ///
    /// # Panics
    ///
    /// If a part of the place is already set to something other than a table.
    pub fn set(mut self, place: &str, value: impl Into<Value>) -> Self {
        let mut table = &mut self.file;
        let mut key = place;
        while let Some((outer, inner)) = key.split_once('.') {
            let next = table.entry(outer).or_insert_with(|| Value::Table(Table::new()));
            table = next.as_table_mut().unwrap_or_else(|| panic!("`{outer}` of `{place}` is not a table"));
            key = inner;
        }
        table.insert(key.into(), value.into());
        self
    }

    /// The systems to run.
    pub fn systems<'s>(self, systems: impl IntoIterator<Item = &'s str>) -> Self {
        self.set("systems", systems.into_iter().map(Value::from).collect::<Vec<_>>())
    }

    /// Adds a flow, such as [`bulk`].
    pub fn flow(self, flow: Part) -> Self {
        self.appended("flow", flow)
    }

    /// Adds an event, such as [`down`].
    pub fn event(self, event: Part) -> Self {
        self.appended("event", event)
    }

    /// Adds an [`impairment`].
    pub fn impairment(self, impairment: Part) -> Self {
        self.appended("impairment", impairment)
    }

    /// The scenario as a file has it.
    pub fn text(&self) -> String {
        toml::to_string(&self.file).unwrap_or_default()
    }

    /// The scenario, or why it cannot be.
    pub fn try_build(&self) -> Result<Scenario, ParseError> {
        Scenario::parse(&self.text(), "built")
    }

    /// The scenario.
    ///
    /// # Panics
    ///
    /// If it cannot be; the error shows why.
    pub fn build(&self) -> Scenario {
        self.try_build().unwrap_or_else(|error| panic!("{error}\nin\n{}", self.text()))
    }

    fn appended(mut self, list: &str, part: Part) -> Self {
        append(&mut self.file, list, part);
        self
    }

    fn listed(mut self, list: &str, part: Part) -> Self {
        let topology = self.file.entry("topology").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(topology) = topology {
            append(topology, list, part);
        }
        self
    }
}

fn append(table: &mut Table, list: &str, part: Part) {
    let list = table.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list {
        list.push(Value::Table(part.table));
    }
}

impl Part {
    /// Sets a key.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.table.insert(key.into(), value.into());
        self
    }

    /// Names the links that it is about: a link or a pattern.
    pub fn link(self, link: &str) -> Self {
        self.with("link", link)
    }

    /// Names the path that it is about.
    pub fn path(self, path: &str) -> Self {
        self.with("path", path)
    }

    /// Sets the keys of a table in it, such as `size` or `tcp`.
    pub fn with_table(self, key: &str, table: Part) -> Self {
        self.with(key, table.table)
    }
}

/// A table of texts.
pub fn part<const N: usize>(keys: [(&str, &str); N]) -> Part {
    Part { table: keys.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
}

fn flow(kind: &str, from: &str, to: &str) -> Part {
    part([("kind", kind), ("from", from), ("to", to)])
}

/// TCP connections between hosts, or between those that match patterns, which send as much as they can.
pub fn bulk(from: &str, to: &str) -> Part {
    flow("bulk", from, to)
}

/// Transfers that arrive at random, `rate` a second; give `size`.
pub fn poisson(from: &str, to: &str, rate: f64) -> Part {
    flow("poisson", from, to).with("rate", rate)
}

/// Transfers that arrive at random and load a rate with a share; give `size`.
pub fn load(from: &str, to: &str, load: &str, of: &str) -> Part {
    flow("poisson", from, to).with("load", load).with("load_of", of)
}

/// Users who transfer `size`, think for a random time of this mean, and transfer again.
pub fn closed_loop(from: &str, to: &str, users: u32, think: &str, size: &str) -> Part {
    flow("closed-loop", from, to).with("users", users).with("think", think).with("size", size)
}

/// Packets at a constant rate.
pub fn cbr(from: &str, to: &str, rate: &str) -> Part {
    flow("cbr", from, to).with("rate", rate)
}

/// A program on a node of the lab.
pub fn exec<const N: usize>(node: &str, command: [&str; N]) -> Part {
    part([("kind", "exec"), ("node", node)]).with("command", command.to_vec())
}

fn event(at: &str, action: &str) -> Part {
    part([("at", at), ("action", action)])
}

/// Takes links down.
pub fn down(at: &str) -> Part {
    event(at, "down")
}

/// Ends what [`down`] and [`blackhole`] began.
pub fn up(at: &str) -> Part {
    event(at, "up")
}

/// Has links swallow what arrives.
pub fn blackhole(at: &str) -> Part {
    event(at, "blackhole")
}

/// A random process with good and bad periods of these means; `effect` is `outage`, or `loss` with a `loss`.
pub fn impairment(good: &str, bad: &str, effect: &str) -> Part {
    part([("good", good), ("bad", bad), ("effect", effect)])
}

/// `text` with `old` replaced by `new`, for tests of a file that users are given.
///
/// # Panics
///
/// Unless `old` is in the text exactly once.
pub fn replace_once(text: &str, old: &str, new: &str) -> String {
    let count = text.matches(old).count();
    assert!(count == 1, "`{old}` is {count} times in the text, not once:\n{text}");
    text.replacen(old, new, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flow;
    use sidestep_net::{Rate, Span};

    #[test]
    fn what_is_built_is_what_the_file_would_be() {
        let built = ScenarioBuilder::new("10 s")
            .set("warmup", "1 s")
            .parallel_paths(3)
            .network("rate", "7 Mbit/s")
            .set("pathchanger.silence_backoff.min", "1 s")
            .set("pathchanger.silence_backoff.max", "2 s")
            .set("pathchanger.policy", "next")
            .flow(bulk("c1", "s1").with("connections", 4).with_table("tcp", part([("congestion_control", "reno")])))
            .flow(cbr("c*", "s*", "1 Mbit/s"))
            .event(down("2 s").link("A-*").with("direction", "forward"))
            .impairment(impairment("1 s", "10 ms", "loss").path("path-2").with("loss", "5 %"));
        let text = "duration = '10 s'\nwarmup = '1 s'\n[topology]\ngenerator = 'parallel-paths'\npaths = 3\nrate = '7 Mbit/s'\n\
                    [pathchanger]\npolicy = 'next'\nsilence_backoff = { min = '1 s', max = '2 s' }\n\
                    [[flow]]\nkind = 'bulk'\nfrom = 'c1'\nto = 's1'\nconnections = 4\ntcp = { congestion_control = 'reno' }\n\
                    [[flow]]\nkind = 'cbr'\nfrom = 'c*'\nto = 's*'\nrate = '1 Mbit/s'\n\
                    [[event]]\nat = '2 s'\nlink = 'A-*'\naction = 'down'\ndirection = 'forward'\n\
                    [[impairment]]\ngood = '1 s'\nbad = '10 ms'\neffect = 'loss'\nloss = '5 %'\npath = 'path-2'";
        assert_eq!(built.build(), Scenario::parse(text, "built").unwrap());
        assert_eq!(built.build().tables["pathchanger"]["policy"].as_str(), Some("next"));
    }

    #[test]
    fn networks_are_built_node_by_node() {
        let scenario = ScenarioBuilder::new("1 s")
            .host("c")
            .host("s")
            .router("A")
            .link("c", "A", "10 Mbit/s", "1 ms")
            .link_with("A", "s", part([("rate", "1 Mbit/s"), ("delay", "2 ms")]).with("weight", 5))
            .path("all", ["c-A", "A-s"])
            .flow(exec("c", ["true"]))
            .build();
        let link = &scenario.topology.links()[1];
        assert_eq!((link.ab.rate, link.ab.delay, link.ab.weight), (Rate::from_mbits(1), Span::from_millis(2), 5));
        assert_eq!(scenario.topology.paths()[0].links.len(), 2);
        assert!(matches!(&scenario.flows[0], Flow::Exec(flow) if flow.command == ["true"]));
    }

    #[test]
    #[should_panic(expected = "unknown field `pahts`")]
    fn a_key_that_there_is_not_is_refused() {
        let _ = ScenarioBuilder::new("1 s").parallel_paths(2).network("pahts", 3).build();
    }

    #[test]
    #[should_panic(expected = "`x` is 0 times in the text")]
    fn what_is_not_there_cannot_be_replaced() {
        replace_once("abc", "x", "y");
    }
}
