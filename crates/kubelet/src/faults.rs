//! Faults on demand: nodes that stop, are slow, or flap, according to annotations on the Node.
//!
//! | annotation, after `sim.celplane.dev/` | value |
//! |---|---|
//! | `heartbeat` | `stopped`: no lease, no status, no pod is looked after |
//! | `ready` | `false`: the node reports that it is not ready |
//! | `flap-seconds` | alternates between ready and not ready at this interval |
//! | `slow-seconds` | everything that is done with pods comes so much later |
//! | `device-driver` | `failing`: devices are not prepared for pods; `gone`: they are not published either |
//!
//! A value that cannot be read counts as absent, and is reported as an event.

use std::time::Duration;

use api::meta::v1::StringMap;
use api::time::Timestamp;

use crate::annotations;

/// Simulated faults of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Whether the node sends no heartbeats.
    pub stopped: bool,
    /// Whether the node reports that it is not ready.
    pub not_ready: bool,
    /// The node alternates between ready and not ready.
    pub flaps: Option<Duration>,
    /// Delay of all actions.
    pub slow: Duration,
    /// State of the drivers of its devices.
    pub device_driver: DeviceDriver,
}

/// State of the drivers of a node's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceDriver {
    /// The drivers work.
    #[default]
    Works,
    /// The drivers fail to prepare devices.
    Fails,
    /// The drivers are missing.
    Gone,
}

impl Faults {
    /// Reads the faults from a Node's annotations.
    #[must_use]
    pub fn of(annotations: &StringMap) -> Self {
        if !annotations::has_any(annotations) {
            return Faults::default();
        }
        let text = |name: &str| annotations::get(annotations, name);
        let seconds = |name: &str| text(name)?.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
        Faults {
            stopped: text("heartbeat") == Some("stopped"),
            not_ready: text("ready") == Some("false"),
            flaps: seconds("flap-seconds").filter(|period| period.as_secs() > 0),
            slow: seconds("slow-seconds").unwrap_or_default(),
            device_driver: match text("device-driver") {
                Some("failing") => DeviceDriver::Fails,
                Some("gone") => DeviceDriver::Gone,
                _ => DeviceDriver::Works,
            },
        }
    }

    /// Whether the node reports that it is ready, and the time until that changes.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> (bool, Option<Duration>) {
        let Some(period) = self.flaps else { return (!self.not_ready, None) };
        let now = Duration::new(u64::try_from(now.seconds).unwrap_or(0), now.nanos);
        let seconds = period.as_secs().max(1);
        let turn = now.as_secs().checked_div(seconds).unwrap_or(0);
        let next = Duration::from_secs(turn.saturating_add(1).saturating_mul(seconds));
        (turn % 2 == 0 && !self.not_ready, Some(next.saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_node_changes_at_the_end_of_each_period() {
        let annotations = [("sim.celplane.dev/flap-seconds".into(), "30".into())].into_iter().collect();
        let faults = Faults::of(&annotations);
        let at = |seconds| faults.is_ready(Timestamp { seconds, nanos: 0 });
        assert_eq!(at(0), (true, Some(Duration::from_secs(30))));
        assert_eq!(at(29), (true, Some(Duration::from_secs(1))));
        assert_eq!(at(30), (false, Some(Duration::from_secs(30))));
        assert_eq!(at(60), (true, Some(Duration::from_secs(30))));
    }

    #[test]
    fn a_healthy_node_has_no_faults() {
        assert_eq!(Faults::of(&StringMap::new()), Faults::default());
        let odd = [
            ("sim.celplane.dev/flap-seconds".into(), "0".into()),
            ("sim.celplane.dev/slow-seconds".into(), "x".into()),
        ];
        assert_eq!(Faults::of(&odd.into_iter().collect()), Faults::default());
    }
}
