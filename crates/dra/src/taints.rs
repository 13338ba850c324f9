//! Device taints: exclusion from allocation, and eviction.
//!
//! Drivers publish them with the device, administrators add others by rule. Follows `ToleratesTaint` in Kubernetes
//! `resourceclaim/devicetoleration.go`, `pkg/controller/devicetainteviction` and the slice tracker.

use std::time::Duration;

use api::resource::v1::{DeviceTaint, DeviceTaintRule, DeviceToleration};
use api::time::Timestamp;
use api::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE};

/// Whether a taint keeps a device from a request with these tolerations.
pub(crate) fn prevents(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> bool {
    matches!(taint.effect.as_str(), EFFECT_NO_SCHEDULE | EFFECT_NO_EXECUTE)
        && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Whether a toleration of a request tolerates a taint of a device.
pub(crate) fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != taint.effect {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != taint.key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// Time at which users of a device must be evicted because of a taint; `None` if they may stay. A taint without
/// a time is as old as `now`.
#[must_use]
pub fn evicts_at(taint: &DeviceTaint, tolerations: &[DeviceToleration], now: Timestamp) -> Option<Timestamp> {
    if taint.effect != EFFECT_NO_EXECUTE {
        return None;
    }
    let since = taint.time_added.unwrap_or(now);
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
    }
    let stay = u64::try_from(shortest.unwrap_or(0)).unwrap_or(0);
    Some(since.plus(Duration::from_secs(stay)))
}

/// Whether a rule is about a device.
#[must_use]
pub fn selects(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &str) -> bool {
    let Some(selector) = &rule.spec.device_selector else { return true };
    let is_it = |wanted: &Option<api::json::Text>, name: &str| wanted.as_ref().is_none_or(|wanted| *wanted == name);
    is_it(&selector.driver, driver) && is_it(&selector.pool, pool) && is_it(&selector.device, device)
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
        json::from_value(&json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(tolerations: &str, expected: Option<i64>) {
        let taint: DeviceTaint =
            read(r#"{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:40Z"}"#);
        let tolerations: Vec<DeviceToleration> = read(tolerations);
        let at = evicts_at(&taint, &tolerations, Timestamp { seconds: 500, nanos: 0 });
        assert_eq!(at.map(|at| at.seconds), expected);
    }

    #[test]
    fn users_of_a_device_go_unless_they_tolerate_its_taint() {
        check("[]", Some(100));
        check(r#"[{"key": "other", "operator": "Exists"}]"#, Some(100));
        check(r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]"#, Some(130));
        check(
            r#"[{"operator": "Exists", "tolerationSeconds": 30}, {"key": "k", "value": "v", "tolerationSeconds": 10}]"#,
            Some(110),
        );
        check(r#"[{"operator": "Exists", "effect": "NoExecute"}]"#, None);
        check(r#"[{"operator": "Exists", "effect": "NoSchedule"}]"#, Some(100));
        let soft: DeviceTaint = read(r#"{"key": "k", "effect": "NoSchedule"}"#);
        assert_eq!(evicts_at(&soft, &[], Timestamp { seconds: 0, nanos: 0 }), None);
    }

    #[test]
    fn rule_selects_named_devices() {
        let all: DeviceTaintRule = read(r#"{"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}"#);
        assert!(selects(&all, "d", "p", "x"));
        let some: DeviceTaintRule = read(
            r#"{"spec": {"deviceSelector": {"driver": "d", "device": "x"}, "taint": {"key": "k", "effect": "NoSchedule"}}}"#,
        );
        assert!(selects(&some, "d", "any", "x"));
        assert!(!selects(&some, "d", "any", "y"));
        assert!(!selects(&some, "e", "any", "x"));
    }
}
