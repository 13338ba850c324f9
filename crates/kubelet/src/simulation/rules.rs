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
//!
//! A value that cannot be read counts as absent, and the pod is played by the other rules.

use std::time::Duration;

use api::core::v1::Pod;
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
        }
    }
}

impl Rules {
    /// The rules for a pod: these, changed by its annotations.
    #[must_use]
    pub fn for_pod(&self, pod: &Pod) -> Rules {
        let mut rules = self.clone();
        let annotations = &pod.metadata.annotations;
        let text = |name: &str| get(annotations, name);
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
        rules.terminate = match text("terminate-seconds") {
            Some("never") => None,
            Some(text) => seconds(text).or(rules.terminate),
            None => rules.terminate,
        };
        if let (Some(indexes), Some(index)) = (text("fail-indexes"), annotations.get(COMPLETION_INDEX))
            && indexes.split(',').any(|it| it.trim() == index)
        {
            rules.exit_code = rules.fail_code;
        }
        rules
    }

    /// The code with which the run number `run` of a container ends. The same for the same run, in every process.
    #[must_use]
    pub fn code_of_run(&self, uid: &str, container: &str, run: i32) -> i32 {
        let lot = lot(uid, container, run) % 1_000_000;
        if lot < self.failure_millionths { self.fail_code } else { self.exit_code }
    }
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
    fn about_the_given_share_of_runs_fails() {
        let it = rules(&[("sim/failure-rate", "0.25"), ("sim/fail-code", "7")]);
        let failures = (0..4000).filter(|run| it.code_of_run("uid", "c", *run) == 7).count();
        assert!((900..1100).contains(&failures), "{failures}");
        assert_eq!(it.code_of_run("uid", "c", 5), it.code_of_run("uid", "c", 5));
    }
}
