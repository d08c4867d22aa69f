//! What moves flows, as the engine asks it.

use sidestep_net::{Span, Time};
use sidestep_proto::tcp::{Sender, Signals};

use super::{endpoint::Half, flows::FlowId, network::RouteId};

/// A flow's new routes, where they change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// The route of its data.
    pub forward: Option<RouteId>,
    /// The route of its ACKs.
    pub reverse: Option<RouteId>,
}

/// What moves flows of TCP; asked only when something happens to one.
pub trait Steering {
    /// A SYN of a flow has arrived; asked before it is answered.
    fn requested(&mut self, now: Time, flow: FlowId) -> Move;
    /// Something happened to one end of a flow.
    fn happened(&mut self, now: Time, flow: FlowId, end: End<'_>, event: Event) -> Move;
}

/// Nothing moves.
impl Steering for () {
    fn requested(&mut self, _: Time, _: FlowId) -> Move {
        Move::default()
    }
    fn happened(&mut self, _: Time, _: FlowId, _: End<'_>, _: Event) -> Move {
        Move::default()
    }
}

/// One end of a flow, as its program sees it.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Which: the client is the [`Half::Sender`].
    pub half: Half,
    /// What it sends with; `None`: it has sent nothing.
    pub sender: Option<&'a Sender>,
    /// The smoothed round-trip time that it knows.
    pub srtt: Option<Span>,
    /// Segments that it received in order.
    pub received: u32,
    /// When the last of them came.
    pub progress: Option<Time>,
}

impl<'a> End<'a> {
    /// An end that sends and receives nothing.
    pub fn of(half: Half, sender: &'a Sender) -> End<'a> {
        End { half, sender: Some(sender), srtt: sender.srtt(), received: 0, progress: None }
    }
}

/// What happened to one end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end that was called is established.
    Accepted,
    /// Signals of what the end sends.
    Signals(Signals),
    /// This number of segments were sent again.
    Retransmitted(u32),
    /// A segment came that was received before; it is not answered yet.
    Duplicate,
}
