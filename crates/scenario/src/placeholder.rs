//! `{s1}` in the commands of exec flows: the address of node `s1`.

use sidestep_net::{NodeId, Topology, TopologyError, srv6};

/// Replaces every placeholder in `text` by its node's address; fails on one that names no node.
///
/// A placeholder is `{NAME}` where NAME could be a node's name and begins with a letter. The shell's `${NAME}`, curl's
/// `%{NAME}` and every other brace are left alone; `{{NAME}}` stands for the text `{NAME}`.
pub(super) fn substitute(text: &str, topology: &Topology) -> Result<String, TopologyError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let escaped =
            after.strip_prefix('{').and_then(split_name).and_then(|(name, tail)| Some((name, tail.strip_prefix('}')?)));
        if let Some((name, tail)) = escaped {
            out.extend(["{", name, "}"]);
            rest = tail;
        } else if let Some((name, tail)) = split_name(after).filter(|_| !before.ends_with(['$', '%'])) {
            out.push_str(&address(topology.find(name)?, topology));
            rest = tail;
        } else {
            out.push('{');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Splits `"s1}tail"` into the name and the tail.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))?;
    let (name, tail) = text.split_at(end);
    Some((name, tail.strip_prefix('}')?)).filter(|_| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn address(node: NodeId, topology: &Topology) -> String {
    let node = topology.node(node);
    let host = node.prefix.map(srv6::host_address);
    let router = node.locator.map(srv6::router_address);
    // A parsed topology has an address for every node.
    host.or(router).map_or_else(String::new, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_net::ParallelPaths;

    fn substituted(text: &str) -> Result<String, TopologyError> {
        substitute(text, &ParallelPaths::default().build().expect("the default builds"))
    }

    #[test]
    fn a_node_in_braces_becomes_its_address() {
        assert_eq!(substituted("http://[{s1}]:80/"), Ok("http://[fd02:0:6::1]:80/".into()));
        assert_eq!(substituted("{c1}{A}"), Ok("fd02:0:3::1fd01:0:1::1".into()));
    }

    #[test]
    fn an_unknown_node_in_braces_is_an_error() {
        assert_eq!(substituted("{s9}"), Err(TopologyError::UnknownNode("s9".into())));
    }

    #[test]
    fn other_braces_are_left_alone() {
        for text in
            ["{", "}", "{}", "{{", "a{{}}b", r#"{"a":{"b":1}}"#, "${s1} %{http_code}", "{print $1}", "{s1", "{é}"]
        {
            assert_eq!(substituted(text), Ok(text.into()));
        }
    }

    #[test]
    fn doubled_braces_stand_for_single_ones() {
        assert_eq!(substituted("awk {{print}}"), Ok("awk {print}".into()));
        assert_eq!(substituted("{{s1}}"), Ok("{s1}".into()));
    }
}
