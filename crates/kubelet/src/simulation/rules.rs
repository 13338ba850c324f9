//! How a pod is played: the rules of the fleet, and what a pod's annotations change in them.
//!
//! | annotation | value |
//! |---|---|
//! | `sim/start-seconds` | how long the containers take to be created |
//! | `sim/ready` | `false`: running, never ready; may be changed while the pod runs |
//! | `sim/ready-seconds` | how long a container takes from running to ready |
//! | `sim/init-seconds` | how long each init container runs |
//! | `sim/run-seconds`, `sim/exit-code` | containers end after this long, with this code |
//! | `sim/failure-rate`, `sim/fail-code` | this share of the runs ends with this code instead |
//! | `sim/fail-indexes` | pods of a Job with these completion indexes end with `sim/fail-code` |
//! | `sim/exit-now` | set on a running pod: ends it at once with this code, for good |
//! | `sim/phase` | `Pending`: the pod never starts |
//! | `sim/terminate-seconds` | how long containers take to end when the pod is deleted; `never` |
//! | `sim/restart` | `never`: containers that end are not started again, whatever the restart policy |
//! | `sim/log` | what each container writes when it starts |
//!
//! A value that cannot be read counts as absent, and the pod is played by the other rules. The rules of a fleet come from
//! a file with the same names without `sim/`, in which all must be readable.

use std::time::Duration;

use api::core::v1::Pod;
use api::json::Value;
use api::meta::v1::StringMap;

const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How a pod is played.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// How long the containers take to be created.
    pub start: Duration,
    /// Whether containers become ready.
    pub ready: bool,
    /// How long a container takes from running to ready.
    pub ready_after: Duration,
    /// How long an init container runs.
    pub init_run: Duration,
    /// How long a container runs; nothing: until it is stopped.
    pub run: Option<Duration>,
    /// With which code it ends then.
    pub exit_code: i32,
    /// Which share of the runs ends with `fail_code` instead, in millionths.
    pub failure_millionths: u32,
    /// The code of those.
    pub fail_code: i32,
    /// The pod ends now, with this code, for good.
    pub exit_now: Option<i32>,
    /// The pod does not start.
    pub stays_pending: bool,
    /// How long containers take to end when they are stopped; nothing: for ever.
    pub terminate: Option<Duration>,
    /// Whether containers that end are started again, as the restart policy says.
    pub restarts: bool,
    /// What each container writes when it starts.
    pub log: String,
}

/// Why a file cannot be the rules of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// It is something else.
    #[error("rules are an object of names and values")]
    Form,
    /// Nothing is played by this name.
    #[error("there is no rule `{0}`")]
    Unknown(String),
    /// The rule takes other values.
    #[error("the rule `{name}` cannot be `{value}`")]
    Value {
        /// The rule.
        name: String,
        /// What was given.
        value: String,
    },
}

impl Default for Rules {
    /// Containers start at once, are ready, and run until they are stopped, which takes no time.
    fn default() -> Self {
        Rules {
            start: Duration::ZERO,
            ready: true,
            ready_after: Duration::ZERO,
            init_run: Duration::ZERO,
            run: None,
            exit_code: 0,
            failure_millionths: 0,
            fail_code: 1,
            exit_now: None,
            stays_pending: false,
            terminate: Some(Duration::ZERO),
            restarts: true,
            log: String::new(),
        }
    }
}

impl Rules {
    /// Rules from a document, such as `{start-seconds: 2, failure-rate: 0.1}`.
    ///
    /// # Errors
    /// The first name or value that cannot be read.
    pub fn new(document: &Value) -> Result<Rules, RulesError> {
        let mut rules = Rules::default();
        for (name, value) in document.as_object().ok_or(RulesError::Form)?.iter() {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            if !is_readable(name, &text).ok_or_else(|| RulesError::Unknown(name.to_string()))? {
                return Err(RulesError::Value { name: name.to_string(), value: text });
            }
            rules.apply(|wanted| (wanted == name).then_some(text.as_str()));
        }
        Ok(rules)
    }

    /// The rules for a pod: these, changed by its annotations.
    #[must_use]
    pub fn for_pod(&self, pod: &Pod) -> Rules {
        let mut rules = self.clone();
        let annotations = &pod.metadata.annotations;
        if annotations.is_empty() {
            return rules;
        }
        rules.apply(|name| get(annotations, name));
        if let (Some(indexes), Some(index)) = (get(annotations, "fail-indexes"), annotations.get(COMPLETION_INDEX))
            && indexes.split(',').any(|it| it.trim() == index)
        {
            rules.exit_code = rules.fail_code;
        }
        rules
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
        rules.run = duration("run-seconds").or(rules.run);
        rules.exit_code = number("exit-code").unwrap_or(rules.exit_code);
        rules.fail_code = number("fail-code").unwrap_or(rules.fail_code);
        rules.failure_millionths = text("failure-rate").and_then(millionths).unwrap_or(rules.failure_millionths);
        rules.exit_now = number("exit-now").or(rules.exit_now);
        rules.stays_pending = text("phase").map_or(rules.stays_pending, |phase| phase == "Pending");
        rules.restarts = text("restart").map_or(rules.restarts, |restart| restart != "never");
        if let Some(text) = text("log") {
            text.clone_into(&mut rules.log);
        }
        rules.terminate = match text("terminate-seconds") {
            Some("never") => None,
            Some(text) => seconds(text).or(rules.terminate),
            None => rules.terminate,
        };
    }

    /// The code with which the run number `run` of a container ends. The same for the same run, in every process.
    #[must_use]
    pub fn code_of_run(&self, uid: &str, container: &str, run: i32) -> i32 {
        let lot = lot(uid, container, run) % 1_000_000;
        if lot < self.failure_millionths { self.fail_code } else { self.exit_code }
    }
}

/// Whether a rule can have a value; nothing if there is no such rule.
fn is_readable(name: &str, text: &str) -> Option<bool> {
    Some(match name {
        "start-seconds" | "ready-seconds" | "init-seconds" | "run-seconds" => seconds(text).is_some(),
        "terminate-seconds" => text == "never" || seconds(text).is_some(),
        "ready" => text.parse::<bool>().is_ok(),
        "exit-code" | "fail-code" => text.parse::<i32>().is_ok(),
        "failure-rate" => millionths(text).is_some(),
        "phase" => text == "Pending",
        "restart" => text == "never",
        "log" => true,
        _ => return None,
    })
}

fn get<'a>(annotations: &'a StringMap, name: &str) -> Option<&'a str> {
    annotations.get(&*format!("sim/{name}")).map(|it| it.as_str())
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value lies between 0 and a million")]
fn millionths(text: &str) -> Option<u32> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
    Some((share * 1e6).round() as u32)
}

/// A number by which runs are told apart: FNV-1a over what names them.
fn lot(uid: &str, container: &str, run: i32) -> u32 {
    let bytes = uid.bytes().chain([0]).chain(container.bytes()).chain(run.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The upper half is mixed best.
    u32::try_from(hash >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(annotations: &[(&str, &str)]) -> Rules {
        let mut pod = Pod::default();
        for (name, value) in annotations {
            pod.metadata.annotations.insert((*name).into(), (*value).into());
        }
        Rules::default().for_pod(&pod)
    }

    #[test]
    fn annotations_change_the_rules() {
        assert_eq!(rules(&[]), Rules::default());
        let it = rules(&[("sim/run-seconds", "1.5"), ("sim/exit-code", "3"), ("sim/terminate-seconds", "never")]);
        assert_eq!((it.run, it.exit_code, it.terminate), (Some(Duration::from_millis(1500)), 3, None));
        let it = rules(&[("sim/fail-indexes", "0,2"), (COMPLETION_INDEX, "2"), ("sim/fail-code", "42")]);
        assert_eq!(it.exit_code, 42);
        let it = rules(&[("sim/fail-indexes", "0,2"), (COMPLETION_INDEX, "1")]);
        assert_eq!(it.exit_code, 0);
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let it = rules(&[("sim/run-seconds", "-1"), ("sim/ready", "yes"), ("sim/failure-rate", "2")]);
        assert_eq!(it, Rules::default());
    }

    #[test]
    fn a_file_sets_the_rules_of_a_fleet_and_annotations_change_them() {
        let document = api::json!({"start-seconds": 2, "failure-rate": "0.5", "ready": false, "log": "hello"});
        let rules = Rules::new(&document).unwrap();
        assert_eq!((rules.start, rules.failure_millionths, rules.ready), (Duration::from_secs(2), 500_000, false));
        let mut pod = Pod::default();
        pod.metadata.annotations.insert("sim/ready".into(), "true".into());
        assert!(rules.for_pod(&pod).ready);
        assert_eq!(rules.for_pod(&pod).log, "hello");
        let refused = |document: Value| Rules::new(&document).unwrap_err().to_string();
        assert_eq!(refused(api::json!({"start": 2})), "there is no rule `start`");
        assert_eq!(refused(api::json!({"ready": "yes"})), "the rule `ready` cannot be `yes`");
        assert_eq!(refused(api::json!([1])), "rules are an object of names and values");
    }

    #[test]
    fn about_the_given_share_of_runs_fails() {
        let it = rules(&[("sim/failure-rate", "0.25"), ("sim/fail-code", "7")]);
        let failures = (0..4000).filter(|run| it.code_of_run("uid", "c", *run) == 7).count();
        assert!((900..1100).contains(&failures), "{failures}");
        assert_eq!(it.code_of_run("uid", "c", 5), it.code_of_run("uid", "c", 5));
    }
}
