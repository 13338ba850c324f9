//! Objects in an API server, over the part of HTTP that controllers use.

use locks::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::json;
use api::json::Value;
use api::metadata;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Dice, now};
use crate::machinery::edit;

/// Plural, namespace and name.
pub(super) type Id = (String, String, String);

/// A write of a controller, with the object before and after it.
pub(super) struct Write<'a> {
    pub(super) plural: &'a str,
    pub(super) old: Option<&'a Value>,
    pub(super) new: Option<&'a Value>,
}

/// Returns the violation after a write of a controller.
pub(super) type Observer = Box<dyn FnMut(&Objects, &Write<'_>) -> Option<String> + Send>;

/// All objects.
pub(super) type Objects = BTreeMap<Id, Value>;

pub(super) struct State {
    pub(super) objects: Objects,
    revision: u64,
    /// Every change: plural, revision, and the line of the watch event.
    history: Vec<(String, u64, String)>,
    watchers: Vec<(String, mpsc::UnboundedSender<(Instant, String)>)>,
    pub(super) dice: Dice,
    /// Percentage of writes that fail.
    pub(super) faults: u64,
    /// Maximum age of a watch event at its delivery, in milliseconds.
    pub(super) lag_ms: u64,
    made: u64,
    pub(super) observer: Option<Observer>,
    pub(super) violations: Vec<String>,
}

#[derive(Clone)]
pub(super) struct Server(Arc<Mutex<State>>);

/// A rejection of a request.
struct Refusal(StatusCode, &'static str);

const CONFLICT: Refusal = Refusal(StatusCode::CONFLICT, "Conflict");
const NOT_FOUND: Refusal = Refusal(StatusCode::NOT_FOUND, "NotFound");
const EXISTS: Refusal = Refusal(StatusCode::CONFLICT, "AlreadyExists");
const BROKEN: Refusal = Refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");

impl State {
    fn report(&mut self, kind: &str, plural: &str, object: &Value) {
        let event = json!({"type": kind, "object": (object.clone())});
        let line = json::to_string(&event) + "\n";
        let at = Instant::now();
        self.watchers.retain(|(wanted, lines)| wanted != plural || lines.send((at, line.clone())).is_ok());
        self.history.push((plural.to_owned(), self.revision, line));
    }

    fn stamp(&mut self, object: &mut Value) {
        self.revision += 1;
        object.set_at(&["metadata", "resourceVersion"], self.revision.to_string());
    }

    /// Adds an object as if it had just been created.
    pub(super) fn create(&mut self, plural: &str, mut object: Value) -> Option<Value> {
        self.made += 1;
        let made = self.made;
        if metadata::name(&object).is_empty() {
            let prefix = object.text_at(&["metadata", "generateName"]);
            let name = format!("{prefix}{made:05}");
            object.set_at(&["metadata", "name"], name);
        }
        let id = (plural.to_owned(), metadata::namespace(&object).to_owned(), metadata::name(&object).to_owned());
        if self.objects.contains_key(&id) {
            return None;
        }
        object.set_at(&["metadata", "uid"], format!("uid-{made}"));
        object.set_at(&["metadata", "creationTimestamp"], edit::time(now()));
        object.set_at(&["metadata", "generation"], 1);
        if plural == "pods" {
            object.set_at(&["status", "phase"], "Pending");
        }
        self.stamp(&mut object);
        self.report("ADDED", plural, &object);
        self.objects.insert(id, object.clone());
        Some(object)
    }

    /// Changes an object. An object that is being deleted without finalizers is removed.
    pub(super) fn change(&mut self, id: &Id, change: impl FnOnce(&mut Value)) -> Option<Value> {
        let old = self.objects.get(id)?.clone();
        let mut new = old.clone();
        change(&mut new);
        if new == old {
            return Some(old);
        }
        if new.get("spec") != old.get("spec") {
            new.set_at(&["metadata", "generation"], old.int_at(&["metadata", "generation"]) + 1);
        }
        self.stamp(&mut new);
        let is_kept = new.array_at(&["metadata", "finalizers"]).is_some_and(|it| !it.is_empty());
        let goes = new.at(&["metadata", "deletionTimestamp"]).is_some();
        let waits = new.int_at(&["metadata", "deletionGracePeriodSeconds"]) > 0;
        if goes && !waits && !is_kept {
            self.objects.remove(id);
            self.report("DELETED", &id.0, &new);
        } else {
            self.objects.insert(id.clone(), new.clone());
            self.report("MODIFIED", &id.0, &new);
        }
        Some(new)
    }

    /// Deletes an object; a running pod terminates gracefully.
    pub(super) fn delete(&mut self, id: &Id, at_once: bool) {
        let Some(object) = self.objects.get(id) else { return };
        let is_going = object.at(&["metadata", "deletionTimestamp"]).is_some();
        let has_ended = matches!(object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
        let is_bound = object.str_at(&["spec", "nodeName"]).is_some();
        let waits = id.0 == "pods" && is_bound && !has_ended && !at_once;
        let is_kept = object.array_at(&["metadata", "finalizers"]).is_some_and(|it| !it.is_empty());
        if is_going && (waits || (is_kept && !at_once)) {
            return;
        }
        self.change(id, |object| {
            object.set_at(&["metadata", "deletionTimestamp"], edit::time(now()));
            let seconds = if waits { 30 } else { 0 };
            object.set_at(&["metadata", "deletionGracePeriodSeconds"], seconds);
        });
    }

    fn perform(&mut self, method: &Method, id: &Id, part: &str, body: &Value) -> Result<Value, Refusal> {
        let stored = self.objects.get(id).cloned();
        match *method {
            Method::GET => stored.ok_or(NOT_FOUND),
            Method::POST => {
                let mut object = body.clone();
                object.set_at(&["metadata", "namespace"], id.1.as_str());
                self.create(&id.0, object).ok_or(EXISTS)
            }
            Method::PUT => {
                let stored = stored.ok_or(NOT_FOUND)?;
                let version = |it: &Value| it.text_at(&["metadata", "resourceVersion"]).to_owned();
                if version(&stored) != version(body) {
                    return Err(CONFLICT);
                }
                let written = body.clone();
                let changed = self.change(id, |object| {
                    let annotations = written.at(&["metadata", "annotations"]).cloned();
                    if part == "status" {
                        object.set_at(&["status"], written.get("status").cloned().unwrap_or_default());
                        object.set_or_remove_at(&["metadata", "annotations"], annotations);
                    } else {
                        let status = object.get("status").cloned();
                        *object = written;
                        object.set_or_remove_at(&["status"], status);
                    }
                });
                changed.ok_or(NOT_FOUND)
            }
            Method::PATCH => {
                let stored = stored.ok_or(NOT_FOUND)?;
                let uid = body.str_at(&["metadata", "uid"]);
                if uid.is_some() && uid != stored.str_at(&["metadata", "uid"]) {
                    return Err(CONFLICT);
                }
                self.change(id, |object| merge(object, body)).ok_or(NOT_FOUND)
            }
            _ => {
                let stored = stored.ok_or(NOT_FOUND)?;
                let uid = body.str_at(&["preconditions", "uid"]);
                if uid.is_some() && uid != stored.str_at(&["metadata", "uid"]) {
                    return Err(CONFLICT);
                }
                self.delete(id, body.get("gracePeriodSeconds").and_then(Value::as_i64) == Some(0));
                Ok(json!({"kind": "Status", "status": "Success"}))
            }
        }
    }

    /// A request of a controller: it may fail before it is done, or after.
    fn answer(&mut self, method: &Method, id: &Id, part: &str, body: &Value) -> Result<Value, Refusal> {
        let is_write = *method != Method::GET;
        let fails = is_write && self.dice.percent(self.faults);
        if fails && self.dice.percent(60) {
            return Err(if *method == Method::PUT && self.dice.percent(50) { CONFLICT } else { BROKEN });
        }
        let mut id = id.clone();
        let old = self.objects.get(&id).cloned();
        let result = self.perform(method, &id, part, body)?;
        if *method == Method::POST {
            metadata::name(&result).clone_into(&mut id.2);
        }
        if is_write && let Some(mut observer) = self.observer.take() {
            let new = self.objects.get(&id);
            let write = Write { plural: &id.0, old: old.as_ref(), new };
            let violation = observer(&self.objects, &write);
            self.violations.extend(violation);
            self.observer = Some(observer);
        }
        if fails { Err(BROKEN) } else { Ok(result) }
    }

    /// First messages to a watcher of a plural.
    fn begin_watch(&self, plural: &str, from: Option<u64>) -> String {
        if let Some(from) = from {
            let news = self.history.iter().filter(|(of, revision, _)| of == plural && *revision > from);
            return news.map(|(_, _, line)| line.as_str()).collect();
        }
        let mut lines = String::new();
        for object in self.objects.iter().filter(|(id, _)| id.0 == plural).map(|(_, object)| object) {
            lines.push_str(&json::to_string(&json!({"type": "ADDED", "object": (object.clone())})));
            lines.push('\n');
        }
        let revision = self.revision.to_string();
        let metadata = json!({"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}});
        lines.push_str(&json::to_string(&json!({"type": "BOOKMARK", "object": {"metadata": metadata}})));
        lines.push('\n');
        lines
    }
}

/// A patch: merged, with the two things that strategic patches of controllers know beyond that.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return };
    for (key, value) in patch.iter() {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().unwrap_or_default();
            if let Some(list) = target.get_mut(list).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
        } else if key == "ownerReferences" {
            let list = target.make_list_at(&[key]);
            for reference in value.as_array().unwrap_or_default() {
                list.retain(|known| known.str_at(&["uid"]) != reference.str_at(&["uid"]));
                if reference.get("$patch").is_none() {
                    list.push(reference.clone());
                }
            }
        } else if value.is_null() {
            target.remove_at(&[key]);
        } else if value.as_object().is_some() {
            if target.get(key).is_none() {
                target.set_at(&[key], Value::object());
            }
            merge(target.get_mut(key).unwrap(), value);
        } else {
            target.set_at(&[key], value.clone());
        }
    }
}

impl Server {
    pub(super) fn new(dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            revision: 1,
            history: Vec::new(),
            watchers: Vec::new(),
            dice,
            faults: 0,
            lag_ms: 0,
            made: 0,
            observer: None,
            violations: Vec::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    fn watch(&self, plural: &str, query: &str) -> Lines {
        let mut state = self.lock();
        let from = query.split('&').find_map(|it| it.strip_prefix("resourceVersion=")).and_then(|it| it.parse().ok());
        let first = state.begin_watch(plural, from);
        let (news, mut received) = mpsc::unbounded_channel::<(Instant, String)>();
        state.watchers.push((plural.to_owned(), news));
        let (sender, receiver) = mpsc::unbounded_channel();
        let server = self.clone();
        tokio::spawn(async move {
            let mut alive = sender.send(first).is_ok();
            while let (true, Some((at, line))) = (alive, received.recv().await) {
                let wait = {
                    let mut state = server.lock();
                    let lag = state.lag_ms + 1;
                    state.dice.below(lag)
                };
                // Relative to the time of the change: one delay does not accumulate for later changes.
                tokio::time::sleep_until(at + Duration::from_millis(wait)).await;
                alive = sender.send(line).is_ok();
            }
        });
        Lines(receiver)
    }
}

/// The body of a response: a watch, or one piece.
pub(super) struct Lines(mpsc::UnboundedReceiver<String>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(http_body::Frame::data(Bytes::from(line)))))
    }
}

/// Target of a path: plural, namespace, name, and subresource.
fn target(path: &str) -> (Id, String) {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    parts.drain(..if parts[0] == "api" { 2 } else { 3 });
    let mut namespace = "";
    if parts[0] == "namespaces" && parts.len() > 2 {
        namespace = parts[1];
        parts.drain(..2);
    }
    let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    ((part(0), namespace.to_owned(), part(1)), part(2))
}

impl tower_service::Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Lines>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Lines>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let query = head.uri.query().unwrap_or_default();
            let (id, part) = target(head.uri.path());
            if query.contains("watch=true") {
                return Ok(Response::new(server.watch(&id.0, query)));
            }
            let body = json::parse(&body).unwrap_or_default();
            let result =
                if id.0 == "events" { Ok(body) } else { server.lock().answer(&head.method, &id, &part, &body) };
            let (code, answer) = match result {
                Ok(object) => (if head.method == Method::POST { StatusCode::CREATED } else { StatusCode::OK }, object),
                Err(Refusal(code, reason)) => {
                    let number = i64::from(code.as_u16());
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                        "code": number, "message": reason});
                    (code, status)
                }
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            let _ = sender.send(json::to_string(&answer));
            let mut response = Response::new(Lines(receiver));
            *response.status_mut() = code;
            Ok(response)
        })
    }
}
