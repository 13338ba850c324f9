//! Measurements next to those of kube-apiserver with etcd, and our goals.

use super::plan::{Lists, Measurements};
use crate::memory::size;
use crate::table::{NONE, Table, time};

/// kube-apiserver 1.38 and etcd on a 2-core machine, load generator included, over TLS, 32 connections.
mod recorded {
    pub(super) const CREATES: f64 = 1288.0;
    pub(super) const CREATES_P99: f64 = 0.067;
    pub(super) const GETS: f64 = 3986.0;
    pub(super) const LIST: f64 = 0.53;
    pub(super) const LIST_TABLE: f64 = 0.40;
    /// With how many pods the lists and the memory were measured.
    pub(super) const PODS: f64 = 12_949.0;
    pub(super) const BYTES: f64 = 836e6;
    pub(super) const READY: f64 = 2.3;
    pub(super) const IDLE_BYTES: f64 = 276e6;
}

/// The foot of the table.
pub const NOTE: &str = "* recorded on another run: kube-apiserver and etcd on a 2-core machine, load generator included, over TLS, \
     32 connections;\n  its lists and memory with 12,949 pods are scaled to the number of pods of this run";

/// Kind of comparison.
#[derive(Debug, Clone, Copy)]
enum Goal {
    /// At least this many times the recorded figure.
    Times(f64),
    /// At most this part of the recorded figure.
    Part(f64),
    /// At most this.
    Below(f64),
}

/// Unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    PerSecond,
    Seconds,
    Bytes,
}

impl Unit {
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::Seconds => seconds_text(value),
            Unit::Bytes => size(value),
        }
    }
}

/// A row: the value, what was recorded, what is to be reached.
struct Figure {
    name: String,
    unit: Unit,
    value: f64,
    spread: Option<(f64, f64)>,
    recorded: Option<f64>,
    goal: Option<Goal>,
}

/// The table of everything.
#[must_use]
pub fn table(measured: &Measurements) -> Table {
    let header = ["", "", "p50", "p99", "recorded*", "ratio", "goal", ""];
    let mut table = Table::new(header.map(String::from));
    for figure in figures(measured) {
        table.row(figure.cells());
    }
    table
}

/// Whether every goal that was measured is reached.
#[must_use]
pub fn is_reached(measured: &Measurements) -> bool {
    figures(measured).iter().all(|figure| figure.is_reached() != Some(false))
}

/// Processor time per request, of server and load generator.
#[must_use]
pub fn costs(measured: &Measurements) -> Table {
    let mut table = Table::new(["processor time per request", "server", "load generator"].map(String::from));
    for (name, step) in &measured.steps {
        let cell = |seconds: Option<f64>| seconds.map_or(NONE.to_owned(), seconds_text);
        table.row([(*name).to_owned(), cell(step.server_seconds), cell(step.own_seconds)]);
    }
    for list in &measured.lists {
        table.row([list.name.to_owned(), list.server_seconds.map_or(NONE.to_owned(), seconds_text), NONE.to_owned()]);
    }
    table
}

/// All figures, and the server's processor time per request: name, unit, value, always in the same order.
pub(super) fn values(measured: &Measurements) -> Vec<(String, Unit, f64)> {
    let figures = figures(measured).into_iter().map(|figure| (figure.name, figure.unit, figure.value));
    figures.chain(processor_times(measured)).collect()
}

/// The server's processor time for one request of each kind.
fn processor_times(measured: &Measurements) -> impl Iterator<Item = (String, Unit, f64)> {
    let steps = measured.steps.iter().map(|(name, step)| (*name, step.server_seconds));
    let lists = measured.lists.iter().map(|list| (list.name, list.server_seconds));
    let show = |(name, seconds): (&str, Option<f64>)| {
        (format!("processor time, {name}"), Unit::Seconds, seconds.unwrap_or(f64::NAN))
    };
    steps.chain(lists).map(show)
}

fn figures(measured: &Measurements) -> Vec<Figure> {
    let scale = measured.pods as f64 / recorded::PODS;
    let mut figures = Vec::new();
    let mut add = |name: &str, unit: Unit, value: f64, recorded: Option<f64>, goal: Option<Goal>| {
        figures.push(Figure { name: name.to_owned(), unit, value, spread: None, recorded, goal });
    };
    if let Some(ready) = measured.ready {
        let goal = Some(Goal::Below(0.3));
        add("ready after", Unit::Seconds, ready.as_secs_f64(), Some(recorded::READY), goal);
    }
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    if let Some(idle) = bytes(measured.idle_bytes) {
        add("memory, idle", Unit::Bytes, idle, Some(recorded::IDLE_BYTES), Some(Goal::Below(80e6)));
    }
    for (name, step) in &measured.steps {
        let (recorded, goal) = match *name {
            "creates" => (Some(recorded::CREATES), Some(Goal::Times(5.0))),
            "gets" => (Some(recorded::GETS), Some(Goal::Times(5.0))),
            _ => (None, None),
        };
        let latencies = &step.outcome.latencies;
        let spread = latencies.quantile(0.5).zip(latencies.quantile(0.99));
        let (name, value) = ((*name).to_owned(), step.outcome.rate());
        figures.push(Figure { name, unit: Unit::PerSecond, value, spread, recorded, goal });
        if recorded == Some(recorded::CREATES) {
            let value = latencies.quantile(0.99).unwrap_or_default();
            let name = "creates, p99".to_owned();
            let recorded = Some(recorded::CREATES_P99);
            figures.push(Figure { name, unit: Unit::Seconds, value, spread: None, recorded, goal: None });
        }
    }
    for Lists { name, latencies, bytes, .. } in &measured.lists {
        let recorded = match *name {
            "list as JSON" => Some(recorded::LIST * scale),
            "list as Table" => Some(recorded::LIST_TABLE * scale),
            _ => None,
        };
        let value = latencies.quantile(0.5).unwrap_or_default();
        let spread = latencies.quantile(0.5).zip(latencies.quantile(0.99));
        let name = format!("{name}, {} pods, {}", measured.pods, size(*bytes as f64));
        let goal = Some(Goal::Part(1.0 / 5.0));
        figures.push(Figure { name, unit: Unit::Seconds, value, spread, recorded, goal });
    }
    if let Some(delivery) = &measured.delivery {
        let latencies = &delivery.latencies;
        let spread = latencies.quantile(0.5).zip(latencies.quantile(0.99));
        let watchers = latencies.count().checked_div(delivery.writes).unwrap_or(0);
        let value = latencies.count() as f64 / delivery.took.as_secs_f64();
        let name = format!("events to {watchers} watchers");
        figures.push(Figure { name, unit: Unit::PerSecond, value, spread, recorded: None, goal: None });
    }
    let mut add = |name: &str, value: f64, recorded: Option<f64>, goal: Option<Goal>| {
        figures.push(Figure { name: name.to_owned(), unit: Unit::Bytes, value, spread: None, recorded, goal });
    };
    if let Some((filled, idle)) = bytes(measured.filled_bytes).zip(bytes(measured.idle_bytes)) {
        let recorded_each = (recorded::BYTES - recorded::IDLE_BYTES) / recorded::PODS;
        add("memory, pods made", filled, Some(recorded::BYTES * scale), Some(Goal::Part(1.0 / 6.0)));
        add("memory per pod", (filled - idle) / measured.pods as f64, Some(recorded_each), None);
    }
    if let Some(loaded) = bytes(measured.loaded_bytes) {
        add("memory, at the end", loaded, Some(recorded::BYTES * scale), Some(Goal::Part(1.0 / 6.0)));
    }
    figures
}

impl Figure {
    fn limit(&self) -> Option<f64> {
        match (self.goal?, self.recorded) {
            (Goal::Below(limit), _) => Some(limit),
            (Goal::Times(factor) | Goal::Part(factor), Some(recorded)) => Some(recorded * factor),
            _ => None,
        }
    }

    fn is_reached(&self) -> Option<bool> {
        let limit = self.limit()?;
        Some(match self.goal? {
            Goal::Times(_) => self.value >= limit,
            Goal::Part(_) | Goal::Below(_) => self.value <= limit,
        })
    }

    fn cells(&self) -> [String; 8] {
        let none = || NONE.to_owned();
        let ratio = self.recorded.map(|recorded| match self.unit {
            Unit::PerSecond => self.value / recorded,
            Unit::Seconds | Unit::Bytes => recorded / self.value,
        });
        let goal = self.limit().map_or_else(none, |limit| {
            let sign = if matches!(self.goal, Some(Goal::Times(_))) { '≥' } else { '≤' };
            format!("{sign} {}", self.unit.show(limit))
        });
        let reached = match self.is_reached() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        [
            self.name.clone(),
            self.unit.show(self.value),
            self.spread.map_or_else(none, |(p50, _)| seconds_text(p50)),
            self.spread.map_or_else(none, |(_, p99)| seconds_text(p99)),
            self.recorded.map_or_else(none, |recorded| self.unit.show(recorded)),
            ratio.map_or_else(none, |ratio| format!("{ratio:.1} ×")),
            goal,
            reached.to_owned(),
        ]
    }
}

fn seconds_text(seconds: f64) -> String {
    time(seconds * 1e9)
}
