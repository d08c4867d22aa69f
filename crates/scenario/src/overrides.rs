//! Values laid over those of a scenario file, as `--set topology.rate=10Mbit/s` does.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

mod inside;

use std::str::FromStr;

use thiserror::Error;
use toml_edit::{DocumentMut, Value};

use self::inside::Inside;

/// A key of a scenario file and what it is set to.
///
/// Entries of lists are counted from 0: `flow[0].connections` and `flow.0.connections` are the same.
///
/// ```
/// use sidestep_scenario::overrides::{Override, apply};
///
/// let text = "duration = \"1 s\"\n[[flow]]\nkind = \"bulk\"\n";
/// let set: [Override; 2] = ["topology.rate=5 Mbit/s".parse()?, "flow[0].connections=3".parse()?];
/// let text = apply(text, &set)?;
/// assert_eq!(text, "duration = \"1 s\"\n[[flow]]\nkind = \"bulk\"\nconnections = 3\n\n[topology]\nrate = \"5 Mbit/s\"\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Override {
    /// The key as it was written.
    key: String,
    path: Vec<Part>,
    value: Value,
}

/// A step towards what is set, and the key as far as this step.
#[derive(Clone, Debug)]
struct Part {
    step: Step,
    so_far: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A key of a table; a number may also be that of an entry of a list.
    Key(String),
    /// The number of an entry of a list, in brackets.
    Entry(usize),
}

/// A key of a scenario file, and several values for it.
///
/// ```
/// use sidestep_scenario::overrides::Sweep;
///
/// let sweep: Sweep = "pathchanger.congestion_backoff={ min = \"1 s\", max = \"2 s\" },{ min = \"2 s\", max = \"4 s\" }".parse()?;
/// assert_eq!((sweep.key(), sweep.values().len()), ("pathchanger.congestion_backoff".to_owned(), 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sweep(Vec<Override>);

/// Why a key cannot be set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OverrideError {
    /// Not `KEY=VALUE`.
    #[error("`{0}` is not KEY=VALUE, such as topology.rate=10Mbit/s or flow[0].connections=4")]
    Form(String),
    /// The value begins like a list, a table or a quoted text of TOML, and is none.
    #[error("`{key}`: {value} is not TOML: {problem}; texts in lists and tables need quotes")]
    Value {
        /// The whole key.
        key: String,
        /// The value as it was written.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The key leads into a list without a number.
    #[error("`{key}`: `{list}` is a list of {length}; {}", entries(.list, *.length))]
    List {
        /// The whole key.
        key: String,
        /// The part that is a list.
        list: String,
        /// How many entries it has.
        length: usize,
    },
    /// The list is shorter, or is not there.
    #[error("`{key}`: there is no `{list}[{number}]`; {}", entries(.list, *.length))]
    Short {
        /// The whole key.
        key: String,
        /// The part that is a list.
        list: String,
        /// The number of the entry that is not there.
        number: usize,
        /// How many entries it has.
        length: usize,
    },
    /// An entry of a list of tables is set to what is no table.
    #[error("`{key}` is a table; set one of its keys ({}), or all at once, such as {key}={{ … }}", .keys.join(", "))]
    Table {
        /// The whole key.
        key: String,
        /// The keys that it has.
        keys: Vec<String>,
    },
    /// A number is given where there is no list.
    #[error("`{key}`: `{part}` is a table and not a list; its keys are {}", .keys.join(", "))]
    NoList {
        /// The whole key.
        key: String,
        /// The part that is a table.
        part: String,
        /// The keys that it has.
        keys: Vec<String>,
    },
    /// The key leads through a value that has no keys.
    #[error("`{key}`: `{part}` is a value and has no keys; set `{part}` itself")]
    NoTable {
        /// The whole key.
        key: String,
        /// The part that is a value.
        part: String,
    },
    /// Not `KEY=VALUE,VALUE…`.
    #[error("`{0}` is not KEY=VALUE,VALUE,… with one value or more, such as topology.rate=10Mbit/s,20Mbit/s")]
    Values(String),
    /// The file itself is no TOML.
    #[error("{0}")]
    File(String),
}

/// What can be set in a list of this many entries.
fn entries(list: &str, length: usize) -> String {
    match length {
        0 => format!("`{list}` has no entries"),
        1 => format!("say {list}[0] for its one entry"),
        length => format!("say {list}[0] for the first of its entries, {list}[{}] for the last", length - 1),
    }
}

impl FromStr for Override {
    type Err = OverrideError;

    /// Reads `KEY=VALUE`. The value is TOML, or else text, so that quotes can be left out.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || OverrideError::Form(text.to_owned());
        let (key, written) = text.split_once('=').ok_or_else(form)?;
        let (key, written) = (key.trim(), written.trim());
        let path = steps(key).ok_or_else(form)?;
        let value = written.parse::<Value>().or_else(|error| match written.starts_with(['[', '{', '"', '\'']) {
            true => {
                let problem = error.to_string().lines().last().unwrap_or_default().to_owned();
                Err(OverrideError::Value { key: key.to_owned(), value: written.to_owned(), problem })
            }
            false => Ok(Value::from(written)),
        })?;
        Ok(Override { key: key.to_owned(), path, value: value.decorated(" ", "") })
    }
}

/// The steps of a key such as `flow[0].size.mean`; `None` if it is not written like one.
fn steps(key: &str) -> Option<Vec<Part>> {
    let mut path: Vec<Part> = Vec::new();
    for part in key.split('.') {
        let (name, brackets) = part.trim().split_at_checked(part.trim().find('[').unwrap_or(part.trim().len()))?;
        let is_key = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if !is_key {
            return None;
        }
        let before = path.last().map_or(String::new(), |part| format!("{}.", part.so_far));
        path.push(Part { step: Step::Key(name.to_owned()), so_far: format!("{before}{name}") });
        let mut rest = brackets;
        while !rest.is_empty() {
            let (number, after) = rest.strip_prefix('[')?.split_once(']')?;
            let entry = number.trim().parse().ok()?;
            let before = path.last().map_or("", |part| part.so_far.as_str());
            path.push(Part { step: Step::Entry(entry), so_far: format!("{before}[{entry}]") });
            rest = after;
        }
    }
    Some(path)
}

impl FromStr for Sweep {
    type Err = OverrideError;

    /// Reads `KEY=VALUE,VALUE,…`. Commas within quotes, brackets and braces are a value's own.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || OverrideError::Values(text.to_owned());
        let (key, values) = text.split_once('=').ok_or_else(form)?;
        let values = split(values);
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(form());
        }
        let set = values.into_iter().map(|value| {
            format!("{key}={value}").parse().map_err(|error| match error {
                OverrideError::Form(_) => form(),
                error => error,
            })
        });
        Ok(Sweep(set.collect::<Result<_, _>>()?))
    }
}

impl Sweep {
    /// The key.
    pub fn key(&self) -> String {
        self.0.first().map_or_else(String::new, |first| first.key.clone())
    }

    /// The key with each of the values.
    pub fn values(&self) -> &[Override] {
        &self.0
    }
}

/// The parts between the commas that are not within quotes, brackets or braces.
fn split(values: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    for (at, c) in values.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.extend(values.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(values.get(from..));
    parts
}

/// The text of a scenario file in which these keys have these values. Lines that are not set stay as they are.
pub fn apply(text: &str, set: &[Override]) -> Result<String, OverrideError> {
    if set.is_empty() {
        return Ok(text.to_owned());
    }
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| OverrideError::File(error.to_string()))?;
    for one in set {
        one.lay_over(&mut document)?;
    }
    Ok(document.to_string())
}

impl Override {
    fn lay_over(&self, document: &mut DocumentMut) -> Result<(), OverrideError> {
        let Some((last, path)) = self.path.split_last() else { return Ok(()) };
        let mut at = Inside::Table(document.as_table_mut());
        let mut before = "";
        for (depth, part) in path.iter().enumerate() {
            let next = self.path.get(depth + 1);
            at = at.enter(self, before, part, next)?;
            before = &part.so_far;
        }
        at.set(self, before, last)
    }

    /// The value as TOML, a text without its quotes.
    pub fn value(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string().trim().to_owned(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# Why.\nduration = \"1 s\" # short\ntcp = { ecn = true }\n\n[[flow]]\nkind = \"bulk\"\n\n[[flow]]\nkind = \"cbr\"\nsize = { mean = \"3 kB\" }\n";

    fn set(text: &str, set: &[&str]) -> Result<String, OverrideError> {
        apply(text, &set.iter().map(|one| one.parse()).collect::<Result<Vec<Override>, _>>()?)
    }

    #[test]
    fn a_key_is_set_where_it_stands_and_all_else_stays() {
        let text = set(FILE, &["duration=2 s", "flow.1.size.mean=\"9 kB\"", "tcp.ecn=false", "flow.1.rate=5"]).unwrap();
        let expected = FILE.replace("\"1 s\"", "\"2 s\"").replace("3 kB", "9 kB").replace("true", "false");
        assert_eq!(text, expected + "rate = 5\n");
        assert_eq!(set(FILE, &[]).unwrap(), FILE);
    }

    #[test]
    fn tables_that_are_missing_are_made_and_the_last_value_counts() {
        let text =
            set("a = 1\n", &["pathchanger.gamma=0.2", "pathchanger.gamma=0.3", "pathchanger.policy=plb"]).unwrap();
        assert_eq!(text, "a = 1\n\n[pathchanger]\ngamma = 0.3\npolicy = \"plb\"\n");
    }

    #[test]
    fn a_topology_that_is_named_in_short_has_keys_too() {
        let text =
            set("topology = \"Abilene\" # small\n[tcp]\n", &["topology.rate=5 Mbit/s", "topology.hosts=2"]).unwrap();
        assert_eq!(text, "topology = { network = \"Abilene\", rate = \"5 Mbit/s\", hosts = 2} # small\n[tcp]\n");
        assert_eq!(set("topology = \"a\"\n", &["topology=b"]).unwrap(), "topology = \"b\"\n");
    }

    #[test]
    fn entries_of_lists_in_one_line_are_set_at_any_depth() {
        let file = "systems = [\"tcp\", \"random\"] # two\nflow = [{ kind = \"bulk\", size = { mean = \"1 kB\" } }, { kind = \"cbr\" }]\nlate = [[\"1 s\", \"2 ms\"]]\n";
        let changed = |one: &[&str]| set(file, one).unwrap();
        for key in ["flow[0].size.mean", "flow.0.size.mean", "flow[ 0 ] . size.mean"] {
            assert_eq!(changed(&[&format!("{key}=9 kB")]), file.replace("1 kB", "9 kB"), "{key}");
        }
        assert_eq!(changed(&["flow[1].size=5 kB"]), file.replace("\"cbr\" }", "\"cbr\" , size = \"5 kB\"}"));
        assert_eq!(
            changed(&["flow.0={ kind = \"x\" }"]),
            file.replace("{ kind = \"bulk\", size = { mean = \"1 kB\" } }", "{ kind = \"x\" }")
        );
        assert_eq!(changed(&["systems[1]=plb"]), file.replace("random", "plb"));
        assert_eq!(changed(&["systems=[\"plb\"]"]), file.replace("[\"tcp\", \"random\"]", "[\"plb\"]"));
        assert_eq!(changed(&["late[0][1]=7 ms"]), file.replace("2 ms", "7 ms"));
        // A table that is missing is made in the same line, where one with lines of its own would be lost.
        let deep = changed(&["flow[1].tcp.ecn=true"]);
        assert!(deep.contains("tcp = { ecn = true") && deep.parse::<DocumentMut>().is_ok(), "{deep}");
    }

    #[test]
    fn a_table_of_a_list_with_lines_of_its_own_is_replaced_as_a_whole_and_so_is_the_list() {
        let text = set(FILE, &["flow[0]={ kind = \"cbr\", rate = 3 }"]).unwrap();
        assert_eq!(text, FILE.replacen("kind = \"bulk\"", "kind = \"cbr\"\nrate = 3", 1));
        let text = set(FILE, &["flow=[{ kind = \"bulk\" }]"]).unwrap();
        assert!(text.contains("flow = [{ kind = \"bulk\" }]") && !text.contains("[[flow]]"), "{text}");
        assert!(!set(FILE, &["flow=[]"]).unwrap().contains("kind"));
    }

    #[test]
    fn a_key_that_leads_nowhere_is_answered_with_what_can_be_set() {
        let form =
            |key: &str| format!("`{key}` is not KEY=VALUE, such as topology.rate=10Mbit/s or flow[0].connections=4");
        let file = format!("{FILE}[[event]]\nlinks = [\"a\", \"b\"]\n");
        for (one, says) in [
            ("duration", form("duration")),
            (".a=1", form(".a=1")),
            ("flow[x].a=1", form("flow[x].a=1")),
            ("flow[0=1", form("flow[0=1")),
            ("flow[-1].a=1", form("flow[-1].a=1")),
            ("[0].a=1", form("[0].a=1")),
            ("flow.size=1", "`flow.size`: `flow` is a list of 2; say flow[0] for the first of its entries, flow[1] for the last".into()),
            ("flow=1", "`flow`: `flow` is a list of 2; say flow[0] for the first of its entries, flow[1] for the last".into()),
            ("flow=[1]", "`flow`: `flow` is a list of 2; say flow[0] for the first of its entries, flow[1] for the last".into()),
            ("flow.2.size=1", "`flow.2.size`: there is no `flow[2]`; say flow[0] for the first of its entries, flow[1] for the last".into()),
            ("event[1].at=1", "`event[1].at`: there is no `event[1]`; say event[0] for its one entry".into()),
            ("event[0].links[2]=c", "`event[0].links[2]`: there is no `event[0].links[2]`; say event[0].links[0] for the first of its entries, event[0].links[1] for the last".into()),
            ("event[0].links.x=c", "`event[0].links.x`: `event[0].links` is a list of 2; say event[0].links[0] for the first of its entries, event[0].links[1] for the last".into()),
            ("impairment[0].loss=1", "`impairment[0].loss`: there is no `impairment[0]`; `impairment` has no entries".into()),
            ("impairment.0.loss=1", "`impairment.0.loss`: there is no `impairment[0]`; `impairment` has no entries".into()),
            ("flow[1]=5", "`flow[1]` is a table; set one of its keys (kind, size), or all at once, such as flow[1]={ … }".into()),
            ("tcp[0]=5", "`tcp[0]`: `tcp` is a table and not a list; its keys are ecn".into()),
            ("tcp[0].x=5", "`tcp[0].x`: `tcp` is a table and not a list; its keys are ecn".into()),
            ("duration.x=1", "`duration.x`: `duration` is a value and has no keys; set `duration` itself".into()),
            ("duration[0]=1", "`duration[0]`: `duration` is a value and has no keys; set `duration` itself".into()),
        ] {
            assert_eq!(set(&file, &[one]).unwrap_err().to_string(), says);
        }
        for one in ["systems=[tcp, plb]", "flow[0]={ kind = bulk }", "name=\"x"] {
            let says = set(FILE, &[one]).unwrap_err().to_string();
            assert!(says.contains("is not TOML") && says.ends_with("texts in lists and tables need quotes"), "{says}");
        }
    }

    #[test]
    fn a_sweep_has_the_values_between_the_commas_that_are_its_own() {
        let values = |text: &str| -> Vec<String> {
            text.parse::<Sweep>().unwrap().values().iter().map(Override::value).collect()
        };
        assert_eq!(values("topology.rate=10 Mbit/s, \"20, or so\",5"), ["10 Mbit/s", "20, or so", "5"]);
        assert_eq!(values("a={ x = 1, y = [1, 2] },{ x = 2 }"), ["{ x = 1, y = [1, 2] }", "{ x = 2 }"]);
        assert_eq!(values("a=true"), ["true"]);
        let sweep: Sweep = "flow[0].systems[1]=tcp,plb".parse().unwrap();
        assert_eq!((sweep.key().as_str(), sweep.values().len()), ("flow[0].systems[1]", 2));
        assert!("a=[x],[y]".parse::<Sweep>().unwrap_err().to_string().contains("is not TOML"));
        for wrong in ["a", "a=", "a=1,,2", "a=1,", "=1,2"] {
            let says = wrong.parse::<Sweep>().unwrap_err().to_string();
            assert!(says.starts_with(&format!("`{wrong}` is not KEY=VALUE")), "{wrong}: {says}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(one in "[a-z.0-9=\\[\\]{}\" ]{0,30}|[a-c]([.][a-c0-2]|\\[[0-2]\\]){0,3}=([0-9]|[{][}]|\\[[{][}]\\])", file in "(a = 1\n|\\[[a-z]\\]\n|\\[\\[[a-z]\\]\\]\n|[a-z]=\\{\\}\n|[a-c]=\\[\\{\\},\\{a=\\[1,2\\]\\}\\]\n){0,4}") {
            if let Ok(text) = set(&file, &[&one]) {
                prop_assert!(text.parse::<DocumentMut>().is_ok(), "{text}");
            }
        }
    }
}
