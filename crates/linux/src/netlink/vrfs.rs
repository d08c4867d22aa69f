//! VRFs: interfaces whose packets are looked up in a routing table of their own.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVrf, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::LinkVrf;

use super::{Netlink, refused};
use crate::error::Result;

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vrf {
    /// The name of its interface.
    pub name: String,
    /// Its routing table.
    pub table: u32,
}

impl Netlink {
    /// The VRFs, by the names of the interfaces that are in them.
    pub async fn vrfs(&self) -> Result<BTreeMap<String, Vrf>> {
        let links = self.socket.handle.link().get().execute().try_collect::<Vec<LinkMessage>>().await;
        let links = self.socket.answered(links).map_err(|e| refused("listing interfaces", e))?;
        Ok(members(&links))
    }

    /// Makes a VRF that has this table.
    pub async fn add_vrf(&self, name: &str, table: u32) -> Result<()> {
        let add = self.socket.handle.link().add(LinkVrf::new(name, table).build()).execute().await;
        self.socket.answered(add).map_err(|e| refused(format!("adding the VRF {name}"), e))
    }
}

/// The VRFs, by the names of the interfaces that are in them.
pub(super) fn members(links: &[LinkMessage]) -> BTreeMap<String, Vrf> {
    let vrfs: BTreeMap<u32, Vrf> = links.iter().filter_map(|link| Some((link.header.index, read_vrf(link)?))).collect();
    let member = |link: &LinkMessage| {
        let controller = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Controller(index) => Some(*index),
            _ => None,
        })?;
        Some((name_of(link)?, vrfs.get(&controller)?.clone()))
    };
    links.iter().filter_map(member).collect()
}

fn name_of(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

/// The VRF that an interface is; `None` if it is something else.
fn read_vrf(link: &LinkMessage) -> Option<Vrf> {
    let infos = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    infos.iter().find(|info| matches!(info, LinkInfo::Kind(InfoKind::Vrf)))?;
    let table = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(all)) => all.iter().find_map(|one| match one {
            InfoVrf::TableId(table) => Some(*table),
            _ => None,
        }),
        _ => None,
    });
    Some(Vrf { name: name_of(link)?, table: table.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For kernels without VRFs; where there are some, `crates/linux/tests/doctor.rs` makes one.
    #[test]
    fn interfaces_whose_controller_is_a_vrf_are_in_it_and_those_of_a_bridge_are_not() {
        let link = |index, name: &str, attributes: &[LinkAttribute]| {
            let mut link = LinkMessage::default();
            link.header.index = index;
            link.attributes = attributes.to_vec();
            link.attributes.insert(0, LinkAttribute::IfName(name.into()));
            link
        };
        let vrf = LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vrf),
            LinkInfo::Data(InfoData::Vrf(vec![InfoVrf::TableId(10)])),
        ]);
        let bridge = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]);
        let links = [
            link(2, "wan", &[LinkAttribute::Controller(5)]),
            link(3, "lan", &[LinkAttribute::Controller(6)]),
            link(4, "lte", &[]),
            link(5, "blue", &[vrf]),
            link(6, "br0", &[bridge]),
        ];
        let blue = Vrf { name: "blue".into(), table: 10 };
        assert_eq!(members(&links), [("wan".to_string(), blue)].into());
    }
}
