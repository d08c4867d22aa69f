//! The tournament as a page that needs nothing beside it.

use maud::{Markup, PreEscaped, html};
use sidestep_results::{World, document};

use crate::{
    BASELINES, CaseResult, Class, Comparison, Count, LARGEST, MARGIN, Measure, PolicyResult, Set, Summary, Tournament,
    Values, Verdict,
};

const STYLE: &str = include_str!("page.css");

/// The page: what fits into a sentence, one table of all verdicts, and every measure of every case.
pub fn page(tournament: &Tournament) -> String {
    let policies: Vec<&str> = tournament.summaries.iter().map(|summary| summary.policy.as_str()).collect();
    let body = html! {
        style { (PreEscaped(STYLE)) }
        h1 { "Policies of the path changer, in the " (place(tournament)) }
        @if let Some(first) = tournament.summaries.first() {
            p.headline { (headline(first)) }
        }
        div.scroll { (sentences(&tournament.summaries)) }
        h2 { "Every case at a glance" }
        p {
            "How many times better a policy is than " code { "random" } " (r), than plain TCP (t) and than ECMP (e), by the \
             primary measure of the case. Above 1 is better. ◆ marks cases that are kept for judging. † marks a case in which the policy \
             loses by another judged measure; point at a number to read all of them."
        }
        (legend())
        div.scroll { (verdicts(tournament, &policies)) }
        h2 { "Every measure" }
        p { "Means over the seeds, with the half width of their 95 % confidence intervals." }
        @for case in &tournament.cases {
            (details(case))
        }
        h2 { "How it was measured" }
        (method(tournament))
        h2 { "Run it again" }
        pre { (tournament.command) }
        p { a href="policies.json" { "policies.json" } " has all values of all seeds." }
    };
    document("Policies – sidestep bench", &body)
}

fn place(tournament: &Tournament) -> &'static str {
    match tournament.world {
        World::Sim => "simulator",
        World::Lab => "lab",
    }
}

fn headline(summary: &Summary) -> String {
    let name = &summary.policy;
    match summary.never_loses() {
        true => format!("{name} never loses, to dice, to plain TCP or to ECMP."),
        false => {
            let losses: usize = summary.against.iter().map(|count| count.losses.len()).sum();
            let open: usize = summary.against.iter().map(|count| count.open.len()).sum();
            let all: usize = summary.against.iter().map(|count| count.judgements).sum();
            format!("{name} loses {losses} of {all} comparisons with dice, plain TCP and ECMP; {open} more are open.")
        }
    }
}

/// A sentence for each policy, and the names behind its numbers.
fn sentences(summaries: &[Summary]) -> Markup {
    html! {
        table.said {
            tbody {
                @for summary in summaries {
                    tr {
                        th { (summary.policy) }
                        td {
                            (summary.words()) "."
                            (names(summary))
                        }
                    }
                }
            }
        }
    }
}

/// Which comparisons are lost, and which may be.
fn names(summary: &Summary) -> Markup {
    let lists = |count: &Count| {
        let list = |what: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{what} to {}: {}.", count.name(), names.join(", ")))
        };
        [list("Lost", &count.losses), list("May be lost", &count.open)]
    };
    let lists: Vec<String> = summary.against.iter().flat_map(lists).flatten().collect();
    html! {
        @if !lists.is_empty() {
            details {
                summary { small { "which" } }
                @for list in lists { p { small { (list) } } }
            }
        }
    }
}

fn legend() -> Markup {
    let meaning = |verdict: Verdict| match verdict {
        Verdict::Win => format!("win: all of the interval above {:.2}", 1.0 + MARGIN),
        Verdict::Better => "better: all above 1".into(),
        Verdict::Even => format!("even: within {:.2} to {:.2}", 1.0 - MARGIN, 1.0 + MARGIN),
        Verdict::Worse => format!("worse: below 1, above {:.2}", 1.0 - MARGIN),
        Verdict::Loss => format!("LOSS: below {:.2}, or below 1 with its middle there", 1.0 - MARGIN),
        Verdict::Undecided => "undecided; dashed: it may be a loss".into(),
    };
    html! {
        p.legend {
            @for verdict in Verdict::ALL {
                span class=(verdict.as_str()) { (verdict.sign()) " " (meaning(verdict)) }
                " "
            }
        }
    }
}

/// The table: a row for each case, and a column for each policy and baseline.
fn verdicts(tournament: &Tournament, policies: &[&str]) -> Markup {
    let columns = 2 + BASELINES.len() * policies.len();
    html! {
        table.verdicts {
            thead {
                tr {
                    th rowspan="2" { "case" }
                    th rowspan="2" { "by" }
                    @for policy in policies {
                        th.policy colspan=(BASELINES.len()) { (shortened(policy)) }
                    }
                }
                tr { @for _ in policies { th.first { "r" } th { "t" } th { "e" } } }
            }
            tbody {
                @for class in Class::ALL {
                    @let cases: Vec<&CaseResult> = tournament.cases.iter().filter(|case| case.class == class).collect();
                    @if !cases.is_empty() {
                        tr.class { th colspan=(columns) { (heading(class)) } }
                        @for case in cases { (row(case)) }
                    }
                }
            }
        }
    }
}

fn heading(class: Class) -> &'static str {
    match class {
        Class::Alike => "Paths that are alike",
        Class::Differ => "Paths that differ",
        Class::Failure => "A path that fails",
        Class::Shift => "Load or capacity that shifts",
    }
}

/// A policy's name for the head of a narrow column.
fn shortened(policy: &str) -> String {
    match policy.split_once(':') {
        Some(("pathchanger", parameters)) => parameters.replace(',', ", "),
        _ => policy.replace("pathchanger", "default"),
    }
}

fn row(case: &CaseResult) -> Markup {
    let primary = case.judged.first().copied();
    html! {
        tr.judging[case.set == Set::Judging] {
            th title=(case.purpose) { a href={ "#" (case.name) } { (case.name) } }
            th { @if let Some(primary) = primary { small { (primary.short_title()) } } }
            @for policy in &case.policies {
                @for (index, baseline) in BASELINES.into_iter().enumerate() {
                    (cell(case, policy, baseline, index == 0))
                }
            }
        }
    }
}

fn cell(case: &CaseResult, policy: &PolicyResult, baseline: &str, first: bool) -> Markup {
    let judged: Vec<&Comparison> =
        case.judged.iter().filter_map(|measure| policy.against(baseline, *measure)).collect();
    let Some((primary, others)) = judged.split_first() else { return html! { td.first[first] {} } };
    let hidden = others.iter().any(|other| other.verdict == Verdict::Loss);
    let all: Vec<String> = judged.iter().map(|one| format!("{}: {}", one.measure.title(), sentence(one))).collect();
    let open = if primary.may_lose() { " open" } else { "" };
    let edge = if first { " first" } else { "" };
    html! {
        td class={ (primary.verdict.as_str()) (open) (edge) } title=(all.join("\n")) {
            (times(primary.ratio)) " " (primary.verdict.sign()) @if hidden { "†" }
        }
    }
}

fn times(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio >= LARGEST * 0.999 => "∞".into(),
        Some(ratio) if ratio >= 9.995 => format!("{ratio:.0}"),
        Some(ratio) => format!("{ratio:.2}"),
        None => "–".into(),
    }
}

fn sentence(one: &Comparison) -> String {
    let interval = one.ci95.map_or("no interval".into(), |[low, high]| format!("{low:.3} to {high:.3}"));
    format!("{} × {} ({interval}), {}", times(one.ratio), one.baseline, one.verdict.as_str())
}

fn details(case: &CaseResult) -> Markup {
    let measured: Vec<Measure> = Measure::ALL
        .into_iter()
        .filter(|measure| case.policies.iter().any(|policy| policy.measures.contains_key(measure)))
        .collect();
    let judged: Vec<&str> = case.judged.iter().map(|measure| measure.short_title()).collect();
    html! {
        details id=(case.name) {
            summary { strong { (case.name) } " " small { (case.purpose) } }
            p {
                small {
                    "For " (case.set.as_str()) "; judged by " (judged.join(", ")) "."
                    @if let Some(best) = &case.best_fixed {
                        " The best of " (best.tried) " fixed assignments is " (best.assignment) ": " (digits(best.mean)) "."
                    }
                }
            }
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "policy" }
                            @for measure in &measured { th { (measure.title()) } }
                            @if case.best_fixed.is_some() { th { "regret" } }
                        }
                    }
                    tbody {
                        @for policy in &case.policies {
                            tr {
                                th { (policy.policy) }
                                @for measure in &measured { td { (value(policy.measures.get(measure))) } }
                                @if case.best_fixed.is_some() {
                                    td { (policy.regret.map_or("–".into(), |regret| format!("{:.1} %", 100.0 * regret))) }
                                }
                            }
                        }
                    }
                }
                table {
                    thead {
                        tr {
                            th { "policy" } th { "beside" } th { "by" } th { "times better" } th { "95 % interval" }
                            th { "verdict" }
                        }
                    }
                    tbody {
                        @for policy in &case.policies {
                            @for one in &policy.against { (comparison(&policy.policy, one)) }
                        }
                    }
                }
            }
        }
    }
}

fn comparison(policy: &str, one: &Comparison) -> Markup {
    let interval = one.ci95.map_or("–".into(), |[low, high]| format!("{low:.3} to {high:.3}"));
    html! {
        tr {
            th { (policy) }
            td { (one.baseline) }
            td { (one.measure.short_title()) }
            td { (times(one.ratio)) }
            td { (interval) }
            td class=(one.verdict.as_str()) { (one.verdict.sign()) " " (one.verdict.as_str()) }
        }
    }
}

fn value(values: Option<&Values>) -> String {
    match values {
        None => "–".into(),
        Some(Values { mean, ci95: None, .. }) => digits(*mean),
        Some(Values { mean, ci95: Some([low, high]), .. }) => {
            let half = (high - low) / 2.0;
            format!("{} ± {}", digits(*mean), digits(half))
        }
    }
}

/// A number with as many digits as mean something.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

fn method(tournament: &Tournament) -> Markup {
    html! {
        p {
            "Played in the " (place(tournament)) ", with " (tournament.seeds) (if tournament.seeds == 1 { " seed" } else { " seeds" })
            ", the same for every policy. A comparison takes the logarithm of the ratio \
             seed by seed, its mean, and the 95 % interval by Student’s t. A ratio beyond " (LARGEST) " counts as "
            (LARGEST) ", also where the other carried nothing. A comparison is undecided if a seed lacks a value. “Never \
             loses” holds only if no judged measure is a LOSS, and none is undecided with an interval that reaches below "
            (format!("{:.2}", 1.0 - MARGIN)) "."
        }
        p {
            "Completion times are of all transfers: one that has not finished at the end counts with the time that it has \
             taken so far, and “unfinished” is the share of these. Jain’s index is over the connections that send all the \
             time, and “slowest” is the goodput of the one that has least. Under ECMP all links have one weight, so that routers \
             hash flows over all paths of the case; they notice links that are down, and no silent loss. Load variation is the coefficient of variation of a path’s utilisation between samples of a second, as a \
             mean over the paths."
        }
        @match tournament.regret_seeds {
            Some(seeds) => p {
                "Regret is by how much the best fixed assignment beats a policy in the primary measure, over the first "
                (seeds) " seeds. In a fixed assignment a connection keeps the path that it draws when it opens. With up to \
                 three paths all sets of paths are tried, with more the k fastest and the k nearest; each evenly and, where \
                 rates differ, by rate. The best is chosen by the same seeds, which flatters it a little. A set without the path \
                 that routing prefers moves the default route too. A policy that moves connections can do better than any fixed assignment: its \
                 regret is then below zero. So may plain TCP, whose packets have no segment routing header."
            },
            None => p { "Regret against the best fixed assignment was not computed; " code { "--regret" } " does." },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, cases, play};

    fn tournament() -> Tournament {
        let options = Options {
            policies: vec!["pathchanger".parse().unwrap()],
            cases: cases()
                .filter(|case| ["down-default-long", "equal-30-short"].contains(&&*case.name))
                .cloned()
                .collect(),
            seeds: 2,
            regret: None,
            profile: Default::default(),
            command: "sidestep bench policies <x>".into(),
            stop: Default::default(),
        };
        play(&options, &()).unwrap()
    }

    #[test]
    fn the_page_has_a_row_for_each_case_and_a_cell_for_each_comparison() {
        let page = page(&tournament());
        assert_eq!(page.matches("<a href=\"#").count(), 2);
        // Four policies and three baselines; a baseline beside itself is empty.
        let signs = Verdict::ALL.map(|verdict| format!(" {}", verdict.sign()));
        let table = page.split("class=\"verdicts\"").nth(1).unwrap().split("</table>").next().unwrap();
        let cells = table.matches("<td").count();
        assert_eq!(cells, 2 * 4 * 3);
        let told: usize = signs.iter().map(|sign| table.matches(sign.as_str()).count()).sum();
        assert_eq!(told, 2 * 9, "{table}");
        assert!(page.contains("sidestep bench policies &lt;x&gt;") && !page.contains("<script"));
    }

    #[test]
    fn numbers_have_as_many_digits_as_mean_something() {
        assert_eq!([0.0, 0.12345, 1.2345, 12.345].map(digits), ["0", "0.123", "1.23", "12.3"]);
        assert_eq!([Some(1.234), Some(12.3), Some(LARGEST), None].map(times), ["1.23", "12", "∞", "–"]);
    }

    #[test]
    fn a_default_that_loses_nowhere_is_said_so_and_another_is_not() {
        let mut summary = Summary { policy: "p".into(), against: Vec::new() };
        assert!(headline(&summary).contains("0 of 0 comparisons"));
        summary.against = Summary::of("p", &[]).against;
        assert_eq!(headline(&summary), "p never loses, to dice, to plain TCP or to ECMP.");
    }
}
