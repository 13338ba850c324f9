//! Replays requests that a real API server answered, and compares the answers after volatile values are masked.
//!
//! Known differences are listed in `known_gaps.txt` and `client_gaps.txt`, one scenario and step per line, with
//! all places that differ; a listed step that agrees, or differs elsewhere, fails the test as well, so that
//! the lists only shrink. `CELPLANE_GAPS=write` rewrites them.

mod clients;
mod mask;
mod player;
mod shape;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::player::Outcome;

/// The recordings, and what a gap in them most likely is.
const FILES: &[(&str, &str)] = &[
    ("health", "health endpoints differ in their checks"),
    ("discovery", "groups and forms that are not served"),
    ("openapi", "protobuf forms and the version 2 document"),
    ("crud", "defaults, validation, apply and tables of the kind"),
    ("patch", "defaults and validation of the kind"),
    ("ssa", "apply"),
    ("list", "defaults and validation of the kind"),
    ("watch", "defaults and forms of the kind"),
    ("table", "columns of the kind"),
    ("deletion", "defaults and validation of the kind"),
    ("subresources", "defaults and validation of the kind"),
    ("crd", "managed fields and apply of custom resources"),
    ("protobuf", "forms that are sent as JSON"),
    ("errors", "reviews, quota, protobuf and impersonation"),
    ("validation", "validation of the kind"),
    ("defaulting", "defaults of the kind"),
    ("defaulting-no-serviceaccount-admission", "defaults of the kind"),
    ("dra", "claims and slices of devices"),
];

/// Number of servers that replay the requests of clients in parallel.
const SERVERS: usize = 8;

#[test]
fn recorded_answers_agree() {
    let mut report = Report::new("known_gaps.txt");
    for (file, reason) in FILES {
        let mut scenarios: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for step in steps(file) {
            scenarios.entry(step["scenario"].as_str().unwrap().to_owned()).or_default().push(step);
        }
        let plays = scenarios.into_iter().map(|(name, steps)| player::play(name, steps));
        report.add(file, reason, run(plays.collect()));
    }
    report.check();
}

#[test]
fn requests_of_recorded_clients_are_answered_as_they_were() {
    let mut report = Report::new("client_gaps.txt");
    let only = std::env::var("CELPLANE_REPLAY").ok();
    let mut cases = clients::cases::all();
    cases.retain(|case| only.as_ref().is_none_or(|only| case["scenario"].as_str().unwrap().contains(only.as_str())));
    let plays = cases.chunks(cases.len().div_ceil(SERVERS).max(1)).map(|cases| clients::play(cases.to_vec()));
    report.add("clients", "depends on what others wrote", run(plays.collect()));
    report.check();
}

/// The steps of a recording.
fn steps(file: &str) -> impl Iterator<Item = Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/http/{file}.jsonl"));
    let only = std::env::var("CELPLANE_REPLAY").ok();
    let text = std::fs::read_to_string(path).unwrap();
    let steps: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    steps.into_iter().filter(move |step| {
        let name = step["scenario"].as_str().unwrap();
        only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    })
}

/// Plays all at once.
fn run<F: Future<Output = Vec<Outcome>> + Send + 'static>(plays: Vec<F>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = plays.into_iter().map(tokio::spawn).collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.extend(task.await.unwrap());
        }
        outcomes
    })
}

/// Number of places that a gap names; the others are counted.
const PLACES_MAX: usize = 6;

/// Positions or kinds of all differences of an answer: without the values, which may change from run to run.
fn places(differences: &str) -> String {
    let mut places: Vec<String> = Vec::new();
    for place in differences.split(player::NEXT).map(place) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let others = places.len().saturating_sub(PLACES_MAX);
    places.truncate(PLACES_MAX);
    let others = if others > 0 { format!(", and {others} others") } else { String::new() };
    format!("{}{others}", places.join(", "))
}

/// Position or kind of a difference.
fn place(difference: &str) -> String {
    let first_line = difference.lines().next().unwrap_or_default();
    let ends = [": ", " is {", " is [", " is \"", " is `", " `"].iter().filter_map(|end| first_line.find(end));
    let place = &first_line[..ends.min().unwrap_or(first_line.len())];
    // Numbers, `true` and `null` are not in quotes.
    place.split(" is ").next().filter(|_| !place.ends_with(" is missing")).unwrap_or(place).to_owned()
}

#[test]
fn gap_is_identified_by_its_positions() {
    for (difference, expected) in [
        (".items[0].spec is missing: {\"a\": 1}", ".items[0].spec is missing"),
        (".spec.x should not be there: 1", ".spec.x should not be there"),
        (".status is {\"a\":\"x is y\"} instead of {}", ".status"),
        (".spec.replicas is 3 instead of 4", ".spec.replicas"),
        ("status 404 instead of 200: {}\n   wanted {}", "status 404 instead of 200"),
        ("setup: status 404 instead of 200: {}", "setup"),
        ("header location is `a` instead of `b`", "header location"),
        ("body `ok` instead of `no`", "body"),
    ] {
        assert_eq!(places(difference), expected);
    }
    assert_eq!(places(".a is 1 instead of 2\n& .b.c is missing: {}\n& .a is 3 instead of 4"), ".a, .b.c is missing");
    let many: Vec<String> = (0..9).map(|number| format!(".a[{number}] is 1 instead of 2")).collect();
    assert_eq!(places(&many.join(player::NEXT)), ".a[0], .a[1], .a[2], .a[3], .a[4], .a[5], and 3 others");
}

/// Agreeing steps, and differences that are not as listed.
struct Report {
    gaps_path: PathBuf,
    /// The listed steps, where they differ, and why.
    known: BTreeMap<String, (String, String)>,
    lines: String,
    list: String,
    differences: Vec<String>,
    wrong: Vec<String>,
}

impl Report {
    fn new(gaps: &str) -> Self {
        let gaps_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay").join(gaps);
        let known = std::fs::read_to_string(&gaps_path).unwrap_or_default();
        let known = known.lines().filter_map(|line| {
            let (step, reason) = line.split_once(" # ")?;
            let (id, place) = step.split_once(": ").unwrap_or((step, ""));
            Some((id.to_owned(), (place.to_owned(), reason.to_owned())))
        });
        let known = known.collect();
        let list = String::from(
            "# Steps whose answers differ from the recorded ones: the places that do, and the likely reason.\n",
        );
        Self { gaps_path, known, lines: String::new(), list, differences: Vec::new(), wrong: Vec::new() }
    }

    fn add(&mut self, file: &str, reason: &str, outcomes: Vec<Outcome>) {
        let count = outcomes.len();
        let agree = outcomes.iter().filter(|it| it.difference.is_none()).count();
        let _ = writeln!(self.lines, "{file}: {agree} of {count} agree");
        for Outcome { id, difference } in outcomes {
            let listed = self.known.get(&id);
            match difference {
                None if listed.is_some() => self.wrong.push(format!("{id}: agrees now, take it off the list")),
                None => {}
                Some(difference) => {
                    let place = places(&difference);
                    let _ = writeln!(self.list, "{id}: {place} # {}", listed.map_or(reason, |(_, reason)| reason));
                    self.differences.push(format!("{id}: {difference}"));
                    if listed.is_none_or(|(listed, _)| *listed != place) {
                        self.wrong.push(format!("{id}: {difference}"));
                    }
                }
            }
        }
    }

    fn check(self) {
        println!("{}", self.lines);
        if std::env::var("CELPLANE_GAPS").as_deref() == Ok("write") {
            let name = format!("celplane_{}", self.gaps_path.file_name().unwrap().to_string_lossy());
            std::fs::write(std::env::temp_dir().join(name), self.differences.join("\n")).unwrap();
            std::fs::write(self.gaps_path, self.list).unwrap();
            return;
        }
        assert!(self.wrong.is_empty(), "{} steps are not as listed:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}
