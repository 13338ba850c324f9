//! How many instructions does each phase take? Counted by callgrind, so that a busy machine does not matter.
//!
//! The bench starts itself under `valgrind`, once with few repetitions and once with more; the difference is what the
//! additional ones took.

use celplane_bench::cases::{self, Case};
use celplane_bench::column;
use celplane_bench::engine::Batch;
use celplane_bench::ours::PHASES;
use celplane_bench::table::{NONE, Table};
use std::process::{Command, ExitCode};

const FEW: u64 = 200;
const MANY: u64 = 1_200;

/// Flag that makes the bench repeat one workload: operation, case and number.
const REPEAT: &str = "--repeat";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some([_, what, of, count]) = arguments.iter().position(|it| it == REPEAT).and_then(|at| arguments.get(at..))
    {
        return repeat(what, of, count);
    }
    if arguments.iter().any(|argument| argument == "--bench") {
        show();
    }
    ExitCode::SUCCESS
}

fn show() {
    println!("How many instructions does each phase take? (callgrind)");
    let phases = PHASES.iter().map(|(name, _)| (*name).to_owned());
    let mut table = Table::new(std::iter::once("case".to_owned()).chain(phases));
    for case in cases::all() {
        let counts = PHASES.iter().map(|(phase, _)| shown(phase, case.name));
        table.row(std::iter::once(case.name.to_owned()).chain(counts.collect::<Vec<_>>()));
    }
    println!("{table}");
    let mut table = Table::new(["printer column", EXPRESSION, PATH].map(str::to_owned));
    for work in column::ALL {
        table.row([work.name.to_owned(), shown(work.name, EXPRESSION), shown(work.name, PATH)]);
    }
    println!("{table}");
}

const EXPRESSION: &str = "CEL";
const PATH: &str = "JSONPath";

fn shown(what: &str, of: &str) -> String {
    let once = instructions(what, of, MANY).zip(instructions(what, of, FEW)).map(|(many, few)| {
        let additional = many.saturating_sub(few);
        additional.checked_div(MANY.saturating_sub(FEW)).unwrap_or_default()
    });
    once.map_or_else(|| NONE.to_owned(), |once| once.to_string())
}

/// Counts the instructions of a run of this program; nothing where there is no valgrind, or nothing to repeat.
fn instructions(what: &str, of: &str, count: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([REPEAT, what, of, &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    run.status.success().then(|| collected.trim().parse().ok())?
}

fn repeat(what: &str, of: &str, count: &str) -> ExitCode {
    match (work(what, of), count.parse()) {
        (Some(mut batch), Ok(count)) => {
            batch(count);
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

fn work(what: &str, of: &str) -> Option<Batch> {
    let column = column::ALL.iter().find(|work| work.name == what);
    match (of, column) {
        (EXPRESSION, Some(work)) => (work.expression)(),
        (PATH, Some(work)) => (work.path)(),
        _ => {
            let case: Case = cases::all().into_iter().find(|case| case.name == of)?;
            let (_, phase) = PHASES.iter().find(|(name, _)| *name == what)?;
            phase(&case)
        }
    }
}
