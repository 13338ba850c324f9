//! Seats that a request takes: lists in proportion to the objects they read, everything else one.
//!
//! Follows Kubernetes' `list_work_estimator.go`, which counts what is held in memory at once. What watchers cost after a
//! write is not counted: here a change is encoded once for all of them.

use crate::wire::request::{Query, Target, Verb};

/// Number of bytes of a list that take one seat.
const BYTES_PER_SEAT: u64 = 100_000;
/// Maximum number of seats of a list.
const SEATS_MAX: u64 = 10;

/// Returns the seats of a request. `size` returns number and bytes of the resource's objects.
pub(super) fn seats(target: Option<&Target>, query: &Query, level_max: u64, size: impl Fn() -> (u64, u64)) -> u64 {
    let Some(target) = target else { return 1 };
    let lists = match target.verb {
        Some(Verb::List | Verb::DeleteCollection) => true,
        Some(Verb::Watch) => query.flag("sendInitialEvents") || matches!(query.get("resourceVersion"), "" | "0"),
        _ => false,
    };
    if !lists || !target.asked_name().is_empty() {
        return 1;
    }
    let (count, bytes) = size();
    let is_selected = !query.get("labelSelector").is_empty() || !query.get("fieldSelector").is_empty();
    let limit = query.get("limit").parse::<u64>().ok().filter(|limit| *limit > 0 && !is_selected);
    let read = limit.map_or(count, |limit| limit.min(count));
    let bytes = bytes.checked_div(count).unwrap_or_default().saturating_mul(read);
    let most = if level_max == 0 { SEATS_MAX } else { level_max.min(SEATS_MAX) };
    bytes.div_ceil(BYTES_PER_SEAT).min(most).max(1)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::wire::request::{Route, route};

    #[track_caller]
    fn check(method: Method, path: &str, level_max: u64, expected: u64) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query);
        let target = match route(&method, path, &query) {
            Route::Resource(target) => Some(target),
            Route::Other => None,
        };
        assert_eq!(seats(target.as_deref(), &query, level_max, || (1000, 1_000_000)), expected, "{path}");
    }

    #[test]
    fn lists_take_seats_by_objects_read() {
        check(Method::GET, "/api/v1/pods", 0, 10);
        check(Method::GET, "/api/v1/pods", 4, 4);
        check(Method::GET, "/api/v1/pods?limit=250", 0, 3);
        check(Method::GET, "/api/v1/pods?limit=5000", 0, 10);
        check(Method::GET, "/api/v1/pods?limit=250&labelSelector=a", 0, 10);
        check(Method::GET, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=b", 0, 1);
        check(Method::GET, "/api/v1/pods?watch=1", 0, 10);
        check(Method::GET, "/api/v1/pods?watch=1&resourceVersion=7", 0, 1);
        check(Method::GET, "/api/v1/namespaces/a/pods/b", 0, 1);
        check(Method::POST, "/api/v1/namespaces/a/pods", 0, 1);
        check(Method::DELETE, "/api/v1/namespaces/a/pods", 0, 10);
        check(Method::GET, "/version", 0, 1);
    }
}
