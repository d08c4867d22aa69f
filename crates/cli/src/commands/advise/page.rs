//! The advice as a page that needs nothing beside it.

use std::{collections::BTreeMap, fmt::Write};

use sidestep_results::{Look, Stack, document, draw, escape, stacks};

use super::{Advice, LISTED, Paths, Relied, Subject, shown};

/// The page: headline, map, distributions, and what links carry. It has no scripts and loads nothing.
pub fn page(advice: &Advice, subject: &Subject, command: &str) -> String {
    let name = escape(&advice.topology);
    let interrupted = if advice.interrupted {
        "<p><strong>Interrupted: this is of what was computed until then.</strong></p>\n"
    } else {
        ""
    };
    let body = format!(
        r#"<h1>{name}: what moving traffic to other paths could bring</h1>
<p class="headline">{headline}</p>
{interrupted}<p>{size}</p>
<figure>
{map}</figure>
<h2>Disjoint paths by limit of segments</h2>
<p>Of {pairs} pairs of {between}. Segments worth buying hardware for: {limit}</p>
<figure>
{bars}</figure>
<p><small>A segment forces a path where no other is as short, as routers with ECMP forward. Adjacency segments (End.X) may
end one; <code>sidestep controller</code> needs one more where the last segment is an adjacency.</small></p>
<h2>Gain in maximum flow over ECMP</h2>
<p>{flow}</p>
<h2>Links that pairs rely on</h2>
<p>{relied} of {router_links} links take all diversity, or the last path, from a pair when they fail.</p>
{links}<h2>Run it again</h2>
<pre>{command}</pre>
"#,
        headline = escape(&advice.headline()),
        size = escape(&advice.size()),
        map = map(advice, subject),
        pairs = advice.pairs,
        between = escape(&advice.between()),
        limit = escape(&advice.limit_notes()),
        bars = bars(advice),
        flow = escape(&advice.flow_notes()),
        relied = advice.links_relied_on,
        router_links = advice.router_links,
        links = links(&advice.reliance),
        command = escape(command),
    );
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
    let is_access = |node: usize| advice.between == super::Between::Access && access.binary_search(&node).is_ok();
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

fn links(relied: &[Relied]) -> String {
    let listed: Vec<&Relied> = relied.iter().filter(|link| link.exposed + link.cut > 0).take(LISTED).collect();
    if listed.is_empty() {
        return String::new();
    }
    let mut table = String::from(
        "<div class=\"scroll\"><table>\n<thead><tr><th>link</th><th>pairs left with one path</th><th>of them in transit</th>\
         <th>pairs cut off</th></tr></thead>\n<tbody>\n",
    );
    for Relied { ends, exposed, in_transit, cut, .. } in listed {
        let [a, b] = [&ends[0], &ends[1]].map(|end| escape(end));
        let _ = writeln!(table, "<tr><th>{a} – {b}</th><td>{exposed}</td><td>{in_transit}</td><td>{cut}</td></tr>");
    }
    table.push_str("</tbody>\n</table></div>\n");
    table
}
