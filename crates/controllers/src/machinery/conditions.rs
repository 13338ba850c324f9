//! Conditions in the common form, as lists in documents.

use api::json::Value;
use api::time::Timestamp;

use crate::machinery::edit;

/// A condition to be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    /// Left out if it is nothing.
    pub(crate) observed_generation: Option<i64>,
}

/// Sets a condition in its place, or at the end; its time changes only with its status. Returns whether
/// anything changed.
pub(crate) fn set(list: &mut Vec<Value>, condition: Condition<'_>, now: Timestamp) -> bool {
    let known = list.iter_mut().find(|it| it.str_at(&["type"]) == Some(condition.kind));
    let Some(known) = known else {
        let mut new = api::json!({"type": (condition.kind), "status": (condition.status)});
        if let Some(generation) = condition.observed_generation {
            new.set_at(&["observedGeneration"], generation);
        }
        new.set_at(&["lastTransitionTime"], edit::time(now));
        new.set_at(&["reason"], condition.reason);
        new.set_at(&["message"], condition.message);
        list.push(new);
        return true;
    };
    let before = known.clone();
    if known.str_at(&["status"]) != Some(condition.status) {
        known.set_at(&["status"], condition.status);
        known.set_at(&["lastTransitionTime"], edit::time(now));
    }
    known.set_at(&["reason"], condition.reason);
    known.set_at(&["message"], condition.message);
    if let Some(generation) = condition.observed_generation {
        known.set_at(&["observedGeneration"], generation);
    }
    before != *known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_changes_with_the_status_only() {
        let mut list = Vec::new();
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let with = |status, reason| Condition { kind: "A", status, reason, message: "", observed_generation: Some(1) };
        assert!(set(&mut list, with("True", "X"), at(1)));
        assert!(!set(&mut list, with("True", "X"), at(2)));
        assert!(set(&mut list, with("True", "Y"), at(3)));
        assert_eq!(list[0].str_at(&["lastTransitionTime"]), Some("1970-01-01T00:00:01Z"));
        assert!(set(&mut list, with("False", "Y"), at(4)));
        assert_eq!(list[0].str_at(&["lastTransitionTime"]), Some("1970-01-01T00:00:04Z"));
    }
}
