//! Reading `[[event]]`: what happens to which links, and when.

use serde::Deserialize;

use super::Reader;
use crate::{Change, Event, EventDirection};
use sidestep_net::{
    LinkId, ParseError, Rate, Ratio, Span,
    document::{Item, OneOrMany},
    pattern,
};

/// More links than this, over all events, are refused.
pub(super) const MAX_LINKS: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFile {
    at: Span,
    link: Option<OneOrMany>,
    path: Option<String>,
    #[serde(default)]
    direction: EventDirection,
    action: Action,
    rate: Option<Rate>,
    delay: Option<Span>,
    loss: Option<Ratio>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Down,
    Up,
    Blackhole,
    Rate,
    Delay,
    Loss,
}

impl Reader<'_> {
    /// All events by time; those of the same instant in the order of the file.
    pub(super) fn events(&self) -> Result<Vec<Event>, ParseError> {
        let mut events: Vec<Event> = Vec::new();
        let mut links = 0;
        for item in self.document.tables(self.document.root(), "event")? {
            let event = self.event(item)?;
            links += event.links.len();
            if links > MAX_LINKS {
                return Err(self.document.error(item.span(), "the events touch more than 1,000,000 links in all"));
            }
            events.push(event);
        }
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn event(&self, item: &Item<'_>) -> Result<Event, ParseError> {
        let file: EventFile = self.document.read(item, &[])?;
        self.check_within(item, "at", file.at)?;
        let change = match (file.action, file.rate, file.delay, file.loss) {
            (Action::Down, None, None, None) => Change::Down,
            (Action::Up, None, None, None) => Change::Up,
            (Action::Blackhole, None, None, None) => Change::Blackhole,
            (Action::Rate, Some(rate), None, None) => Change::Rate(rate),
            (Action::Delay, None, Some(delay), None) => Change::Delay(delay),
            (Action::Loss, None, None, Some(loss)) => Change::Loss(loss),
            _ => {
                let message = "an action `rate`, `delay` or `loss` needs the key of that name and no other of them; \
                               `down`, `up` and `blackhole` take none";
                return Err(self.document.error_at(item, "action", message));
            }
        };
        let links = self.named_links(item, file.link.as_ref(), file.path.as_deref())?;
        Ok(Event { at: file.at, links, direction: file.direction, change })
    }

    /// The links that `link` or `path` stands for.
    pub(super) fn named_links(
        &self,
        item: &Item<'_>,
        link: Option<&OneOrMany>,
        path: Option<&str>,
    ) -> Result<Vec<LinkId>, ParseError> {
        match (link, path) {
            (Some(names), None) => self.links(item, names),
            (None, Some(path)) => {
                let found = self.topology.paths().iter().find(|known| known.name == path);
                let unknown = || self.document.error_at(item, "path", format_args!("there is no path `{path}`"));
                Ok(found.ok_or_else(unknown)?.links.clone())
            }
            _ => Err(self.document.error(item.span(), "needs either `link` or `path`")),
        }
    }

    fn links(&self, item: &Item<'_>, names: &OneOrMany) -> Result<Vec<LinkId>, ParseError> {
        let mut links = Vec::new();
        for (index, name) in names.0.iter().enumerate() {
            let before = links.len();
            if pattern::is_pattern(name) {
                let matches = |id: &LinkId| pattern::matches(name, &self.topology.link(*id).name);
                links.extend(self.topology.link_ids().filter(matches));
            } else {
                links.extend(self.topology.find_link(name));
            }
            if links.len() == before {
                return Err(self.document.error_in(item, "link", index, format_args!("there is no link `{name}`")));
            }
            if links.len() > MAX_LINKS {
                return Err(self.document.error_in(item, "link", index, "too many links"));
            }
        }
        match links.is_empty() {
            true => Err(self.document.error_at(item, "link", "name at least one link")),
            false => Ok(links),
        }
    }
}
