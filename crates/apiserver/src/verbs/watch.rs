//! Following a collection: initial events if wanted, then changes as they happen, with bookmarks in between.
//!
//! A task per watch reads its place in the cache's list of changes and hands lines to the connection, a few at a time: a
//! client that does not read stops the task, and loses its place if it stays away for too long.

use std::sync::Arc;
use std::time::Duration;

use api::json::{Object, Value};
use api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use bytes::{Bytes, BytesMut};
use store::Revision;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::list::chunks::{Chunks, Pages};
use super::{Call, Selection, list, partial_metadata};
use crate::custom::rows::Row;
use crate::custom::serving::ServedVersion;
use crate::state::Server;
use crate::state::watch_memory::Share;
use crate::verbs::tables;
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::negotiation::{AcceptedEncoding, Form, PROTOBUF_EVENTS};
use crate::wire::protobuf::event_frame;
use crate::wire::request::{Query, Target};
use crate::wire::status::{Failure, Result};
use cache::stored::ServedObject;
use cache::{Change, ChangeKind, Entry, Follower, TooOld, event_line};
use registry::conversion;

/// This many batches wait for the connection: what a client does not read is in memory once for each watch.
const BATCHES_WAITING: usize = 1;
/// Approximate size of a piece of the initial objects.
const INITIAL_PIECE: usize = 16 << 10;
/// Time from the start to the first bookmark.
const BOOKMARK_FIRST: Duration = Duration::from_secs(1);
/// Interval of the other bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Time between the last bookmark and the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

pub(super) async fn watch(call: &Call<'_>) -> Result<Answer> {
    if call.accepted.yaml {
        // Documents in a YAML stream have no end marker.
        return Err(crate::wire::negotiation::of_watch(crate::wire::negotiation::none()));
    }
    let mut selection = Selection::from_query(call.query, call.resource)?;
    if !call.target.name.is_empty() {
        let name = format!("metadata.name={}", call.target.name);
        selection.fields = cache::field_selectors::Selector::parse(&name, call.resource)?;
    }
    list::check_options(call, "ListOptions")?;
    let text = call.query.get("resourceVersion");
    let after: Revision = match text {
        "" => 0,
        text => text.parse().map_err(|_| {
            let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
            Failure::unclassified(format!("resourceVersion: Invalid value: \"{text}\": {why}"))
        })?,
    };
    let streams = call.query.flag("sendInitialEvents");
    let initial = if call.query.has("sendInitialEvents") { streams } else { after == 0 };
    // Kubernetes: a watch without a version requests the existing objects.
    let marks_end = streams || initial && call.query.get("resourceVersionMatch").is_empty();
    if text.is_empty() {
        call.wait_for_now().await?;
    } else if streams {
        call.wait_for(after).await?;
    }
    let seconds = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => u64::try_from(seconds).unwrap_or(u64::MAX),
        _ => 1800_u64.saturating_add(crate::random::below(1800)),
    };
    let Some(share) = call.server.watch_memory.share(call.user) else {
        let failure = Failure::new(429, "TooManyRequests", "too many watches, please try again later");
        return Err(failure.with_detail("retryAfterSeconds", 1_i64));
    };
    let cache = call.cache();
    let interest = call.prepared_interest(&selection).await?;
    let (snapshot, follower) = if initial && !cache.keeps_objects() {
        // Followed first: what happens while it is read comes again, and is passed over by its revision.
        let follower = cache.follow(interest);
        let revision = call.server.store.current_revision().await?;
        let pages = Pages::new(call.server.store.clone(), call.range(), revision);
        (Some(InitialObjects { revision, objects: Chunks::Pages(pages) }), Ok(follower))
    } else if initial {
        let (found, follower) = cache.find_and_follow(interest, call.server.cache.revision());
        (Some(InitialObjects { revision: found.revision, objects: Chunks::View(found.objects) }), Ok(follower))
    } else if after == 0 {
        (None, Ok(cache.follow(interest)))
    } else {
        (None, cache.follow_after(interest, after))
    };
    let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
    let mut watcher = Watcher {
        server: call.server.clone(),
        row: call.row.clone(),
        target: call.target.clone(),
        query: call.query.clone(),
        accepted: call.accepted.clone(),
        range: call.range(),
        selection,
        share,
        sender,
        after,
        progress: 0,
        bookmarks: call.query.flag("allowWatchBookmarks"),
        columns_sent: false,
    };
    let deadline = Instant::now().checked_add(Duration::from_secs(seconds)).unwrap_or_else(Instant::now);
    let target = call.target;
    let counted = call.server.metrics.long_running(&target.resource, &target.group, &target.version);
    let completion = crate::audit::long_running();
    tokio::spawn(async move {
        let _counted = (counted, completion);
        match follower {
            Err(TooOld { oldest }) => watcher.too_old(oldest).await,
            Ok(follower) => {
                let started = match snapshot {
                    Some(snapshot) => watcher.send_initial(snapshot, marks_end).await,
                    None => Some(()),
                };
                if started.is_some() {
                    watcher.follow(follower, deadline).await;
                }
            }
        }
    });
    let content_type = if call.accepted.protobuf { PROTOBUF_EVENTS } else { "application/json" };
    Ok(Answer::bytes(200, content_type, Body::Stream(receiver)))
}

/// Existing objects at the start of a watch.
struct InitialObjects {
    revision: Revision,
    objects: Chunks,
}

struct Watcher {
    server: Arc<Server>,
    row: Row,
    target: Target,
    query: Query,
    accepted: AcceptedEncoding,
    range: String,
    selection: Selection,
    share: Share,
    sender: mpsc::Sender<Bytes>,
    /// Changes up to here are known to the client.
    after: Revision,
    /// Revision of the last bookmark.
    progress: Revision,
    bookmarks: bool,
    columns_sent: bool,
}

impl Watcher {
    /// `None` if the client has disconnected.
    async fn send(&self, bytes: Bytes) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        let Some(bytes) = self.share.charge(bytes).await else {
            self.count_cut_off();
            return None;
        };
        self.sender.send(bytes).await.ok()
    }

    /// An event about an object, whose text is given.
    fn event(&self, event_type: &str, object: &[u8]) -> Bytes {
        if self.accepted.protobuf { event_frame(event_type, object) } else { event_line(event_type, object) }
    }

    /// The event of a change, encoded once per form.
    fn event_of(&self, change: &Change) -> Bytes {
        if self.accepted.protobuf { change.frame(event_frame) } else { change.event() }
    }

    fn count_cut_off(&self) {
        let resource = self.row.resource();
        self.server.metrics.watcher_cut_off(resource.group, resource.plural);
    }

    async fn too_old(&self, oldest: Revision) {
        let message = format!("too old resource version: {} ({oldest})", self.after);
        let status = Failure::expired(message).to_value();
        let event = self.event("ERROR", api::json::to_string(&status).as_bytes());
        self.send(event).await;
    }

    async fn send_initial(&mut self, mut initial: InitialObjects, marks_end: bool) -> Option<()> {
        let mut batch = BytesMut::new();
        while let Some(fetch) = initial.objects.next() {
            let entries = match &initial.objects {
                Chunks::View(_) => fetch()?,
                Chunks::Pages(_) => self.server.threads().run(fetch).await??,
            };
            let entries = self.converted(entries).await?;
            for (key, object) in entries {
                if !key.starts_with(&self.range) || !self.selection.matches_served(&key, &object) {
                    continue;
                }
                let line = if self.is_plain(&object) {
                    self.event("ADDED", &object.json)
                } else {
                    self.line("ADDED", object.decode(), self.is_ready(&object))
                };
                batch.extend_from_slice(&line);
                if batch.len() > INITIAL_PIECE {
                    self.send(batch.split().freeze()).await?;
                }
            }
            // Others have their turn, also if nothing is selected.
            tokio::task::yield_now().await;
        }
        self.send(batch.freeze()).await?;
        self.after = initial.revision;
        if marks_end && self.bookmarks {
            let line = self.bookmark(initial.revision, true);
            self.send(line).await?;
        }
        Some(())
    }

    /// Whether events about an object can be sent as the cache holds it.
    fn is_plain(&self, object: &ServedObject) -> bool {
        self.accepted.form == Form::Object
            && match self.row.custom() {
                Some(custom) => custom.is_ready(object),
                None => conversion::is_stored(&self.row.resource(), &self.target.version),
            }
    }

    /// Whether nothing has to be done to a custom object before it is shown.
    fn is_ready(&self, object: &ServedObject) -> bool {
        self.row.custom().is_none_or(|custom| custom.is_ready(object))
    }

    fn webhook(&self) -> Option<Arc<ServedVersion>> {
        self.row.custom().filter(|custom| custom.has_webhook()).cloned()
    }

    /// Objects in the version of the watch. One that cannot be converted ends the watch.
    async fn converted(&self, entries: Vec<Entry>) -> Option<Vec<Entry>> {
        let Some(custom) = self.webhook() else { return Some(entries) };
        match custom.all_converted(entries, false).await {
            Ok(entries) => Some(entries),
            Err(error) => {
                self.unconvertible(&error.why).await;
                None
            }
        }
    }

    /// Changes of objects in the version of the watch. One that cannot be converted ends the watch.
    async fn converted_changes(&self, changes: Vec<Arc<Change>>) -> Option<Vec<Arc<Change>>> {
        let Some(custom) = self.webhook() else { return Some(changes) };
        let mut converted = Vec::with_capacity(changes.len());
        for change in changes {
            let is_sent = change.object.revision > self.after && change.key.starts_with(&self.range);
            if !is_sent {
                continue;
            }
            match converted_change(&custom, &change).await {
                Ok(change) => converted.push(Arc::new(change)),
                Err(why) => {
                    self.unconvertible(&why).await;
                    return None;
                }
            }
        }
        Some(converted)
    }

    async fn unconvertible(&self, why: &str) {
        let status = Failure::internal(why).to_value();
        self.send(self.event("ERROR", api::json::to_string(&status).as_bytes())).await;
    }

    async fn follow(&mut self, mut follower: Follower, deadline: Instant) {
        let mut stop = self.server.stopping();
        let mut next_bookmark = Instant::now().checked_add(BOOKMARK_FIRST).unwrap_or(deadline);
        let last_bookmark = deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline);
        loop {
            // What is read of the changes after this is at least as new.
            let reached = self.server.cache.revision();
            let changes = match follower.take() {
                Ok(changes) => changes,
                // The client reads too slowly; it lists again when the connection ends.
                Err(TooOld { .. }) => {
                    self.count_cut_off();
                    return;
                }
            };
            if !changes.is_empty() || follower.is_behind() {
                let Some(changes) = self.converted_changes(changes).await else { return };
                let batch = self.encode(&changes);
                if batch.is_empty() {
                    // Nothing was sent that could have been awaited.
                    tokio::task::yield_now().await;
                }
                tokio::select! {
                    sent = self.send(batch) => if sent.is_none() { return },
                    () = stop.stopped() => return,
                }
                continue;
            }
            if self.bookmarks && Instant::now() >= next_bookmark {
                next_bookmark = Instant::now().checked_add(BOOKMARK_EVERY).unwrap_or(deadline);
                if Instant::now() < last_bookmark {
                    next_bookmark = next_bookmark.min(last_bookmark);
                }
                self.progress = reached.max(self.after);
                let line = self.bookmark(self.progress, false);
                if self.send(line).await.is_none() {
                    return;
                }
            }
            let timer = if self.bookmarks { next_bookmark.min(deadline) } else { deadline };
            tokio::select! {
                more = follower.changed() => if !more { return },
                () = tokio::time::sleep_until(timer) => if Instant::now() >= deadline { return },
                () = self.sender.closed() => return,
                () = stop.stopped() => return,
            }
        }
    }

    fn encode(&mut self, changes: &[Arc<Change>]) -> Bytes {
        let mut lines: Vec<Bytes> = Vec::with_capacity(changes.len());
        for change in changes {
            if change.object.revision <= self.after || !change.key.starts_with(&self.range) {
                continue;
            }
            lines.extend(self.encode_one(change));
        }
        match lines.len() {
            0 => Bytes::new(),
            1 => lines.pop().unwrap_or_default(),
            _ => lines.concat().into(),
        }
    }

    fn encode_one(&mut self, change: &Change) -> Option<Bytes> {
        if self.selection.is_everything() {
            return Some(if self.is_plain(&change.object) {
                self.event_of(change)
            } else {
                let is_ready = self.is_ready(&change.object);
                self.line(change.kind.event_type(), change.decoded().as_ref().clone(), is_ready)
            });
        }
        let selects = |object: &ServedObject| self.selection.matches_served(&change.key, object);
        let was = change.previous.as_deref().is_some_and(selects);
        let is = change.kind != ChangeKind::Deleted && selects(&change.object);
        let kind = match (was, is) {
            (false, false) => return None,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        if kind == change.kind && self.is_plain(&change.object) {
            return Some(self.event_of(change));
        }
        if kind == ChangeKind::Deleted && change.kind != ChangeKind::Deleted {
            // It left the selection: the client receives the last state it knew, at the new version.
            let known = change.previous.as_ref()?.at_revision(change.object.revision);
            let is_ready = self.is_ready(&known);
            return Some(self.line("DELETED", known.decode(), is_ready));
        }
        let is_ready = self.is_ready(&change.object);
        Some(self.line(kind.event_type(), change.decoded().as_ref().clone(), is_ready))
    }

    fn line(&mut self, event_type: &str, mut object: Value, is_ready: bool) -> Bytes {
        if let Some(custom) = self.row.custom().filter(|_| !is_ready) {
            custom.refresh(&mut object);
        }
        let shown = match self.accepted.form {
            Form::Table => {
                let first = !std::mem::replace(&mut self.columns_sent, true);
                let version = self.accepted.version;
                match self.row.custom() {
                    Some(custom) => tables::custom_event(&self.server, custom, &self.query, version, object, first),
                    None => tables::event(&self.server, &self.row.resource(), &self.query, version, object, first),
                }
            }
            Form::Metadata | Form::MetadataList => partial_metadata(&object, self.accepted.version),
            _ => {
                conversion::from_stored(&self.row.resource(), &self.target.version, &mut object);
                object
            }
        };
        self.event(event_type, api::json::to_string(&shown).as_bytes())
    }

    fn bookmark(&mut self, revision: Revision, ends_initial: bool) -> Bytes {
        let mut metadata = Object::new();
        metadata.insert("resourceVersion", revision.to_string());
        if ends_initial {
            metadata.insert("annotations", api::json!({ANNOTATION_INITIAL_EVENTS_END: "true"}));
        }
        let resource = self.row.resource();
        let object = match self.accepted.form {
            Form::Table => {
                let first = !std::mem::replace(&mut self.columns_sent, true);
                tables::bookmark(
                    &resource,
                    self.row.custom().map(AsRef::as_ref),
                    self.accepted.version,
                    metadata,
                    first,
                )
            }
            Form::Metadata | Form::MetadataList => {
                partial_metadata(&api::json!({"metadata": metadata}), self.accepted.version)
            }
            _ => {
                let api_version = resource.api_version(&self.target.version);
                let mut object = api::json!({"kind": (resource.kind), "apiVersion": api_version, "metadata": metadata});
                add_internal_zeros(&resource, &mut object);
                let of = resource.object_type(&self.target.version);
                of.and_then(|of| api::types::decode(of, &object).ok()).map_or(object, |decoded| decoded.value)
            }
        };
        self.event("BOOKMARK", api::json::to_string(&object).as_bytes())
    }
}

/// A change of an object that a webhook converts. What was deleted is what was there before.
async fn converted_change(custom: &ServedVersion, change: &Change) -> std::result::Result<Change, String> {
    let previous = match &change.previous {
        Some(previous) => Some(custom.shared(previous).await?),
        None => None,
    };
    let object = match (&previous, change.kind) {
        (Some(previous), ChangeKind::Deleted) => Arc::new(previous.at_revision(change.object.revision)),
        _ => custom.shared(&change.object).await?,
    };
    Ok(change.converted(object, previous))
}

/// Kubernetes: a bookmark is an empty object of its internal types, where some fields cannot be absent.
fn add_internal_zeros(resource: &crate::resources::Resource<'_>, object: &mut Value) {
    let Some(fields) = object.as_object_mut().filter(|_| resource.group == "apps") else { return };
    match resource.kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            fields.insert("spec", api::json!({"replicas": 0_i64}));
        }
        "DaemonSet" => {
            let metadata = fields.get_or_insert("metadata", Value::object).as_object_mut();
            let annotations = metadata.map(|it| it.get_or_insert("annotations", Value::object));
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.insert("deprecated.daemonset.template.generation", "0");
                annotations.sort();
            }
        }
        _ => {}
    }
}
