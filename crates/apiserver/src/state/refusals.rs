//! Validation that refuses the same again and again: a client in a hot loop.
//!
//! A controller whose pods are rejected, for example because a gate was disabled under its template, retries
//! without end. Each response reaches only the client; the log informs the operator, once a minute for each
//! such loop.

use locks::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::identity::User;
use crate::wire::request::Target;
use crate::wire::status::Failure;

/// This many of a kind within a window are a loop.
const COUNT_MIN: u64 = 5;
/// Time after which rejections are dropped, and interval of the log message.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of tracked kinds.
const KINDS_MAX: usize = 512;

/// Identity of rejections: user, resource, namespace and reason. Names are not part of it: a controller
/// generates a new one each time.
type Kind = (String, String, String, String);

#[derive(Debug)]
struct RefusalCount {
    since: Instant,
    count: u64,
    /// Whether the loop was logged.
    is_reported: bool,
}

/// The refusals of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Kind, RefusalCount>>);

impl Refusals {
    /// Records a rejection. It is logged if it is one of many.
    pub(crate) fn add(&self, user: &User, target: Option<&Target>, failure: &Failure) {
        let (422, Some(target)) = (failure.code, target) else { return };
        // `Pod "web-x2x9c" is invalid: spec…`
        let why = failure.message.split_once(" is invalid: ").map_or(failure.message.as_str(), |(_, why)| why);
        let resource = if target.group.is_empty() {
            target.resource.clone()
        } else {
            format!("{}.{}", target.resource, target.group)
        };
        let kind = (user.name.clone(), resource, target.namespace.clone(), why.to_owned());
        if let Some(count) = self.count(&kind, Instant::now()) {
            let (user, resource, namespace, err) = kind;
            warn!(user, resource, namespace, count, err, "Validation keeps rejecting the same request");
        }
    }

    /// Counts a rejection; returns the number within the window if it is to be logged now.
    fn count(&self, kind: &Kind, now: Instant) -> Option<u64> {
        let mut seen = self.0.lock();
        let is_over = |seen: &RefusalCount| now.saturating_duration_since(seen.since) > WINDOW;
        if seen.len() >= KINDS_MAX && !seen.contains_key(kind) {
            seen.retain(|_, seen| !is_over(seen));
            if seen.len() >= KINDS_MAX {
                return None;
            }
        }
        match seen.entry(kind.clone()) {
            Entry::Vacant(place) => {
                place.insert(RefusalCount { since: now, count: 1, is_reported: false });
                None
            }
            Entry::Occupied(mut place) => {
                let known = place.get_mut();
                if is_over(known) {
                    // A continuing loop is logged with the count of the last window; one that paused is a new
                    // one.
                    let goes_on = now.saturating_duration_since(known.since) <= WINDOW.saturating_mul(2);
                    let is_reported = goes_on && known.count >= COUNT_MIN;
                    let before = std::mem::replace(known, RefusalCount { since: now, count: 1, is_reported }).count;
                    return is_reported.then_some(before);
                }
                known.count = known.count.saturating_add(1);
                let is_new = known.count >= COUNT_MIN && !known.is_reported;
                known.is_reported |= is_new;
                is_new.then_some(known.count)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_loop_is_logged_once_a_minute() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let kind = |why: &str| ("u".to_owned(), "pods".to_owned(), "default".to_owned(), why.to_owned());
        let reported: Vec<u64> =
            (0..300).filter_map(|n| refusals.count(&kind("a"), start + Duration::from_millis(n * 1000))).collect();
        assert_eq!(reported, [5, 61, 61, 61, 61]);
        for n in 0..4 {
            assert_eq!(refusals.count(&kind("b"), start + Duration::from_secs(n)), None, "few are not a loop");
        }
        for n in 0..2 * KINDS_MAX {
            refusals.count(&kind(&n.to_string()), start);
        }
        assert!(refusals.0.lock().len() <= KINDS_MAX);
    }
}
