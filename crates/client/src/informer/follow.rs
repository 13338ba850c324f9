//! The task behind an informer: initial events, changes, and starting over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::{Text, Value, value_at};
use api::shared::Pool;
use api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use http::Method;
use telemetry::logs::chain;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::managed_fields;
use super::state::SILENCE_MAX;
use super::{AnyObject, FormDecoder, Inner, Key};
use crate::client::Client;
use crate::decoded::Id;
use crate::document::DecodeContext;
use crate::error::{Error, Status};
use crate::lines::Lines;
use crate::objects::Selection;
use crate::queue::Backoff;
use crate::resources::Resource;

/// Minimum duration of a watch, up to twice that: so the watches of many clients do not end at once.
const WATCH_SECONDS_MIN: u64 = 300;
/// Failures are answered with pauses between these.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(30) };
/// Minimum duration of a watch: one that ends sooner without events counts as a failure.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// Content of a watch that has ended.
struct WatchContent {
    anything: bool,
}

/// A line of a watch.
enum Event {
    Failed(Status),
    Bookmark {
        version: Text,
        ends_initial: bool,
    },
    Object {
        key: Key,
        version: Text,
        is_gone: bool,
        /// None if it cannot be read.
        object: Option<Arc<AnyObject>>,
    },
}

pub(super) struct Follower {
    client: Client,
    resource: Resource,
    selection: Selection,
    decode: FormDecoder,
    pool: Arc<Pool>,
    inner: Arc<Inner>,
    /// Version up to which the store is complete; empty at the start and after it became too old.
    position: String,
    /// Whether the server can begin a watch with the existing objects.
    streams: bool,
    /// Whether the server does not serve the resource, as far as is known.
    is_absent: bool,
}

impl Follower {
    pub(super) fn new(
        client: Client,
        resource: Resource,
        selection: Selection,
        decode: FormDecoder,
        inner: Arc<Inner>,
    ) -> Self {
        let pool = client.decoded.as_ref().map(|decoded| decoded.pool().clone()).unwrap_or_default();
        Self {
            client,
            resource,
            selection,
            decode,
            pool,
            inner,
            position: String::new(),
            streams: true,
            is_absent: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let result = self.follow().await;
            match result {
                Ok(reported) if reported.anything || started.elapsed() >= WATCH_MIN => {
                    failures = 0;
                    continue;
                }
                Ok(_) => {}
                Err(error) if error.is_expired() => {
                    debug!(resource = %self.resource.plural, err = %chain(&error), "Listing again");
                    self.position.clear();
                    if failures == 0 {
                        failures = 1;
                        continue;
                    }
                }
                Err(error) if self.streams && matches!(error.code(), 400 | 422) => {
                    debug!(resource = %self.resource.plural, err = %chain(&error), "Server does not stream lists");
                    self.streams = false;
                    continue;
                }
                Err(error) if error.code() == 404 && (self.is_absent || !self.inner.state.has_synced()) => {
                    // A server of another version may not serve the resource: then there are no such objects, and
                    // components do not wait for them. It is asked again, in case the resource is defined later.
                    debug!(resource = %self.resource.plural, err = %chain(&error), "Server does not serve the resource");
                    self.is_absent = true;
                    self.inner.state.received();
                    self.inner.state.has_everything();
                }
                Err(error) => {
                    warn!(resource = %self.resource.plural, err = %chain(&error), "Watch failed");
                    self.inner.state.failed(chain(&error).to_string());
                }
            }
            tokio::time::sleep(PAUSES.pause(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Runs one watch, and a list before it if needed.
    async fn follow(&mut self) -> Result<WatchContent, Error> {
        let path = self.resource.path(&self.selection.namespace, "", "");
        let selectors = self.selection.query();
        let streams = self.position.is_empty() && self.streams;
        if self.position.is_empty() && !streams {
            self.list(&path, &selectors).await?;
        }
        let from = if streams {
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
        } else {
            format!("resourceVersion={}", self.position)
        };
        let seconds = WATCH_SECONDS_MIN.saturating_add(crate::queue::chance() % WATCH_SECONDS_MIN);
        let url = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{from}{selectors}");
        let response = self.client.open(Method::GET, &url, "", String::new()).await?;
        self.is_absent = false;
        let mut lines = Lines::new(response.into_body());
        let mut reported = WatchContent { anything: false };
        // Until the initial part ends, objects are collected: then they replace the known ones.
        let mut initial = streams.then(HashMap::new);
        self.inner.state.received();
        loop {
            let Ok(line) = tokio::time::timeout(SILENCE_MAX, lines.next()).await else {
                debug!(resource = %self.resource.plural, "Watch was silent for too long");
                return Ok(reported);
            };
            let Some(line) = line? else { return Ok(reported) };
            self.inner.state.received();
            let event = self.read(&line)?;
            reported.anything = true;
            match event {
                Event::Failed(status) => {
                    let error = Error::Refused(status);
                    if initial.is_none() || error.is_expired() {
                        return Err(error);
                    }
                    // Such as upstream's server on an etcd before 3.4.25. Any error here means a list, as in client-go.
                    debug!(resource = %self.resource.plural, err = %chain(&error), "Server cannot stream the list");
                    self.streams = false;
                    return Ok(reported);
                }
                Event::Bookmark { version, ends_initial } => {
                    if ends_initial && let Some(objects) = initial.take() {
                        self.replace(objects);
                    }
                    if initial.is_none() {
                        self.position = version.into();
                    }
                }
                Event::Object { key, version, is_gone, object } => match &mut initial {
                    Some(objects) => match object {
                        Some(object) if !is_gone => {
                            objects.insert(key, (version, object));
                        }
                        _ => {
                            objects.remove(&key);
                        }
                    },
                    None => {
                        self.apply(&key, version.clone(), is_gone, object);
                        self.position = version.into();
                    }
                },
            }
        }
    }

    fn read(&self, line: &[u8]) -> Result<Event, Error> {
        if let Some(known) = self.known(line) {
            return Ok(known);
        }
        let short = managed_fields::cut(line);
        let mut event = api::json::parse(short.as_deref().unwrap_or(line))?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = event.text("type");
        if kind == "ERROR" {
            return Ok(Event::Failed(Status::of(&object)));
        }
        let version: Text = object.text_at(&["metadata", "resourceVersion"]).into();
        if kind == "BOOKMARK" {
            let ends = object.str_at(&["metadata", "annotations", ANNOTATION_INITIAL_EVENTS_END]);
            return Ok(Event::Bookmark { version, ends_initial: ends == Some("true") });
        }
        let (key, is_gone) = (key_of(&object), kind == "DELETED");
        // A deletion is reported with the state that each follower had, which may differ between them.
        let uid = object.str_at(&["metadata", "uid"]).filter(|_| !is_gone);
        let id = uid.and_then(|uid| Id::parse(uid, &version));
        Ok(Event::Object { object: self.decoded(&key, id, object), key, version, is_gone })
    }

    /// Parses a line about an object that is cached. Only used with a server of this process, whose text has
    /// the form that [`value_at`] requires.
    fn known(&self, line: &[u8]) -> Option<Event> {
        let decoded = self.client.decoded.as_ref().filter(|_| self.decode.is_shared)?;
        let rest = line.strip_prefix(b"{\"type\":\"")?;
        let rest = rest.strip_prefix(b"ADDED").or_else(|| rest.strip_prefix(b"MODIFIED"))?;
        let metadata = value_at(rest.strip_prefix(b"\",\"object\":")?, &["metadata"])?;
        let text = |field| {
            let text = value_at(metadata, &[field])?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            std::str::from_utf8(text).ok().filter(|text| !text.contains('\\'))
        };
        let version = text("resourceVersion")?;
        let object = decoded.get_any(self.decode.form, Id::parse(text("uid")?, version)?)?;
        decoded.count_shared();
        let key = Key::new(text("namespace").unwrap_or_default(), text("name")?);
        Some(Event::Object { key, version: version.into(), is_gone: false, object: Some(object) })
    }

    /// Replaces the known objects by a list.
    async fn list(&mut self, path: &str, selectors: &str) -> Result<(), Error> {
        let url = match selectors.strip_prefix('&') {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let body = self.client.send(Method::GET, &url, "", String::new()).await?;
        let mut list = api::json::parse(&body)?;
        let version = list.text_at(&["metadata", "resourceVersion"]).to_owned();
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let mut objects = HashMap::with_capacity(items.len());
        for item in items {
            let key = key_of(&item);
            let version = item.text_at(&["metadata", "resourceVersion"]).into();
            if let Some(object) = self.decoded(&key, None, item) {
                objects.insert(key, (version, object));
            }
        }
        self.replace(objects);
        self.position = version;
        Ok(())
    }

    /// Returns the kept form of an object, shared with others by `id`; `None`, with a warning, if it cannot be
    /// decoded.
    fn decoded(&self, key: &Key, id: Option<Id>, mut object: Value) -> Option<Arc<AnyObject>> {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        if let Some(rewrite) = &self.client.rewrite {
            rewrite(&self.resource, &mut object);
        }
        let decoded = self.client.decoded.as_deref().filter(|_| self.decode.is_shared);
        decoded.inspect(|decoded| decoded.count_decoded());
        let others = DecodeContext { pool: &self.pool, decoded: decoded.zip(id) };
        match (self.decode.make)(Arc::new(object), &others) {
            Ok(object) => Some(match others.decoded {
                Some((decoded, id)) => decoded.put_any(self.decode.form, id, object),
                None => object,
            }),
            Err(error) => {
                warn!(resource = %self.resource.plural, object = %key, err = %chain(&error), "Could not read an object");
                self.inner.state.is_unreadable();
                None
            }
        }
    }

    fn apply(&self, key: &Key, version: Text, is_gone: bool, object: Option<Arc<AnyObject>>) {
        let mut turn = self.inner.handlers.turn(&self.inner.contents);
        let change = match object {
            Some(object) if !is_gone => self.inner.contents.set(key, version, object),
            // An object that cannot be decoded is removed as well, because its known state is outdated.
            object => self.inner.contents.remove(key, object),
        };
        if let Some(change) = change {
            turn.report(key, &change);
        }
    }

    /// Updates the store to `objects`, and passes the differences to the handlers.
    fn replace(&self, objects: HashMap<Key, (Text, Arc<AnyObject>)>) {
        let mut turn = self.inner.handlers.turn(&self.inner.contents);
        for key in self.inner.contents.missing_in(&objects) {
            if let Some(change) = self.inner.contents.remove(&key, None) {
                turn.report(&key, &change);
            }
        }
        for (key, (version, object)) in objects {
            if let Some(change) = self.inner.contents.set(&key, version, object) {
                turn.report(&key, &change);
            }
        }
        self.inner.state.has_everything();
    }
}

fn key_of(object: &Value) -> Key {
    let text = |name| object.text_at(&["metadata", name]);
    Key::new(text("namespace"), text("name"))
}
