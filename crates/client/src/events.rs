//! Events about objects, as shown by `kubectl describe`.
//!
//! A [`Recorder`] never makes its caller wait: events go through a bounded queue to tasks that join repetitions, ration
//! what is too much, and write. What does not fit into the queue is dropped and counted. There are two kinds, as in
//! client-go: [counted](Recorder::event) ones (`tools/record`, [`correlate`]), and those with an action that become
//! [series](Recorder::action) (`tools/events`, [`series`]).

pub mod correlate;
mod identity;
pub mod series;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::core::v1::{Event, EventSource, ObjectReference};
use api::json::{Value, to_value};
use api::meta::v1::Object;
use api::time::{MicroTime, Timestamp};
use clock::Clock;
use telemetry::logs::chain;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use self::correlate::{Correlator, Verdict};
use self::series::Series;
use crate::client::Client;
use crate::error::Error;
use crate::objects::{Objects, Patch};
use crate::queue::Backoff;

/// Maximum number of unwritten events of a recorder.
const WAITING_MAX: usize = 16_000;
/// Number of writing tasks. Events about one object are written by one task, in order. Each waits until its
/// write is durable: many of them are needed to fill a batch of the store.
const TASKS: usize = 64;
/// Number of writing tasks of a node's recorder. A process can simulate thousands of nodes, whose tasks add up.
const NODE_TASKS: usize = 4;
/// Number of attempts after which an event is dropped.
const ATTEMPTS_MAX: u32 = 12;
const PAUSES: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(10) };

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A normal event.
    Normal,
    /// Action may be required.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

enum Message {
    Counted(Box<Event>),
    Action(Box<Event>),
    Flush(oneshot::Sender<()>),
}

/// Records the events of a component. Clones share its tasks, which end with the last clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    host: Arc<str>,
    tasks: Arc<Tasks>,
    dropped: Arc<AtomicU64>,
    clock: Clock,
}

/// The writing tasks. Each starts with its first event: a component has many recorders, and most of them are idle.
struct Tasks {
    senders: Box<[OnceLock<mpsc::Sender<Message>>]>,
    client: Client,
    runtime: Handle,
}

impl Tasks {
    /// Returns the task for a hash, and starts it.
    fn get(&self, hash: u64) -> Option<&mpsc::Sender<Message>> {
        let count = self.senders.len();
        let index = usize::try_from(hash.checked_rem(u64::try_from(count).ok()?)?).ok()?;
        Some(self.senders.get(index)?.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX.checked_div(count).unwrap_or(1));
            let clock = self.client.clock().clone();
            self.runtime.spawn(write_all(self.client.objects(), receiver, clock, count));
            sender
        }))
    }

    fn started(&self) -> impl Iterator<Item = &mpsc::Sender<Message>> {
        self.senders.iter().filter_map(OnceLock::get)
    }
}

/// A reference to an object, as events have it.
#[must_use]
pub fn reference<T: Object>(object: &T) -> ObjectReference {
    let metadata = object.metadata();
    ObjectReference {
        kind: T::KIND.into(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        api_version: T::api_version().into(),
        resource_version: metadata.resource_version.clone(),
        field_path: Default::default(),
    }
}

impl Recorder {
    /// Events of `component` on `host`, which may be empty. Needs a Tokio runtime.
    #[must_use]
    pub fn start(client: &Client, component: &str, host: &str) -> Self {
        Self::with_tasks(client, component, host, TASKS)
    }

    /// Events of the kubelet of `node`. Needs a Tokio runtime.
    #[must_use]
    pub fn of_node(client: &Client, node: &str) -> Self {
        Self::with_tasks(client, "kubelet", node, NODE_TASKS)
    }

    fn with_tasks(client: &Client, component: &str, host: &str, tasks: usize) -> Self {
        let senders = (0..tasks).map(|_| OnceLock::new()).collect();
        Self {
            component: component.into(),
            host: host.into(),
            tasks: Arc::new(Tasks { senders, client: client.clone(), runtime: Handle::current() }),
            dropped: Arc::new(AtomicU64::new(0)),
            clock: client.clock().clone(),
        }
    }

    /// Records an event about an object. Returns at once.
    pub fn event(&self, object: ObjectReference, severity: Severity, reason: &str, message: &str) {
        let now = self.clock.now();
        let mut event = Event {
            reason: reason.into(),
            message: message.into(),
            source: EventSource { component: (&*self.component).into(), host: (&*self.host).into() },
            first_timestamp: Some(now),
            last_timestamp: Some(now),
            count: 1,
            event_type: severity.name().into(),
            reporting_component: (&*self.component).into(),
            reporting_instance: (&*self.host).into(),
            ..Event::default()
        };
        place(&mut event, object, now);
        self.hand_over(event, Message::Counted);
    }

    /// Records the result of an action on an object, and possibly a second one. Returns at once.
    ///
    /// Repetitions form a series regardless of the note.
    pub fn action(
        &self,
        object: ObjectReference,
        related: Option<ObjectReference>,
        severity: Severity,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let now = self.clock.now();
        let instance = if self.host.is_empty() { self.component.to_string() } else { self.instance() };
        let mut event = Event {
            reason: reason.into(),
            message: note.into(),
            event_type: severity.name().into(),
            event_time: Some(MicroTime(now)),
            action: action.into(),
            related,
            reporting_component: (&*self.component).into(),
            reporting_instance: instance.into(),
            ..Event::default()
        };
        place(&mut event, object, now);
        self.hand_over(event, Message::Action);
    }

    fn instance(&self) -> String {
        format!("{}-{}", self.component, self.host)
    }

    fn hand_over(&self, event: Event, message: fn(Box<Event>) -> Message) {
        let object = &event.involved_object;
        let mut hasher = DefaultHasher::new();
        (&object.namespace, &object.name, &object.kind).hash(&mut hasher);
        let sent = self.tasks.get(hasher.finish()).map(|task| task.try_send(message(Box::new(event))));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of events that were dropped because too many were waiting.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all events so far are written or dropped.
    pub async fn flush(&self) {
        for task in self.tasks.started() {
            let (sender, receiver) = oneshot::channel();
            if task.send(Message::Flush(sender)).await.is_ok() {
                // An error means that the task has ended.
                let _ = receiver.await;
            }
        }
    }
}

/// A time that no other event of this process has: the time is part of an event's name, and a coarse or paused clock
/// shows one time to several events about an object.
fn distinct(now: Timestamp) -> Timestamp {
    static LAST: AtomicI64 = AtomicI64::new(0);
    /// Times that are further apart are those of another clock.
    const NEAR_NANOS: i64 = 1_000_000;
    let nanos = now.unix_nanos();
    let next = |last: i64| match last.saturating_sub(nanos) {
        0..NEAR_NANOS => last.saturating_add(1),
        _ => nanos,
    };
    // The closure always returns a value, so that the update cannot fail.
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last))).unwrap_or_default();
    let ahead = u32::try_from(next(last).saturating_sub(nanos)).unwrap_or_default();
    Timestamp { nanos: now.nanos.saturating_add(ahead), ..now }
}

/// Sets the object and the name of an event.
fn place(event: &mut Event, object: ObjectReference, now: Timestamp) {
    event.metadata.name = correlate::event_name(&object.name, distinct(now)).into();
    event.metadata.namespace = if object.namespace.is_empty() { "default".into() } else { object.namespace.clone() };
    event.involved_object = object;
}

/// Writes the events of one of `tasks` tasks.
async fn write_all(events: Objects<Event>, mut receiver: mpsc::Receiver<Message>, clock: Clock, tasks: usize) {
    let mut correlator = Correlator::new(tasks);
    let mut series = Series::new(tasks);
    let mut clean = clock.interval(series::FINISH);
    loop {
        let message = tokio::select! {
            message = receiver.recv() => message,
            () = clean.tick() => {
                correlator.forget(clock.now());
                for event in series.finished(clock.now()) {
                    write(&events, &event, true).await;
                }
                continue;
            }
        };
        match message {
            None => break,
            Some(Message::Flush(done)) => {
                // An error means that the caller has stopped waiting.
                let _ = done.send(());
            }
            Some(Message::Action(event)) => {
                let now = event.event_time.map_or_else(|| clock.now(), |time| time.0);
                if let Some((event, repeats)) = series.observe(*event, now) {
                    write(&events, &event, repeats).await;
                }
            }
            Some(Message::Counted(event)) => {
                let now = event.last_timestamp.unwrap_or_else(|| clock.now());
                let (event, repeats) = match correlator.correlate(*event, now) {
                    Verdict::Skip => continue,
                    Verdict::Create(event) => (event, false),
                    Verdict::Repeat(event) => (event, true),
                };
                if write(&events, &event, repeats).await {
                    correlator.written(&event);
                }
            }
        }
    }
}

/// Writes one event, with retries while the server cannot be reached; returns whether it was written.
async fn write(events: &Objects<Event>, event: &Event, repeats: bool) -> bool {
    for attempt in 0..ATTEMPTS_MAX {
        match write_once(events, event, repeats).await {
            Ok(()) => return true,
            Err(error) if error.may_pass() => {
                debug!(event = %event.metadata.name, err = %chain(&error), "Could not write event");
                tokio::time::sleep(PAUSES.pause(attempt)).await;
            }
            Err(error) => {
                warn!(event = %event.metadata.name, err = %chain(&error), "Event was refused");
                return false;
            }
        }
    }
    warn!(event = %event.metadata.name, "Gave up writing an event");
    false
}

/// Sends one event. The response is not read: it has nothing that the recorder needs.
async fn write_once(events: &Objects<Event>, event: &Event, repeats: bool) -> Result<(), Error> {
    let (namespace, name) = (&*event.metadata.namespace, &*event.metadata.name);
    if repeats {
        let patch = match &event.series {
            Some(series) => {
                let series: Value = to_value(series)?;
                api::json!({"series": series})
            }
            None => {
                let last: Value = to_value(&event.last_timestamp)?;
                let (count, message) = (event.count, event.message.clone());
                api::json!({"count": count, "lastTimestamp": last, "message": message})
            }
        };
        match events.send_patch(namespace, name, Patch::StrategicMerge, &patch).await {
            // The event has expired.
            Err(error) if error.is_not_found() => {}
            result => return result,
        }
    }
    events.send_new(namespace, event).await
}
