//! Filters on ingress and on egress, of anybody.

use futures::TryStreamExt;
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};

use rtnetlink::TrafficFilterGetRequest;

use super::{Netlink, error_number, refused};
use crate::error::Result;

/// A filter on the ingress or the egress of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its priority; lower numbers come first.
    pub priority: u32,
    /// Its handle among the filters of the priority.
    pub handle: u32,
    /// The name of its BPF program as the process that attached it gave it, behind which libbpf puts the program's number; of
    /// other filters their kind.
    pub name: String,
    /// The BPF program's number; zero for other filters.
    pub program: u32,
}

impl Netlink {
    /// The filters on the ingress of the interface with this index; none if it is gone.
    pub async fn ingress_filters(&self, interface: u32) -> Result<Vec<Filter>> {
        let request = self.socket.handle.traffic_filter(i32::try_from(interface).unwrap_or_default()).get().ingress();
        self.filters(interface, request).await
    }

    /// The filters on the egress of the interface with this index; none if it is gone.
    pub async fn egress_filters(&self, interface: u32) -> Result<Vec<Filter>> {
        let request = self.socket.handle.traffic_filter(i32::try_from(interface).unwrap_or_default()).get().egress();
        self.filters(interface, request).await
    }

    async fn filters(&self, interface: u32, request: TrafficFilterGetRequest) -> Result<Vec<Filter>> {
        match self.socket.answered(request.execute().try_collect::<Vec<TcMessage>>().await) {
            Ok(messages) => Ok(messages.iter().filter_map(read).collect()),
            // There is no such interface, or nothing there.
            Err(error) if matches!(error_number(&error), Some(libc::ENODEV | libc::EINVAL | libc::ENOENT)) => {
                Ok(Vec::new())
            }
            Err(error) => Err(refused(format!("listing the filters of interface {interface}"), error)),
        }
    }
}

fn read(message: &TcMessage) -> Option<Filter> {
    let header = &message.header;
    let handle = u32::from(header.handle.major) << 16 | u32::from(header.handle.minor);
    let mut filter = Filter { priority: header.info >> 16, handle, name: String::new(), program: 0 };
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) if filter.name.is_empty() => filter.name.clone_from(kind),
            TcAttribute::Options(options) => options.iter().for_each(|option| match option {
                TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => filter.name.clone_from(name),
                TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => filter.program = *id,
                _ => {}
            }),
            _ => {}
        }
    }
    // The kernel also lists each priority as a whole, without a handle.
    (handle != 0).then_some(filter)
}
