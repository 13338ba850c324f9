//! The server: what a request passes through, from authentication to the answer.
//!
//! [`Server::handle`] is the whole way of one request and needs no network; [`listen`] puts TLS and connections in
//! front of it.

mod backup;
mod components;
mod connections;
mod kubelets;
mod labels;
mod linger;
pub mod listen;
mod non_resource_paths;
mod openid;
mod options;
mod refusals;
mod routing;
mod unread;
mod write_timeout;

pub use components::Failures;
pub use kubelets::{Kubelets, Logs, LogsFailure};
pub(crate) use labels::verb_name;
pub use options::Options;

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api::features::Gate;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use store::Store;
use tokio::sync::watch;
use tracing::debug;

use crate::audit;
use crate::authorization::{self, Authorizer};
use crate::custom::rows::Row;
use crate::custom::{self, Customs};
use crate::flow_control::{self, FlowControl};
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::cbor;
use crate::http::compression::compress;
use crate::http::heavy::Threads;
use crate::http::listing::Makers;
use crate::http::negotiation;
use crate::http::request::{Query, Route, Target, Verb, route};
use crate::http::status::{Failure, Result};
use crate::http::warnings;
use crate::identity::keys::KeyRing;
use crate::identity::service_accounts::ServiceAccounts;
use crate::identity::{Authenticator, SPACED_TOKEN, User, has_spaced_token, impersonation};
use crate::metrics::{Counted, Labels, Metrics};
use crate::objects::strategy::Meaning;
use crate::resources::{self, Resource};
use crate::serving::api_services;
use crate::serving::bootstrap;
use crate::serving::openapi::OpenApi;
use crate::storage::cache::Cache;
use crate::storage::{compaction, events, health};
use crate::verbs::watch::memory::Memory;
use crate::verbs::{self, Call};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, wherever it comes from. Futures that leave this crate are boxed, too: the way of a request would
/// be compiled once more in every crate that awaits one, and for every kind of body.
type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// What starting a server gives.
type Started = std::result::Result<Arc<Server>, store::Error>;

/// By which schema and at which level a request was handled: who sees these does not hold back by itself.
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// How long a refusal waits for the store.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The API server.
pub struct Server {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) authorizer: Authorizer,
    pub(crate) meaning: Meaning,
    pub(crate) customs: Arc<Customs>,
    pub(crate) metrics: Metrics,
    pub(crate) components: components::Components,
    pub(crate) options: Options,
    pub(crate) authenticator: Authenticator,
    impersonation: impersonation::Memory,
    refusals: refusals::Refusals,
    openapi: OnceLock<OpenApi>,
    flow: Arc<FlowControl>,
    makers: Makers,
    pub(crate) watch_memory: Arc<Memory>,
    kubelets: OnceLock<Arc<dyn Kubelets>>,
    stopping: watch::Sender<bool>,
}

/// A request that is being handled.
struct Seat {
    _seat: flow_control::Seat,
    _counted: Counted,
}

/// What a request is about.
struct Asked<'a> {
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

/// Tells when the server stops.
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits for that.
    pub(crate) async fn stopped(&mut self) {
        // An error means that the server is gone.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

impl Server {
    /// Starts a server on a store: fills the cache, and makes what every cluster has. Service account tokens are signed
    /// with a key that nobody else knows.
    ///
    /// # Errors
    /// Those of the store.
    pub fn start(store: Arc<dyn Store>, options: Options) -> BoxFuture<'static, Started> {
        Box::pin(async move {
            let keys = KeyRing::generate().map_err(|error| store::Error::Unavailable(store::Cause::new(error)))?;
            Self::start_with(store, options, keys).await
        })
    }

    /// As [`Server::start`], with these keys for service account tokens.
    ///
    /// # Errors
    /// Those of the store.
    pub fn start_with_keys(store: Arc<dyn Store>, options: Options, keys: KeyRing) -> BoxFuture<'static, Started> {
        Box::pin(Self::start_with(store, options, keys))
    }

    async fn start_with(store: Arc<dyn Store>, options: Options, keys: KeyRing) -> Started {
        let opened = store.current_revision().await?;
        bootstrap::create(&*store, options.service_addresses, options.node_fleet, &options.runtime_config).await?;
        let cache = Cache::start(store.clone(), opened, options.watch_history_bytes_max).await?;
        let stopping = watch::channel(false).0;
        if let Some(interval) = options.compaction_interval {
            tokio::spawn(compaction::run(store.clone(), interval, Stopping(stopping.subscribe())));
        }
        tokio::spawn(health::run(store.clone(), Stopping(stopping.subscribe())));
        tokio::spawn(events::bound(store.clone(), options.event_bytes_max, Stopping(stopping.subscribe())));
        let accounts = ServiceAccounts::new(cache.clone(), &options.issuer, &options.audiences, keys);
        let customs = Arc::new(Customs::new());
        let allows_expressions = options.features.enabled(Gate::CRDAdditionalPrinterColumnCEL);
        let controller = custom::Controller::new(store.clone(), cache.clone(), &customs, allows_expressions);
        custom::run(controller, Stopping(stopping.subscribe())).await;
        let metrics = Metrics::new(options.features);
        let counted = store.clone();
        metrics.registry().computed(
            "apiserver_storage_durable_commits",
            "[ALPHA] How often the store of this process made writes durable since its start: one wait for the disk each.",
            &[],
            #[expect(clippy::cast_precision_loss, reason = "a count of commits stays far below 2^52")]
            move || vec![(Vec::new(), counted.durable_commits() as f64)],
        );
        let seats = options.reads_max.saturating_add(options.writes_max);
        let flow = Arc::new(FlowControl::new(seats, options.request_timeout, metrics.registry()));
        flow_control::run(&flow, store.clone(), cache.clone(), Stopping(stopping.subscribe())).await;
        let server = Arc::new(Self {
            authorizer: Authorizer::new(&cache),
            impersonation: impersonation::Memory::default(),
            refusals: refusals::Refusals::default(),
            authenticator: Authenticator::new(options.tokens.clone(), accounts),
            meaning: Meaning::new(options.features, cache.clone(), customs.clone()),
            customs,
            metrics,
            flow,
            makers: Makers::new(options.request_timeout),
            watch_memory: Memory::new(options.watch_bytes_max),
            components: components::Components::default(),
            openapi: OnceLock::new(),
            kubelets: OnceLock::new(),
            stopping,
            store,
            cache,
            options,
        });
        api_services::keep(&server);
        Ok(server)
    }

    /// Ends all watches and closes the store.
    ///
    /// # Errors
    /// Those of the last writes.
    pub fn stop(&self) -> BoxFuture<'_, std::result::Result<(), store::Error>> {
        Box::pin(async {
            self.end_watches();
            if let Some(audit) = &self.options.audit {
                audit.flush().await;
            }
            self.store.close().await
        })
    }

    /// Ends all watches.
    pub fn end_watches(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn stopping(&self) -> Stopping {
        Stopping(self.stopping.subscribe())
    }

    /// Names a component that runs beside the server: its metrics are at `/metrics/NAME`, and what is wrong with it makes
    /// the process unready.
    pub fn add_component(&self, name: &'static str, metrics: Arc<telemetry::metrics::Registry>, failures: Failures) {
        self.components.add(name, metrics, failures);
    }

    /// Says how node agents are reached; the first word counts.
    pub fn set_kubelets(&self, kubelets: Arc<dyn Kubelets>) {
        self.kubelets.get_or_init(|| kubelets);
    }

    /// The threads that long work is done on.
    pub(crate) fn threads(&self) -> &Threads {
        self.makers.threads()
    }

    pub(crate) fn kubelets(&self) -> Option<&Arc<dyn Kubelets>> {
        self.kubelets.get()
    }

    /// Replaces the table of tokens; requests that are under way keep their user.
    pub fn set_tokens(&self, tokens: HashMap<String, User>) {
        self.authenticator.set_tokens(tokens);
    }

    /// The keys of service account tokens.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyRing> {
        self.authenticator.service_accounts.keys()
    }

    /// Replaces the keys of service account tokens.
    pub fn set_keys(&self, keys: KeyRing) {
        self.authenticator.service_accounts.set_keys(keys);
    }

    pub(crate) fn openapi(&self) -> &OpenApi {
        self.openapi.get_or_init(|| OpenApi::new(&self.options.runtime_config))
    }

    /// How long objects of a resource are kept.
    pub(crate) fn time_to_live(&self, resource: &Resource<'_>) -> Option<Duration> {
        (resource.plural == "events").then_some(self.options.event_ttl)
    }

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
        // The name of a request: who asks may give one.
        let audit_id = parts.headers.get(audit::AUDIT_ID).cloned().unwrap_or_else(new_audit_id);
        if self.options.audit.is_some() || self.options.logs_requests {
            parts.headers.insert(audit::AUDIT_ID, audit_id.clone());
        }
        let mut schema = None;
        let asked = Asked { query: &query, target: target.as_deref(), labels: &labels };
        let (answer, followed) = {
            // Pinned here, because a future that is handed on is kept once more by each who awaits it.
            let work = pin!(self.limited(&parts, body, &asked, certificate, &mut schema));
            audit::follow(self.options.audit.as_ref(), &parts, &verb, target.as_deref(), work).await
        };
        let mut answer = answer.unwrap_or_else(Answer::from);
        if let Some(followed) = followed {
            let decide = |user: &User, asked: authorization::Request<'_>| self.authorizer.decide(user, asked);
            followed.answered(&mut answer, self.threads(), decide).await;
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
        if let Some(schema) = schema {
            response.headers_mut().insert(FLOW_SCHEMA_UID, schema.uid.clone());
            response.headers_mut().insert(PRIORITY_LEVEL_UID, schema.level_uid.clone());
        }
        let mut response = compress(&parts.headers, response);
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
        asked: &Asked<'_>,
        certificate: Option<&User>,
        schema: &mut Option<Arc<flow_control::Schema>>,
    ) -> Result<Answer> {
        let Asked { query, target, labels } = *asked;
        let mut user = self.authenticate(&parts.headers, certificate).await?;
        audit::authenticated(&user).await;
        if let Some(connection) = parts.extensions.get::<Arc<connections::Tracked>>()
            && !connection.identify(&user, Instant::now())
        {
            self.metrics.refused(labels);
            return Ok(too_many_requests().with_header(http::header::CONNECTION, "close"));
        }
        if let Some(wanted) = impersonation::wanted(&parts.headers)? {
            user = Cow::Owned(self.impersonate(parts, target, &user, &wanted).await?);
            audit::impersonated(&user);
        }
        let verb = flow_control::verb_of(target.and_then(|target| target.verb), &parts.method);
        let asked = flow_control::Request { user: &user, verb: &verb, target, path: parts.uri.path() };
        *schema = self.flow.classify(&asked);
        let writes = !matches!(parts.method, http::Method::GET | http::Method::HEAD | http::Method::OPTIONS);
        let flow = Flow { asked, schema: schema.as_ref(), query, labels, writes };
        let work = pin!(self.routed(parts, body, &flow));
        match tokio::time::timeout(self.options.request_timeout, warnings::collect(work)).await {
            Ok((result, mut warnings)) => {
                if certificate.is_none() && has_spaced_token(&parts.headers) {
                    warnings.insert(0, SPACED_TOKEN.to_owned());
                }
                if let Err(failure) = &result {
                    self.refusals.add(&user, target, failure);
                }
                Ok(result.unwrap_or_else(Answer::from).with_warnings(warnings))
            }
            Err(_) => {
                let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
                Err(Failure::new(504, "Timeout", message).with_no_details())
            }
        }
    }

    /// A seat among the requests that are handled at a time, held until it is dropped; the answer that refuses one if none
    /// comes free. It is taken last: whoever has no right, or sends a body slowly, does not hold one.
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
            self.catch_up().await;
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

    /// Waits until the cache knows everything that was written before now. A refusal that follows then knows it too; if
    /// the store is away, what the cache knows counts.
    pub(crate) async fn catch_up(&self) {
        let current = tokio::time::timeout(CATCH_UP_TIMEOUT, self.store.current_revision()).await;
        if let Ok(Ok(current)) = current {
            let _ = self.cache.reach(current).await;
        }
    }

    async fn routed(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        body: RequestBody,
        flow: &Flow<'_>,
    ) -> Result<Answer> {
        let (query, user) = (flow.query, flow.asked.user);
        let Some(target) = flow.asked.target else {
            let _seat = match self.seat(flow, None).await {
                Ok(seat) => seat,
                Err(refused) => return Ok(refused),
            };
            if ["/apis", "/openapi"].iter().any(|it| parts.uri.path().starts_with(it)) {
                self.wait_for_definitions().await?;
            }
            return non_resource_paths::answer(self, parts, query, user).await;
        };
        let verb_name = verb_name(&parts.method, Some(target));
        let asked = authorization::Request::Resource { verb: &verb_name, target };
        if self.authorizer.authorize(user, asked).is_err() {
            // The right may have been granted a moment ago.
            self.catch_up().await;
            self.authorizer.authorize(user, asked)?;
        }
        let row = match self.find_built_in(target) {
            Some(row) => Some(Row::BuiltIn(row)),
            None => self.find_custom(target).await?.map(Row::Custom),
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
        if custom.is_some() {
            let spans_namespaces = matches!(target.verb, Some(Verb::List | Verb::Watch));
            let is_outside = resource.namespaced && target.namespace.is_empty() && !spans_namespaces;
            if is_misplaced || is_outside {
                return Ok(not_found());
            }
        }
        if target.name.contains('/') || is_misplaced {
            return Err(Failure::no_resource());
        }
        let Some(verb) = target.verb else { return Err(Failure::method_not_allowed()) };
        if resource.verbs.contains(&verb.name()) {
            warnings::add(warnings::deprecation(resource, target));
        }
        let accepted = match &custom {
            Some(_) => negotiation::negotiate_without_protobuf(&parts.headers),
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
            Ok(seat) => seat,
            Err(refused) => return Ok(refused),
        };
        let call = Call { server: self, target, row: &row, resource, query, headers, user, body, accepted };
        let is_heavy = call.is_heavy(verb, flow.writes);
        // In the heap: the verbs hold a lot, and what is around them would hold it once more each.
        let mut answer = if is_heavy { self.run_heavy(&call, verb).await } else { Box::pin(call.run(verb)).await };
        if let Ok(Answer { body: Body::Listing(listing), .. }) = &mut answer {
            listing.hold(Box::new(seat));
        }
        match deprecation {
            Some(warning) => Ok(answer.unwrap_or_else(Answer::from).with_warnings(vec![warning])),
            None => answer,
        }
    }

    /// Does what a request asks for on one of the threads for what takes a while.
    async fn run_heavy(self: &Arc<Self>, call: &Call<'_>, verb: Verb) -> Result<Answer> {
        let (server, row) = (self.clone(), call.row.clone());
        let (target, query, headers) = (call.target.clone(), call.query.clone(), call.headers.clone());
        let (user, body, accepted) = (call.user.clone(), call.body.clone(), call.accepted.clone());
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let (server, target, query, headers, user) = (&server, &target, &query, &headers, &user);
            let (row, resource) = (&row, &row.resource());
            let call = Call { server, target, row, resource, query, headers, user, body, accepted };
            runtime.block_on(warnings::collect(pin!(call.run(verb))))
        };
        let failed = || Failure::new(500, "InternalError", "the request could not be handled");
        let (answer, warnings) = self.threads().run(work).await.ok_or_else(failed)?;
        warnings::add(warnings);
        answer
    }
}

fn new_audit_id() -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(crate::random::uid_text())).unwrap_or(HeaderValue::from_static(""))
}

/// The answer to whom there is no seat for.
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
    // Nobody needs to send what was announced to be too much.
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
