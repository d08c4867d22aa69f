//! Nodes and edges with keys and texts, as most formats have them, made into a graph.

use std::collections::BTreeMap;

use sidestep_net::{GraphEdge, GraphNode, MAX_QUANTITY, Rate, Span};

use super::{
    Fault, Graph,
    mapping::{Guess, Mapping, Measure, Role, Unit, guess},
    plausible, quantity,
    reading::{Reading, Taken},
    shown,
};

/// A file's nodes and edges before their keys are understood.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) keys: Vec<Key>,
    pub(super) nodes: Vec<RawNode>,
    pub(super) edges: Vec<RawEdge>,
    /// How it was decided which edges have one direction, where that is not the format's.
    pub(super) directions: Option<Taken>,
    /// What is left out of the file.
    pub(super) warnings: Vec<String>,
}

/// A key of nodes, of edges or of both.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) of_nodes: bool,
    pub(super) of_edges: bool,
    /// What it means for nodes, and for edges.
    node: Option<Meaning>,
    edge: Option<Meaning>,
    /// The value of elements without one.
    pub(super) default: Option<Text>,
    /// Whether any element has it.
    pub(super) is_used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Meaning {
    role: Role,
    unit: Option<Unit>,
    /// Whether neither the file nor the user says the unit.
    assumed: bool,
    rank: u8,
    /// Whether the format or the user gives the meaning, so that a wrong value is an error.
    certain: bool,
}

/// A text and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) at: usize,
    pub(super) text: String,
}

/// A value of a key, by the key's place.
pub(super) type Cell = (u32, Text);

/// A node; its id is its name if no key names it.
#[derive(Debug)]
pub(super) struct RawNode {
    pub(super) id: String,
    pub(super) cells: Vec<Cell>,
}

/// An edge between two nodes, by their places.
#[derive(Debug)]
pub(super) struct RawEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) directed: bool,
    pub(super) cells: Vec<Cell>,
}

impl Key {
    /// A key of this name; `certain` says which units the format itself fixes.
    pub(super) fn new(name: &str, (of_nodes, of_edges): (bool, bool), mapping: &Mapping, fixed: &[Fixed]) -> Key {
        let meaning = |of_nodes: bool| {
            if let Some((role, unit)) = mapping.keys.get(name) {
                let is_node = matches!(role, Role::Name | Role::Longitude | Role::Latitude);
                let fits = *role == Role::Ignore || is_node == of_nodes;
                return fits.then_some(Meaning {
                    role: *role,
                    unit: *unit,
                    assumed: unit.is_none(),
                    rank: 0,
                    certain: true,
                });
            }
            if let Some((.., role, unit)) = fixed.iter().find(|(key, nodes, ..)| *key == name && *nodes == of_nodes) {
                let unit = unit.and_then(|unit| Unit::of(*role, unit));
                return Some(Meaning { role: *role, unit, assumed: false, rank: 0, certain: true });
            }
            let Guess { role, unit, assumed, rank } = guess(name, of_nodes)?;
            Some(Meaning { role, unit, assumed, rank: rank + 1, certain: false })
        };
        let (node, edge) = (of_nodes.then(|| meaning(true)).flatten(), of_edges.then(|| meaning(false)).flatten());
        Key { name: name.into(), of_nodes, of_edges, node, edge, default: None, is_used: false }
    }

    /// Whether the values of nodes (or of edges) need not be kept.
    pub(super) fn is_skipped(&self, of_nodes: bool) -> bool {
        let meaning = if of_nodes { &self.node } else { &self.edge };
        meaning.is_none_or(|meaning| meaning.role == Role::Ignore)
    }
}

/// A key that a format fixes: its name, whether it is of nodes, its role, and the unit of its values.
pub(super) type Fixed = (&'static str, bool, Role, Option<&'static str>);

impl Raw {
    /// Understands the keys; fails at a wrong value of a key whose meaning is certain, and if a mapped key is missing.
    pub(super) fn resolve(self, mapping: &Mapping) -> Result<(Graph, Reading), Fault> {
        self.check_mapped(mapping)?;
        let used = vec![false; self.keys.len()];
        let mut columns = Columns { raw: &self, mapping, used, reading: Reading::default() };
        columns.reading.warnings.extend(self.warnings.iter().cloned());
        let names = columns.choose(true, Role::Name, |text| Ok(text.to_owned()))?;
        let degrees = |what| move |text: &str| quantity::number(what, text);
        let longitudes = columns.choose(true, Role::Longitude, degrees("longitude"))?;
        let latitudes = columns.choose(true, Role::Latitude, degrees("latitude"))?;
        let rates = columns.choose(false, Role::Rate, quantity::rate)?;
        let delays = columns.choose(false, Role::Delay, quantity::delay)?;
        let weights = columns.choose(false, Role::Weight, |text| quantity::amount("weight", text))?;
        let (rate_unit, delay_unit) =
            (rates.unit.unwrap_or_else(|| usual_unit(&rates.values)), delays.unit.unwrap_or(MS));
        let mut graph = Graph::default();
        for (index, node) in self.nodes.iter().enumerate() {
            let name = names.at(index).cloned().unwrap_or_else(|| node.id.clone());
            let position = longitudes.at(index).copied().zip(latitudes.at(index).copied());
            // What has no place is at 0, 0 in some formats; no router swims there.
            let position = position.filter(|position| *position != (0.0, 0.0));
            graph.nodes.push(GraphNode { name, position });
        }
        for (index, edge) in self.edges.iter().enumerate() {
            let rate = rates.whole(index, rate_unit, "rate")?;
            if rate == Some(0) {
                return Err(Fault::new(rates.place(index), "the rate is less than 1 bit/s"));
            }
            graph.edges.push(GraphEdge {
                from: edge.from,
                to: edge.to,
                directed: edge.directed,
                weight: weights.at(index).copied(),
                rate: rate.map(Rate::from_bits_per_sec),
                delay: delays.whole(index, delay_unit, "delay")?.map(Span::from_nanos),
            });
        }
        let mut reading = columns.finish();
        let placed = graph.nodes.iter().filter(|node| node.position.is_some()).count();
        let both = longitudes.key.zip(latitudes.key).map(|(one, other)| format!("{one} and {other}"));
        let positions = Taken { known: placed, ..Taken::of("positions", both.as_deref(), graph.nodes.len()) };
        let (names, weights) = (names.taken("names"), weights.taken("weights"));
        let (rates, delays) = (rates.taken_in("rates", rate_unit), delays.taken_in("delays", delay_unit));
        reading.taken = vec![names, positions, rates, delays, weights];
        // Without such a key nodes have the names that the format gives them.
        reading.taken.retain(|taken| taken.kind != "names" || taken.key.is_some());
        reading.taken.extend(self.directions.clone());
        plausible::complete(&mut reading, &graph);
        Ok((graph, reading))
    }

    fn check_mapped(&self, mapping: &Mapping) -> Result<(), Fault> {
        let Some(missing) = mapping.keys.keys().find(|name| !self.keys.iter().any(|key| key.name == **name)) else {
            return Ok(());
        };
        let known: Vec<String> = self.keys.iter().map(|key| format!("`{}`", shown(&key.name))).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Err(Fault::new(0, format!("there is no key `{}` to map; there are {known}", shown(missing))))
    }
}

/// The unit of delays that have none.
const MS: Unit = Unit { name: "ms", measure: Measure::Time, factor: 1e6 };

impl Taken {
    pub(super) fn of(kind: &'static str, key: Option<&str>, of: usize) -> Taken {
        let key = key.map(str::to_owned);
        Taken { kind, key, known: 0, of, unit: None, assumed: false, rest: None }
    }
}

/// The keys of a format that does not declare them, in the order in which they are met.
pub(super) struct Book<'m> {
    mapping: &'m Mapping,
    fixed: &'static [Fixed],
    /// By name, and whether it is of nodes.
    places: BTreeMap<(String, bool), u32>,
}

/// More different keys than this are refused.
const MAX_KEYS: usize = 1_000;

impl<'m> Book<'m> {
    pub(super) fn new(mapping: &'m Mapping, fixed: &'static [Fixed]) -> Self {
        Book { mapping, fixed, places: BTreeMap::new() }
    }

    /// The place of a key that stands at `at`; `None` if its values need not be kept.
    pub(super) fn place(&mut self, raw: &mut Raw, of_nodes: bool, at: usize, name: &str) -> Result<Option<u32>, Fault> {
        let next = raw.keys.len();
        let place = match self.places.get(&(name.to_owned(), of_nodes)) {
            Some(place) => *place,
            None if next == MAX_KEYS => {
                return Err(Fault::new(at, format!("there are more than {MAX_KEYS} different keys")));
            }
            None => {
                let key = Key::new(name, (of_nodes, !of_nodes), self.mapping, self.fixed);
                raw.keys.push(Key { is_used: true, ..key });
                self.places.insert((name.to_owned(), of_nodes), next as u32);
                next as u32
            }
        };
        let is_skipped = raw.keys.get(place as usize).is_none_or(|key| key.is_skipped(of_nodes));
        Ok((!is_skipped).then_some(place))
    }
}

/// A number and the unit that stands behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) number: f64,
    pub(super) unit: Option<Unit>,
}

/// The keys while they are understood.
struct Columns<'r> {
    raw: &'r Raw,
    mapping: &'r Mapping,
    /// By key: whether something was made of it.
    used: Vec<bool>,
    reading: Reading,
}

/// The values of the key that was chosen for a role, by node or edge, each with where it stands.
struct Column<T> {
    /// The key's name in quotes.
    key: Option<String>,
    unit: Option<Unit>,
    assumed: bool,
    /// How many nodes or edges there are.
    of: usize,
    values: Vec<Option<(usize, T)>>,
}

impl<T> Column<T> {
    fn at(&self, index: usize) -> Option<&T> {
        self.values.get(index)?.as_ref().map(|(_, value)| value)
    }

    /// Where a value stands.
    fn place(&self, index: usize) -> usize {
        self.values.get(index).and_then(|value| value.as_ref()).map_or(0, |(at, _)| *at)
    }

    fn taken(&self, kind: &'static str) -> Taken {
        let known = self.values.iter().flatten().count();
        Taken { known, ..Taken::of(kind, self.key.as_deref(), self.of) }
    }
}

impl Column<Amount> {
    /// A value in bits per second or nanoseconds, if it has no unit of its own in this one.
    fn whole(&self, index: usize, unit: Unit, what: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.at(index) else { return Ok(None) };
        let amount = (value.number * value.unit.unwrap_or(unit).factor).round();
        if amount > MAX_QUANTITY as f64 {
            return Err(Fault::new(self.place(index), format!("the {what} is too large for its unit")));
        }
        Ok(Some(amount as u64))
    }

    fn taken_in(&self, kind: &'static str, unit: Unit) -> Taken {
        let is_said = self.values.iter().flatten().any(|(_, value)| value.unit.is_none());
        Taken { unit: is_said.then_some(unit.name), assumed: self.assumed, ..self.taken(kind) }
    }
}

impl Columns<'_> {
    /// The values of the first key of this role that has some, by rank.
    fn choose<T>(
        &mut self,
        of_nodes: bool,
        role: Role,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Column<T>, Fault> {
        let keys = self.raw.keys.iter().enumerate();
        let of = |key: &Key| if of_nodes { key.node } else { key.edge };
        let mut candidates: Vec<(usize, Meaning)> =
            keys.filter_map(|(index, key)| Some((index, of(key).filter(|meaning| meaning.role == role)?))).collect();
        // Where the user names a key, others are not guessed.
        let is_mapped = |(index, _): &(usize, Meaning)| {
            self.raw.keys.get(*index).is_some_and(|key| self.mapping.keys.contains_key(&key.name))
        };
        if candidates.iter().any(is_mapped) {
            candidates.retain(is_mapped);
        }
        candidates.sort_by_key(|(index, meaning)| (meaning.rank, *index));
        for (index, meaning) in candidates {
            let Some(key) = self.raw.keys.get(index) else { continue };
            // A long default name would be copied to every node.
            let default = key.default.as_ref().filter(|_| role != Role::Name);
            let values: Result<Vec<_>, (usize, String)> = self
                .texts(of_nodes, index, default)
                .map(|text| match text.filter(|text| !text.text.trim().is_empty()) {
                    Some(Text { at, text }) => {
                        read(text.trim()).map(|value| Some((*at, value))).map_err(|error| (*at, error))
                    }
                    None => Ok(None),
                })
                .collect();
            match values {
                Ok(values) if values.iter().any(Option::is_some) => {
                    if let Some(used) = self.used.get_mut(index) {
                        *used = true;
                    }
                    let key = Some(format!("`{}`", shown(&key.name)));
                    return Ok(Column { key, unit: meaning.unit, assumed: meaning.assumed, of: values.len(), values });
                }
                Ok(_) => {}
                Err((at, error)) if meaning.certain => return Err(Fault::new(at, error)),
                Err((_, error)) => {
                    self.reading.warnings.push(format!("the key `{}` is not read: {error}", shown(&key.name)));
                }
            }
        }
        let of = if of_nodes { self.raw.nodes.len() } else { self.raw.edges.len() };
        Ok(Column { key: None, unit: None, assumed: true, of, values: Vec::new() })
    }

    /// By node or edge, the text of a key.
    fn texts<'t>(
        &'t self,
        of_nodes: bool,
        key: usize,
        default: Option<&'t Text>,
    ) -> impl Iterator<Item = Option<&'t Text>> {
        let nodes = self.raw.nodes.iter().map(|node| &node.cells).filter(move |_| of_nodes);
        let edges = self.raw.edges.iter().map(|edge| &edge.cells).filter(move |_| !of_nodes);
        nodes.chain(edges).map(move |cells| {
            let own = cells.iter().rev().find(|(of, _)| *of as usize == key).map(|(_, text)| text);
            own.or(default)
        })
    }

    fn finish(self) -> Reading {
        let Columns { raw, used, mut reading, .. } = self;
        for (key, used) in raw.keys.iter().zip(used) {
            let is_named = reading.ignored.contains(&key.name);
            if !used && !is_named && key.is_used && (key.of_nodes || key.of_edges) {
                reading.ignored.push(key.name.clone());
            }
        }
        reading
    }
}

/// The unit that rates without one probably have: 45 000 000 are bit/s, 10 000 Mbit/s, and 10 Gbit/s.
fn usual_unit(values: &[Option<(usize, Amount)>]) -> Unit {
    let most = values.iter().flatten().map(|(_, value)| value.number).fold(0.0, f64::max);
    let name = match most {
        most if most >= 1e6 => "bit/s",
        most if most >= 1e3 => "Mbit/s",
        _ => "Gbit/s",
    };
    Unit::of(Role::Rate, name).unwrap_or(Unit { name: "bit/s", measure: Measure::Rate, factor: 1.0 })
}
