//! Events of one action become a series: pure, time is an argument.
//!
//! The first is written, the second makes it a series, further ones are only counted until the series ends: then the last
//! count is written. A series ends when nothing was added for six minutes. Follows client-go's `event_broadcaster.go`.

use std::time::Duration;

use api::core::v1::{Event, EventSeries, ObjectReference};
use api::json::Text;
use api::time::{MicroTime, Timestamp};
use lru::LruCache;

use super::identity::{Identities, Identity};

/// A series ends when nothing was added for this long.
pub const FINISH: Duration = Duration::from_secs(360);
/// Maximum number of events that a recorder tracks. Beyond it the least recent ones are dropped: their repetitions
/// are written as new events.
const TRACKED_MAX: usize = 32_768;

/// Tracks recorded events.
pub struct Series {
    events: LruCache<Identity, TrackedEvent>,
    max: usize,
    identities: Identities,
}

/// An event that was recorded.
enum TrackedEvent {
    /// Recorded once. Most events are never repeated, so only what a repetition does not have is kept.
    Once { name: Text, note: Text, time: Option<MicroTime> },
    /// Recorded again: a series.
    Repeated(Box<Event>),
}

impl TrackedEvent {
    /// Time of the last record.
    fn last(&self) -> Option<MicroTime> {
        match self {
            TrackedEvent::Once { time, .. } => *time,
            TrackedEvent::Repeated(event) => event.series.as_ref().and_then(|series| series.last_observed_time),
        }
    }
}

impl Series {
    /// Tracks the events of one of `tasks` tasks of a recorder.
    #[must_use]
    pub fn new(tasks: usize) -> Self {
        let max = TRACKED_MAX.checked_div(tasks).unwrap_or(TRACKED_MAX);
        // Room is made when it is needed: most recorders see few events.
        Self { events: LruCache::unbounded(), max, identities: Identities::default() }
    }

    /// The identity of an event: all fields except times and note. A changed object counts as another one, so that
    /// news about it is recorded.
    fn identity(&self, event: &Event) -> Identity {
        fn of(it: &ObjectReference) -> [&str; 7] {
            let ObjectReference { kind, namespace, name, uid, api_version, resource_version, field_path } = it;
            [kind, namespace, name, uid, api_version, resource_version, field_path]
        }
        let Event { event_type, action, reason, reporting_component, reporting_instance, .. } = event;
        let own: [&str; 5] = [event_type, action, reason, reporting_component, reporting_instance];
        let related = event.related.as_ref().map(of).unwrap_or_default();
        self.identities.of(&[&own[..], &of(&event.involved_object), &related].concat())
    }

    /// The event to write, if any, and whether it repeats one that was written.
    pub fn observe(&mut self, event: Event, now: Timestamp) -> Option<(Event, bool)> {
        let identity = self.identity(&event);
        let last = Some(MicroTime(now));
        match self.events.get_mut(&identity) {
            None => {
                let (name, note) = (event.metadata.name.clone(), event.message.clone());
                self.events.put(identity, TrackedEvent::Once { name, note, time: event.event_time });
                if self.events.len() > self.max {
                    self.events.pop_lru();
                }
                Some((event, false))
            }
            Some(TrackedEvent::Repeated(known)) => {
                if let Some(series) = &mut known.series {
                    series.count = series.count.saturating_add(1);
                    series.last_observed_time = last;
                }
                None
            }
            Some(known @ TrackedEvent::Once { .. }) => {
                let mut event = event;
                event.series = Some(EventSeries { count: 2, last_observed_time: last });
                // The series keeps the first event's name, note and time.
                if let TrackedEvent::Once { name, note, time } = known {
                    (event.metadata.name, event.message) = (std::mem::take(name), std::mem::take(note));
                    event.event_time = *time;
                }
                *known = TrackedEvent::Repeated(Box::new(event.clone()));
                Some((event, true))
            }
        }
    }

    /// Removes finished series; returns those whose last count must be written.
    pub fn finished(&mut self, now: Timestamp) -> Vec<Event> {
        let seconds = i64::try_from(FINISH.as_secs()).unwrap_or(i64::MAX);
        let is_over = |tracked: &TrackedEvent| {
            tracked.last().is_none_or(|last| now.seconds.saturating_sub(last.0.seconds) > seconds)
        };
        let over: Vec<Identity> = self.events.iter().filter(|(_, it)| is_over(it)).map(|(key, _)| *key).collect();
        let ended = over.into_iter().filter_map(|identity| match self.events.pop(&identity)? {
            TrackedEvent::Once { .. } => None,
            TrackedEvent::Repeated(event) => Some(*event),
        });
        ended.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_begins_a_series_that_is_written_again_at_its_end() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let event = |seconds| {
            let mut event = Event { reason: "FailedScheduling".into(), ..Event::default() };
            event.event_time = Some(MicroTime(at(seconds)));
            event
        };
        let mut series = Series::new(64);
        assert!(matches!(series.observe(event(0), at(0)), Some((event, false)) if event.series.is_none()));
        let second = series.observe(event(1), at(1));
        assert!(matches!(second, Some((event, true)) if event.series.as_ref().is_some_and(|it| it.count == 2)));
        for seconds in 2..10 {
            assert!(series.observe(event(seconds), at(seconds)).is_none());
        }
        assert!(series.finished(at(360)).is_empty());
        let last = series.finished(at(370));
        assert_eq!(last.iter().filter_map(|event| event.series.as_ref()).map(|it| it.count).collect::<Vec<_>>(), [10]);
        assert!(matches!(series.observe(event(400), at(400)), Some((_, false))));
    }

    #[test]
    fn tracked_events_are_bounded() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let event = |number: usize| {
            let mut event = Event::default();
            event.involved_object.name = number.to_string().into();
            event
        };
        let mut series = Series::new(64);
        let max = series.max;
        for number in 0..3 * max {
            assert!(matches!(series.observe(event(number), at(0)), Some((_, false))));
        }
        assert_eq!((series.events.len(), max), (max, TRACKED_MAX / 64));
        let newest = 3 * max - 1;
        assert!(matches!(series.observe(event(newest), at(0)), Some((_, true))), "recent events are tracked");
        assert!(matches!(series.observe(event(0), at(0)), Some((_, false))), "old events are not");
    }

    #[test]
    fn a_series_keeps_its_note_until_the_object_has_changed() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let event = |version: &str, note: &str| {
            let mut event = Event { reason: "FailedScheduling".into(), message: note.into(), ..Event::default() };
            event.involved_object.resource_version = version.into();
            event
        };
        let mut series = Series::new(64);
        let reported = |it: Option<(Event, bool)>| it.map(|(event, repeats)| (event.message.to_string(), repeats));
        assert_eq!(reported(series.observe(event("1", "too small"), at(0))), Some(("too small".to_owned(), false)));
        assert_eq!(reported(series.observe(event("1", "tainted"), at(1))), Some(("too small".to_owned(), true)));
        assert_eq!(reported(series.observe(event("2", "tainted"), at(2))), Some(("tainted".to_owned(), false)));
        assert_eq!(reported(series.observe(event("2", "tainted"), at(3))), Some(("tainted".to_owned(), true)));
    }
}
