//! A store as simple as can be, and random steps that a real one must take just like it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use store::{Change, Entry, Error, Event, Guard, ListOptions, Outcome, PreviousValue, Revision, Store, Write};

/// A store that keeps every past state.
pub struct Model {
    /// The revision at which it was empty.
    base: Revision,
    /// Values of all keys at each revision from there on.
    states: Vec<BTreeMap<String, (Bytes, Revision)>>,
    events: Vec<Event>,
    pub compacted: Revision,
}

impl Model {
    fn new(base: Revision) -> Self {
        Self { base, states: vec![BTreeMap::new()], events: Vec::new(), compacted: 0 }
    }

    pub fn revision(&self) -> Revision {
        self.base + self.states.len() as u64 - 1
    }

    pub fn keys(&self) -> u64 {
        self.at(self.revision()).len() as u64
    }

    fn at(&self, revision: Revision) -> &BTreeMap<String, (Bytes, Revision)> {
        &self.states[usize::try_from(revision - self.base).unwrap()]
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        let (value, revision) = self.at(self.revision()).get(key)?.clone();
        Some(Entry { key: key.into(), value, revision })
    }

    fn write(&mut self, write: &Write) -> Outcome {
        let current = self.entry(&write.key);
        let holds = match write.guard {
            Guard::Absent => current.is_none(),
            Guard::Unchanged(revision) => current.as_ref().is_some_and(|entry| entry.revision == revision),
        };
        if !holds {
            return Outcome::Conflict { current };
        }
        let mut state = self.at(self.revision()).clone();
        let revision = self.revision() + 1;
        let value = match &write.change {
            Change::Put { value, .. } => {
                state.insert(write.key.clone(), (value.clone(), revision));
                Some(value.clone())
            }
            Change::Delete => {
                state.remove(&write.key);
                None
            }
        };
        self.states.push(state);
        let previous = current.map(|entry| PreviousValue { value: entry.value, revision: entry.revision });
        self.events.push(Event { key: write.key.as_str().into(), revision, value, previous });
        Outcome::Done { revision }
    }
}

#[derive(Debug, Clone)]
pub enum Step {
    /// Key, whether the guard is to hold, size of the value; a delete if there is none.
    Write {
        key: usize,
        honest: bool,
        size: Option<usize>,
    },
    /// Several writes at once.
    Burst {
        keys: Vec<usize>,
    },
    List {
        prefix: usize,
        at: f64,
        limit: usize,
    },
    Watch {
        prefix: usize,
        after: f64,
    },
    Compact {
        at: f64,
    },
    Reopen,
}

const KEYS: [&str; 8] = ["/a", "/a/1", "/a/2", "/a/2/x", "/ab", "/b/1", "/b/2", "/c"];
const PREFIXES: [&str; 6] = ["", "/", "/a", "/a/", "/b/", "/d"];

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..KEYS.len(), prop::bool::weighted(0.85), prop::option::weighted(0.75, prop_oneof![0..20_usize, 3000..9000_usize]))
            .prop_map(|(key, honest, size)| Step::Write { key, honest, size }),
        2 => prop::collection::vec(0..KEYS.len(), 2..12).prop_map(|keys| Step::Burst { keys }),
        4 => (0..PREFIXES.len(), 0.0..1.1, 1..10_usize).prop_map(|(prefix, at, limit)| Step::List { prefix, at, limit }),
        3 => (0..PREFIXES.len(), 0.0..1.05).prop_map(|(prefix, after)| Step::Watch { prefix, after }),
        1 => (0.0..1.0).prop_map(|at| Step::Compact { at }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Takes the steps. `reopen` closes the store it is given, if any, and opens it again; `check` may look at it after each step.
pub async fn run(
    steps: Vec<Step>,
    reopen: impl AsyncFn(Option<Arc<dyn Store>>) -> Arc<dyn Store>,
    check: impl Fn(&Model),
) {
    let mut store = reopen(None).await;
    let mut model = Model::new(store.current_revision().await.unwrap());
    for (n, step) in steps.into_iter().enumerate() {
        if let Step::Reopen = step {
            store = reopen(Some(store)).await;
        } else {
            take(&step, n, &mut model, &*store).await;
        }
        assert_eq!(store.current_revision().await.unwrap(), model.revision());
        check(&model);
    }
    store.close().await.unwrap();
}

async fn take(step: &Step, n: usize, model: &mut Model, store: &dyn Store) {
    // 0 is the oldest revision, 1 the current one, more is the future.
    let pick =
        |model: &Model, share: f64| model.base + (share * (model.revision() - model.base) as f64).round() as Revision;
    match step {
        Step::Write { key, honest, size } => {
            let key = KEYS[*key];
            let guard = match (model.entry(key), honest) {
                (None, true) => Guard::Absent,
                (Some(entry), true) => Guard::Unchanged(entry.revision),
                (None, false) => Guard::Unchanged(1),
                (Some(entry), false) if n.is_multiple_of(2) => Guard::Unchanged(entry.revision - 1),
                (Some(_), false) => Guard::Absent,
            };
            let change = match size {
                Some(size) => Change::Put { value: vec![n as u8; *size].into(), ttl: None },
                None => Change::Delete,
            };
            let write = Write { key: key.to_owned(), guard, change };
            if (guard, &write.change) == (Guard::Absent, &Change::Delete) {
                let refused = store.write(write).await;
                return assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
            }
            assert_eq!(store.write(write.clone()).await.unwrap(), model.write(&write), "{write:?}");
            assert_eq!(store.get(key, model.revision()).await.unwrap().entry, model.entry(key));
        }
        Step::Burst { keys } => {
            // All at once, each based on the earlier state: one of several writes to a key wins.
            let writes: Vec<Write> = keys
                .iter()
                .map(|key| match model.entry(KEYS[*key]) {
                    Some(entry) => Write::update(KEYS[*key], entry.revision, format!("burst {n}")),
                    None => Write::create(KEYS[*key], format!("burst {n}")),
                })
                .collect();
            let mut done = Vec::new();
            let outcomes = join_all(writes.iter().map(|write| store.write(write.clone()))).await;
            for (write, outcome) in writes.iter().zip(outcomes) {
                if let Outcome::Done { revision } = outcome.unwrap() {
                    done.push((revision, write));
                }
            }
            done.sort_by_key(|(revision, _)| *revision);
            for (revision, write) in &done {
                assert_eq!(model.write(write), Outcome::Done { revision: *revision });
            }
            for write in &writes {
                assert!(matches!(model.write(write), Outcome::Conflict { .. }), "one of them must have won: {write:?}");
            }
        }
        Step::List { prefix, at, limit } => {
            let (prefix, revision) = (PREFIXES[*prefix], pick(model, *at));
            let mut listed: Vec<Entry> = Vec::new();
            loop {
                let after_key = listed.last().map(|entry| entry.key.to_string());
                let options = ListOptions { revision: Some(revision), limit: Some(*limit), after_key, bytes_max: None };
                match store.list(prefix, options).await {
                    Ok(page) => {
                        assert_eq!(page.revision, revision);
                        listed.extend(page.entries);
                        if page.remaining == 0 {
                            break;
                        }
                    }
                    Err(Error::Compacted { requested, oldest }) => {
                        assert!(requested == revision && oldest > revision && revision < model.compacted);
                        return;
                    }
                    Err(Error::FutureRevision { .. }) => {
                        return assert!(revision > model.revision());
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!((model.compacted..=model.revision()).contains(&revision));
            let expected = model.at(revision).iter().filter(|(key, _)| key.starts_with(prefix));
            let expected = expected.map(|(key, (value, revision))| Entry {
                key: key.as_str().into(),
                value: value.clone(),
                revision: *revision,
            });
            assert_eq!(listed, expected.collect::<Vec<_>>(), "`{prefix}` at {revision}");
        }
        Step::Watch { prefix, after } => {
            let (prefix, after) = (PREFIXES[*prefix], pick(model, *after));
            let (mut seen, mut reached) = (Vec::new(), after);
            let outcome = async {
                let mut watch = store.watch(prefix, after).await?;
                watch.progress_request().reach(model.revision());
                while reached < model.revision() {
                    let batch = watch.next().await?;
                    seen.extend(batch.events);
                    reached = batch.revision;
                }
                Ok(())
            };
            match outcome.await {
                Ok(()) => assert!(after >= model.compacted),
                Err(Error::Compacted { .. }) => return assert!(after < model.compacted),
                Err(error) => panic!("{error}"),
            }
            let expected = model.events.iter().filter(|it| it.revision > after && it.key.starts_with(prefix));
            assert_eq!(seen, expected.cloned().collect::<Vec<_>>(), "`{prefix}` after {after}");
        }
        Step::Compact { at } => {
            let revision = pick(model, *at);
            store.compact(revision).await.unwrap();
            model.compacted = model.compacted.max(revision);
        }
        Step::Reopen => {}
    }
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |context| {
        let mut waiting = false;
        for (future, output) in &mut futures {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(futures.iter_mut().filter_map(|(_, output)| output.take()).collect())
    })
    .await
}

pub fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future);
}
