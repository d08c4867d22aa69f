//! What is played in the lab: real kernels, real TCP and the real agent, at the speed of the clock.

use sidestep_scenario::builder::{Part, ScenarioBuilder, blackhole, closed_loop, part, up};

use super::{
    CLOSED, Case,
    Class::{Alike, Differ, Failure},
    SHORT,
    network::{ALL, Path, alike, differ, equal, path, short, sized},
};

pub(super) const CASES: &[Case] = &[
    Case::tuning("lab-equal-cubic", Alike, SHORT, "Three equal paths, short transfers at 60 % load; CUBIC.", || {
        like("cubic").flow(short("60 %", ALL))
    }),
    Case::tuning("lab-equal-bbr", Alike, SHORT, "Three equal paths, short transfers at 60 % load; BBR.", || {
        like("bbr").flow(short("60 %", ALL))
    }),
    Case::tuning("lab-unequal-cubic", Differ, CLOSED, "Paths of 40 and 10 Mbit/s, and sixteen users; CUBIC.", || {
        unequal("cubic")
    }),
    Case::tuning("lab-unequal-bbr", Differ, CLOSED, "Paths of 40 and 10 Mbit/s, and sixteen users; BBR.", || {
        unequal("bbr")
    }),
    Case::tuning("lab-lossy-cubic", Differ, SHORT, "One of two paths loses 1 %, short transfers; CUBIC.", || {
        lossy("cubic")
    }),
    Case::tuning("lab-lossy-bbr", Differ, SHORT, "One of two paths loses 1 %, short transfers; BBR.", || lossy("bbr")),
    Case::tuning(
        "lab-hidden-cubic",
        Differ,
        SHORT,
        "One path has a tenth of the rate that is believed; CUBIC.",
        || hidden("cubic"),
    ),
    Case::tuning("lab-hidden-bbr", Differ, SHORT, "One path has a tenth of the rate that is believed; BBR.", || {
        hidden("bbr")
    }),
    Case::tuning("lab-silent-cubic", Failure, CLOSED, "One of three paths is silent for six seconds; CUBIC.", || {
        silent("cubic")
    }),
    Case::tuning("lab-silent-bbr", Failure, CLOSED, "One of three paths is silent for six seconds; BBR.", || {
        silent("bbr")
    }),
];

fn like(control: &str) -> ScenarioBuilder {
    equal().set("tcp.congestion_control", control)
}

fn unequal(control: &str) -> ScenarioBuilder {
    let network = differ(&[path("40 Mbit/s"), path("10 Mbit/s")]).set("tcp.congestion_control", control);
    network.flow(users(4, "100 ms"))
}

fn lossy(control: &str) -> ScenarioBuilder {
    let network = differ(&[path("20 Mbit/s"), Path { loss: "1 %", ..path("20 Mbit/s") }]);
    network.set("tcp.congestion_control", control).flow(short("50 %", "20 Mbit/s"))
}

fn hidden(control: &str) -> ScenarioBuilder {
    let slow = part([("at", "0 s"), ("action", "rate"), ("rate", "2 Mbit/s")]).path("path-2");
    like(control).event(slow).flow(short("25 %", ALL))
}

fn silent(control: &str) -> ScenarioBuilder {
    let network = alike(3, "20 Mbit/s", 4).event(blackhole("6 s").path("path-3")).event(up("12 s").path("path-3"));
    network.set("tcp.congestion_control", control).flow(users(4, "400 ms"))
}

/// `each` users for each client, who fetch 50 kB and think.
fn users(each: u32, think: &str) -> Part {
    sized(closed_loop("c*", "s*", each, think, "0"), "50 kB")
}
