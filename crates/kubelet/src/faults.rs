//! Faults on demand: nodes that stop, are slow, or flap, as annotations on the Node say.
//!
//! | annotation | value |
//! |---|---|
//! | `sim/heartbeat` | `stopped`: no lease, no status, no pod is looked after |
//! | `sim/ready` | `false`: the node says that it is not ready |
//! | `sim/flap-seconds` | ready for so long, then not ready for so long, and again |
//! | `sim/slow-seconds` | everything that is done with pods comes so much later |
//! | `sim/device-driver` | `failing`: devices are not prepared for pods; `gone`: nor are they published |
//!
//! A value that cannot be read counts as absent.

use std::time::Duration;

use api::meta::v1::StringMap;
use api::time::Timestamp;

/// What is wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Nothing is heard of it.
    pub stopped: bool,
    /// It says that it is not ready.
    pub not_ready: bool,
    /// It changes between ready and not ready.
    pub flaps: Option<Duration>,
    /// Everything comes later.
    pub slow: Duration,
    /// How the drivers of its devices are.
    pub device_driver: DeviceDriver,
}

/// How the drivers of a node's devices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceDriver {
    /// As they should be.
    #[default]
    Works,
    /// They prepare nothing.
    Fails,
    /// They are not there.
    Gone,
}

impl Faults {
    /// What a Node's annotations ask for.
    #[must_use]
    pub fn of(annotations: &StringMap) -> Self {
        let text = |name: &str| annotations.get(name).map(|it| it.as_str());
        let seconds = |name: &str| text(name)?.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
        Faults {
            stopped: text("sim/heartbeat") == Some("stopped"),
            not_ready: text("sim/ready") == Some("false"),
            flaps: seconds("sim/flap-seconds").filter(|period| period.as_secs() > 0),
            slow: seconds("sim/slow-seconds").unwrap_or_default(),
            device_driver: match text("sim/device-driver") {
                Some("failing") => DeviceDriver::Fails,
                Some("gone") => DeviceDriver::Gone,
                _ => DeviceDriver::Works,
            },
        }
    }

    /// Whether the node says now that it is ready, and when that changes by itself.
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
        let annotations = [("sim/flap-seconds".into(), "30".into())].into_iter().collect();
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
        let odd = [("sim/flap-seconds".into(), "0".into()), ("sim/slow-seconds".into(), "x".into())];
        assert_eq!(Faults::of(&odd.into_iter().collect()), Faults::default());
    }
}
