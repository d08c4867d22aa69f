//! The demonstration on one page, with links to the pages of its parts.

use std::path::Path;

use maud::{Markup, PreEscaped, html};
use sidestep_results::{World, document};

use super::{Notified, Report};

/// A picture larger than this stays on the part's own page, in bytes.
const MAX_PICTURE: u64 = 4 << 20;

/// The page; `out` is the directory that has those of the parts.
pub fn page(report: &Report, out: &Path) -> String {
    let world = match report.world {
        World::Lab => "in the lab: Linux network namespaces, the kernel's own TCP",
        World::Sim => "in the simulator, in virtual time",
    };
    let body = html! {
        h1 { "What moving connections is worth, and when" }
        p { "Measured " (world) "." @if let Some(why) = &report.simulated { " " (why) "." } }
        p.headline { (report.lesson) }
        p.trust { @if report.trusted { (report.trust()) } @else { strong { (report.trust()) } } }
        @for (number, part) in (1..).zip(&report.parts) { (section(number, part, out)) }
        h2 { "Run it again" }
        pre { "make demo" }
        p { small { "demo.json has all of this; each part's directory has its result.json, flows.csv and series.csv." } }
    };
    document("sidestep: the demonstration", &body)
}

fn section(number: usize, part: &Notified, out: &Path) -> Markup {
    let plot = out.join(part.name).join("plot.svg");
    let plot =
        std::fs::metadata(&plot).is_ok_and(|file| file.len() <= MAX_PICTURE).then(|| std::fs::read_to_string(&plot));
    html! {
        h2 id=(part.name) { (number) ". " (part.title) }
        @if let Some(why) = &part.left_out {
            p { "Left out: " (why) "." }
        } @else {
            @if !part.told.is_empty() { p { (part.told) } }
            @for picture in &part.pictures { figure { (PreEscaped(picture)) } }
            @if let Some(Ok(plot)) = plot { figure { (PreEscaped(plot)) } }
            @if let Some(page) = &part.page {
                p { a href=(page) { "All numbers and pictures of this part" } }
            }
        }
    }
}
