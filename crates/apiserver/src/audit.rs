//! Audit log: events of `audit.k8s.io/v1` for the requests that a policy selects.
//!
//! [`policy`] decides what is written, [`log`] writes it. A request carries its trail while it is handled: each
//! step adds its facts, such as the user, to it. Follows Kubernetes' `endpoints/filters/audit.go`.

pub mod log;
pub mod policy;

use locks::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use ::clock::Clock;
use api::json::{self, Object, Value};
use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;

use self::log::Log;
use self::policy::{Decision, Level, Policy, Stage};
use crate::authorization;
use crate::identity::User;
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::heavy::Threads;
use crate::wire::payload;
use crate::wire::request::Target;

/// The header that names a request.
pub(crate) const AUDIT_ID: http::HeaderName = http::HeaderName::from_static("audit-id");

/// Kubernetes: longer names are cut.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// To read a longer body takes a while.
const LONG: usize = 64 << 10;

/// Address of the client, in a request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Writes the events that the policy selects.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
}

impl Audit {
    /// Starts writing.
    #[must_use]
    pub fn new(policy: Policy, log: Log) -> Arc<Self> {
        Arc::new(Self { policy, log })
    }

    /// Waits until everything is written.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }
}

tokio::task_local! {
    static TRAIL: RefCell<Option<Trail>>;
    static ANNOTATIONS: Annotations;
}

/// The annotations that admission gives to a request, also while it is handled on another thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Annotations(Arc<Mutex<AnnotationSets>>);

/// Annotations by key.
#[derive(Debug, Default)]
struct AnnotationSets {
    /// Annotations of events of all levels.
    plain: Object,
    /// Annotations with parts of the object, which belong to the levels that show objects.
    contents: Object,
}

impl Annotations {
    /// Annotations of the current request; new ones, which are lost, without an audit log.
    pub(crate) fn current() -> Self {
        ANNOTATIONS.try_with(Clone::clone).unwrap_or_default()
    }

    /// Collects the annotations of some work.
    pub(crate) async fn collect<T>(self, work: impl Future<Output = T>) -> T {
        ANNOTATIONS.scope(self, work).await
    }
}

/// Adds an annotation to the event of the request that is being handled. The first value of a key is kept.
pub(crate) fn annotate(key: &str, value: &str) {
    insert(key, value, |collected| &mut collected.plain);
}

/// As [`annotate`], for a value with parts of the object. Events below the level `Request` do not contain it: it may be
/// secret.
pub(crate) fn annotate_contents(key: &str, value: &str) {
    insert(key, value, |collected| &mut collected.contents);
}

fn insert(key: &str, value: &str, into: impl FnOnce(&mut AnnotationSets) -> &mut Object) {
    // An error means that there is no audit log.
    let _ = ANNOTATIONS.try_with(|annotations| {
        let mut annotations = annotations.0.lock();
        let annotations = into(&mut annotations);
        if !annotations.contains_key(key) {
            annotations.insert(key, value);
        }
    });
}

/// Facts about a request.
struct Trail {
    audit: Arc<Audit>,
    clock: Clock,
    path: String,
    verb: String,
    target: Option<Target>,
    received: String,
    /// The constant part of the event.
    event: Object,
    /// Known once the user is.
    decision: Option<Decision>,
    user: Option<User>,
    impersonated: Option<User>,
    sent: Option<RequestBody>,
    /// The request's object, once it is read.
    object: Option<Value>,
    annotations: Annotations,
    /// Whether the end is reported separately.
    is_long_running: bool,
    /// Whether the last event was written.
    is_reported: bool,
}

/// The body of a request.
#[derive(Clone)]
struct RequestBody {
    media: String,
    kind: String,
    body: Bytes,
}

impl RequestBody {
    /// Parses the body with the reader that also handles the request: another reader could yield another
    /// result.
    fn read(&self) -> Option<Value> {
        match self.media.as_str() {
            "application/apply-patch+yaml" => payload::read_as("application/yaml", &self.body, &self.kind),
            media if media.ends_with("+json") => return json::parse(&self.body).ok(),
            media => payload::read_as(media, &self.body, &self.kind),
        }
        .ok()
        .map(|payload| payload.value)
    }
}

/// Writes an event for a client that disconnects before the response: the requested change may have been made.
impl Drop for Trail {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        let mut status = Object::new();
        status.insert("status", "Failure");
        status.insert("message", "the client went away before it was answered; the request may have been carried out");
        let ended = RequestResult { code: 500, status: Some(status), ..RequestResult::default() };
        self.object = self.sent.take().and_then(|sent| sent.read());
        if let Some(line) = self.line(Stage::ResponseComplete, Some(&ended)) {
            self.audit.log.write_later(line);
        }
    }
}

/// Handles a request with its trail; gives back the result and what became of the trail. Without an audit log nothing is kept.
pub(crate) async fn follow<T>(
    audit: Option<&Arc<Audit>>,
    clock: &Clock,
    parts: &http::request::Parts,
    verb: &str,
    target: Option<&Target>,
    work: Pin<&mut impl Future<Output = T>>,
) -> (T, Option<HandledTrail>) {
    let Some(audit) = audit else { return (work.await, None) };
    let trail = Trail::new(audit, clock, parts, verb, target);
    let annotations = trail.annotations.clone();
    TRAIL
        .scope(RefCell::new(Some(trail)), async {
            let result = annotations.collect(work).await;
            (result, TRAIL.with(RefCell::take).map(HandledTrail))
        })
        .await
}

/// Records the authenticated user, by which the policy decides what is written.
pub(crate) async fn authenticated(user: &User) {
    let received = TRAIL.try_with(|trail| {
        let mut trail = trail.borrow_mut();
        let trail = trail.as_mut()?;
        trail.decision = Some(trail.audit.policy.decide(user, &trail.verb, &trail.path, trail.target.as_ref()));
        trail.user = Some(user.clone());
        let line = trail.line(Stage::RequestReceived, None)?;
        Some((trail.audit.clone(), line))
    });
    if let Ok(Some((audit, line))) = received {
        audit.log.write(line).await;
    }
}

/// The user acts as another.
pub(crate) fn impersonated(user: &User) {
    let _ = TRAIL.try_with(|trail| {
        if let Some(trail) = trail.borrow_mut().as_mut() {
            trail.impersonated = Some(user.clone());
        }
    });
}

/// Records the body of a request for a kind.
pub(crate) fn received(headers: &HeaderMap, body: &Bytes, kind: &str) {
    let _ = TRAIL.try_with(|trail| {
        if let Some(trail) = trail.borrow_mut().as_mut()
            && trail.decision.as_ref().is_some_and(|decision| decision.level >= Level::Metadata)
            && !body.is_empty()
        {
            let media = payload::media_type(headers).to_owned();
            trail.sent = Some(RequestBody { media, kind: kind.to_owned(), body: body.clone() });
        }
    });
}

/// A watch that lasts: it is over when what is given back is dropped.
pub(crate) fn long_running() -> Option<Completion> {
    TRAIL
        .try_with(|trail| {
            let mut trail = trail.borrow_mut();
            let trail = trail.as_mut()?;
            trail.is_long_running = true;
            let line =
                trail.line(Stage::ResponseComplete, Some(&RequestResult { code: 200, ..RequestResult::default() }))?;
            Some(Completion { audit: trail.audit.clone(), clock: trail.clock.clone(), line })
        })
        .ok()
        .flatten()
}

/// Writes the end of a watch to the log.
pub(crate) struct Completion {
    audit: Arc<Audit>,
    clock: Clock,
    line: String,
}

impl Drop for Completion {
    fn drop(&mut self) {
        // The time is that of the end.
        let mut event = json::parse(self.line.as_bytes()).unwrap_or_default();
        if let Some(fields) = event.as_object_mut() {
            fields.insert("stageTimestamp", self.clock.now().to_micro_string());
        }
        self.audit.log.write_later(format!("{}\n", json::to_string(&event)));
    }
}

/// The audit trail of a request that has been handled, to which the result is added.
pub(crate) struct HandledTrail(Trail);

/// Result of a request.
#[derive(Debug, Default)]
struct RequestResult {
    code: u16,
    /// The `Status` of a refusal.
    status: Option<Object>,
    answer: Option<Value>,
    decision: Option<authorization::Decision>,
}

impl HandledTrail {
    /// Writes the result of the request. `decide` returns whether the user is authorized.
    pub(crate) async fn answered(
        mut self,
        answer: &mut Answer,
        threads: &Threads,
        decide: impl FnOnce(&User, authorization::Request<'_>) -> authorization::Decision,
    ) {
        let trail = &mut self.0;
        let is_known = trail.decision.is_some();
        if !is_known {
            // Without a user, the policy decides about one with an empty name.
            let nobody = User::default();
            let decision = trail.audit.policy.decide(&nobody, &trail.verb, &trail.path, trail.target.as_ref());
            trail.decision = Some(decision);
        }
        let level = trail.decision.as_ref().map_or(Level::None, |decision| decision.level);
        if level == Level::None {
            trail.is_reported = true;
            return;
        }
        let user = trail.impersonated.as_ref().or(trail.user.as_ref());
        let decision = user.map(|user| {
            let asked = match &trail.target {
                Some(target) => authorization::Request::Resource { verb: &trail.verb, target },
                None => authorization::Request::Path { verb: &trail.verb, path: &trail.path },
            };
            decide(user, asked)
        });
        trail.object = match trail.sent.take() {
            Some(sent) if sent.body.len() > LONG => threads.run(move || sent.read()).await.flatten(),
            sent => sent.and_then(|sent| sent.read()),
        };
        let wants_answer = level == Level::RequestResponse || answer.code >= 400;
        let body = if wants_answer { whole(answer, threads).await } else { None };
        let document = body.and_then(|body| json::parse(&body).ok());
        let is_status = document.as_ref().is_some_and(|it| it.str_at(&["kind"]) == Some("Status"));
        let status = document.as_ref().filter(|_| is_status).and_then(Value::as_object).cloned();
        let ended = RequestResult { code: answer.code, status, answer: document, decision };
        // Kubernetes: an unauthenticated request gets no further than this stage.
        let stage = match (is_known, trail.is_long_running) {
            (true, false) => Stage::ResponseComplete,
            _ => Stage::ResponseStarted,
        };
        if let Some(line) = trail.line(stage, Some(&ended)) {
            trail.audit.log.write(line).await;
        }
        trail.is_reported = true;
    }
}

/// All bytes of an answer.
async fn whole(answer: &mut Answer, threads: &Threads) -> Option<Bytes> {
    if !answer.body.is_long() {
        return answer.body.whole();
    }
    let mut body = std::mem::replace(&mut answer.body, Body::empty());
    let held = body.take_held();
    let (back, bytes) = threads
        .run(move || {
            let bytes = body.whole();
            (body, bytes)
        })
        .await?;
    answer.body = back;
    held.into_iter().for_each(|held| answer.body.hold(held));
    bytes
}

impl Trail {
    fn new(
        audit: &Arc<Audit>,
        clock: &Clock,
        parts: &http::request::Parts,
        verb: &str,
        target: Option<&Target>,
    ) -> Self {
        let text = |name: http::HeaderName| {
            parts
                .headers
                .get(name)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .unwrap_or_default()
        };
        let mut event = Object::new();
        event.insert("auditID", text(AUDIT_ID));
        event.insert("requestURI", parts.uri.path_and_query().map_or("/", |it| it.as_str()));
        event.insert("verb", verb);
        let mut agent = text(USER_AGENT);
        if agent.len() > USER_AGENT_BYTES_MAX {
            agent = format!("{}...TRUNCATED", agent.chars().take(USER_AGENT_BYTES_MAX).collect::<String>());
        }
        if let Some(Peer(address)) = parts.extensions.get() {
            event.insert("sourceIPs", vec![Value::from(address.to_string())]);
        }
        if !agent.is_empty() {
            event.insert("userAgent", agent);
        }
        Self {
            audit: audit.clone(),
            clock: clock.clone(),
            path: parts.uri.path().to_owned(),
            verb: verb.to_owned(),
            target: target.cloned(),
            received: clock.now().to_micro_string(),
            event,
            decision: None,
            user: None,
            impersonated: None,
            sent: None,
            object: None,
            annotations: Annotations::default(),
            is_long_running: false,
            is_reported: false,
        }
    }

    /// Returns the event of a stage as a line; `None` if the policy omits it.
    fn line(&self, stage: Stage, ended: Option<&RequestResult>) -> Option<String> {
        let decision = self.decision.as_ref()?;
        if decision.level == Level::None || decision.omit_stages.contains(&stage) {
            return None;
        }
        let common = |name: &str| self.event.get(name).cloned();
        let mut event = Object::new();
        event.insert("kind", "Event");
        event.insert("apiVersion", "audit.k8s.io/v1");
        event.insert("level", decision.level.name());
        event.insert("auditID", common("auditID").unwrap_or_default());
        event.insert("stage", stage.name());
        for name in ["requestURI", "verb"] {
            event.insert(name, common(name).unwrap_or_default());
        }
        event.insert("user", self.user.as_ref().map_or_else(Value::object, shown_user));
        if let Some(user) = &self.impersonated {
            event.insert("impersonatedUser", shown_user(user));
        }
        for name in ["sourceIPs", "userAgent"] {
            if let Some(value) = common(name) {
                event.insert(name, value);
            }
        }
        if let Some(target) = &self.target {
            event.insert("objectRef", self.object_reference(target, ended.is_some()));
        }
        if let Some(ended) = ended {
            self.add_end(&mut event, decision, ended);
        }
        event.insert("requestReceivedTimestamp", self.received.as_str());
        event.insert("stageTimestamp", self.clock.now().to_micro_string());
        let mut annotations = self.annotations(decision.level);
        if let Some(authorized) = ended.and_then(|ended| ended.decision.as_ref()) {
            let decision = if authorized.allowed { "allow" } else { "forbid" };
            annotations.insert("authorization.k8s.io/decision", decision);
            annotations.insert("authorization.k8s.io/reason", authorized.reason.as_str());
        }
        if !annotations.is_empty() {
            annotations.sort();
            event.insert("annotations", annotations);
        }
        let mut line = json::to_string(&Value::Object(event));
        line.push('\n');
        Some(line)
    }

    /// The annotations of an event of a level.
    fn annotations(&self, level: Level) -> Object {
        let collected = self.annotations.0.lock();
        let mut annotations = collected.plain.clone();
        if matches!(level, Level::Request | Level::RequestResponse) {
            for (key, value) in collected.contents.iter() {
                annotations.insert(key, value.clone());
            }
        }
        annotations
    }

    fn add_end(&self, event: &mut Object, decision: &Decision, ended: &RequestResult) {
        let mut status = Object::new();
        status.insert("metadata", Object::new());
        for name in ["status", "message", "reason", "details"] {
            if let Some(value) = ended.status.as_ref().and_then(|status| status.get(name)) {
                status.insert(name, value.clone());
            }
        }
        status.insert("code", i64::from(ended.code));
        event.insert("responseStatus", status);
        if decision.level >= Level::Request
            && let Some(mut object) = self.object.clone()
        {
            strip(&mut object, decision);
            event.insert("requestObject", object);
        }
        if decision.level == Level::RequestResponse
            && let Some(object) = &ended.answer
        {
            let mut object = object.clone();
            strip(&mut object, decision);
            event.insert("responseObject", object);
        }
    }

    fn object_reference(&self, target: &Target, with_body: bool) -> Object {
        let from_body = |field: &str| {
            let object = self.object.as_ref().filter(|_| with_body)?;
            object.str_at(&["metadata", field]).map(ToOwned::to_owned)
        };
        let or_body = |text: &str, field: &str| {
            if text.is_empty() { from_body(field).unwrap_or_default() } else { text.to_owned() }
        };
        let namespace = if target.resource == "namespaces" && target.namespace.is_empty() {
            target.name.clone()
        } else {
            target.namespace.clone()
        };
        let mut reference = Object::new();
        for (name, value) in [
            ("resource", target.resource.clone()),
            ("namespace", namespace),
            ("name", or_body(&target.name, "name")),
            ("uid", from_body("uid").unwrap_or_default()),
            ("apiGroup", target.group.clone()),
            ("apiVersion", target.version.clone()),
            ("resourceVersion", from_body("resourceVersion").unwrap_or_default()),
            ("subresource", target.subresource.clone()),
        ] {
            if !value.is_empty() {
                reference.insert(name, value);
            }
        }
        reference
    }
}

fn shown_user(user: &User) -> Value {
    let texts = |list: &[String]| Value::Array(list.iter().map(|it| it.as_str().into()).collect());
    let mut shown = Object::new();
    if !user.name.is_empty() {
        shown.insert("username", user.name.as_str());
    }
    if !user.uid.is_empty() {
        shown.insert("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        shown.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let mut extra = Object::new();
        for (key, values) in &user.extra {
            extra.insert(key.as_str(), texts(values));
        }
        shown.insert("extra", extra);
    }
    Value::Object(shown)
}

/// Removes `managedFields` from objects and lists if the policy requires it.
fn strip(object: &mut Value, decision: &Decision) {
    if !decision.omit_managed_fields {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
}
