//! Status of a DeviceTaintRule, in Kubernetes' words.
//!
//! Pure. Follows `maybeUpdateRuleStatus` in Kubernetes `pkg/controller/devicetainteviction`.

use api::well_known::EFFECT_NO_EXECUTE;
use std::time::Duration;

/// The condition.
pub(super) const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";
/// A status is written at most this often.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// Devices and pods of a rule.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Devices of slices.
    pub(super) published: usize,
    /// Devices that claims have.
    pub(super) allocated: usize,
    /// Pods that have to go, or would have to.
    pub(super) pending: usize,
    /// In how many namespaces.
    pub(super) namespaces: usize,
    /// Pods that were evicted.
    pub(super) evicted: usize,
}

/// Contents of the condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConditionText {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Returns the condition of a rule with this effect.
pub(super) fn of(effect: &str, counts: &Counts) -> ConditionText {
    let many = |count: usize, one: &str, several: &str| match count {
        1 => one.to_owned(),
        count => format!("{count} {several}"),
    };
    let namespaces = many(counts.namespaces, "1 namespace", "different namespaces");
    let (status, reason, mut message) = match effect {
        EFFECT_NO_EXECUTE if counts.pending > 0 => {
            let pods = many(counts.pending, "1 pod needs", "pods need");
            ("True", "PodsPendingEviction", format!("{pods} to be evicted in {namespaces}."))
        }
        EFFECT_NO_EXECUTE if counts.evicted > 0 => ("False", "Completed", String::new()),
        EFFECT_NO_EXECUTE => ("False", "NotStarted", String::new()),
        "None" => {
            let published = many(counts.published, "1 published device", "published devices");
            let allocated = many(counts.allocated, "1 allocated device", "allocated devices");
            let pods = many(counts.pending, "1 pod", "pods");
            let message = format!(
                "{published} selected. {allocated} selected. {pods} would be evicted in {namespaces} if the effect was \
                 NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
            );
            ("False", "NoEffect", message)
        }
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if counts.evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        let pods = if counts.evicted == 1 { "1 pod".to_owned() } else { format!("{} pods", counts.evicted) };
        message.push_str(&format!("{pods} evicted since starting the controller."));
    }
    ConditionText { status, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(effect: &str, counts: Counts, status: &str, reason: &str, message: &str) {
        let said = of(effect, &counts);
        assert_eq!((said.status, said.reason, said.message.as_str()), (status, reason, message));
    }

    #[test]
    fn a_rule_says_how_far_its_evictions_are() {
        let one = Counts { published: 1, allocated: 1, pending: 1, namespaces: 1, evicted: 0 };
        let some = Counts { published: 3, allocated: 2, pending: 4, namespaces: 2, evicted: 1 };
        let done = Counts { pending: 0, namespaces: 0, evicted: 2, ..some };
        check("NoExecute", Counts::default(), "False", "NotStarted", "");
        check("NoExecute", one, "True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.");
        check(
            "NoExecute",
            some,
            "True",
            "PodsPendingEviction",
            "4 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
        );
        check("NoExecute", done, "False", "Completed", "2 pods evicted since starting the controller.");
        check("NoSchedule", one, "False", "OtherEffect", "Eviction only happens for the NoExecute effect.");
        check(
            "None",
            one,
            "False",
            "NoEffect",
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was \
             NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
        );
    }
}
