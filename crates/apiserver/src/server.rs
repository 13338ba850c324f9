//! The server: what a request passes through, from authentication to the answer.
//!
//! [`Server::handle`] is the whole way of one request and needs no network; [`listen`] puts TLS and connections in
//! front of it.

mod aggregated;
mod backup;
mod connections;
mod labels;
mod life;
mod linger;
pub mod listen;
mod non_resource_paths;
mod openid;
mod outgoing;
mod resource_metrics;
mod routes;
mod routing;
mod unread;
mod write_timeout;

pub use crate::outbound::forward::Stream;
pub use crate::state::{
    ConnectFuture, ContainerUsage, Failures, Faults, FollowFuture, Kubelets, Logs, LogsFailure, Options, Refusal,
    Server, StreamFailure, Streams, Usage,
};
pub(crate) use labels::verb_name;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use api::features::Gate;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tracing::debug;

use crate::audit;
use crate::authorization::{self, impersonation};
use crate::custom::rows::Row;
use crate::flow_control;
use crate::identity::{SPACED_TOKEN, User, has_spaced_token};
use crate::metrics::{CountedRequest, Labels};
use crate::resources::{self, Resource};
use crate::verbs::{self, Call};
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::compression::compress;
use crate::wire::request::{Query, Route, Target, Verb, route};
use crate::wire::status::{Failure, Result};
use crate::wire::{cbor, deadline, negotiation, warnings};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, wherever it comes from. Futures that leave this crate are boxed, too: the way of a request would
/// be compiled once more in every crate that awaits one, and for every kind of body.
type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Response headers naming the flow schema and priority level; client-go disables its own rate limit when it
/// sees them.
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// A request that is being handled.
struct Seat {
    _seat: flow_control::Seat,
    _counted: CountedRequest,
}

/// A parsed request.
struct ParsedRequest<'a> {
    query: &'a Query,
    target: Option<&'a Target>,
    labels: &'a Labels<'a>,
}

/// A request as flow control sees it.
struct Flow<'a> {
    asked: flow_control::Request<'a>,
    schema: Option<&'a Arc<flow_control::Schema>>,
    query: &'a Query,
    labels: &'a Labels<'a>,
    writes: bool,
}

impl Server {
    /// Handles one request. `certificate` is the user that the connection's certificate names.
    pub fn handle<'a, B>(
        self: &'a Arc<Self>,
        request: Request<B>,
        certificate: Option<&'a User>,
    ) -> BoxFuture<'a, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        self.answer(request.map(|body| body.map_err(std::io::Error::other).boxed_unsync()), certificate)
    }

    fn answer<'a>(
        self: &'a Arc<Self>,
        request: Request<RequestBody>,
        certificate: Option<&'a User>,
    ) -> BoxFuture<'a, Response<Body>> {
        Box::pin(self.handle_any(request, certificate))
    }

    async fn handle_any(self: &Arc<Self>, request: Request<RequestBody>, certificate: Option<&User>) -> Response<Body> {
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        let wants_cbor = self.options.features.enabled(Gate::CBORServingAndStorage) && cbor::enter(&mut parts);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let target = match route(&parts.method, parts.uri.path(), &query) {
            Route::Resource(target) => Some(target),
            Route::Other => None,
        };
        let labels = self.labels_of(&parts.method, target.as_deref());
        let verb = verb_name(&parts.method, target.as_deref());
        // The audit ID of a request, which the client may set.
        let audit_id = parts.headers.get(audit::AUDIT_ID).cloned().unwrap_or_else(new_audit_id);
        // Aggregated API servers receive it, too.
        if self.options.audit.is_some() || self.options.logs_requests || parts.uri.path().starts_with("/apis/") {
            parts.headers.insert(audit::AUDIT_ID, audit_id.clone());
        }
        let mut known = RequestFacts::default();
        let asked = ParsedRequest { query: &query, target: target.as_deref(), labels: &labels };
        let (answer, followed) = {
            // Pinned here, because a future that is passed on by value is copied into each awaiting future.
            let work = pin!(self.limited(&parts, body, &asked, certificate, &mut known));
            audit::follow(self.options.audit.as_ref(), self.clock(), &parts, &verb, target.as_deref(), work).await
        };
        let mut answer = answer.unwrap_or_else(Answer::from);
        if let Some(followed) = followed {
            let decide = |user: &User, asked: authorization::Request<'_>| self.authorizer.decide(user, asked);
            Box::pin(followed.answered(&mut answer, self.threads(), decide)).await;
        }
        if self.options.logs_requests {
            labels::log_request(&parts, &verb, answer.code, started.elapsed());
        }
        let is_plain = negotiation::is_plain(&parts.headers);
        let wants_protobuf = !is_plain && negotiation::wants_protobuf(&parts.headers, answer.code);
        let is_api = parts.uri.path().starts_with("/api");
        let wants_yaml = is_api && !is_plain && negotiation::wants_yaml(&parts.headers);
        let wants_pretty = is_api && negotiation::wants_pretty(&parts.headers, &query);
        if wants_protobuf || wants_cbor || wants_yaml || wants_pretty {
            let convert = move |mut answer: Answer| {
                if wants_protobuf {
                    answer = answer.into_protobuf();
                }
                if wants_cbor {
                    answer = cbor::leave(answer);
                }
                if wants_yaml {
                    answer = answer.into_yaml();
                }
                if wants_pretty {
                    answer = answer.into_pretty();
                }
                answer
            };
            answer = if answer.body.is_long() && answer.content_type == "application/json" {
                let failed = || Failure::new(500, "InternalError", "the answer could not be made").into();
                let held = answer.body.take_held();
                let mut answer: Answer = self.threads().run(move || convert(answer)).await.unwrap_or_else(failed);
                held.into_iter().for_each(|held| answer.body.hold(held));
                answer
            } else {
                convert(answer)
            };
        }
        self.metrics.answered(&labels, answer.code, started.elapsed());
        let is_head = parts.method == http::Method::HEAD;
        let mut response = answer.into_response();
        response.headers_mut().insert(audit::AUDIT_ID, audit_id);
        if is_head {
            *response.body_mut() = Body::empty();
        }
        if let Some(schema) = &known.schema {
            response.headers_mut().insert(FLOW_SCHEMA_UID, schema.uid.clone());
            response.headers_mut().insert(PRIORITY_LEVEL_UID, schema.level_uid.clone());
        }
        let mut response = compress(&parts.headers, response);
        if response.body().own_bytes() > outgoing::COUNTED_BYTES_MIN
            && let Err(refused) =
                Box::pin(self.count(&mut response, &parts, known.user.as_deref().unwrap_or_default())).await
        {
            self.metrics.refused(&labels);
            response = refused.into_response();
        }
        if matches!(response.body(), Body::Listing(_))
            && let Body::Listing(listing) = std::mem::replace(response.body_mut(), Body::empty())
        {
            *response.body_mut() = Body::Listed(self.makers.start(*listing));
        }
        response
    }

    async fn limited(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        body: RequestBody,
        asked: &ParsedRequest<'_>,
        certificate: Option<&User>,
        known: &mut RequestFacts,
    ) -> Result<Answer> {
        let ParsedRequest { query, target, labels } = *asked;
        let mut user = self.authenticate(&parts.headers, certificate).await?;
        audit::authenticated(&user).await;
        if let Some(connection) = parts.extensions.get::<Arc<connections::TrackedConnection>>()
            && !connection.identify(&user, Instant::now())
        {
            self.metrics.refused(labels);
            return Ok(too_many_requests().with_header(http::header::CONNECTION, "close"));
        }
        if let Some(wanted) = impersonation::wanted(&parts.headers)? {
            user = Cow::Owned(Box::pin(self.impersonate(parts, target, &user, &wanted)).await?);
            audit::impersonated(&user);
        }
        let verb = flow_control::verb_of(target.and_then(|target| target.verb), &parts.method);
        let asked = flow_control::Request { user: &user, verb: &verb, target, path: parts.uri.path() };
        known.user = Some(user.name.as_str().into());
        known.schema = self.flow.classify(&asked);
        let writes = !matches!(parts.method, http::Method::GET | http::Method::HEAD | http::Method::OPTIONS);
        let flow = Flow { asked, schema: known.schema.as_ref(), query, labels, writes };
        let work = pin!(self.routed(parts, body, &flow));
        let requested = deadline::requested(query)?.filter(|it| *it < self.options.request_timeout);
        let limit = requested.unwrap_or(self.options.request_timeout);
        match deadline::within(limit, warnings::collect(work)).await {
            Some((result, mut warnings)) => {
                if certificate.is_none() && has_spaced_token(&parts.headers) {
                    warnings.insert(0, SPACED_TOKEN.to_owned());
                }
                if let Err(failure) = &result {
                    self.refusals.add(&user, target, failure);
                }
                Ok(result.unwrap_or_else(Answer::from).with_warnings(warnings))
            }
            None if requested.is_some() => {
                let message = "Timeout: request did not complete within the allotted timeout";
                let mut failure = Failure::new(504, "Timeout", message).with_no_details();
                // Kubernetes sends this one without kind and version.
                failure.is_typed = false;
                Err(failure)
            }
            None => {
                let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
                Err(Failure::new(504, "Timeout", message).with_no_details())
            }
        }
    }

    /// Waits for a seat among the concurrent requests, held until it is dropped; returns the rejection if none
    /// becomes free. It is taken last: a client without permission, or with a slow upload, does not hold one.
    async fn seat(&self, flow: &Flow<'_>, resource: Option<&Resource<'_>>) -> std::result::Result<Seat, Answer> {
        let size = |_: &Target| resource.map(|it| self.cache.resource(&it.prefix()).size()).unwrap_or_default();
        let seat = match flow.schema {
            Some(schema) => self.flow.seat(schema, &flow.asked, flow.query, size).await,
            None => None,
        };
        match seat {
            Some(seat) => Ok(Seat { _seat: seat, _counted: self.metrics.in_flight(flow.writes) }),
            None => {
                self.metrics.refused(flow.labels);
                Err(too_many_requests())
            }
        }
    }

    async fn authenticate<'a>(
        &self,
        headers: &http::HeaderMap,
        certificate: Option<&'a User>,
    ) -> Result<Cow<'a, User>> {
        let mut user = self.authenticator.authenticate(headers, certificate);
        if user.as_ref().is_err_and(|refused| refused.by_objects) {
            // The account may have been made a moment ago, through another server.
            Box::pin(self.catch_up()).await;
            user = self.authenticator.authenticate(headers, certificate);
        }
        user.map_err(|refused| {
            debug!(err = refused.message, "Unable to authenticate the request");
            Failure::unauthorized()
        })
    }

    async fn impersonate(
        &self,
        parts: &http::request::Parts,
        target: Option<&Target>,
        user: &User,
        wanted: &User,
    ) -> Result<User> {
        let verb = verb_name(&parts.method, target);
        let asked = match target {
            Some(target) => authorization::Request::Resource { verb: &verb, target },
            None => authorization::Request::Path { verb: &verb, path: parts.uri.path() },
        };
        if let Ok(user) = impersonation::impersonate(&self.authorizer, &self.impersonation, user, wanted, asked) {
            return Ok(user);
        }
        self.catch_up().await;
        impersonation::impersonate(&self.authorizer, &self.impersonation, user, wanted, asked)
    }

    async fn routed(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        body: RequestBody,
        flow: &Flow<'_>,
    ) -> Result<Answer> {
        let (query, user) = (flow.query, flow.asked.user);
        let Some(target) = flow.asked.target else {
            // In the heap, as all that few requests need: the future of a request is copied when it is boxed, whole.
            if let Some(remote) = self.find_aggregated_path(parts.uri.path()) {
                return Box::pin(self.forward(parts, body, flow, &remote)).await;
            }
            let _seat = match self.seat(flow, None).await {
                Ok(seat) => seat,
                Err(refused) => return Ok(refused),
            };
            if ["/apis", "/openapi"].iter().any(|it| parts.uri.path().starts_with(it)) {
                self.wait_for_definitions().await?;
            }
            return Box::pin(routes::answer(self, parts, query, user)).await;
        };
        let verb_name = verb_name(&parts.method, Some(target));
        let asked = authorization::Request::Resource { verb: &verb_name, target };
        if self.authorizer.authorize(user, asked).is_err() {
            // The right may have been granted a moment ago.
            Box::pin(self.catch_up()).await;
            self.authorizer.authorize(user, asked)?;
        }
        if let Some(failure) = self.options.faults.as_ref().and_then(|faults| faults.take(&verb_name, target)) {
            return Err(failure);
        }
        let row = match self.find_built_in(target) {
            Some(row) => Some(Row::BuiltIn(row)),
            None => {
                if let Some(remote) = self.aggregator.find(&target.group, &target.version) {
                    return Box::pin(self.forward(parts, body, flow, &remote)).await;
                }
                Box::pin(self.find_custom(target)).await?.map(Row::Custom)
            }
        };
        let Some(row) = row else {
            let config = &self.options.runtime_config;
            let mut versions = resources::groups().iter().filter(|(group, _)| *group == target.group);
            let is_served = versions.any(|(group, versions)| {
                group.is_empty() || versions.iter().any(|version| config.has_version(group, version))
            });
            return if is_served { Err(Failure::no_resource()) } else { Ok(not_found()) };
        };
        let custom = row.custom();
        // What is held while a request waits is kept small.
        let of_custom = custom.map(|custom| Box::new(custom.row()));
        let resource = row.built_in().or(of_custom.as_deref());
        let Some(resource) = resource else { return Err(Failure::no_resource()) };
        let is_misplaced = !resource.namespaced && !target.namespace.is_empty() && target.resource != "namespaces";
        let spans_namespaces = matches!(target.verb, Some(Verb::List | Verb::Watch));
        let is_outside = resource.namespaced && target.namespace.is_empty() && !spans_namespaces;
        if custom.is_some() && (is_misplaced || is_outside) {
            return Ok(not_found());
        }
        // No path leads to an object of a namespace from outside of it.
        let is_misplaced = is_misplaced || (is_outside && !target.name.is_empty());
        if target.name.contains('/') || is_misplaced {
            return Err(Failure::no_resource());
        }
        let Some(verb) = target.verb else { return Err(Failure::method_not_allowed()) };
        let has_part = |name: &str| name.is_empty() || resource.subresources.iter().any(|it| it.name == name);
        if resource.verbs.contains(&verb.name()) && has_part(&target.subresource) {
            warn_of_deprecation(resource, target);
        }
        let accepted = match &custom {
            Some(_) => negotiation::negotiate_without_protobuf(&parts.headers),
            // Whatever the other server answers is passed on.
            None if target.first_subresource() == "proxy" => negotiation::negotiate(&http::HeaderMap::new()),
            None if verbs::has_table(target) => negotiation::negotiate(&parts.headers),
            None => negotiation::negotiate_without_tables(&parts.headers),
        };
        let accepted = match accepted {
            Err(failure) if verb == Verb::Watch => return Err(negotiation::of_watch(failure)),
            accepted => accepted?,
        };
        let body = cbor::read(parts, read_body(body, self.options.body_bytes_max).await?, resource.kind)?;
        let headers = &parts.headers;
        audit::received(headers, &body, resource.kind);
        let deprecation = custom.and_then(|custom| custom.deprecation.clone());
        let seat = match self.seat(flow, Some(resource)).await {
            // Requests that another server answers would keep the seats of others for as long as that server likes.
            Ok(seat) => Some(seat).filter(|_| !is_answered_elsewhere(target)),
            Err(refused) => return Ok(refused),
        };
        let upgrade = parts.extensions.get::<hyper::upgrade::OnUpgrade>().cloned();
        let call = Call {
            server: self,
            target,
            row: &row,
            resource,
            query,
            headers,
            user,
            body,
            accepted,
            upgrade,
            parts: Some(parts),
        };
        let is_heavy = call.is_heavy(verb, flow.writes);
        // In the heap: the verbs hold a lot, and what is around them would hold it once more each.
        let mut answer =
            if is_heavy { Box::pin(self.run_heavy(&call, verb)).await } else { Box::pin(call.run(verb)).await };
        if let (Ok(Answer { body: Body::Listing(listing), .. }), Some(seat)) = (&mut answer, seat) {
            listing.hold(Box::new(seat));
        }
        match deprecation {
            Some(warning) => Ok(answer.unwrap_or_else(Answer::from).with_warnings(vec![warning])),
            None => answer,
        }
    }

    /// Runs a request on one of the threads for long work.
    async fn run_heavy(self: &Arc<Self>, call: &Call<'_>, verb: Verb) -> Result<Answer> {
        let (server, row) = (self.clone(), call.row.clone());
        let (target, query, headers) = (call.target.clone(), call.query.clone(), call.headers.clone());
        let (user, body, accepted) = (call.user.clone(), call.body.clone(), call.accepted.clone());
        let (upgrade, parts) = (call.upgrade.clone(), call.parts.cloned());
        let annotations = audit::Annotations::current();
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let (server, target, query, headers, user) = (&server, &target, &query, &headers, &user);
            let (row, resource) = (&row, &row.resource());
            let parts = parts.as_ref();
            let call = Call { server, target, row, resource, query, headers, user, body, accepted, upgrade, parts };
            let work = annotations.collect(call.run(verb));
            runtime.block_on(warnings::collect(pin!(work)))
        };
        let failed = || Failure::new(500, "InternalError", "the request could not be handled");
        let (answer, warnings) = self.threads().run(work).await.ok_or_else(failed)?;
        warnings::add(warnings);
        answer
    }
}

/// Facts about a request that are collected while it is handled.
#[derive(Default)]
struct RequestFacts {
    schema: Option<Arc<flow_control::Schema>>,
    user: Option<Box<str>>,
}

/// Warns the client of a deprecated version, and notes it in the audit event.
fn warn_of_deprecation(resource: &Resource<'_>, target: &Target) {
    let Some(deprecation) = resource.deprecation(&target.version) else { return };
    audit::annotate("k8s.io/deprecated", "true");
    if let Some((_, release)) = deprecation.split_once("unavailable in v") {
        audit::annotate("k8s.io/removed-release", release.trim_end_matches('+'));
    }
    warnings::add([deprecation]);
}

#[expect(clippy::expect_used, reason = "the text is digits and hyphens")]
fn new_audit_id() -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(crate::random::uid_text())).expect("a valid header value")
}

/// Whether a subresource connects the client with a pod, a node agent or a server behind a Service.
fn is_answered_elsewhere(target: &Target) -> bool {
    matches!(target.first_subresource(), "attach" | "exec" | "portforward" | "proxy")
}

/// The response if there is no seat.
fn too_many_requests() -> Answer {
    let text = "Too many requests, please try again later.\n";
    Answer::text(429, text).with_header(http::header::RETRY_AFTER, "1")
}

/// Paths that lead nowhere get no `Status`.
fn not_found() -> Answer {
    Answer::text(404, "404 page not found\n")
}

async fn read_body(body: RequestBody, max: usize) -> Result<Bytes> {
    let too_large = || {
        let message = format!("Request entity too large: limit is {max}");
        Err(Failure::new(413, "RequestEntityTooLarge", message))
    };
    // A body that is announced as too large is not read.
    if body.size_hint().lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return too_large();
    }
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => too_large(),
        Err(error) => Err(Failure::bad_request(format!("the body cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests;
