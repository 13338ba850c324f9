//! From engines and cases to a printed table, or to a check of every verdict.

use crate::cases::{self, Case};
use crate::engine::{Batch, Engine};
use crate::harness::{Timing, on_this_machine};
use crate::table::{NONE, Table, ratio, time};
use crate::{ours, recorded};
use std::process::ExitCode;

/// A column of figures from another run: its header, and nanoseconds by the case's name.
pub type RecordedColumn = (&'static str, fn(&str) -> Option<f64>);

/// One bench of an engine and a case, with recorded figures.
#[derive(Debug)]
pub struct Bench {
    /// The question it answers, printed above the table.
    pub question: &'static str,
    /// The work to time, if the engine can do it.
    pub work: fn(&Engine, &Case) -> Option<Batch>,
    /// Figures recorded in another run.
    pub recorded: Option<RecordedColumn>,
    /// Printed below the table.
    pub note: &'static str,
}

/// Time from the text of an expression to a program.
pub const COMPILE: Bench = Bench {
    question: "How long from text to something that can be evaluated? (peers: parse only)",
    work: |engine, case| (engine.compile)(case),
    recorded: Some((recorded::LABEL, recorded::compile_ns)),
    note: recorded::NOTE,
};

/// Time of one evaluation.
pub const EVALUATE: Bench = Bench {
    question: "How long does one evaluation take, program and variables standing ready?",
    work: |engine, case| (engine.evaluate)(case).map(|evaluation| evaluation.batch),
    recorded: Some((recorded::LABEL, recorded::evaluate_ns)),
    note: recorded::NOTE,
};

/// The `main` of a bench beside peers: measures under `cargo bench`, checks verdicts under `cargo test`.
#[must_use]
pub fn run(bench: &Bench, peers: &[Engine]) -> ExitCode {
    let wrong = wrong_verdicts(peers);
    if !wrong.is_empty() {
        for line in wrong {
            eprintln!("{line}");
        }
        return ExitCode::FAILURE;
    }
    if std::env::args().any(|argument| argument == "--bench") {
        println!("{}", bench.question);
        let measured = measure(bench, peers);
        for (title, pick) in STATISTICS {
            println!("\n{title}\n{}", render(bench, peers, &measured, *pick));
        }
        println!("{}", bench.note);
    }
    ExitCode::SUCCESS
}

/// Returns a message for each wrong verdict, ours included; a comparison with a wrong engine would mean nothing.
#[must_use]
pub fn wrong_verdicts(peers: &[Engine]) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases::all() {
        for engine in std::iter::once(&ours::ENGINE).chain(peers) {
            let verdict = (engine.evaluate)(&case).map(|evaluation| evaluation.verdict);
            if verdict.is_some_and(|verdict| verdict != case.verdict) {
                wrong.push(format!("{}: wrong verdict on `{}`", engine.name, case.expression));
            }
        }
    }
    wrong
}

/// A statistic of a timing in a table.
type Statistic = fn(Timing) -> f64;

const STATISTICS: &[(&str, Statistic)] =
    &[("median sample", |timing| timing.median_ns), ("fastest sample", |timing| timing.min_ns)];

/// A case and its timings: ours, then the peers' in their order.
type MeasuredCase = (Case, Vec<Option<Timing>>);

fn measure(bench: &Bench, peers: &[Engine]) -> Vec<MeasuredCase> {
    let harness = on_this_machine();
    let measure_case = |case: Case| {
        let mut work = vec![(bench.work)(&ours::ENGINE, &case)];
        work.extend(peers.iter().map(|engine| (bench.work)(engine, &case)));
        let timings = harness.side_by_side(&mut work);
        (case, timings)
    };
    cases::all().into_iter().map(measure_case).collect()
}

fn render(bench: &Bench, peers: &[Engine], measured: &[MeasuredCase], pick: Statistic) -> Table {
    let mut header = vec!["case".to_owned(), "ours".to_owned()];
    header.extend(peers.iter().map(|engine| engine.name.to_owned()));
    header.extend(peers.iter().map(|engine| format!("{} / ours", engine.name)));
    header.extend(bench.recorded.iter().map(|(label, _)| (*label).to_owned()));
    let mut table = Table::new(header);
    for (case, timings) in measured {
        table.row(row(bench, case, timings, pick));
    }
    table
}

/// One row: times of ours and the peers, the peers' as multiples of ours, then what was recorded.
fn row(bench: &Bench, case: &Case, timings: &[Option<Timing>], pick: Statistic) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let times: Vec<Option<f64>> = timings.iter().map(|timing| timing.map(pick)).collect();
    let ours = times.first().copied().flatten();
    let mut cells = vec![case.name.to_owned()];
    cells.extend(times.iter().map(|ns| or_none(ns.map(time))));
    let ratios = times.iter().skip(1).map(|theirs| theirs.zip(ours).map(|(theirs, ours)| ratio(theirs, ours)));
    cells.extend(ratios.map(or_none));
    cells.extend(bench.recorded.iter().map(|(_, figure)| or_none(figure(case.name).map(time))));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCH: Bench = Bench {
        question: "?",
        work: |_, _| None,
        recorded: Some(("recorded", |name| (name == "startsWith").then_some(646.0))),
        note: "",
    };

    fn timing(ns: f64) -> Option<Timing> {
        Some(Timing { median_ns: ns, min_ns: ns / 2.0 })
    }

    #[test]
    fn a_row_shows_times_then_ratios_then_recorded_figures() {
        let case = cases::all().remove(0);
        let cells = row(&BENCH, &case, &[timing(25.0), timing(250.0), None], |it| it.median_ns);
        assert_eq!(cells, ["startsWith", "25.0 ns", "250 ns", NONE, "10.0 ×", NONE, "646 ns"]);
    }

    #[test]
    fn the_table_shows_the_statistic_it_is_asked_for() {
        let measured = [(cases::all().remove(0), vec![timing(25.0), timing(250.0), None])];
        let [median, fastest] = STATISTICS else { panic!("two statistics") };
        assert!(render(&BENCH, &[], &measured, median.1).to_string().contains("  25.0 ns  "));
        assert!(render(&BENCH, &[], &measured, fastest.1).to_string().contains("  12.5 ns  "));
    }

    #[test]
    fn without_a_time_of_ours_there_is_no_ratio() {
        let case = cases::all().remove(0);
        let cells = row(&BENCH, &case, &[None, timing(250.0), timing(100.0)], |it| it.median_ns);
        assert_eq!(cells, ["startsWith", NONE, "250 ns", "100 ns", NONE, NONE, "646 ns"]);
    }

    #[test]
    fn our_engine_gives_the_right_verdict_in_every_case() {
        assert_eq!(wrong_verdicts(&[]), [""; 0]);
    }
}
