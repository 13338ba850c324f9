//! `celplane check`: would the API server accept these manifests?
//!
//! Built-in kinds are validated as in the server, and custom resources by definitions in the input; of others,
//! the gated fields and their expressions are checked. Admission policies are applied if they are given. Exit
//! code 0: all accepted; 1: some rejected; 2: some input is unreadable.

mod definitions;
mod judge;
mod junit;
mod policies;
mod removed;
mod report;

use locks::Mutex;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::features::Features;
use api::well_known::GROUP_AUTHENTICATED;
use cel_kubernetes::libraries::authorization::User;
use definitions::Definitions;
use judge::{FileReport, Judge, ObjectReport, Progress};

use crate::manifests::{self, Manifest, Source};
use crate::output::{complain_line, complain_text};
use crate::style::{ColorChoice, Style};
use crate::time_limit::TimeLimit;

/// Validate manifests offline as the API server would, with file, line and path of every error.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files, directories (read recursively), or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "filenames")]
    files: Vec<String>,

    /// Alternative to the positional arguments, as in kubectl: several `-f`, or names separated by commas
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',', num_args = 1..)]
    filenames: Vec<String>,

    /// Read directories recursively; this is the default, and the flag exists for compatibility with kubectl
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Skip files whose path matches the pattern; `*` matches any characters
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    ignore: Vec<String>,

    /// Reject objects that cannot be validated, such as custom resources without their definition, and fail if
    /// a policy cannot be evaluated because a resource that it needs is missing
    #[arg(long)]
    strict: bool,

    /// Feature gates, as `A=true,B=false`; by default the five proposals are enabled, as with `celplane up`.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// Files or directories with admission policies to apply, and with the bindings, parameters, namespaces and
    /// authorization results (SubjectAccessReviews with a status) that they need.
    #[arg(long, value_name = "FILE")]
    policies: Vec<String>,

    /// User name passed to the policies.
    #[arg(long = "as", default_value = "kubernetes-admin", value_name = "USER", requires = "policies")]
    user: String,

    /// Groups of that user; `system:authenticated` is added.
    #[arg(long = "as-group", value_name = "GROUP", requires = "policies")]
    groups: Vec<String>,

    /// Also list accepted objects, with the estimated cost of their expressions.
    #[arg(short, long)]
    verbose: bool,

    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,

    /// Use of color in the output.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,

    #[command(flatten)]
    limit: TimeLimit,
}

/// Output format of `celplane check`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Readable text.
    Text,
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
    /// JUnit XML, for test reports.
    Junit,
}

/// Duration after which a progress bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.limit.start()?;
        let features = match Features::all_proposals().with_flag(&self.feature_gates) {
            Ok(features) => features,
            Err(error) => return Ok(cannot_start(&error)),
        };
        let names: Vec<String> = self.files.iter().chain(&self.filenames).cloned().collect();
        let mut sources = match manifests::sources(&names) {
            Ok(sources) => sources,
            Err(error) => return Ok(cannot_start(&format!("{error:#}"))),
        };
        sources.retain(|source| !self.ignore.iter().any(|pattern| source.is_like(pattern)));
        let mut judge = Judge::new(features, Definitions::read(&sources), self.verbose)?;
        if !self.policies.is_empty()
            && let Err(error) = self.add_policies(&mut judge, &sources)
        {
            return Ok(cannot_start(&format!("{error:#}")));
        }
        let mut reports = judge_all(&judge, &sources);
        if self.strict {
            reports.iter_mut().flat_map(|report| &mut report.objects).for_each(ObjectReport::refuse_doubts);
        }
        let stdout = crate::output::stdout();
        let mut out = std::io::BufWriter::new(stdout);
        match self.output {
            Output::Text => report::text(&reports, features, self.verbose, Style::of_stdout(self.color), &mut out)?,
            Output::Json => report::json(&reports, features, &mut out)?,
            Output::Sarif => report::sarif(&reports, &mut out)?,
            Output::Junit => junit::write(&reports, &mut out)?,
        }
        out.flush()?;
        Ok(exit_code(&reports, self.strict))
    }

    /// Reads the policies, and the objects beside them that they may need.
    fn add_policies(&self, judge: &mut Judge, sources: &[Source]) -> anyhow::Result<()> {
        let read = |sources: &[Source]| -> anyhow::Result<Vec<Manifest>> {
            let files = sources.iter().filter(|source| matches!(source, Source::File(_)));
            let manifests = files.map(|source| manifests::readable(source.read()?));
            Ok(manifests.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
        };
        let policies = read(&manifests::sources(&self.policies)?)?;
        // Manifests that cannot be read are reported when they are judged.
        let files = sources.iter().filter(|source| matches!(source, Source::File(_)));
        let beside: Vec<Manifest> =
            files.filter_map(|source| manifests::readable(source.read().ok()?).ok()).flatten().collect();
        let groups = self.groups.iter().cloned().chain([GROUP_AUTHENTICATED.to_owned()]).collect();
        let user = User { name: self.user.clone(), groups, ..User::default() };
        judge.set_policies(&policies, &beside, user)
    }
}

fn cannot_start(error: &dyn std::fmt::Display) -> ExitCode {
    complain_line!("error: {error}");
    ExitCode::from(2)
}

fn exit_code(reports: &[FileReport], is_strict: bool) -> ExitCode {
    let mut objects = reports.iter().flat_map(|report| &report.objects);
    if reports.iter().any(|report| report.unreadable.is_some()) {
        ExitCode::from(2)
    } else if objects.any(|object| !object.findings.is_empty() || is_strict && !object.unevaluated.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Checks all files on all cores; returns the reports in the order of the files.
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
                reports.lock().append(&mut own);
            });
        }
        if std::io::stderr().is_terminal() {
            show_progress(&progress, sources.len());
        }
    });
    let mut reports = reports.into_inner();
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
            complain_text!("\r[{:<WIDTH$}] {judged} objects, {done}/{files} files", "#".repeat(filled));
            is_shown = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if is_shown {
        complain_text!("\r\u{1b}[K");
    }
}
