//! The secured port of a real node: logs, exec, attach, port-forward, statistics and health.
//!
//! Callers show a client certificate or a token that the API server reviews, and the API server decides whether they may
//! (`nodes/proxy`, `nodes/log`, `nodes/stats`, `nodes/metrics`). Nothing is anonymous, and there is no read-only port.
//! Paths follow `pkg/kubelet/server/server.go` of Kubernetes.

mod stats;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::core::v1::Pod;
use apiserver::identity::{User, subject};
use bytes::Bytes;
use cri::messages as m;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use kubelet::logs;
use telemetry::logs::chain;
use telemetry::metrics::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use super::real::{Agent, Shared};
use crate::roles::access::{Access, NodeAccess, Refused};
use crate::upgrade;

/// Time limit for the TLS handshake and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 1000;
/// Pieces of a log that wait for a slow reader.
const PIECES_WAITING: usize = 4;
/// Interval at which a followed log is read.
const FOLLOW_PERIOD: Duration = Duration::from_millis(250);
/// Options of logs that are read.
const LOG_OPTIONS: [&str; 6] = ["previous", "timestamps", "tailLines", "limitBytes", "sinceSeconds", "sinceTime"];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves until the process ends. `registry` has the agent's own metrics.
pub fn serve(
    listener: TcpListener,
    access: impl Into<Arc<Access>>,
    node: String,
    agent: Shared,
    registry: Arc<Registry>,
) {
    let server = Arc::new(Server { access: access.into(), node, agent, registry });
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::spawn(async move {
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Most often there are no more file descriptors: wait until there are.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let server = server.clone();
            tokio::spawn(async move {
                server.converse(stream).await;
                drop(permit);
            });
        }
    });
}

struct Server {
    access: Arc<Access>,
    node: String,
    agent: Shared,
    registry: Arc<Registry>,
}

impl Server {
    async fn converse(self: Arc<Self>, stream: TcpStream) {
        let stream = match tokio::time::timeout(HEAD_TIMEOUT, self.access.tls().accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(err = %chain(&error), "Connection ended"),
            Err(_) => return,
        };
        let certificates = stream.get_ref().1.peer_certificates();
        // The subject of a certificate must be valid before any response.
        let user = certificates.and_then(|chain| chain.first()).map(|shown| subject(shown)).transpose();
        let Ok(user) = user else { return };
        let user = user.flatten().map(Arc::new);
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, user) = (self.clone(), user.clone());
            async move { Ok::<_, Infallible>(server.respond(request, user.as_deref()).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        builder.http2().timer(TokioTimer::new());
        if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
            debug!(err = %chain(&*error), "Connection ended");
        }
    }

    async fn respond(&self, request: Request<Incoming>, user: Option<&User>) -> Response<Body> {
        let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let token = header.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
        let path = request.uri().path().to_owned();
        let asked = NodeAccess { node: &self.node, subresource: subresource(&path), verb: verb(request.method()) };
        if let Err(Refused { code, message }) = self.access.check_node(user, token, &asked).await {
            return text(code, message);
        }
        match self.route(request, &path).await {
            Ok(response) => response,
            Err((code, message)) => text(code, message),
        }
    }

    async fn route(&self, request: Request<Incoming>, path: &str) -> Result<Response<Body>, (StatusCode, String)> {
        let missing = || (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz"] => Ok(text(StatusCode::OK, "ok".to_owned())),
            ["containerLogs", namespace, pod, container] => self.logs(request, namespace, pod, container).await,
            [action @ ("exec" | "attach"), namespace, pod, container] => {
                self.stream(request, action, namespace, pod, container).await
            }
            [action @ ("exec" | "attach"), namespace, pod, _uid, container] => {
                self.stream(request, action, namespace, pod, container).await
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                self.stream(request, "portForward", namespace, pod, "").await
            }
            ["stats", "summary"] => Ok(json(stats::summary(&self.node, &self.used().await?))),
            ["metrics"] => {
                let own = stats::agent_metrics(&self.node, &self.used().await?);
                Ok(text(StatusCode::OK, format!("{}{own}", self.registry.text())))
            }
            ["metrics", "resource"] => Ok(text(StatusCode::OK, stats::resource_metrics(&self.used().await?))),
            ["metrics", "cadvisor"] => Ok(text(StatusCode::OK, stats::container_metrics(&self.used().await?))),
            _ => Err(missing()),
        }
    }

    async fn used(&self) -> Result<stats::NodeUse, (StatusCode, String)> {
        let failed = |status: cri::Status| (StatusCode::INTERNAL_SERVER_ERROR, status.message().to_owned());
        stats::NodeUse::read(&self.agent()?.containers).await.map_err(failed)
    }

    fn agent(&self) -> Result<&Agent, (StatusCode, String)> {
        self.agent.get().ok_or_else(|| (StatusCode::SERVICE_UNAVAILABLE, "the node has not started yet".to_owned()))
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Pod>, (StatusCode, String)> {
        let found = self.agent()?.fleet.pod(namespace, name);
        found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod \"{name}\" not found\n")))
    }

    async fn logs(
        &self,
        request: Request<Incoming>,
        namespace: &str,
        name: &str,
        container: &str,
    ) -> Result<Response<Body>, (StatusCode, String)> {
        let query = apiserver::wire::request::Query::parse(request.uri().query().unwrap_or_default());
        let given = LOG_OPTIONS.into_iter().filter(|it| query.has(it)).map(|it| (it, query.get(it)));
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        let options = logs::Options::new(given).map_err(bad)?;
        let pod = self.pod(namespace, name)?;
        let containers = &self.agent()?.containers;
        let mut reader = containers.open_log(&pod, container, options).await.map_err(bad)?;
        let follows = query.flag("follow");
        let (sender, receiver) = mpsc::channel::<Bytes>(PIECES_WAITING);
        tokio::spawn(async move {
            loop {
                let has_ended = !follows || reader.has_ended().await;
                while let Some(piece) = reader.next_piece().await {
                    if sender.send(piece.into()).await.is_err() {
                        return;
                    }
                }
                if has_ended || reader.is_exhausted() {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(FOLLOW_PERIOD) => {}
                }
            }
        });
        let pieces = futures::stream::unfold(receiver, |mut receiver| async move {
            let piece = receiver.recv().await?;
            Some((Ok(Frame::data(piece)), receiver))
        });
        let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    async fn stream(
        &self,
        mut request: Request<Incoming>,
        action: &str,
        namespace: &str,
        name: &str,
        container: &str,
    ) -> Result<Response<Body>, (StatusCode, String)> {
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        if !request.headers().contains_key(http::header::UPGRADE) {
            return Err(bad("Upgrade request required".to_owned()));
        }
        let pod = self.pod(namespace, name)?;
        let containers = &self.agent()?.containers;
        let url = stream_url(containers, &pod, action, container, request.uri().query().unwrap_or_default()).await;
        let url = url.map_err(|why| (StatusCode::INTERNAL_SERVER_ERROR, why))?;
        let client = hyper::upgrade::on(&mut request);
        let relayed = relay(&url, &request, client).await;
        let answer = relayed.map_err(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}")))?;
        Ok(answer.map(|body| Full::from(body).boxed_unsync()))
    }
}

/// Upgrades to the runtime's streaming server, which listens on this machine only.
async fn relay(url: &str, request: &Request<Incoming>, client: hyper::upgrade::OnUpgrade) -> Result<Response<Bytes>> {
    let uri: http::Uri = url.parse().context("the runtime returned no usable address")?;
    let host = uri.authority().context("the runtime returned no usable address")?.as_str().to_owned();
    let stream = TcpStream::connect(&host).await.context("cannot reach the runtime's streaming server")?;
    stream.set_nodelay(true)?;
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    upgrade::relay(stream, &host, request.method().clone(), path, request.headers(), client).await
}

/// The runtime's address for a stream.
async fn stream_url(
    containers: &kubelet::containers::Containers,
    pod: &Pod,
    action: &str,
    container: &str,
    query: &str,
) -> Result<String, String> {
    let pairs: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), decoded(value)))
        .collect();
    let is_on = |name: &str| pairs.iter().any(|(key, value)| key == name && matches!(value.as_str(), "1" | "true"));
    let failed = |status: cri::Status| status.message().to_owned();
    let runtime = containers.runtime();
    let (stdin, stdout, tty) = (is_on("input"), is_on("output"), is_on("tty"));
    // A terminal has one stream for both outputs.
    let stderr = is_on("error") && !tty;
    match action {
        "exec" => {
            let cmd = pairs.iter().filter(|(key, _)| key == "command").map(|(_, value)| value.clone()).collect();
            let container_id = containers.running_container(pod, container).await?;
            let request = m::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
            runtime.exec(request).await.map(|it| it.url).map_err(failed)
        }
        "attach" => {
            let container_id = containers.running_container(pod, container).await?;
            let request = m::AttachRequest { container_id, stdin, tty, stdout, stderr };
            runtime.attach(request).await.map(|it| it.url).map_err(failed)
        }
        _ => {
            let pod_sandbox_id = containers.ready_sandbox(pod).await?;
            let ports = pairs.iter().filter(|(key, _)| key == "port").filter_map(|(_, value)| value.parse().ok());
            let request = m::PortForwardRequest { pod_sandbox_id, port: ports.collect() };
            runtime.port_forward(request).await.map(|it| it.url).map_err(failed)
        }
    }
}

fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The node subresource by which access to a path is authorized.
fn subresource(path: &str) -> &'static str {
    match path.trim_start_matches('/').split('/').next().unwrap_or_default() {
        "stats" => "stats",
        "metrics" => "metrics",
        "logs" => "log",
        _ => "proxy",
    }
}

fn verb(method: &http::Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}

fn text(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Full::from(body).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn json(document: api::json::Value) -> Response<Body> {
    let mut response = text(StatusCode::OK, api::json::to_string(&document));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_for_subresources() {
        let all = [
            ("/exec/a/b/c", "proxy"),
            ("/stats/summary", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/resource", "metrics"),
            ("/logs/x", "log"),
        ];
        for (path, expected) in all {
            assert_eq!(subresource(path), expected, "{path}");
        }
        assert_eq!(decoded("a%20b+c%2Bd"), "a b c+d");
    }
}
