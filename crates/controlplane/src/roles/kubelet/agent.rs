//! The secured port of a real node: logs, exec, attach, port-forward, statistics and health.
//!
//! Callers show a client certificate or a token that the API server reviews, and the API server decides whether they may
//! (`nodes/proxy`, `nodes/log`, `nodes/stats`, `nodes/metrics`). Nothing is anonymous, and there is no read-only port.
//! Paths follow `pkg/kubelet/server/server.go` of Kubernetes.

mod stats;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::core::v1::Pod;
use apiserver::identity::User;
use apiserver::server::listen::{self, PageBody};
use bytes::Bytes;
use cri::messages as m;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kubelet::logs;
use telemetry::metrics::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::real::{Agent, SharedAgent};
use crate::roles::access::{Access, AccessRejection, NodeAccess};
use crate::upgrade;

/// Pieces of a log that wait for a slow reader.
const PIECES_WAITING: usize = 4;
/// Interval at which a followed log is read.
const FOLLOW_PERIOD: Duration = Duration::from_millis(250);
/// Options of logs that are read.
const LOG_OPTIONS: [&str; 6] = ["previous", "timestamps", "tailLines", "limitBytes", "sinceSeconds", "sinceTime"];

/// Serves until the process ends, under the limits and timeouts of the API server. `registry` has the agent's own metrics.
pub fn serve(
    listener: TcpListener,
    access: impl Into<Arc<Access>>,
    node: String,
    agent: SharedAgent,
    registry: Arc<Registry>,
) {
    let access = access.into();
    let tls = access.tls();
    let server = Arc::new(Server { access, node, agent, registry });
    let page: listen::Page = Arc::new(move |request, user| {
        let server = server.clone();
        Box::pin(async move { server.respond(request, user.as_deref()).await })
    });
    tokio::spawn(listen::serve_renewed_pages(page, listener, tls));
}

struct Server {
    access: Arc<Access>,
    node: String,
    agent: SharedAgent,
    registry: Arc<Registry>,
}

impl Server {
    async fn respond(&self, request: Request<Incoming>, user: Option<&User>) -> Response<PageBody> {
        let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let token = header.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
        let path = request.uri().path().to_owned();
        let asked = NodeAccess { node: &self.node, subresource: subresource(&path), verb: verb(request.method()) };
        if let Err(AccessRejection { code, message }) = self.access.check_node(user, token, &asked).await {
            return text(code, message);
        }
        match self.route(request, &path).await {
            Ok(response) => response,
            Err((code, message)) => text(code, message),
        }
    }

    async fn route(&self, request: Request<Incoming>, path: &str) -> Result<Response<PageBody>, (StatusCode, String)> {
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
                Ok(text(StatusCode::OK, format!("{}{own}{}", self.registry.text(), stats::process_metrics())))
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
    ) -> Result<Response<PageBody>, (StatusCode, String)> {
        let query = apiserver::wire::request::Query::parse(request.uri().query().unwrap_or_default());
        let given = LOG_OPTIONS.into_iter().filter(|it| query.has(it)).map(|it| (it, query.get(it)));
        let bad = |why: String| (StatusCode::BAD_REQUEST, why);
        let options = logs::Options::new(given).map_err(bad)?;
        let pod = self.pod(namespace, name)?;
        let containers = &self.agent()?.containers;
        let follows = query.flag("follow");
        let mut reader = containers.open_log(&pod, container, options, follows).await.map_err(bad)?;
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
                    if let Some(piece) = reader.last_piece() {
                        // A client that has gone needs no last piece.
                        let _ = sender.send(piece.into()).await;
                    }
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(FOLLOW_PERIOD) => {}
                }
            }
        });
        let mut response = Response::new(PageBody::Stream(receiver));
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
    ) -> Result<Response<PageBody>, (StatusCode, String)> {
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
        Ok(answer.map(PageBody::Whole))
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

fn text(code: StatusCode, body: String) -> Response<PageBody> {
    let mut response = Response::new(PageBody::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn json(document: api::json::Value) -> Response<PageBody> {
    let mut response = text(StatusCode::OK, api::json::to_string(&document));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use apiserver::serving::certificates::Authority;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

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

    /// Connects without a certificate.
    async fn connect(authority: &Authority, address: SocketAddr, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn idle_connections_do_not_block_the_port() {
        let store = Arc::new(store::EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let server = apiserver::Server::start(store, apiserver::Options::without_controllers()).await.unwrap();
        let client = client::Client::in_process(listen::Connection::new(server, None), "kubelet");
        let authority = Authority::generate().unwrap();
        let pair = authority.server(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let access = Access::signed(client, &pair, authority.certificate()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, access, "n".to_owned(), SharedAgent::default(), Arc::new(Registry::new()));
        let attack = async {
            let mut idle = Vec::new();
            // More connections than a listener has, each open for HTTP/2 and then silent.
            for _ in 0..1001 {
                let mut stream = connect(&authority, address, b"h2").await;
                stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
                idle.push(stream);
            }
            let mut stream = connect(&authority, address, b"http/1.1").await;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(Duration::from_secs(60), attack).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401");
    }
}
