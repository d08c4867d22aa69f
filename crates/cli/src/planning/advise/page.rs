//! The advice as a page that needs nothing beside it.

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};
use sidestep_advise::{Advice, Between, Paths, Relied, Subject};
use sidestep_results::{Look, Stack, document, draw, stacks};

use super::{LISTED, left_out, shown};

/// The page: headline, map, distributions, and what links carry. It has no scripts and loads nothing.
pub fn page(advice: &Advice, subject: &Subject, command: &str) -> String {
    let body = html! {
        h1 { (advice.topology) ": what moving traffic to other paths could bring" }
        p.headline { (advice.headline()) }
        @if advice.interrupted {
            p { strong { "Interrupted: this is of what was computed until then." } }
        }
        p { (advice.size()) }
        figure { (PreEscaped(map(advice, subject))) }
        h2 { "Disjoint paths by limit of segments" }
        p {
            "Of " (advice.pairs) " pairs of " (advice.between()) ". Segments worth buying hardware for: "
            (advice.limit_notes())
        }
        figure { (PreEscaped(bars(advice))) }
        p {
            small {
                "A segment forces a path where no other is as short, as routers with ECMP forward. Adjacency segments \
                 (End.X) may end one; " code { "sidestep controller" } " needs one more where the last segment is an \
                 adjacency."
            }
        }
        h2 { "Gain in maximum flow over ECMP" }
        p { (advice.flow_notes()) }
        h2 { "Links that pairs rely on" }
        p {
            (advice.links_relied_on) " of " (advice.router_links)
            " links take all diversity, or the last path, from a pair when they fail."
        }
        (links(&advice.reliance))
        h2 { "Run it again" }
        pre { (command) }
    };
    document(&format!("{} – sidestep advise", advice.topology), &body)
}

/// The whole topology; what pairs rely on stands out.
fn map(advice: &Advice, subject: &Subject) -> String {
    let Subject { graph, whole, net, nodes, .. } = subject;
    let by_link: BTreeMap<usize, &Relied> = advice.reliance.iter().map(|one| (one.link, one)).collect();
    // A link of the whole net has the same edge in the pruned one.
    let by_edge: BTreeMap<usize, &Relied> =
        (0..net.link_count()).filter_map(|link| Some((net.edge(2 * link as u32), *by_link.get(&link)?))).collect();
    let of = |link: usize| by_edge.get(&whole.edge(2 * link as u32)).copied();
    let weight = |one: &Relied| (one.in_transit + one.cut) as f64;
    let most = advice.reliance.iter().map(weight).fold(0.0, f64::max);
    let heat = |link: usize| of(link).map_or(0.0, |one| if most > 0.0 { weight(one) / most } else { 0.0 });
    let tip = |link: usize| match of(link) {
        Some(one) => {
            format!(
                ": {} pairs left with one path, {} of them in transit; {} cut off",
                one.exposed, one.in_transit, one.cut
            )
        }
        None => String::new(),
    };
    let access: Vec<usize> = nodes.iter().map(|node| net.origin(*node)).collect();
    let is_access = |node: usize| advice.between == Between::Access && access.binary_search(&node).is_ok();
    let links: Vec<[usize; 2]> = whole.links().iter().map(|ends| ends.map(|end| whole.origin(end))).collect();
    let all: Vec<usize> = (0..whole.node_count() as u32).map(|node| whole.origin(node)).collect();
    let key = (most > 0.0).then_some("pairs elsewhere lose their second, or last, path");
    draw(graph, &all, &links, &Look { is_access: &is_access, heat: &heat, tip: &tip, key })
}

fn bars(advice: &Advice) -> String {
    let kinds: Vec<String> = ["no path", "1 path", "2 paths", "3", "4", "5", "6", "7 or more"].map(String::from).into();
    let stack = |label: String, paths: &Paths| {
        let mut parts: Vec<u64> = paths.pairs.clone();
        let more: u64 = parts.drain(parts.len().min(kinds.len())..).sum();
        if let Some(last) = parts.last_mut() {
            *last += more;
        }
        Stack { label, note: format!("mean {:.3}", paths.mean), parts }
    };
    let mut drawn = Vec::new();
    for (kind, limits) in [("node segments", &advice.node_segments), ("with adjacencies", &advice.with_adjacency)] {
        for (limit, paths) in (1..).zip(limits).take(shown(limits)) {
            drawn.push(stack(format!("{kind}, at most {limit}"), paths));
        }
    }
    drawn.push(stack("as many as there are".into(), &advice.most));
    stacks("Pairs by how many link-disjoint paths they have", "share of pairs", &kinds, &drawn)
}

fn links(relied: &[Relied]) -> Markup {
    let all = || relied.iter().filter(|link| link.exposed + link.cut > 0);
    let listed: Vec<&Relied> = all().take(LISTED).collect();
    html! {
        @if !listed.is_empty() {
            div.scroll {
                table {
                    thead {
                        tr { th { "link" } th { "pairs left with one path" } th { "of them in transit" } th { "pairs cut off" } }
                    }
                    tbody {
                        @for Relied { ends: [a, b], exposed, in_transit, cut, .. } in listed {
                            tr { th { (a) " – " (b) } td { (exposed) } td { (in_transit) } td { (cut) } }
                        }
                    }
                }
            }
            @if let Some(left) = left_out(all().count()) {
                p { (left) "; --json has all" }
            }
        }
    }
}
