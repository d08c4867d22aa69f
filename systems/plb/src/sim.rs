//! Protective Load Balancing: Linux gives a connection a new flow label after congested rounds as well.

use sidestep_net::Time;
use sidestep_policy::PlbSettings;
use sidestep_scenario::SystemInfo;
use sidestep_sim::{
    SimError,
    system::{Context, LabelRule, MakeRule, Setup, Steerer, System},
};

use crate::Rounds;

/// Protective Load Balancing.
#[derive(Clone, Copy, Debug)]
pub struct Plb;

impl System for Plb {
    fn info(&self) -> SystemInfo {
        crate::PLB
    }

    fn setup(&self, context: &Context<'_>) -> Result<Setup, SimError> {
        setup(context)
    }
}

fn setup(context: &Context<'_>) -> Result<Setup, SimError> {
    let settings: PlbSettings = context.settings()?;
    Ok(Setup {
        ecmp: true,
        mover: Steerer::Label(Some(MakeRule::new(move || Box::new(Rounds::new(settings))))),
        ..Setup::tcp(context)?
    })
}

impl LabelRule for Rounds {
    fn handle_round(&mut self, now: Time, delivered: u32, delivered_ce: u32, idle: bool) -> bool {
        Rounds::handle_round(self, now, delivered, delivered_ce, idle)
    }

    fn handle_timeout(&mut self, now: Time, random: u32) {
        Rounds::handle_timeout(self, now, random);
    }

    fn reason(&self) -> &'static str {
        crate::PLB.name
    }
}
