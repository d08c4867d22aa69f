//! A topology as a map.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use sidestep_model::formats::Graph;

use crate::{PlotError, summary::printable};

const SIZE: (i32, i32) = (1000, 720);
const MARGIN: i32 = 60;
const TOP: i32 = 50;
const INK: RGBColor = RGBColor(34, 34, 34);
const LINK: RGBColor = RGBColor(150, 150, 150);
const NODE: RGBColor = RGBColor(0, 114, 178);
const ACCESS: RGBColor = RGBColor(213, 94, 0);
/// With more nodes than this, names would hide the map.
const MOST_NAMES: usize = 60;

/// A map of these nodes and links of a graph as SVG text; access routers stand out.
///
/// Nodes are where longitude and latitude put them, and those without among their neighbours; on a circle, if most have
/// no position.
pub fn draw(
    graph: &Graph,
    nodes: &[usize],
    links: &[[usize; 2]],
    is_access: impl Fn(usize) -> bool,
) -> Result<String, PlotError> {
    let places = places(graph, nodes, links);
    let at = |node: usize| places.get(node).copied().flatten();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0 as u32, SIZE.1 as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let style = |size: i32, h| ("sans-serif", size).into_font().color(&INK).pos(Pos::new(h, VPos::Center));
        let access = nodes.iter().filter(|node| is_access(**node)).count();
        let title = format!("{}: {} nodes, {} links", graph.name, nodes.len(), links.len());
        root.draw(&Text::new(printable(title), (20, 24), style(20, HPos::Left)))?;
        for place in links.iter().filter_map(|[a, b]| at(*a).zip(at(*b))) {
            root.draw(&PathElement::new([place.0, place.1], LINK.stroke_width(1)))?;
        }
        for node in nodes {
            let Some(place) = at(*node) else { continue };
            let (color, size) = if is_access(*node) { (ACCESS, 5) } else { (NODE, 4) };
            root.draw(&Circle::new(place, size, color.filled()))?;
            if nodes.len() <= MOST_NAMES
                && let Some(node) = graph.nodes.get(*node)
            {
                let name: String = node.name.chars().take(24).collect();
                root.draw(&Text::new(printable(name), (place.0 + 8, place.1), style(11, HPos::Left)))?;
            }
        }
        root.draw(&Circle::new((SIZE.0 - 330, 24), 5, ACCESS.filled()))?;
        let key = format!("access routers (degree 2 after pruning): {access}");
        root.draw(&Text::new(key, (SIZE.0 - 318, 24), style(14, HPos::Left)))?;
        root.present()?;
    }
    Ok(svg)
}

/// By node of the graph: where it is in the picture.
fn places(graph: &Graph, nodes: &[usize], links: &[[usize; 2]]) -> Vec<Option<(i32, i32)>> {
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
    }
    fit(&plane)
}

/// Puts nodes without a position into the middle of their neighbours that have one, as far as that leads.
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
    // What is joined to nothing that has a position stands in the middle.
    let (sum, count) =
        plane.iter().flatten().fold(((0.0, 0.0), 0.0), |((x, y), n), place| ((x + place.0, y + place.1), n + 1.0));
    for node in nodes {
        plane[*node].get_or_insert((sum.0 / f64::max(count, 1.0), sum.1 / f64::max(count, 1.0)));
    }
}

/// Scales the plane to the picture, the same both ways.
fn fit(plane: &[Option<(f64, f64)>]) -> Vec<Option<(i32, i32)>> {
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let values = || plane.iter().flatten().map(pick);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    };
    let (left, right) = bounds(|place| place.0);
    let (top, bottom) = bounds(|place| place.1);
    let room = (f64::from(SIZE.0 - 2 * MARGIN), f64::from(SIZE.1 - TOP - 2 * MARGIN));
    let scale = (room.0 / (right - left).max(1e-9)).min(room.1 / (bottom - top).max(1e-9));
    let place = |(x, y): (f64, f64)| {
        let center = (f64::from(SIZE.0) / 2.0, f64::from(SIZE.1 + TOP) / 2.0);
        let x = center.0 + (x - (left + right) / 2.0) * scale;
        let y = center.1 + (y - (top + bottom) / 2.0) * scale;
        (x.round() as i32, y.round() as i32)
    };
    plane.iter().map(|known| known.map(place)).collect()
}

#[cfg(test)]
mod tests {
    use sidestep_model::formats::GraphNode;

    use super::*;

    fn graph(positions: &[Option<(f64, f64)>]) -> Graph {
        let node = |position: &Option<(f64, f64)>| GraphNode { name: "<a>&\u{1}".into(), position: *position };
        Graph { name: "g<".into(), nodes: positions.iter().map(node).collect(), edges: Vec::new() }
    }

    #[test]
    fn north_is_up_and_east_is_right() {
        let graph = graph(&[Some((10.0, 50.0)), Some((12.0, 50.0)), Some((10.0, 51.0))]);
        let places: Vec<_> = places(&graph, &[0, 1, 2], &[]).into_iter().flatten().collect();
        assert!(places[1].0 > places[0].0 && places[1].1 == places[0].1);
        assert!(places[2].1 < places[0].1 && places[2].0 == places[0].0);
    }

    #[test]
    fn a_node_without_a_position_is_among_its_neighbours() {
        let graph = graph(&[Some((10.0, 50.0)), Some((12.0, 50.0)), None, Some((0.0, 0.0)), Some((10.0, 52.0))]);
        let places = places(&graph, &[0, 1, 2, 3, 4], &[[0, 2], [2, 1]]);
        let [a, b, middle] = [0, 1, 2].map(|node| places[node].unwrap());
        assert_eq!(middle.0 * 2, a.0 + b.0);
        assert!(places[3].is_some());
    }

    #[test]
    fn whatever_positions_there_are_the_map_stays_within_its_edges() {
        let far = [Some((180.0, 90.0)), Some((-180.0, -90.0)), None];
        for positions in
            [&far[..], &[None, None, None], &[Some((1.0, 1.0)); 3], &[Some((1e300, 1.0)), Some((-1e300, 2.0)), None]]
        {
            let graph = graph(positions);
            for place in places(&graph, &[0, 1, 2], &[[0, 1], [1, 2], [2, 2]]).into_iter().flatten() {
                assert!((0..=SIZE.0).contains(&place.0) && (0..=SIZE.1).contains(&place.1), "{place:?}");
            }
            let svg = draw(&graph, &[0, 1, 2], &[[0, 1]], |node| node == 0).unwrap();
            assert!(roxmltree::Document::parse(&svg).is_ok());
        }
    }
}
