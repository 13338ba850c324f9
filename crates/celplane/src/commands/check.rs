//! `celplane check`: would the API server accept these manifests?
//!
//! Kinds that the registry knows are validated as the server validates them, and custom resources by definitions in the
//! input; of others, the gated fields and their expressions are checked. Exit code 0: all accepted; 1: some refused; 2: something could not be read.

mod definitions;
mod judge;
mod report;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::features::Features;
use definitions::Definitions;
use judge::{FileReport, Judge, Progress};

use crate::manifests::{self, Source};
use crate::style::{Style, When};

/// Check manifests as the API server would: every error with file, line and path.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files, directories, or `-` for standard input.
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    filenames: Vec<String>,

    /// Which features are on, as `A=true,B=false`; by default the five proposals are, as with `celplane up`.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// Show also what is accepted, with estimated costs of expressions.
    #[arg(short, long)]
    verbose: bool,

    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,

    /// When to use color.
    #[arg(long, value_enum, default_value = "auto")]
    color: When,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// For code review tools (SARIF 2.1.0).
    Sarif,
}

/// When it takes longer than this, a progress bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = match Features::all_proposals().with_flag(&self.feature_gates) {
            Ok(features) => features,
            Err(error) => return Ok(cannot_start(&error)),
        };
        let sources = match manifests::sources(&self.filenames) {
            Ok(sources) => sources,
            Err(error) => return Ok(cannot_start(&format!("{error:#}"))),
        };
        let judge = Judge::new(features, Definitions::read(&sources), self.verbose)?;
        let reports = judge_all(&judge, &sources);
        let stdout = std::io::stdout().lock();
        let mut out = std::io::BufWriter::new(stdout);
        match self.output {
            Output::Text => report::text(&reports, features, self.verbose, Style::of_stdout(self.color), &mut out)?,
            Output::Json => report::json(&reports, features, &mut out)?,
            Output::Sarif => report::sarif(&reports, &mut out)?,
        }
        out.flush()?;
        Ok(exit_code(&reports))
    }
}

fn cannot_start(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

fn exit_code(reports: &[FileReport]) -> ExitCode {
    if reports.iter().any(|report| report.unreadable.is_some()) {
        ExitCode::from(2)
    } else if reports.iter().flat_map(|report| &report.objects).any(|object| !object.findings.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Judges all files, on all cores; the reports come in the order of the files.
fn judge_all(judge: &Judge, sources: &[Source]) -> Vec<FileReport> {
    let next = AtomicUsize::new(0);
    let progress = Progress::default();
    let reports = Mutex::new(Vec::with_capacity(sources.len()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(sources.len());
    // With fewer files than cores, the objects of a file are shared out.
    let threads = if sources.len() < cores { cores } else { 1 };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(source) = sources.get(index) else { break };
                    own.push((index, judge.file(source, threads, &progress)));
                    progress.files.fetch_add(1, Ordering::Relaxed);
                }
                reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut own);
            });
        }
        if std::io::stderr().is_terminal() {
            show_progress(&progress, sources.len());
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    reports.sort_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Shows a bar while it takes long, and takes it away at the end.
fn show_progress(progress: &Progress, files: usize) {
    const WIDTH: usize = 40;
    let start = Instant::now();
    let mut is_shown = false;
    loop {
        let done = progress.files.load(Ordering::Relaxed);
        if done >= files {
            break;
        }
        if start.elapsed() > PATIENCE {
            let (found, judged) = (progress.found.load(Ordering::Relaxed), progress.judged.load(Ordering::Relaxed));
            // The objects of one file show how far it is; with many files those that are not read yet count, too.
            let (count, total) = if files == 1 { (judged, found) } else { (done, files) };
            let filled = count.saturating_mul(WIDTH).checked_div(total).unwrap_or(0);
            eprint!("\r[{:<WIDTH$}] {judged} objects, {done}/{files} files", "#".repeat(filled));
            is_shown = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if is_shown {
        eprint!("\r\u{1b}[K");
    }
}
