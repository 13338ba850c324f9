//! Celplane beside Kubernetes' own programs on the same work, in one run: tables and plots as one report.
//!
//! [`programs`] finds the programs, [`control_plane`] starts them, [`requests`], [`definitions`], [`scheduling`] and
//! [`expressions`] measure, [`figures`] collects samples, [`report`] and [`plot`] write. Every measurement is repeated in
//! rounds, and the contestants alternate within a round: a busy moment of the machine affects all of them.

pub mod control_plane;
pub mod definitions;
pub mod expressions;
pub mod figures;
pub mod machine;
pub mod plot;
pub mod programs;
pub mod report;
pub mod requests;
pub mod scheduling;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use control_plane::{Contestant, ControlPlane};
use figures::{Group, Unit};
use machine::Machine;
use programs::Programs;

/// Amount of work.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Number of times that everything is measured.
    pub rounds: usize,
    /// Number of pods that are created and listed.
    pub pods: usize,
    /// Duration of reads and of changes.
    pub time: Duration,
    /// Number of lists in each encoding.
    pub lists: u32,
    /// Number of custom resource definitions.
    pub definitions: usize,
    /// Number of nodes that pods are scheduled on.
    pub nodes: usize,
    /// Number of pods that are scheduled.
    pub scheduled: usize,
}

impl Size {
    /// Figures to publish.
    pub const FULL: Self = Self {
        rounds: 3,
        pods: 5000,
        time: Duration::from_secs(2),
        lists: 10,
        definitions: 100,
        nodes: 1000,
        scheduled: 2000,
    };
    /// A check that everything can be measured.
    pub const QUICK: Self = Self {
        rounds: 1,
        pods: 200,
        time: Duration::from_millis(200),
        lists: 2,
        definitions: 5,
        nodes: 50,
        scheduled: 100,
    };
}

/// Measures everything, and writes the report and its plots to a directory.
///
/// # Errors
/// A program that does not start or does not answer as expected, and files that cannot be written.
pub fn run(programs: &Programs, size: Size, out: &Path) -> Result<()> {
    let machine = Machine::read();
    let contestants = programs.contestants();
    let names: Vec<String> = contestants.iter().map(|contestant| contestant.name().to_owned()).collect();
    let mut starts = Group::new("starts", "Start and idle memory", &names);
    starts.setup = "The API server with its store, from the start of the first process to the first successful \
        `/readyz` over TLS; resident memory of all processes at that moment."
        .to_owned();
    let mut requests = requests::group(size, &names);
    let mut definitions = definitions::group(size, &names);
    let mut scheduling = scheduling::group(size, &names);
    for round in 1..=size.rounds {
        // Every other round begins with the other contestant.
        let mut order: Vec<(usize, &Contestant)> = contestants.iter().enumerate().collect();
        if round.is_multiple_of(2) {
            order.reverse();
        }
        for (index, contestant) in &order {
            announce(size, round, contestant, "requests");
            let plane = started(contestant, false, *index, &mut starts)?;
            requests::measure(&plane, size, *index, &mut requests)
                .with_context(|| format!("requests to {}", contestant.name()))?;
        }
        for (index, contestant) in &order {
            announce(size, round, contestant, "definitions");
            let plane = started(contestant, false, *index, &mut starts)?;
            definitions::measure(&plane, size, *index, &mut definitions)
                .with_context(|| format!("definitions of {}", contestant.name()))?;
        }
        for (index, contestant) in order.iter().filter(|(_, contestant)| contestant.has_scheduler()) {
            for workload in scheduling::WORKLOADS {
                announce(size, round, contestant, workload);
                let plane = started(contestant, true, *index, &mut starts)?;
                scheduling::measure(&plane, workload, size, *index, &mut scheduling)
                    .with_context(|| format!("scheduling by {}", contestant.name()))?;
            }
        }
    }
    eprintln!("expressions and printer columns");
    let (expressions, columns) = expressions::measure(size);
    let groups = [starts, requests, scheduling, definitions, expressions, columns];
    report::write(out, &machine, programs, size, &groups)
}

fn announce(size: Size, round: usize, contestant: &Contestant, work: &str) {
    eprintln!("round {round} of {}: {}, {work}", size.rounds, contestant.name());
}

/// Starts a control plane and adds a sample of its start.
fn started(contestant: &Contestant, with_scheduler: bool, index: usize, starts: &mut Group) -> Result<ControlPlane> {
    let plane = ControlPlane::start(contestant, with_scheduler)
        .with_context(|| format!("cannot start {}", contestant.name()))?;
    starts.add("ready after", Unit::Seconds, index, plane.ready.as_secs_f64());
    starts.add("memory, idle", Unit::Bytes, index, plane.idle_bytes as f64);
    Ok(plane)
}
