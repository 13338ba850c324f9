//! Random operations on an embedded store do what a simple model of it does, also across reopening and compaction.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

#[path = "support/disk.rs"]
mod disk;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use disk::Disk;
use proptest::prelude::*;
use store::{
    Change, Embedded, Entry, Error, Event, Guard, ListOptions, Options, Outcome, Previous, Retention, Revision, Store,
    Write,
};

/// A store that remembers every state it was ever in.
struct Model {
    /// What each key held at each revision from 1 on.
    states: Vec<BTreeMap<String, (Bytes, Revision)>>,
    events: Vec<Event>,
    compacted: Revision,
}

impl Model {
    fn new() -> Self {
        Self { states: vec![BTreeMap::new()], events: Vec::new(), compacted: 0 }
    }

    fn revision(&self) -> Revision {
        self.states.len() as u64
    }

    fn at(&self, revision: Revision) -> &BTreeMap<String, (Bytes, Revision)> {
        &self.states[usize::try_from(revision).unwrap() - 1]
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
        let previous = current.map(|entry| Previous { value: entry.value, revision: entry.revision });
        self.events.push(Event { key: write.key.as_str().into(), revision, value, previous });
        Outcome::Done { revision }
    }
}

#[derive(Debug, Clone)]
enum Step {
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

fn steps() -> impl Strategy<Value = Vec<Step>> {
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

/// A store that is opened anew from its disk, if it has one.
struct Subject {
    disk: Option<Disk>,
    store: Embedded,
}

fn options(recent_bytes: usize) -> Options {
    Options {
        recent_bytes,
        cache_bytes: 256 << 10,
        retention: Retention::manual(),
        progress_interval: Duration::from_millis(20),
        ..Options::default()
    }
}

async fn run(steps: Vec<Step>, disk: Option<Disk>, recent_bytes: usize) {
    let open = |disk: &Option<Disk>| match disk {
        Some(disk) => Embedded::open_backend(disk.backend(), options(recent_bytes)).unwrap(),
        None => Embedded::in_memory(options(recent_bytes)).unwrap(),
    };
    let mut model = Model::new();
    let mut subject = Subject { store: open(&disk), disk };
    for (n, step) in steps.into_iter().enumerate() {
        if let Step::Reopen = step {
            if subject.disk.is_some() {
                subject.store.close().await.unwrap();
                subject.store = open(&subject.disk);
            }
        } else {
            take(&step, n, &mut model, &subject.store).await;
        }
        assert_eq!(subject.store.current_revision().await.unwrap(), model.revision());
        let statistics = subject.store.statistics();
        assert_eq!(statistics.compacted, model.compacted);
        assert_eq!(statistics.keys, model.at(model.revision()).len() as u64);
    }
    subject.store.close().await.unwrap();
}

async fn take(step: &Step, n: usize, model: &mut Model, store: &Embedded) {
    // 0 is the oldest revision, 1 the current one, more is the future.
    let pick = |model: &Model, share: f64| (share * model.revision() as f64).round() as Revision;
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
            // Deleting what must not exist is pointless but harmless.
            assert_eq!(store.write(write.clone()).await.unwrap(), model.write(&write), "{write:?}");
            assert_eq!(store.get(key, model.revision()).await.unwrap().entry, model.entry(key));
        }
        Step::Burst { keys } => {
            // All at once, each based on what was there before: of several writes to one key, one wins.
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
            let (prefix, revision) = (PREFIXES[*prefix], pick(model, *at).max(1));
            let mut listed: Vec<Entry> = Vec::new();
            loop {
                let after_key = listed.last().map(|entry| entry.key.to_string());
                let options = ListOptions { revision: Some(revision), limit: Some(*limit), after_key };
                match store.list(prefix, options).await {
                    Ok(page) => {
                        assert_eq!(page.revision, revision);
                        listed.extend(page.entries);
                        if page.remaining == 0 {
                            break;
                        }
                    }
                    Err(Error::Compacted { requested, oldest }) => {
                        assert_eq!((requested, oldest), (revision, model.compacted));
                        assert!(revision < model.compacted);
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
            let mut watch = match store.watch(prefix, after).await {
                Ok(watch) => watch,
                Err(Error::Compacted { .. }) => return assert!(after < model.compacted),
                Err(error) => panic!("{error}"),
            };
            assert!(after >= model.compacted);
            watch.progress_request().reach(model.revision());
            let (mut seen, mut reached) = (Vec::new(), after);
            while reached < model.revision() {
                let batch = watch.next().await.unwrap();
                seen.extend(batch.events);
                reached = batch.revision;
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

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_on_disk_agrees_with_model(steps in steps(), recent_bytes in prop_oneof![Just(0), Just(20_000), Just(1 << 20)]) {
        block_on(run(steps, Some(Disk::default()), recent_bytes));
    }

    #[test]
    fn store_in_memory_agrees_with_model(steps in steps()) {
        block_on(run(steps, None, 0));
    }
}
