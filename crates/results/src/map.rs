//! A topology as a map.

use maud::{Markup, html};
use sidestep_net::Graph;

use crate::stacks::picture;

const WIDTH: i32 = 1000;
/// A map is no higher than this, and no lower than [`LOWEST`].
const HIGHEST: i32 = 720;
const LOWEST: i32 = 260;
const MARGIN: i32 = 60;
const TOP: i32 = 50;
/// With more nodes than this, names would hide the map; they are still shown where the reader points.
const MAX_NAMES: usize = 80;
/// With more nodes than this, springs take too long, and a circle must do.
const MAX_SPRINGS: usize = 500;
/// The colour of access routers.
const ACCESS: &str = "#e69f00";

/// What a [`draw`] shows beside nodes and links.
pub struct Look<'a> {
    /// By node of the graph: whether the node is an access router.
    pub is_access: &'a dyn Fn(usize) -> bool,
    /// By index in the list of links: how much the link stands out, from 0 to 1.
    pub heat: &'a dyn Fn(usize) -> f64,
    /// By index in the list of links: the text that appears when the reader points at the link.
    pub tip: &'a dyn Fn(usize) -> String,
    /// What the legend shows for links that stand out; `None` if no link does.
    pub key: Option<&'a str>,
}

/// A map of these nodes and links of a graph as SVG text; access routers stand out.
///
/// Longitude and latitude place a node. A node without them stands among its neighbours. If most nodes have no position,
/// links pull them together like springs.
pub fn draw(graph: &Graph, nodes: &[usize], links: &[[usize; 2]], look: &Look<'_>) -> String {
    let Layout { places, height } = layout(graph, nodes, links);
    let access = nodes.iter().filter(|node| (look.is_access)(**node)).count();
    let content = html! {
        text x="20" y="32" font-size="20" { (graph.name) ": " (nodes.len()) " nodes, " (links.len()) " links" }
        (keys(access, look.key))
        (lines(graph, links, &places, look))
        (dots(graph, nodes, &places, look))
        @if nodes.len() <= MAX_NAMES {
            (names(graph, nodes, &places, height))
        }
    };
    picture([WIDTH as usize, height as usize], 11, &content)
}

/// The links; what stands out is drawn last, over the others.
fn lines(graph: &Graph, links: &[[usize; 2]], places: &[Option<(i32, i32)>], look: &Look<'_>) -> Markup {
    let at = |node: usize| places.get(node).copied().flatten();
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_by(|a, b| (look.heat)(*a).total_cmp(&(look.heat)(*b)));
    let lines = order.into_iter().filter_map(|link| {
        let [a, b] = links[link];
        let tip = format!("{} – {}{}", name(graph, a), name(graph, b), (look.tip)(link));
        Some((at(a)?, at(b)?, shade((look.heat)(link)), tip))
    });
    html! {
        @for (from, to, (color, thick), tip) in lines {
            line x1=(from.0) y1=(from.1) x2=(to.0) y2=(to.1) stroke=(color) stroke-width=(format!("{thick:.1}"))
                stroke-linecap="round" {
                title { (tip) }
            }
        }
    }
}

fn dots(graph: &Graph, nodes: &[usize], places: &[Option<(i32, i32)>], look: &Look<'_>) -> Markup {
    let dots = nodes.iter().filter_map(|node| {
        let (color, radius) = if (look.is_access)(*node) { (ACCESS, "5") } else { ("#0072b2", "4.5") };
        let radius = if nodes.len() > 300 { "3" } else { radius };
        Some((places.get(*node).copied().flatten()?, color, radius, name(graph, *node)))
    });
    html! {
        @for ((x, y), color, radius, name) in dots {
            circle cx=(x) cy=(y) r=(radius) fill=(color) stroke="#ffffff" { title { (name) } }
        }
    }
}

fn name(graph: &Graph, node: usize) -> &str {
    graph.nodes.get(node).map_or("", |node| node.name.as_str())
}

/// The colour and the width of a link.
fn shade(heat: f64) -> (String, f64) {
    let heat = heat.clamp(0.0, 1.0);
    let mix = |from: f64, to: f64| (from + (to - from) * heat.sqrt()).round() as u8;
    let color = if heat > 0.0 {
        format!("#{:02x}{:02x}{:02x}", mix(225.0, 178.0), mix(170.0, 24.0), mix(170.0, 43.0))
    } else {
        "#b0b0b0".into()
    };
    (color, 1.3 + 3.2 * heat)
}

fn keys(access: usize, key: Option<&str>) -> Markup {
    let x = WIDTH - 370;
    let (color, thick) = shade(1.0);
    html! {
        circle cx=(x) cy="22" r="5" fill=(ACCESS) {}
        text x=(x + 14) y="27" font-size="14" { "access routers (degree 2 after pruning): " (access) }
        @if let Some(key) = key {
            line x1=(x - 12) y1="46" x2=(x + 8) y2="46" stroke=(color) stroke-width=(format!("{thick:.1}")) {}
            text x=(x + 14) y="51" font-size="14" { (key) }
        }
    }
}

/// The names that have room, beside, above or below their nodes.
fn names(graph: &Graph, nodes: &[usize], places: &[Option<(i32, i32)>], height: i32) -> Markup {
    let node_box = |(x, y): (i32, i32)| [x - 6, y - 6, x + 6, y + 6];
    let mut taken: Vec<[i32; 4]> = places.iter().flatten().map(|place| node_box(*place)).collect();
    let free = |taken: &[[i32; 4]], [left, top, right, bottom]: [i32; 4]| {
        let inside = left >= 0 && right <= WIDTH && top >= 0 && bottom <= height;
        inside && taken.iter().all(|one| one[0] >= right || one[2] <= left || one[1] >= bottom || one[3] <= top)
    };
    let mut written = Vec::new();
    for node in nodes {
        let Some((x, y)) = places.get(*node).copied().flatten() else { continue };
        let Some(node) = graph.nodes.get(*node) else { continue };
        let name: String = node.name.chars().take(24).collect();
        let wide = 6 * name.chars().count() as i32;
        let around = [
            ("start", x + 8, [x + 7, y - 6, x + 8 + wide, y + 6], y + 4),
            ("end", x - 8, [x - 8 - wide, y - 6, x - 7, y + 6], y + 4),
            ("middle", x, [x - wide / 2, y - 19, x + wide / 2, y - 7], y - 9),
            ("middle", x, [x - wide / 2, y + 7, x + wide / 2, y + 19], y + 17),
        ];
        if let Some((anchor, left, room, base)) = around.into_iter().find(|(_, _, room, _)| free(&taken, *room)) {
            taken.push(room);
            written.push((anchor, left, base, name));
        }
    }
    html! {
        @for (anchor, left, base, name) in written {
            text x=(left) y=(base) text-anchor=(anchor) stroke="#ffffff" stroke-width="3" paint-order="stroke" { (name) }
        }
    }
}

/// The places of the nodes, and the height of the picture.
struct Layout {
    /// By node of the graph.
    places: Vec<Option<(i32, i32)>>,
    /// Of the picture.
    height: i32,
}

fn layout(graph: &Graph, nodes: &[usize], links: &[[usize; 2]]) -> Layout {
    // REPETITA writes 0, 0 where it does not know.
    let known = |node: usize| graph.nodes.get(node)?.position.filter(|position| *position != (0.0, 0.0));
    let mut plane: Vec<Option<(f64, f64)>> = vec![None; graph.nodes.len()];
    let placed: Vec<(usize, (f64, f64))> = nodes.iter().filter_map(|node| Some((*node, known(*node)?))).collect();
    if placed.len() * 2 > nodes.len() {
        let middle = placed.iter().map(|(_, (_, latitude))| latitude).sum::<f64>() / placed.len() as f64;
        let narrow = middle.to_radians().cos().abs().max(0.1);
        for (node, (longitude, latitude)) in placed {
            plane[node] = Some((longitude * narrow, -latitude));
        }
        settle(&mut plane, nodes, links);
    } else {
        for (index, node) in nodes.iter().enumerate() {
            let angle = std::f64::consts::TAU * index as f64 / nodes.len() as f64;
            plane[*node] = Some((angle.sin(), -angle.cos()));
        }
        if nodes.len() <= MAX_SPRINGS {
            spring(&mut plane, nodes, links);
        }
    }
    fit(&plane)
}

/// Lets links pull and nodes push, from where they are (Fruchterman and Reingold 1991); parts are held by the middle.
fn spring(plane: &mut [Option<(f64, f64)>], nodes: &[usize], links: &[[usize; 2]]) {
    const ROUNDS: usize = 300;
    let apart = (4.0 / nodes.len().max(1) as f64).sqrt();
    for round in 0..ROUNDS {
        let mut force = vec![(0.0, 0.0); plane.len()];
        let mut push = |node: usize, (x, y): (f64, f64), by: f64| {
            force[node] = (force[node].0 + x * by, force[node].1 + y * by);
        };
        for (index, one) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                let (Some(a), Some(b)) = (plane[*one], plane[*other]) else { continue };
                let (x, y) = (a.0 - b.0, a.1 - b.1);
                let by = apart * apart / (x * x + y * y).max(1e-6);
                push(*one, (x, y), by);
                push(*other, (x, y), -by);
            }
            push(*one, plane[*one].unwrap_or_default(), -0.3 * apart);
        }
        for [a, b] in links {
            let (Some(from), Some(to)) = (plane[*a], plane[*b]) else { continue };
            let (x, y) = (to.0 - from.0, to.1 - from.1);
            let by = x.hypot(y) / apart;
            push(*a, (x, y), by);
            push(*b, (x, y), -by);
        }
        // Steps become shorter, so that everything comes to rest.
        let step = 0.2 * (1.0 - round as f64 / ROUNDS as f64);
        for node in nodes {
            let (x, y) = force[*node];
            let scale = step / x.hypot(y).max(step);
            if let Some(place) = &mut plane[*node] {
                *place = (place.0 + x * scale, place.1 + y * scale);
            }
        }
    }
}

/// Puts each node without a position into the middle of its placed neighbours, again and again until no more get one.
fn settle(plane: &mut [Option<(f64, f64)>], nodes: &[usize], links: &[[usize; 2]]) {
    for _ in 0..nodes.len() {
        let mut sums = vec![(0.0, 0.0, 0.0); plane.len()];
        for [a, b] in links {
            for (from, to) in [(*a, *b), (*b, *a)] {
                if let (Some((x, y)), None) = (plane[from], plane[to]) {
                    let sum = &mut sums[to];
                    *sum = (sum.0 + x, sum.1 + y, sum.2 + 1.0);
                }
            }
        }
        let mut moved = false;
        for (place, (x, y, count)) in plane.iter_mut().zip(sums).filter(|(_, sum)| sum.2 > 0.0) {
            *place = Some((x / count, y / count));
            moved = true;
        }
        if !moved {
            break;
        }
    }
    // A node that no placed node leads to stands in the middle of all.
    let (sum, count) =
        plane.iter().flatten().fold(((0.0, 0.0), 0.0), |((x, y), n), place| ((x + place.0, y + place.1), n + 1.0));
    for node in nodes {
        plane[*node].get_or_insert((sum.0 / f64::max(count, 1.0), sum.1 / f64::max(count, 1.0)));
    }
}

/// Scales the plane to the picture, by one factor for both axes, and chooses a height that holds it.
fn fit(plane: &[Option<(f64, f64)>]) -> Layout {
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let values = || plane.iter().flatten().map(pick);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    };
    let (left, right) = bounds(|place| place.0);
    let (top, bottom) = bounds(|place| place.1);
    let room = (f64::from(WIDTH - 2 * MARGIN), f64::from(HIGHEST - TOP - 2 * MARGIN));
    let scale = (room.0 / (right - left).max(1e-9)).min(room.1 / (bottom - top).max(1e-9));
    let needed = ((bottom - top) * scale).ceil().max(0.0) as i32 + TOP + 2 * MARGIN;
    let height = needed.clamp(LOWEST, HIGHEST);
    let place = |(x, y): (f64, f64)| {
        let center = (f64::from(WIDTH) / 2.0, f64::from(height + TOP) / 2.0);
        let x = center.0 + (x - (left + right) / 2.0) * scale;
        let y = center.1 + (y - (top + bottom) / 2.0) * scale;
        (x.round() as i32, y.round() as i32)
    };
    Layout { places: plane.iter().map(|known| known.map(place)).collect(), height }
}

#[cfg(test)]
mod tests {
    use sidestep_net::GraphNode;

    use super::*;

    fn graph(positions: &[Option<(f64, f64)>]) -> Graph {
        let node = |position: &Option<(f64, f64)>| GraphNode { name: "<a>&\u{1}".into(), position: *position };
        Graph { name: "g<".into(), nodes: positions.iter().map(node).collect(), edges: Vec::new(), ..Graph::default() }
    }

    #[test]
    fn north_is_up_and_east_is_right() {
        let graph = graph(&[Some((10.0, 50.0)), Some((12.0, 50.0)), Some((10.0, 51.0))]);
        let places: Vec<_> = layout(&graph, &[0, 1, 2], &[]).places.into_iter().flatten().collect();
        assert!(places[1].0 > places[0].0 && places[1].1 == places[0].1);
        assert!(places[2].1 < places[0].1 && places[2].0 == places[0].0);
    }

    #[test]
    fn a_node_without_a_position_is_among_its_neighbours() {
        let graph = graph(&[Some((10.0, 50.0)), Some((12.0, 50.0)), None, Some((0.0, 0.0)), Some((10.0, 52.0))]);
        let places = layout(&graph, &[0, 1, 2, 3, 4], &[[0, 2], [2, 1]]).places;
        let [a, b, middle] = [0, 1, 2].map(|node| places[node].unwrap());
        assert_eq!(middle.0 * 2, a.0 + b.0);
        assert!(places[3].is_some());
    }

    #[test]
    fn springs_put_neighbours_together_and_keep_nodes_apart() {
        // A path of four: its ends come to lie furthest apart.
        let graph = graph(&[None; 4]);
        let found = layout(&graph, &[0, 1, 2, 3], &[[0, 2], [2, 1], [1, 3]]);
        let places: Vec<_> = found.places.into_iter().flatten().collect();
        let far = |a: usize, b: usize| f64::from(places[a].0 - places[b].0).hypot(f64::from(places[a].1 - places[b].1));
        for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
            assert!(far(a, b) > 50.0 && far(0, 3) > far(a, b), "{places:?}");
        }
    }

    #[test]
    fn whatever_positions_there_are_the_map_stays_within_its_edges() {
        let far = [Some((180.0, 90.0)), Some((-180.0, -90.0)), None];
        for positions in
            [&far[..], &[None, None, None], &[Some((1.0, 1.0)); 3], &[Some((1e300, 1.0)), Some((-1e300, 2.0)), None]]
        {
            let graph = graph(positions);
            let Layout { places, height } = layout(&graph, &[0, 1, 2], &[[0, 1], [1, 2], [2, 2]]);
            assert!((LOWEST..=HIGHEST).contains(&height));
            for place in places.into_iter().flatten() {
                assert!((0..=WIDTH).contains(&place.0) && (0..=height).contains(&place.1), "{place:?}");
            }
            let look = Look {
                is_access: &|node| node == 0,
                heat: &|_| f64::NAN,
                tip: &|_| ": <tip>".into(),
                key: Some("<key>"),
            };
            let svg = draw(&graph, &[0, 1, 2], &[[0, 1]], &look);
            let document = roxmltree::Document::parse(&svg).unwrap();
            let texts: Vec<&str> =
                document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
            for wanted in ["g<: 3 nodes, 1 links", "<key>", "<a>&\u{fffd}", "<a>&\u{fffd} – <a>&\u{fffd}: <tip>"] {
                assert!(texts.contains(&wanted), "{wanted} is not among {texts:?}");
            }
        }
    }
}
