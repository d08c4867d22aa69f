//! The Internet Topology Zoo: networks as their operators published them, collected by Knight et al. (IEEE Journal on
//! Selected Areas in Communications 29(9), 2011), under CC BY 4.0.
//!
//! The files come from the crate `bgpsim`, which carries 261 of them. Only what
//! `sidestep_formats` reads is kept: names and positions of nodes, speeds and weights of links.
//!
//! [`TOPOLOGIES`] lists all of them; [`find`] looks one up by its name.
//!
//! ```
//! let abilene = sidestep_zoo::find("Abilene").expect("the zoo has Abilene");
//! let graph = sidestep_formats::read(abilene, "Abilene.graphml")?;
//! assert_eq!((graph.nodes.len(), graph.edges.len()), (11, 14));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// All topologies, by name: the name and its GraphML.
pub const TOPOLOGIES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// The GraphML of the topology of this name, such as `Abilene`; the name is case-sensitive.
pub fn find(name: &str) -> Option<&'static str> {
    let index = TOPOLOGIES.binary_search_by_key(&name, |(name, _)| name).ok()?;
    TOPOLOGIES.get(index).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use sidestep_formats as formats;

    use super::*;

    #[test]
    fn every_topology_is_found_by_its_name_and_reads() {
        assert!(TOPOLOGIES.len() >= 250, "{}", TOPOLOGIES.len());
        for (name, text) in TOPOLOGIES {
            assert_eq!(find(name), Some(*text));
            let graph = formats::read(text, &format!("{name}.graphml")).unwrap();
            assert!(graph.nodes.len() >= 2 || *name == "Arpanet196912", "{name}: {}", graph.nodes.len());
        }
        let abilene = formats::read(find("Abilene").unwrap(), "Abilene.graphml").unwrap();
        assert_eq!((abilene.nodes.len(), abilene.edges.len()), (11, 14));
        assert!(abilene.nodes.iter().all(|node| node.position.is_some()));
        assert_eq!((find("abilene"), find("../Abilene")), (None, None));
    }

    #[test]
    fn what_is_kept_is_all_that_is_read_of_the_published_files() {
        for (name, text) in TOPOLOGIES {
            let file = format!("{name}.graphml");
            let published = fs::read_to_string(Path::new(env!("TOPOLOGY_ZOO")).join(&file)).unwrap();
            assert!(text.len() < published.len(), "{name} is not shortened");
            assert_eq!(formats::read(text, &file).unwrap(), formats::read(&published, &file).unwrap(), "{name}");
        }
    }
}
