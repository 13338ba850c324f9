//! Correlation of events: which ones are written, and in which form. Pure: time is an argument.
//!
//! - An event that differs from an earlier one only in its times **repeats** it: its count goes up.
//! - Ten events that differ only in their message within ten minutes are **combined** into one.
//! - A source may record 25 events about an object, then one more every five minutes: the rest is **skipped**.
//!
//! The rules and numbers are those of client-go's `events_cache.go`.

use std::collections::HashSet;

use api::core::v1::Event;
use api::json::Text;
use api::meta::v1::ObjectMeta;
use api::time::Timestamp;
use lru::LruCache;

use super::identity::{Identities, Identity};

/// Maximum number of entries of each kind in a recorder, as in client-go.
const REMEMBERED_MAX: usize = 4096;
/// Number of different messages within [`COMBINE_SECONDS`] above which they are combined.
const COMBINE_COUNT: usize = 10;
const COMBINE_SECONDS: i64 = 600;
/// Burst of events of a source about an object.
const SPAM_BURST: f64 = 25.0;
/// Seconds after which one more event is allowed.
const SPAM_SECONDS: f64 = 300.0;
/// Written events are forgotten after this time: the server has removed them by default, so that none can be updated.
const WRITTEN_SECONDS: i64 = 3600;

/// Treatment of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The event is dropped.
    Skip,
    /// Write it.
    Create(Event),
    /// Update the one of this name.
    Repeat(Event),
}

struct SimilarEvents {
    messages: HashSet<Text>,
    last: Timestamp,
}

struct WrittenEvent {
    count: i32,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    name: Text,
}

struct Ration {
    tokens: f64,
    filled: Timestamp,
}

impl Ration {
    /// The tokens at a later time.
    fn tokens_at(&self, now: Timestamp) -> f64 {
        let nanos = now.unix_nanos().saturating_sub(self.filled.unix_nanos()).max(0);
        let seconds = std::time::Duration::from_nanos(nanos.unsigned_abs()).as_secs_f64();
        (self.tokens + seconds / SPAM_SECONDS).min(SPAM_BURST)
    }
}

/// Tracks recorded events.
pub struct Correlator {
    similar: LruCache<Identity, SimilarEvents>,
    written: LruCache<Identity, WrittenEvent>,
    rations: LruCache<Identity, Ration>,
    identities: Identities,
    max: usize,
}

impl Correlator {
    /// Tracks the events of one of `tasks` tasks of a recorder.
    #[must_use]
    pub fn new(tasks: usize) -> Self {
        Self {
            // Room is made when it is needed: there are many correlators, and most see few events.
            similar: LruCache::unbounded(),
            written: LruCache::unbounded(),
            rations: LruCache::unbounded(),
            identities: Identities::default(),
            max: REMEMBERED_MAX.checked_div(tasks).unwrap_or(REMEMBERED_MAX),
        }
    }
}

/// Removes the least recently used entries.
fn bound<V>(memory: &mut LruCache<Identity, V>, max: usize) {
    while memory.len() > max {
        memory.pop_lru();
    }
}

/// Removes the entries that `is_over` holds for.
fn remove_if<V>(memory: &mut LruCache<Identity, V>, is_over: impl Fn(&V) -> bool) {
    let over: Vec<Identity> = memory.iter().filter(|(_, it)| is_over(it)).map(|(key, _)| *key).collect();
    for identity in over {
        memory.pop(&identity);
    }
}

/// The name of a new event about an object.
#[must_use]
pub fn event_name(object: &str, now: Timestamp) -> String {
    format!("{object}.{:x}", now.unix_nanos())
}

fn source(event: &Event) -> [&str; 8] {
    let object = &event.involved_object;
    [
        &event.source.component,
        &event.source.host,
        &object.kind,
        &object.namespace,
        &object.name,
        &object.uid,
        &object.api_version,
        &event.event_type,
    ]
}

impl Correlator {
    /// Returns the treatment of an event received at `now`.
    pub fn correlate(&mut self, event: Event, now: Timestamp) -> Verdict {
        let (event, key) = self.combine(event, now);
        let (event, repeats) = self.count(event, key);
        let is_spam = self.is_spam(&event, now);
        bound(&mut self.similar, self.max);
        bound(&mut self.rations, self.max);
        match (is_spam, repeats) {
            (true, _) => Verdict::Skip,
            (false, true) => Verdict::Repeat(event),
            (false, false) => Verdict::Create(event),
        }
    }

    /// Records that an event was written.
    pub fn written(&mut self, event: &Event) {
        self.remember(self.event_key(event), event);
    }

    /// Removes entries that no later event depends on: those of messages that are no longer combined, of full rations,
    /// and of events that the server has removed.
    pub fn forget(&mut self, now: Timestamp) {
        let is_older = |at: Timestamp, seconds| now.seconds.saturating_sub(at.seconds) > seconds;
        remove_if(&mut self.similar, |it| is_older(it.last, COMBINE_SECONDS));
        remove_if(&mut self.rations, |it| it.tokens_at(now) >= SPAM_BURST);
        remove_if(&mut self.written, |it| it.last.is_none_or(|last| is_older(last, WRITTEN_SECONDS)));
    }

    fn similar_key(&self, event: &Event) -> Identity {
        let own: [&str; 3] = [&event.reason, &event.reporting_component, &event.reporting_instance];
        self.identities.of(&[&source(event)[..], &own].concat())
    }

    fn event_key(&self, event: &Event) -> Identity {
        let own: [&str; 3] = [&event.involved_object.field_path, &event.reason, &event.message];
        self.identities.of(&[&source(event)[..], &own].concat())
    }

    fn remember(&mut self, key: Identity, event: &Event) {
        let written = WrittenEvent {
            count: event.count,
            first: event.first_timestamp,
            last: event.last_timestamp,
            name: event.metadata.name.clone(),
        };
        self.written.put(key, written);
        bound(&mut self.written, self.max);
    }

    fn combine(&mut self, event: Event, now: Timestamp) -> (Event, Identity) {
        let (key, own_key) = (self.similar_key(&event), self.event_key(&event));
        let fresh = || SimilarEvents { messages: HashSet::new(), last: now };
        let similar = self.similar.get_or_insert_mut(key, fresh);
        if now.seconds.saturating_sub(similar.last.seconds) > COMBINE_SECONDS {
            similar.messages.clear();
        }
        similar.messages.insert(event.message.clone());
        similar.last = now;
        if similar.messages.len() < COMBINE_COUNT {
            return (event, own_key);
        }
        // The set grows no further.
        if let Some(one) = similar.messages.iter().next().cloned() {
            similar.messages.remove(&one);
        }
        let name = event_name(&event.involved_object.name, now).into();
        let mut metadata = ObjectMeta { name, ..ObjectMeta::default() };
        metadata.namespace.clone_from(&event.metadata.namespace);
        let combined = Event {
            metadata,
            message: format!("(combined from similar events): {}", event.message).into(),
            first_timestamp: Some(now),
            last_timestamp: Some(now),
            count: 1,
            involved_object: event.involved_object,
            event_type: event.event_type,
            reason: event.reason,
            source: event.source,
            reporting_component: event.reporting_component,
            reporting_instance: event.reporting_instance,
            ..Event::default()
        };
        (combined, key)
    }

    fn count(&mut self, mut event: Event, key: Identity) -> (Event, bool) {
        let mut repeats = false;
        if let Some(before) = self.written.get(&key).filter(|before| before.count > 0) {
            event.metadata.name = before.name.clone();
            event.first_timestamp = before.first;
            event.count = before.count.saturating_add(1);
            repeats = true;
        }
        self.remember(key, &event);
        (event, repeats)
    }

    fn is_spam(&mut self, event: &Event, now: Timestamp) -> bool {
        let full = || Ration { tokens: SPAM_BURST, filled: now };
        let ration = self.rations.get_or_insert_mut(self.identities.of(&source(event)), full);
        ration.tokens = ration.tokens_at(now);
        ration.filled = now;
        if ration.tokens < 1.0 {
            return true;
        }
        ration.tokens -= 1.0;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn event(object: &str, message: &str, now: Timestamp) -> Event {
        let mut event = Event {
            reason: "Failed".into(),
            message: message.into(),
            first_timestamp: Some(now),
            last_timestamp: Some(now),
            count: 1,
            ..Event::default()
        };
        event.metadata.name = event_name(object, now).into();
        event.involved_object.name = object.into();
        event
    }

    #[test]
    fn tracked_events_are_bounded() {
        let mut correlator = Correlator::new(64);
        for number in 0..2 * REMEMBERED_MAX {
            correlator.correlate(event(&number.to_string(), "m", at(1)), at(1));
        }
        assert_eq!(kept(&correlator), [REMEMBERED_MAX / 64; 3]);
    }

    fn kept(correlator: &Correlator) -> [usize; 3] {
        [correlator.similar.len(), correlator.written.len(), correlator.rations.len()]
    }

    #[test]
    fn entries_without_effect_are_forgotten() {
        let mut correlator = Correlator::new(64);
        correlator.correlate(event("p", "m", at(0)), at(0));
        correlator.correlate(event("p", "m", at(0)), at(0));
        correlator.forget(at(599));
        assert_eq!(kept(&correlator), [1, 1, 1]);
        correlator.forget(at(600));
        assert_eq!(kept(&correlator), [1, 1, 0], "the ration is full again");
        correlator.forget(at(COMBINE_SECONDS + 1));
        assert_eq!(kept(&correlator), [0, 1, 0]);
        assert!(
            matches!(correlator.correlate(event("p", "m", at(700)), at(700)), Verdict::Repeat(it) if it.count == 3)
        );
        correlator.forget(at(700 + WRITTEN_SECONDS + 1));
        assert_eq!(kept(&correlator), [0, 0, 0]);
    }

    #[test]
    fn the_same_event_is_counted() {
        let mut correlator = Correlator::new(64);
        let Verdict::Create(first) = correlator.correlate(event("p", "m", at(1)), at(1)) else { panic!() };
        let Verdict::Repeat(second) = correlator.correlate(event("p", "m", at(2)), at(2)) else { panic!() };
        assert_eq!((second.count, &second.metadata.name), (2, &first.metadata.name));
        assert_eq!((second.first_timestamp, second.last_timestamp), (Some(at(1)), Some(at(2))));
        assert!(matches!(correlator.correlate(event("q", "m", at(2)), at(2)), Verdict::Create(_)));
    }

    #[test]
    fn the_tenth_message_of_a_kind_is_combined() {
        let mut correlator = Correlator::new(64);
        for number in 1..=9 {
            let verdict = correlator.correlate(event("p", &format!("m{number}"), at(number)), at(number));
            assert!(matches!(verdict, Verdict::Create(event) if event.count == 1), "{number}");
        }
        let Verdict::Create(tenth) = correlator.correlate(event("p", "m10", at(10)), at(10)) else { panic!() };
        assert_eq!(tenth.message, "(combined from similar events): m10");
        let Verdict::Repeat(next) = correlator.correlate(event("p", "m11", at(11)), at(11)) else { panic!() };
        assert_eq!((next.count, next.message.as_str()), (2, "(combined from similar events): m11"));
        assert_eq!(next.metadata.name, tenth.metadata.name);
        let later = at(11 + COMBINE_SECONDS + 1);
        let verdict = correlator.correlate(event("p", "m12", later), later);
        assert!(matches!(verdict, Verdict::Create(event) if event.message == "m12"));
    }

    #[test]
    fn source_rate_is_limited_per_object() {
        let mut correlator = Correlator::new(64);
        let reported = |correlator: &mut Correlator, object: &str, now| {
            !matches!(correlator.correlate(event(object, "m", now), now), Verdict::Skip)
        };
        assert_eq!((0..100).filter(|_| reported(&mut correlator, "p", at(0))).count(), 25);
        assert!(reported(&mut correlator, "q", at(0)));
        assert!(!reported(&mut correlator, "p", at(299)));
        assert!(reported(&mut correlator, "p", at(300)));
        assert!(!reported(&mut correlator, "p", at(300)));
    }
}
