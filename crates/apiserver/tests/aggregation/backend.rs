//! The aggregated API server of recorded cases: one listener per kind of certificate, behaviors by path.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::certificates::front_proxy::FrontProxy;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

/// The behavior of the server, and the requests that it received.
#[derive(Default)]
pub(crate) struct Script {
    behavior: Mutex<Value>,
    received: Mutex<Vec<Value>>,
}

impl Script {
    pub(crate) fn set(&self, behavior: &Value) {
        *self.behavior.lock().unwrap() = behavior.clone();
        self.received.lock().unwrap().clear();
    }

    /// The requests since the last call: those of the aggregator itself, or all others.
    pub(crate) fn take(&self, of_aggregator: bool) -> Vec<Value> {
        let mut received = self.received.lock().unwrap();
        let is_wanted = |it: &Value| is_of_aggregator(it) == of_aggregator;
        let taken = received.iter().filter(|it| is_wanted(it)).cloned().collect();
        received.retain(|it| !is_wanted(it));
        taken
    }
}

fn is_of_aggregator(request: &Value) -> bool {
    let headers = request["headers"].as_array().unwrap();
    headers.iter().any(|it| {
        it[0] == "x-remote-user" && matches!(it[1].as_str(), Some("system:kube-aggregator" | "system:aggregator"))
    })
}

/// The listeners, and the certificate of their authority.
pub(crate) struct Backend {
    pub(crate) script: Arc<Script>,
    pub(crate) addresses: HashMap<&'static str, SocketAddr>,
    pub(crate) authority: String,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { issuer: Issuer::new(params, key), pem }
}

fn acceptor(authority: &Authority, names: &[&str], front_proxy: &FrontProxy) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority.issuer).unwrap().der().clone();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(front_proxy.authorities.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_client_cert_verifier(verifier);
    TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate], key).unwrap()))
}

impl Backend {
    pub(crate) async fn start(front_proxy: &FrontProxy) -> Self {
        let (known, other) = (authority(), authority());
        let script = Arc::new(Script::default());
        let mut addresses = HashMap::new();
        for (name, tls) in [
            ("api", acceptor(&known, &["127.0.0.1", "localhost", "api.svcs.svc"], front_proxy)),
            ("wrongname", acceptor(&known, &["other.example.com"], front_proxy)),
            ("unknownca", acceptor(&other, &["localhost", "127.0.0.1"], front_proxy)),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.insert(name, listener.local_addr().unwrap());
            tokio::spawn(listen(listener, tls, script.clone()));
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        addresses.insert("refused", closed);
        Self { script, addresses, authority: known.pem }
    }
}

async fn listen(listener: TcpListener, tls: TlsAcceptor, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, script) = (tls.clone(), script.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let user = certificate.and_then(|it| apiserver::identity::subject(it).unwrap());
            let name = user.map(|it| format!("commonName={}", it.name)).unwrap_or_default();
            let service = service_fn(move |request| answer(script.clone(), name.clone(), request));
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

fn text(headers: &http::HeaderMap, name: &str) -> String {
    headers.get(name).map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn answer(
    script: Arc<Script>,
    certificate: String,
    mut request: Request<Incoming>,
) -> Result<Answer, std::io::Error> {
    if text(request.headers(), "upgrade") == "echo" {
        return Ok(echo(&mut request));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let headers =
        parts.headers.iter().map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
    let (method, path) = (parts.method.as_str().to_owned(), parts.uri.path().to_owned());
    let mut record = json!({
        "clientCertificate": certificate, "method": method, "path": parts.uri.to_string(),
        "headers": headers.collect::<Vec<_>>()
    });
    if !body.is_empty() {
        record["body"] = String::from_utf8_lossy(&body).into();
    }
    script.received.lock().unwrap().push(record);
    let behavior = script.behavior.lock().unwrap().clone();
    play(&behavior, &method, &path).await
}

/// Sends everything back in capital letters.
fn echo(request: &mut Request<Incoming>) -> Answer {
    let user = text(request.headers(), "x-remote-user");
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut buffer = [0_u8; 64];
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 || stream.write_all(&buffer[..count].to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
    });
    let response = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "echo");
    response.header("x-user", user).body(full("")).unwrap()
}

fn full(text: impl Into<Bytes>) -> BoxBody<Bytes, std::io::Error> {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed()
}

async fn play(behavior: &Value, method: &str, path: &str) -> Result<Answer, std::io::Error> {
    let json = |value: &Value| {
        Response::builder().header("content-type", "application/json").body(full(value.to_string())).unwrap()
    };
    let not_found = || Response::builder().status(404).body(full("404 page not found\n")).unwrap();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let last = segments.last().copied().unwrap_or_default();
    match segments.as_slice() {
        ["openapi", "v2"] if behavior["openapi"] == true => {
            return Ok(json(&openapi(behavior["group"].as_str().unwrap())));
        }
        ["apis", group, version] => {
            if let Some(discovery) = behavior.get("discovery") {
                return act(discovery).await;
            }
            let thing = json!({
                "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "shortNames": ["th"],
                "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]
            });
            let version = format!("{group}/{version}");
            return Ok(json(&json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [thing]
            })));
        }
        ["apis", group, version, ..] => {
            let wanted = &behavior["paths"][last];
            if wanted["do"] == "stream" {
                return Ok(stream(wanted, &format!("{group}/{version}")));
            }
            if !wanted.is_null() {
                return act(wanted).await;
            }
            let version = format!("{group}/v1");
            return Ok(json(&json!({"kind": "Echo", "apiVersion": version, "method": method, "path": path})));
        }
        _ => {}
    }
    Ok(not_found())
}

async fn act(behavior: &Value) -> Result<Answer, std::io::Error> {
    if let Some(seconds) = behavior["delay"].as_f64() {
        // Ends with the connection.
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    let text = |field: &str, default: &str| behavior[field].as_str().unwrap_or(default).to_owned();
    let kind = match behavior["do"].as_str().unwrap() {
        "close" => return Err(std::io::Error::other("closed")),
        "raw" => text("contentType", "application/json"),
        _ => text("contentType", "text/plain"),
    };
    let code = u16::try_from(behavior["code"].as_u64().unwrap_or(200)).unwrap();
    let mut response = Response::builder().status(code).header("content-type", kind);
    for (name, value) in behavior["headers"].as_object().into_iter().flatten() {
        response = response.header(name, value.as_str().unwrap());
    }
    let body = match (behavior["pieces"].as_u64(), behavior["broken"].as_bool()) {
        (Some(pieces), is_broken) => many(pieces, is_broken == Some(true)),
        _ => full(text("body", "")),
    };
    Ok(response.body(body).unwrap())
}

/// A long body, which may break off after it was sent.
fn many(pieces: u64, is_broken: bool) -> BoxBody<Bytes, std::io::Error> {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    let pieces = futures::stream::iter((0..pieces).map(move |_| Ok(Frame::data(piece.clone()))));
    let end = futures::stream::once(async {
        // A body that waits lets the connection send what it has.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("broken"))
    });
    let end = futures::stream::StreamExt::take(end, usize::from(is_broken));
    http_body_util::BodyExt::boxed(StreamBody::new(futures::StreamExt::chain(pieces, end)))
}

fn stream(behavior: &Value, version: &str) -> Answer {
    let events = (0..behavior["events"].as_u64().unwrap()).map(|number| {
        let event = format!(
            "{{\"type\": \"ADDED\", \"object\": {{\"apiVersion\": \"{version}\", \"kind\": \"Thing\", \"metadata\": {{\"name\": \"t{number}\"}}}}}}\n"
        );
        Ok(Frame::data(Bytes::from(event)))
    });
    let body = StreamBody::new(futures::stream::iter(events.collect::<Vec<_>>())).boxed();
    Response::builder().header("content-type", "application/json").body(body).unwrap()
}

fn openapi(group: &str) -> Value {
    let short = group.split('.').next().unwrap();
    let name = format!("net.example.{short}.v1.Thing");
    let reference = format!("#/definitions/{name}");
    let operation = json!({"operationId": format!("read{short}"),
        "responses": {"200": {"description": "OK", "schema": {"$ref": reference}}}});
    json!({
        "swagger": "2.0", "info": {"title": "x", "version": "v1"},
        "paths": {format!("/apis/{group}/v1/namespaces/{{namespace}}/things/{{name}}"): {"get": operation}},
        "definitions": {name: {"description": format!("Thing of {group}"), "type": "object",
            "properties": {"size": {"type": "integer"}},
            "x-kubernetes-group-version-kind": [{"group": group, "kind": "Thing", "version": "v1"}]}}
    })
}
