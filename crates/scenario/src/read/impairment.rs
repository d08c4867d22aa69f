//! Reading `[[impairment]]`: which links are bad at random times, and how.

use serde::Deserialize;

use super::{Reader, event::MAX_LINKS};
use crate::{Effect, EventDirection, Impairment, Periods};
use sidestep_net::{
    ParseError, Ratio, Span,
    document::{Item, OneOrMany},
};

/// More changes than this, over all impairments, are refused, as far as they can be expected.
const MAX_CHANGES: f64 = 10_000_000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImpairmentFile {
    link: Option<OneOrMany>,
    path: Option<String>,
    #[serde(default)]
    direction: EventDirection,
    good: Span,
    bad: Span,
    #[serde(default)]
    distribution: Periods,
    effect: EffectFile,
    loss: Option<Ratio>,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EffectFile {
    Outage,
    Loss,
}

impl Reader<'_> {
    /// All impairments in the order of the file.
    pub(super) fn impairments(&self) -> Result<Vec<Impairment>, ParseError> {
        let mut impairments: Vec<Impairment> = Vec::new();
        let (mut links, mut changes) = (0, 0.0);
        for item in self.document.tables(self.document.root(), "impairment")? {
            let impairment = self.impairment(item)?;
            links += impairment.links.len();
            if links > MAX_LINKS {
                return Err(self.document.error(item.span(), "the impairments touch more than 1,000,000 links in all"));
            }
            let length = impairment.stop.unwrap_or(self.duration) - impairment.start;
            let period = (impairment.good + impairment.bad).as_secs_f64();
            changes += 2.0 * length.as_secs_f64() / period * impairment.links.len() as f64;
            if changes > MAX_CHANGES {
                let message =
                    format!("about {changes:.0} changes of links are more than the {MAX_CHANGES:.0} of a run");
                return Err(self.document.error_at(item, "good", message));
            }
            impairments.push(impairment);
        }
        Ok(impairments)
    }

    fn impairment(&self, item: &Item<'_>) -> Result<Impairment, ParseError> {
        let file: ImpairmentFile = self.document.read(item, &[])?;
        self.check_span(item, file.start, file.stop)?;
        for (key, mean) in [("good", file.good), ("bad", file.bad)] {
            if mean == Span::ZERO {
                return Err(self.document.error_at(item, key, "must be above zero"));
            }
        }
        let effect = match (file.effect, file.loss) {
            (EffectFile::Outage, None) => Effect::Outage,
            (EffectFile::Loss, Some(loss)) => Effect::Loss(loss),
            _ => {
                let message = "an effect `loss` needs the key `loss`, and `outage` takes none";
                return Err(self.document.error_at(item, "effect", message));
            }
        };
        Ok(Impairment {
            links: self.named_links(item, file.link.as_ref(), file.path.as_deref())?,
            direction: file.direction,
            good: file.good,
            bad: file.bad,
            distribution: file.distribution,
            effect,
            start: file.start,
            stop: file.stop,
        })
    }
}
