//! The rules by which pods are simulated: those of the fleet, and their changes by selected rules and by annotations.
//!
//! | annotation, after `sim.celplane.dev/` | value |
//! |---|---|
//! | `start-seconds` | time until the containers are created |
//! | `ready` | `false`: running, never ready; may be changed while the pod runs |
//! | `ready-seconds` | time of a container from running to ready |
//! | `init-seconds` | run time of each init container |
//! | `run-seconds`, `exit-code` | containers end after this time, with this code; `never` |
//! | `failure-rate`, `fail-code` | this share of the runs ends with this code instead |
//! | `fail-indexes` | pods of a Job with these completion indexes end with `fail-code` |
//! | `exit-now` | set on a running pod: ends it at once with this code, without restart |
//! | `phase` | `Pending`: the pod never starts |
//! | `terminate-seconds` | time that containers take to end when the pod is deleted; `never` |
//! | `restart` | `never`: containers that end are not restarted, whatever the restart policy |
//! | `log` | output of each container at its start |
//! | `cpu-usage`, `memory-usage` | usage of each container: an amount, or a share of its request in percent |
//!
//! The file of a fleet has the same names without a prefix, and under `rules` changes for the pods that a rule
//! [selects](super::select). Everything in it must be readable. Pods whose restart policy is `Never` or `OnFailure` end
//! with code 0 after a second unless a rule or an annotation sets `run-seconds`, as Jobs of a real cluster end.

use std::time::Duration;

use api::core::v1::Pod;
use api::json::{Object, Value};
use api::well_known::ANNOTATION_JOB_COMPLETION_INDEX;

use super::select::{PodSelector, SelectError};
use super::usage;
use crate::annotations;

/// Run time of pods that end, if no rule gives another one.
const MOMENT: Duration = Duration::from_secs(1);

/// The rules of a fleet: defaults for all pods, and changes for selected ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    defaults: PodRules,
    selected: Vec<Rule>,
}

/// Changes for the pods that a selection matches.
#[derive(Debug, Clone, PartialEq)]
struct Rule {
    select: PodSelector,
    values: Vec<(String, String)>,
}

/// The rules for one pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodRules {
    /// Time until the containers are created.
    pub(super) start: Duration,
    /// Whether containers become ready.
    pub(super) ready: bool,
    /// Time of a container from running to ready.
    pub(super) ready_after: Duration,
    /// Run time of an init container.
    pub(super) init_run: Duration,
    /// Run time of a container; `None`: until it is stopped.
    pub(super) run: Option<Duration>,
    /// Whether a rule or annotation has set `run`: otherwise the restart policy decides.
    has_run: bool,
    /// The exit code after that time.
    pub(super) exit_code: i32,
    /// The share of the runs that ends with `fail_code` instead, in millionths.
    pub(super) failure_millionths: u32,
    /// The exit code of those.
    pub(super) fail_code: i32,
    /// The pod ends now, with this code, without restart.
    pub(super) exit_now: Option<i32>,
    /// Whether the pod does not start.
    pub(super) stays_pending: bool,
    /// Time that containers take to end when they are stopped; `None`: forever.
    pub(super) terminate: Option<Duration>,
    /// Whether ended containers are restarted according to the restart policy.
    pub(super) restarts: bool,
    /// Output of each container at its start.
    pub(super) log: String,
    /// Usage of the processor by each container.
    pub(super) cpu_usage: usage::Rule,
    /// Usage of memory by each container.
    pub(super) memory_usage: usage::Rule,
}

/// A reason why a file cannot be the rules of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The file has the wrong form.
    #[error("rules are an object of names and values")]
    Form,
    /// No rule has this name.
    #[error("unknown rule `{0}`")]
    Unknown(String),
    /// The rule takes other values.
    #[error("the rule `{name}` cannot be `{value}`")]
    Value {
        /// The rule.
        name: String,
        /// The given value.
        value: String,
    },
    /// `rules` is something else.
    #[error("`rules` is a list of objects, each with `select` and the names and values of rules")]
    List,
    /// One of the selected rules cannot be read.
    #[error("rules[{index}]: {error}")]
    Selected {
        /// Index in the list.
        index: usize,
        /// Error of the rule.
        error: Box<RulesError>,
    },
    /// The selection cannot be read.
    #[error(transparent)]
    Select(#[from] SelectError),
}

impl Default for PodRules {
    /// Containers start at once, are ready, and run until they are stopped, which takes no time.
    fn default() -> Self {
        PodRules {
            start: Duration::ZERO,
            ready: true,
            ready_after: Duration::ZERO,
            init_run: Duration::ZERO,
            run: None,
            has_run: false,
            exit_code: 0,
            failure_millionths: 0,
            fail_code: 1,
            exit_now: None,
            stays_pending: false,
            terminate: Some(Duration::ZERO),
            restarts: true,
            log: String::new(),
            cpu_usage: usage::Rule::default(),
            memory_usage: usage::Rule::default(),
        }
    }
}

impl Rules {
    /// Reads rules from a document, such as
    /// `{start-seconds: 2, rules: [{select: {owner: Job}, run-seconds: 30}]}`.
    ///
    /// # Errors
    /// The first name or value that cannot be read.
    pub fn new(document: &Value) -> Result<Rules, RulesError> {
        let mut rules = Rules::default();
        let fields = document.as_object().ok_or(RulesError::Form)?;
        rules.defaults.apply_all(&values(fields, "rules")?);
        let Some(list) = fields.get("rules") else { return Ok(rules) };
        for (index, item) in list.as_array().ok_or(RulesError::List)?.iter().enumerate() {
            let fields = item.as_object().ok_or(RulesError::List)?;
            let read = || -> Result<Rule, RulesError> {
                let select = PodSelector::new(fields.get("select").ok_or(RulesError::List)?)?;
                Ok(Rule { select, values: values(fields, "select")? })
            };
            let rule = read().map_err(|error| RulesError::Selected { index, error: Box::new(error) })?;
            rules.selected.push(rule);
        }
        Ok(rules)
    }

    /// The rules for a pod: the defaults, changed by each rule that selects it, then by its annotations.
    #[must_use]
    pub(super) fn for_pod(&self, pod: &Pod) -> PodRules {
        let mut rules = self.defaults.clone();
        for rule in self.selected.iter().filter(|rule| rule.select.matches(pod)) {
            rules.apply_all(&rule.values);
        }
        let of_pod = &pod.metadata.annotations;
        let is_annotated = annotations::has_any(of_pod);
        if is_annotated {
            rules.apply(|name| annotations::get(of_pod, name));
            let indexes = annotations::get(of_pod, "fail-indexes");
            if let (Some(indexes), Some(index)) = (indexes, of_pod.get(ANNOTATION_JOB_COMPLETION_INDEX))
                && indexes.split(',').any(|it| it.trim() == index)
            {
                rules.exit_code = rules.fail_code;
            }
        }
        // A pod that ran in the cluster it was loaded from runs on.
        let is_loaded = is_annotated && annotations::get(of_pod, "loaded") == Some("true");
        if !rules.has_run && !is_loaded && matches!(pod.spec.restart_policy.as_str(), "Never" | "OnFailure") {
            rules.run = Some(MOMENT);
        }
        rules
    }
}

/// The names and values of an object without one that has another meaning, all readable.
fn values(fields: &Object, without: &str) -> Result<Vec<(String, String)>, RulesError> {
    let mut values = Vec::new();
    for (name, value) in fields.iter().filter(|(name, _)| *name != without) {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        if !is_readable(name, &text).ok_or_else(|| RulesError::Unknown(name.to_owned()))? {
            return Err(RulesError::Value { name: name.to_owned(), value: text });
        }
        values.push((name.to_owned(), text));
    }
    Ok(values)
}

impl PodRules {
    fn apply_all(&mut self, values: &[(String, String)]) {
        self.apply(|wanted| values.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.as_str()));
    }

    fn apply<'t>(&mut self, text: impl Fn(&str) -> Option<&'t str>) {
        let rules = self;
        let duration = |name: &str| text(name).and_then(seconds);
        let number = |name: &str| text(name).and_then(|it| it.parse::<i32>().ok());
        let replace = |slot: &mut Duration, name: &str| {
            if let Some(value) = duration(name) {
                *slot = value;
            }
        };
        replace(&mut rules.start, "start-seconds");
        replace(&mut rules.ready_after, "ready-seconds");
        replace(&mut rules.init_run, "init-seconds");
        rules.ready = text("ready").and_then(|it| it.parse().ok()).unwrap_or(rules.ready);
        if let Some(run) = text("run-seconds").and_then(seconds_or_never) {
            (rules.run, rules.has_run) = (run, true);
        }
        rules.exit_code = number("exit-code").unwrap_or(rules.exit_code);
        rules.fail_code = number("fail-code").unwrap_or(rules.fail_code);
        rules.failure_millionths = text("failure-rate").and_then(millionths).unwrap_or(rules.failure_millionths);
        rules.exit_now = number("exit-now").or(rules.exit_now);
        rules.stays_pending = text("phase").map_or(rules.stays_pending, |phase| phase == "Pending");
        rules.restarts = text("restart").map_or(rules.restarts, |restart| restart != "never");
        if let Some(text) = text("log") {
            text.clone_into(&mut rules.log);
        }
        rules.cpu_usage = text("cpu-usage").and_then(usage::Rule::cpu).unwrap_or(rules.cpu_usage);
        rules.memory_usage = text("memory-usage").and_then(usage::Rule::memory).unwrap_or(rules.memory_usage);
        rules.terminate = text("terminate-seconds").and_then(seconds_or_never).unwrap_or(rules.terminate);
    }

    /// The exit code of the run number `run` of a container. The same for the same run, in every process.
    #[must_use]
    pub(super) fn code_of_run(&self, uid: &str, container: &str, run: i32) -> i32 {
        let lot = lot(uid, container, run) % 1_000_000;
        if lot < self.failure_millionths { self.fail_code } else { self.exit_code }
    }
}

/// Whether a rule can have a value; nothing if there is no such rule.
pub(crate) fn is_readable(name: &str, text: &str) -> Option<bool> {
    Some(match name {
        "start-seconds" | "ready-seconds" | "init-seconds" => seconds(text).is_some(),
        "run-seconds" | "terminate-seconds" => seconds_or_never(text).is_some(),
        "ready" => text.parse::<bool>().is_ok(),
        "exit-code" | "fail-code" => text.parse::<i32>().is_ok(),
        "failure-rate" => millionths(text).is_some(),
        "phase" => text == "Pending",
        "restart" => text == "never",
        "log" => true,
        "cpu-usage" => usage::Rule::cpu(text).is_some(),
        "memory-usage" => usage::Rule::memory(text).is_some(),
        _ => return None,
    })
}

/// A duration in seconds, with a fraction perhaps.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn seconds_or_never(text: &str) -> Option<Option<Duration>> {
    if text == "never" { Some(None) } else { seconds(text).map(Some) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value lies between 0 and a million")]
fn millionths(text: &str) -> Option<u32> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
    Some((share * 1e6).round() as u32)
}

/// A pseudo-random number for a run: FNV-1a over its identity.
fn lot(uid: &str, container: &str, run: i32) -> u32 {
    let bytes = uid.bytes().chain([0]).chain(container.bytes()).chain(run.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The upper half is mixed best.
    u32::try_from(hash >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests;
