//! The server: connections, routes, and the limits of each.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::json::{self, Value};
use bytes::Bytes;
use client::Client;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use telemetry::logs::chain;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::engine::{Engine, Topic};
use crate::guard::{self, Guard, Rejection};
use crate::map::Map;
use crate::proxy::{self, Form};
use crate::responses::{self, Body, SessionBody};
use crate::sessions::{Session, Sessions};
use crate::{assets, paths};

/// The header with the key of a session.
const SESSION_HEADER: &str = "x-celplane-session";
/// Open connections; a browser has six.
const CONNECTIONS_MAX: usize = 128;
/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Computations of all sessions together.
const COMPUTATIONS_MAX: usize = 4;
/// The size of a request that opens or ends a session.
const SESSION_BODY_MAX: usize = 1 << 10;

/// The cluster that a console shows.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The connection, with the user's credentials.
    pub client: Client,
    /// The address of the API server.
    pub server: String,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
    /// The version of this program.
    pub version: String,
}

type UrlCallback = Box<dyn Fn(&str) + Send + Sync>;

/// A console that listens on a loopback address.
pub struct Console {
    listener: TcpListener,
    state: Arc<State>,
}

struct State {
    cluster: Cluster,
    engine: Arc<dyn Engine>,
    sessions: Sessions,
    guard: Guard,
    port: u16,
    computations: Semaphore,
    map: Map,
    on_url: UrlCallback,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Console {
    /// Listens on a port of 127.0.0.1; 0 takes a free one. `on_url` receives every URL with a fresh one-time code: the first one now, and
    /// another one whenever a code has been used.
    ///
    /// # Errors
    /// The port cannot be used, or the system has no randomness.
    pub async fn bind(
        port: u16,
        cluster: Cluster,
        engine: Arc<dyn Engine>,
        on_url: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            map: Map::new(cluster.client.clone()),
            cluster,
            engine,
            sessions: Sessions::default(),
            guard: Guard::new(port),
            port,
            computations: Semaphore::new(COMPUTATIONS_MAX),
            on_url: Box::new(on_url),
        });
        if !state.announce() {
            return Err(io::Error::other("the system has no random bytes"));
        }
        Ok(Self { listener, state })
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.state.port
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // Dropped with this future, which ends all connections.
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(err = %chain(&error), "Could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let state = self.state.clone();
            connections.spawn(async move {
                serve_connection(state, stream).await;
                drop(place);
            });
        }
    }
}

async fn serve_connection(state: Arc<State>, stream: TcpStream) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, std::convert::Infallible>(guard::protect(state.handle(request).await)) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(100);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        debug!(err = %chain(&error), "Connection ended early");
    }
}

impl State {
    /// Creates a new one-time code and reports its URL.
    fn announce(&self) -> bool {
        let Some(code) = self.sessions.new_code() else { return false };
        (self.on_url)(&format!("http://127.0.0.1:{}/#code={code}", self.port));
        true
    }

    /// Boxed, so that its type is known where connections are spawned.
    fn handle(self: Arc<Self>, request: Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        Box::pin(self.respond(request))
    }

    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match self.guard.check(&request) {
            Ok(()) => {}
            Err(Rejection::Host) => {
                return responses::error(
                    StatusCode::MISDIRECTED_REQUEST,
                    "Host",
                    "the Host header names another server",
                );
            }
            Err(Rejection::Origin) => {
                return responses::error(StatusCode::FORBIDDEN, "Origin", "requests of other origins are rejected");
            }
        }
        let path = request.uri().path().to_owned();
        if let Some(asset) = assets::find(&path) {
            return match *request.method() {
                Method::GET | Method::HEAD => serve_asset(asset),
                _ => not_allowed(),
            };
        }
        if path == "/c/session" && request.method() == Method::POST {
            return self.open_session(request).await;
        }
        if !path.starts_with("/c/") && !path.starts_with("/k/") {
            return responses::error(StatusCode::NOT_FOUND, "NotFound", "there is no such page");
        }
        let key =
            request.headers().get(SESSION_HEADER).and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
        let Some(session) = self.sessions.find(&key) else {
            return responses::error(
                StatusCode::UNAUTHORIZED,
                "NoSession",
                "the session has ended, or there never was one",
            );
        };
        let Ok(place) = session.requests.clone().try_acquire_owned() else {
            return responses::error(
                StatusCode::TOO_MANY_REQUESTS,
                "TooMany",
                "this session has too many open requests",
            );
        };
        if path == "/c/end" && request.method() == Method::POST {
            self.sessions.end(&key);
            return responses::document(&api::json!({"ended": true}));
        }
        let over = session.clone().over();
        let response = self.answer(request, &path, session).await;
        response.map(|body| SessionBody::new(body, over, place).boxed_unsync())
    }

    async fn open_session(&self, request: Request<Incoming>) -> Response<Body> {
        let Ok(question) = read_json(request, SESSION_BODY_MAX).await else {
            return responses::error(StatusCode::BAD_REQUEST, "Invalid", "a code is expected");
        };
        let Some(key) = self.sessions.exchange(question.text("code")) else {
            return responses::error(
                StatusCode::UNAUTHORIZED,
                "WrongCode",
                "the code is wrong, or has been used already",
            );
        };
        self.announce();
        responses::document(&api::json!({"key": key}))
    }

    /// Answers a request of a session.
    async fn answer(&self, request: Request<Incoming>, path: &str, session: Arc<Session>) -> Response<Body> {
        if let Some(target) = path.strip_prefix("/k") {
            if request.method() != Method::GET {
                return not_allowed();
            }
            let accept =
                request.headers().get(http::header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
            let form = Form::of(accept);
            return match paths::parse(target, request.uri().query().unwrap_or_default()) {
                Ok(read) => proxy::send(&self.cluster.client, &read, form).await,
                Err(why) => responses::error(StatusCode::FORBIDDEN, "NotRead", why),
            };
        }
        match (request.method(), path.strip_prefix("/c/").unwrap_or_default()) {
            (&Method::GET, "info") => self.info().await,
            (&Method::GET, "map") => self.map.stream().await,
            (&Method::POST, name) => match Topic::find(name) {
                Some(topic) => self.compute(topic, request, session).await,
                None => responses::error(StatusCode::NOT_FOUND, "NotFound", "there is no such question"),
            },
            _ => responses::error(StatusCode::NOT_FOUND, "NotFound", "there is no such question"),
        }
    }

    /// The cluster, and the user as the cluster sees them.
    async fn info(&self) -> Response<Body> {
        let client = &self.cluster.client;
        let version = client.get_as("/version", "application/json").await;
        let version = match version {
            Ok(text) => json::parse(&text).unwrap_or_default(),
            Err(error) => return responses::cluster_error(&error),
        };
        let review = api::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = client.send(Method::POST, path, "application/json", json::to_string(&review)).await;
        // Clusters may not serve it: the page then leaves the name out.
        let user = review.ok().and_then(|text| json::parse(&text).ok());
        let user = user.and_then(|it| it.str_at(&["status", "userInfo", "username"]).map(ToOwned::to_owned));
        responses::document(&api::json!({
            "server": (self.cluster.server.as_str()),
            "namespace": (self.cluster.namespace.as_str()),
            "version": (self.cluster.version.as_str()),
            "kubernetes": (version.text("gitVersion")),
            "user": user
        }))
    }

    /// Passes a question on to the engine, within the limits of the session and of the process.
    async fn compute(&self, topic: Topic, request: Request<Incoming>, session: Arc<Session>) -> Response<Body> {
        let question = match read_json(request, topic.body_max()).await {
            Ok(question) => question,
            Err(why) => return responses::error(StatusCode::BAD_REQUEST, "Invalid", why),
        };
        let nodes = if topic == Topic::Match { self.map.nodes().await } else { Ok(Vec::new()) };
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(error) => return responses::cluster_error(&error),
        };
        let places = if topic.is_heavy() { &session.heavy } else { &session.light };
        // Questions of one session wait for each other; the deadline covers the wait.
        let work = async {
            let _place = places.acquire().await;
            let _computation = self.computations.acquire().await;
            self.engine.answer(topic, question, nodes).await
        };
        match tokio::time::timeout(topic.deadline(), work).await {
            Ok(Ok(text)) => responses::text(StatusCode::OK, "application/json", text),
            Ok(Err(failure)) => {
                let code = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::BAD_GATEWAY);
                responses::error(code, "Failed", &failure.message)
            }
            Err(_) => {
                let message = format!("not finished after {} s", topic.deadline().as_secs());
                responses::error(StatusCode::GATEWAY_TIMEOUT, "Deadline", &message)
            }
        }
    }
}

fn serve_asset(asset: &'static assets::Asset) -> Response<Body> {
    #[cfg(debug_assertions)]
    if let Some(content) = assets::from_disk(asset) {
        return responses::text(StatusCode::OK, asset.media_type, content);
    }
    responses::text(StatusCode::OK, asset.media_type, Bytes::from_static(asset.content))
}

fn not_allowed() -> Response<Body> {
    responses::error(StatusCode::METHOD_NOT_ALLOWED, "ReadOnly", "the console only reads")
}

async fn read_json(request: Request<Incoming>, max: usize) -> Result<Value, &'static str> {
    let body = Limited::new(request.into_body(), max).collect();
    let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(|_| "the request did not arrive in time")?;
    let body = body.map_err(|_| "the request is too large")?;
    json::parse(&body.to_bytes()).map_err(|_| "the request is not JSON")
}
