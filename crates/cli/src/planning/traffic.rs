//! `sidestep traffic`: the generator of a scenario's flows, which the lab starts on its hosts.

use std::io::stdout;

use sidestep_api::chain;
use sidestep_lab::traffic::{
    CbrOptions, Monotonic, SendOptions, SinkOptions, SocketOptions, TrafficError, Transfer, Users, cbr, send, sink,
};
use sidestep_net::{Bytes, Rate, Span};

use crate::planning::{
    args::{Traffic, TrafficCbr, TrafficCourse, TrafficSend, TrafficSocket, TrafficUsers},
    failure::{Failure, Outcome},
};

/// Runs `sidestep traffic …`.
pub fn run(traffic: Traffic) -> Outcome {
    let result = match traffic {
        Traffic::Sink { listen, answer, socket } => {
            sink(&SinkOptions { listen, answer, socket: sockets(socket) }, &mut stdout().lock()).map(drop)
        }
        Traffic::Send(args) => send(&options(args)?, &mut stdout().lock()),
        Traffic::Cbr(args) => cbr(&stream(&args)).map(drop),
    };
    result.map_err(|error: TrafficError| Failure::run(chain(&error)))
}

fn options(args: TrafficSend) -> Result<SendOptions, Failure> {
    let schedule = args.schedule.as_deref().map(super::read).transpose()?.unwrap_or_default();
    let schedule = Transfer::parse(&schedule).map_err(|error| Failure::usage(chain(&error)))?;
    let TrafficCourse { to, epoch_ns, start_ns, stop_ns } = args.course;
    let epoch = Monotonic::from_nanos(epoch_ns);
    let at = |nanos| epoch + Span::from_nanos(nanos);
    Ok(SendOptions {
        socket: sockets(args.socket),
        to,
        connections: args.connections,
        size: args.size.map(Bytes::new),
        request: args.request.map(Bytes::new),
        users: users(&args.users)?,
        epoch,
        start_at: Span::from_nanos(start_ns),
        stop_at: Span::from_nanos(stop_ns),
        window: at(args.window_from_ns)..at(args.window_to_ns),
        first_index: 0,
        schedule,
    })
}

fn sockets(args: TrafficSocket) -> SocketOptions {
    let TrafficSocket { mptcp, congestion_control, window, rehash } = args;
    SocketOptions { mptcp, congestion_control, window, rehash }
}

fn users(args: &TrafficUsers) -> Result<Option<Users>, Failure> {
    let TrafficUsers { users, first_user, think_ns, sizes, until_ns, seed, stream } = args;
    // The parser of the command line refuses one without the others.
    let (Some(count), Some(think), Some(sizes), Some(until), Some(seed), Some(stream)) =
        (*users, *think_ns, sizes, *until_ns, *seed, *stream)
    else {
        return Ok(None);
    };
    let bad = |problem| Failure::usage(format!("{}: {problem}", sizes.display()));
    Ok(Some(Users {
        count,
        first: *first_user,
        think: Span::from_nanos(think),
        sizes: super::read(sizes)?.trim().parse().map_err(|problem: String| bad(problem))?,
        until: Span::from_nanos(until),
        seed,
        stream,
    }))
}

fn stream(args: &TrafficCbr) -> CbrOptions {
    let TrafficCourse { to, epoch_ns, start_ns, stop_ns } = args.course;
    let bursts = args.on_ns.zip(args.off_ns);
    CbrOptions {
        to,
        rate: Rate::from_bits_per_sec(args.rate_bps),
        packet: args.packet,
        bursts: bursts.map(|(on, off)| (Span::from_nanos(on), Span::from_nanos(off))),
        random: args.random,
        epoch: Monotonic::from_nanos(epoch_ns),
        start: Span::from_nanos(start_ns),
        stop: Span::from_nanos(stop_ns),
        seed: args.seed,
        stream: args.stream,
    }
}
