//! The program stays attached to its control group, whatever others do there.

use sidestep_linux::testing::{detach_all, exclusive_program, root_or_skip};

use crate::support::{Agent, Lab, TWO_PROVIDERS, eventually, settings, slot, via};

fn start(lab: &Lab) -> Agent {
    let paths = ["R1", "R2"].map(|provider| via(lab, "h", provider, "1 Gbit/s"));
    Agent::start(lab, "h", settings(), &lab.prefix("s").to_string(), paths.into())
}

fn connects_with_a_path(lab: &Lab) {
    eventually("a connection with a path", || (slot(&lab.connect("h", "s").0) > 0).then_some(()));
}

#[test]
fn a_program_that_others_detached_is_attached_again() {
    if !root_or_skip("a program that is detached") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let _agent = start(&lab);
    connects_with_a_path(&lab);
    for _ in 0..2 {
        assert_eq!(detach_all(lab.cgroup.0.path()), 3, "what the agent has attached");
        connects_with_a_path(&lab);
    }
}

#[test]
fn an_agent_beside_a_program_that_is_attached_alone_says_so_and_not_to_run_as_root() {
    if !root_or_skip("a program that is attached alone") {
        return;
    }
    let lab = Lab::new(TWO_PROVIDERS);
    let other = exclusive_program(lab.cgroup.0.path(), "sock_ops", 0);
    let paths = vec![via(&lab, "h", "R1", "1 Gbit/s")];
    let refused = Agent::try_start_as(&lab, "h", settings(), &lab.prefix("s").to_string(), paths, |_| {});
    let Err(Err(error)) = refused else { panic!("it starts beside another program") };
    let said = sidestep_api::chain(&error);
    assert!(said.contains("refused, as the program `other` (sock_ops, id ") && !said.contains("root"), "{said}");
    drop(other);
    let _agent = start(&lab);
    connects_with_a_path(&lab);
}
