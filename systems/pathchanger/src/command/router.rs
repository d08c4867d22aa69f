//! `sidestep router`.

use std::collections::BTreeMap;

use sidestep_command::{
    Failure, Outcome, announce, at_hangups, print_stopped, run_daemon, runtime, stopped_or_relieved,
};

use super::args::{RouterArgs, RouterCommand, RouterRun};
use crate::daemon::{RouterOptions, run_router, stop_router};

/// Runs `sidestep router`.
pub(super) fn run(args: RouterArgs) -> Outcome {
    match (args.command, args.run) {
        (Some(RouterCommand::Stop { json }), _) => stop_the_router(json),
        (None, Some(run)) => run_the_router(run),
        (None, None) => Err(Failure::usage("`sidestep router` needs --controller and --node")),
    }
}

fn run_the_router(args: RouterRun) -> Outcome {
    let options = RouterOptions {
        controller: args.controller,
        node: args.node,
        links: args.links.into_iter().collect::<BTreeMap<_, _>>(),
        ecn: !args.no_ecn,
        keep: args.keep,
        metrics: args.metrics,
    };
    run_daemon(async || run_router(options, at_hangups(|| Some(())), announce, stopped_or_relieved()).await)
}

fn stop_the_router(json: bool) -> Outcome {
    let stopped = runtime()?.block_on(stop_router())?;
    let removed = "everything of the router daemon of this network namespace is removed";
    print_stopped(stopped, json, removed, "there is nothing of a router daemon in this network namespace")
}
