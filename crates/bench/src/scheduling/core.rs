//! A workload on the scheduler's core alone: what a decision costs, without API server, store and network.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use api::core::v1::{Node, Pod};
use api::json::from_value;
use matching::{Features, Matcher};
use scheduling::queue::Backoff;
use scheduling::{Outcome, Scheduler, plugins};

use super::Size;
use super::workload::Workload;
use crate::load::latencies::Latencies;

/// Result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of measured pods that were placed.
    pub placed: usize,
    /// Total duration of all decisions.
    pub took: Duration,
    /// Latencies of single decisions, including the events before and after.
    pub latencies: Latencies,
}

/// A core that a workload is played on.
pub struct Play<'w> {
    scheduler: Scheduler,
    workload: &'w Workload,
    size: Size,
    sets: usize,
    start: Instant,
    /// Pods of before that have a node.
    placed_before: Vec<Pod>,
    /// Number of nodes that the churn has changed.
    turns: usize,
}

impl<'w> Play<'w> {
    /// Makes everything that is there before.
    ///
    /// # Errors
    /// Nodes or pods are not what they should be, or a decision failed.
    pub fn prepare(workload: &'w Workload, size: Size) -> Result<Self> {
        let capacity = NonZeroUsize::new(20_000).context("capacity")?;
        let features = if workload.gates_off { Features::default() } else { Features::ALL };
        let matcher = Arc::new(Matcher::new(capacity, Arc::new(|| Duration::ZERO), features)?);
        let profile = plugins::default_profile(&matcher)?;
        let scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1);
        let (sets, start) = (workload.sets(size), Instant::now());
        let mut play = Self { scheduler, workload, size, sets, start, placed_before: Vec::new(), turns: 0 };
        for number in 0..size.nodes {
            let node: Node = from_value(&workload.node(number, sets)?)?;
            play.scheduler.set_node(&node, start.elapsed());
        }
        for (before, prefix, count) in workload.pods_before(size) {
            for number in 0..count {
                let mut pod: Pod = from_value(&before.pod(&prefix, number, sets)?)?;
                pod.metadata.uid = pod.metadata.name.clone();
                if play.schedule(&mut pod)? > 0 {
                    play.placed_before.push(pod);
                }
            }
        }
        Ok(play)
    }

    /// A pod that is measured.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn measured_pod(&self, number: usize) -> Result<Pod> {
        let mut pod: Pod = from_value(&self.workload.measured_pod(number, self.sets)?)?;
        pod.metadata.uid = pod.metadata.name.clone();
        Ok(pod)
    }

    /// Decides about a pod and all that wait by now; how many were placed.
    ///
    /// # Errors
    /// A decision failed.
    pub fn schedule(&mut self, pod: &mut Pod) -> Result<usize> {
        self.scheduler.set_pod(pod, self.start.elapsed());
        let mut placed = 0_usize;
        while let Some(attempt) = self.scheduler.schedule_one(self.start.elapsed()) {
            match attempt.outcome {
                Outcome::Scheduled(placement) => {
                    self.scheduler.bound(&attempt.uid);
                    if attempt.uid == pod.metadata.uid {
                        pod.spec.node_name = placement.node;
                        self.scheduler.set_pod(pod, self.start.elapsed());
                        placed = placed.saturating_add(1);
                    }
                }
                Outcome::Unschedulable(unplaced) => {
                    // The victims are deleted at once.
                    for victim in unplaced.nomination.iter().flat_map(|it| &it.victims) {
                        self.scheduler.remove_pod(&victim.uid, self.start.elapsed());
                    }
                }
                Outcome::Error(error) => return Err(anyhow!(error)),
                Outcome::Deferred(_) => return Err(anyhow!("no search is deferred")),
            }
        }
        Ok(placed)
    }

    /// The same, for pods that are measured. By this name instructions are counted without the making of objects.
    ///
    /// # Errors
    /// A decision failed.
    #[inline(never)]
    pub fn measured(&mut self, pod: &mut Pod) -> Result<usize> {
        self.schedule(pod)
    }

    /// Applies the changes after this many measured pods.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn churn(&mut self, pods: usize) -> Result<()> {
        let Some(churn) = &self.workload.churn else { return Ok(()) };
        if pods.checked_rem(churn.every_pods.max(1)) != Some(0) {
            return Ok(());
        }
        for _ in 0..self.size.scaled(churn.nodes) {
            let node: Node = from_value(&self.workload.changed_node(self.size.nodes, self.turns, self.sets)?)?;
            self.scheduler.set_node(&node, self.start.elapsed());
            self.turns = self.turns.saturating_add(1);
        }
        for pod in self.placed_before.drain(..churn.delete_pods.min(self.placed_before.len())) {
            self.scheduler.remove_pod(&pod.metadata.uid, self.start.elapsed());
        }
        Ok(())
    }
}

/// Plays a workload.
///
/// # Errors
/// Nodes or pods are not what they should be, or a decision failed.
pub fn run(workload: &Workload, size: Size) -> Result<Report> {
    let mut play = Play::prepare(workload, size)?;
    let mut report = Report::default();
    for number in 0..size.pods {
        let mut pod = play.measured_pod(number)?;
        let begin = Instant::now();
        report.placed = report.placed.saturating_add(play.measured(&mut pod)?);
        let took = begin.elapsed();
        report.latencies.add(took);
        report.took = report.took.saturating_add(took);
        play.churn(number.saturating_add(1))?;
    }
    Ok(report)
}
