//! Searches for devices that attempts do not wait for: one for each namespace at a time, by namespace in turn, in slices.
//!
//! A search may take seconds. Those of one namespace wait for each other, not for those of others: a few namespaces have a
//! search under way, of which one runs for a slice of time while the others pause.

use locks::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::json::Text;
use scheduling::aside::DeviceSearch;

/// Time slice of a search.
const SLICE: Duration = Duration::from_millis(100);
/// Number of namespaces that have a search under way; each holds a thread.
const UNDER_WAY_MAX: usize = 8;

/// Searches that wait, by namespace.
pub(crate) struct Searches<S = DeviceSearch> {
    waiting: BTreeMap<Text, VecDeque<S>>,
    /// The namespace of each search that is under way, by the pod's uid.
    under_way: HashMap<Text, Text>,
    /// The namespace whose search was begun last.
    last: Text,
    pub(crate) turns: Arc<Turns>,
}

impl<S> Default for Searches<S> {
    fn default() -> Self {
        let turns = Arc::new(Turns::new(SLICE));
        Self { waiting: BTreeMap::new(), under_way: HashMap::new(), last: Text::default(), turns }
    }
}

impl<S> Searches<S> {
    /// Queues a search.
    pub(crate) fn push(&mut self, namespace: &Text, search: S) {
        self.waiting.entry(namespace.clone()).or_default().push_back(search);
    }

    /// The search to begin next: of the next namespace that has none under way. `uid` names its pod.
    pub(crate) fn next(&mut self, uid: impl Fn(&S) -> Text) -> Option<S> {
        if self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        let is_free = |namespace: &&Text| !self.under_way.values().any(|it| it == *namespace);
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let mut namespaces = self.waiting.range(after).map(|(namespace, _)| namespace).chain(self.waiting.keys());
        let namespace = namespaces.find(is_free)?.clone();
        let searches = self.waiting.get_mut(&namespace)?;
        let search = searches.pop_front()?;
        if searches.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.under_way.insert(uid(&search), namespace.clone());
        self.last = namespace;
        Some(search)
    }

    /// Removes a search that has ended.
    pub(crate) fn ended(&mut self, uid: &Text) {
        self.under_way.remove(uid);
    }
}

/// Runs one of several searches at a time.
#[derive(Debug)]
pub(crate) struct Turns {
    slice: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    last_ticket: u64,
    /// Tickets in the order of their turns; the first one is running.
    line: VecDeque<u64>,
    /// Since when.
    since: Instant,
}

/// A place in the queue, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    ticket: u64,
}

impl Turns {
    fn new(slice: Duration) -> Self {
        let state = State { last_ticket: 0, line: VecDeque::new(), since: Instant::now() };
        Self { slice, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for a turn.
    pub(crate) fn begin(self: &Arc<Self>) -> Turn {
        let mut state = self.lock();
        state.last_ticket = state.last_ticket.wrapping_add(1);
        let ticket = state.last_ticket;
        state.line.push_back(ticket);
        self.wait(state, ticket);
        Turn { turns: self.clone(), ticket }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wait(&self, mut state: MutexGuard<'_, State>, ticket: u64) {
        while state.line.front() != Some(&ticket) {
            state = self.changed.wait(state);
        }
        state.since = Instant::now();
    }
}

impl Turn {
    /// Lets another run if the slice is over; returns how long that took.
    pub(crate) fn pause(&self) -> Duration {
        let mut state = self.turns.lock();
        if state.line.len() < 2 || state.since.elapsed() < self.turns.slice {
            return Duration::ZERO;
        }
        let paused = Instant::now();
        state.line.rotate_left(1);
        self.turns.changed.notify_all();
        self.turns.wait(state, self.ticket);
        paused.elapsed()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().line.retain(|ticket| *ticket != self.ticket);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(searches: &mut Searches<&'static str>, namespace: &str, name: &'static str) {
        searches.push(&namespace.into(), name);
    }

    fn next(searches: &mut Searches<&'static str>) -> Option<&'static str> {
        searches.next(|name| (*name).into())
    }

    #[test]
    fn namespaces_take_turns() {
        let mut searches = Searches::default();
        for name in ["a1", "a2", "a3"] {
            push(&mut searches, "a", name);
        }
        assert_eq!(next(&mut searches), Some("a1"));
        assert_eq!(next(&mut searches), None, "one for each namespace");
        push(&mut searches, "b", "b1");
        assert_eq!(next(&mut searches), Some("b1"));
        push(&mut searches, "c", "c1");
        searches.ended(&"a1".into());
        searches.ended(&"b1".into());
        assert_eq!([next(&mut searches), next(&mut searches), next(&mut searches)], [Some("c1"), Some("a2"), None]);
    }

    #[test]
    fn number_of_searches_under_way_is_bounded() {
        let mut searches = Searches::default();
        let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        names.iter().for_each(|name| searches.push(&name.as_str().into(), name.clone()));
        let begun = std::iter::from_fn(|| searches.next(|name| name.as_str().into())).count();
        assert_eq!(begun, UNDER_WAY_MAX);
    }

    #[test]
    fn long_search_lets_others_run() {
        let turns = Arc::new(Turns::new(Duration::ZERO));
        let first = turns.begin();
        let (begun, other) = (std::sync::mpsc::channel(), turns.clone());
        let thread = std::thread::spawn(move || {
            begun.0.send(()).unwrap();
            drop(other.begin());
        });
        begun.1.recv().unwrap();
        // It ends only if this one pauses, and this one continues after it has ended.
        while !thread.is_finished() {
            first.pause();
            std::thread::yield_now();
        }
        assert_eq!(first.pause(), Duration::ZERO, "nobody else is in line");
    }
}
