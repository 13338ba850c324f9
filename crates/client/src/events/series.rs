//! Events of one action become a series: pure, time is an argument.
//!
//! The first is written, the second makes it a series, further ones are only counted until the series ends: then the last
//! count is written. A series ends when nothing was added for six minutes. Follows client-go's `event_broadcaster.go`.

use std::collections::HashMap;
use std::time::Duration;

use api::core::v1::{Event, EventSeries, ObjectReference};
use api::json::Text;
use api::time::{MicroTime, Timestamp};

/// A series ends when nothing was added for this long.
pub const FINISH: Duration = Duration::from_secs(360);
/// Maximum number of tracked events; beyond it, events are not combined.
const REMEMBERED_MAX: usize = 65_536;

/// Identity of an event: all fields except times and note. A changed object counts as another one, so that news
/// about it is recorded.
type Parts = ([Text; 5], [Text; 7], [Text; 7]);

/// Tracks recorded events.
#[derive(Default)]
pub struct Series {
    events: HashMap<Parts, Event>,
}

fn key(event: &Event) -> Parts {
    let of = |it: &ObjectReference| {
        let ObjectReference { kind, namespace, name, uid, api_version, resource_version, field_path } = it;
        [kind, namespace, name, uid, api_version, resource_version, field_path].map(Clone::clone)
    };
    let own = [&event.event_type, &event.action, &event.reason, &event.reporting_component, &event.reporting_instance];
    (own.map(Clone::clone), of(&event.involved_object), event.related.as_ref().map(of).unwrap_or_default())
}

impl Series {
    /// The event to write, if any, and whether it repeats one that was written.
    pub fn observe(&mut self, event: Event, now: Timestamp) -> Option<(Event, bool)> {
        let key = key(&event);
        let Some(known) = self.events.get_mut(&key) else {
            if self.events.len() < REMEMBERED_MAX {
                self.events.insert(key, event.clone());
            }
            return Some((event, false));
        };
        let last = Some(MicroTime(now));
        match &mut known.series {
            Some(series) => {
                series.count = series.count.saturating_add(1);
                series.last_observed_time = last;
                None
            }
            none => {
                *none = Some(EventSeries { count: 2, last_observed_time: last });
                Some((known.clone(), true))
            }
        }
    }

    /// Removes finished series; returns those whose last count must be written.
    pub fn finished(&mut self, now: Timestamp) -> Vec<Event> {
        let seconds = i64::try_from(FINISH.as_secs()).unwrap_or(i64::MAX);
        let is_over = |event: &Event| {
            let last = match &event.series {
                Some(series) => series.last_observed_time,
                None => event.event_time,
            };
            last.is_none_or(|last| now.seconds.saturating_sub(last.0.seconds) > seconds)
        };
        let over = self.events.extract_if(|_, event| is_over(event));
        over.map(|(_, event)| event).filter(|event| event.series.is_some()).collect()
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
        let mut series = Series::default();
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
    fn a_series_keeps_its_note_until_the_object_has_changed() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let event = |version: &str, note: &str| {
            let mut event = Event { reason: "FailedScheduling".into(), message: note.into(), ..Event::default() };
            event.involved_object.resource_version = version.into();
            event
        };
        let mut series = Series::default();
        let told = |it: Option<(Event, bool)>| it.map(|(event, repeats)| (event.message.to_string(), repeats));
        assert_eq!(told(series.observe(event("1", "too small"), at(0))), Some(("too small".to_owned(), false)));
        assert_eq!(told(series.observe(event("1", "tainted"), at(1))), Some(("too small".to_owned(), true)));
        assert_eq!(told(series.observe(event("2", "tainted"), at(2))), Some(("tainted".to_owned(), false)));
        assert_eq!(told(series.observe(event("2", "tainted"), at(3))), Some(("tainted".to_owned(), true)));
    }
}
