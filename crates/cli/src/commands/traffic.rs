//! `sidestep traffic`: the generator of bulk flows, which the lab starts on its hosts.

use std::io::stdout;

use sidestep_lab::traffic::{Monotonic, SendOptions, SinkOptions, TrafficError, Transfer, send, sink};
use sidestep_model::{Bytes, Span};

use crate::{
    args::{Traffic, TrafficSend},
    failure::{Failure, Outcome, chain},
};

/// Runs `sidestep traffic …`.
pub fn run(traffic: Traffic) -> Outcome {
    let result = match traffic {
        Traffic::Sink { listen, answer } => sink(&SinkOptions { listen, answer }, &mut stdout().lock()).map(drop),
        Traffic::Send(args) => send(&options(&args)?, &mut stdout().lock()),
    };
    result.map_err(|error: TrafficError| Failure::run(chain(&error)))
}

fn options(args: &TrafficSend) -> Result<SendOptions, Failure> {
    let schedule = args.schedule.as_deref().map(super::read).transpose()?.unwrap_or_default();
    let schedule = Transfer::parse(&schedule).map_err(|error| Failure::usage(chain(&error)))?;
    let epoch = Monotonic::from_nanos(args.epoch_ns);
    let at = |nanos| epoch + Span::from_nanos(nanos);
    Ok(SendOptions {
        to: args.to,
        connections: args.connections,
        size: args.size.map(Bytes::new),
        request: args.request.map(Bytes::new),
        epoch,
        start_at: Span::from_nanos(args.start_ns),
        stop_at: Span::from_nanos(args.stop_ns),
        window: at(args.window_from_ns)..at(args.window_to_ns),
        congestion_control: None,
        first_index: 0,
        schedule,
    })
}
