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
/// So many are remembered; beyond, every event is its own.
const REMEMBERED_MAX: usize = 65_536;

type Parts = [Text; 10];

/// Remembers what was told.
#[derive(Default)]
pub struct Series {
    events: HashMap<Parts, Event>,
}

fn key(event: &Event) -> Parts {
    let related = event.related.as_ref();
    let of = |part: fn(&ObjectReference) -> &Text| related.map(part).cloned().unwrap_or_default();
    let object = &event.involved_object;
    [
        event.event_type.clone(),
        event.action.clone(),
        event.reason.clone(),
        object.kind.clone(),
        object.namespace.clone(),
        object.name.clone(),
        object.uid.clone(),
        of(|related| &related.kind),
        of(|related| &related.namespace),
        of(|related| &related.name),
    ]
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

    /// Forgets what is over; gives back the series whose last count is to be written.
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
}
