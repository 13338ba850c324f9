//! The webhook server of recorded cases: one listener per kind of certificate, one behavior per path.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A hook: its behaviors, and the number of calls so far.
#[derive(Default)]
struct Hook {
    behaviors: Vec<Value>,
    calls: usize,
}

/// The state of all hooks, by path.
#[derive(Default)]
pub(crate) struct Hooks {
    hooks: Mutex<HashMap<String, Hook>>,
    received: Mutex<HashMap<String, Vec<Value>>>,
    on_call: Mutex<Option<OnCall>>,
    connections: AtomicUsize,
}

/// Work that is done during each call, before it is answered.
pub(crate) type OnCall = Box<dyn Fn() -> Pin<Box<dyn Future<Output = u64> + Send>> + Send>;

impl Hooks {
    /// Sets the behavior of a hook of a case.
    pub(crate) fn set(&self, case: &str, hook: &str, behavior: &Value) {
        let behaviors = behavior.as_array().cloned().unwrap_or_else(|| vec![behavior.clone()]);
        self.hooks.lock().unwrap().insert(format!("/{case}/{hook}"), Hook { behaviors, calls: 0 });
    }

    /// Takes the reviews that the hooks of a case received.
    pub(crate) fn take(&self, case: &str) -> Vec<Value> {
        self.received.lock().unwrap().remove(case).unwrap_or_default()
    }

    /// Sets the work that is done during each call.
    pub(crate) fn on_call(&self, work: OnCall) {
        *self.on_call.lock().unwrap() = Some(work);
    }

    /// The number of connections to all listeners so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn next(&self, path: &str) -> Option<Value> {
        let mut hooks = self.hooks.lock().unwrap();
        let hook = hooks.get_mut(path)?;
        let behavior = hook.behaviors.get(hook.calls).or(hook.behaviors.last()).cloned();
        hook.calls += 1;
        behavior
    }
}

/// The listeners, and the certificate of their authority.
pub(crate) struct Backend {
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) addresses: HashMap<&'static str, SocketAddr>,
    pub(crate) authority: String,
    /// The certificate of the listener `selfsigned`, which is its own authority.
    pub(crate) self_signed: String,
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

fn acceptor(authority: &Authority, names: &[&str], expired: bool) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    if expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let certificate = params.signed_by(&key, &authority.issuer).unwrap().der().clone();
    serving(certificate, &key)
}

fn serving(certificate: rustls::pki_types::CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()))
}

/// A certificate as `openssl req -x509` makes it: self-signed, and marked as an authority.
fn self_signed() -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (serving(certificate.der().clone(), &key), certificate.pem())
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let (known, other) = (authority(), authority());
        let self_signed = self_signed();
        let hooks = Arc::new(Hooks::default());
        let mut addresses = HashMap::new();
        let good = [
            "127.0.0.1",
            "localhost",
            "hook.svcs.svc",
            "api.svcs.svc",
            "api2.svcs.svc",
            "ext.svcs.svc",
            "api3.svcs.svc",
        ];
        for (name, tls) in [
            ("good", Some(acceptor(&known, &good, false))),
            ("wrongname", Some(acceptor(&known, &["other.example.com"], false))),
            ("nosan", Some(acceptor(&known, &[], false))),
            ("expired", Some(acceptor(&known, &good, true))),
            ("unknownca", Some(acceptor(&other, &["127.0.0.1"], false))),
            ("selfsigned", Some(self_signed.0)),
            ("plain", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.insert(name, listener.local_addr().unwrap());
            tokio::spawn(listen(listener, tls, hooks.clone()));
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        addresses.insert("closed", closed);
        Self { hooks, addresses, authority: known.pem, self_signed: self_signed.1 }
    }
}

async fn listen(listener: TcpListener, tls: Option<TlsAcceptor>, hooks: Arc<Hooks>) {
    while let Ok((stream, _)) = listener.accept().await {
        hooks.connections.fetch_add(1, Ordering::Relaxed);
        let (tls, hooks) = (tls.clone(), hooks.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(hooks.clone(), request));
            let server = hyper::server::conn::http1::Builder::new();
            match tls {
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                }
                None => {
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                }
            }
        });
    }
}

async fn answer(
    hooks: Arc<Hooks>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (case, hook) = path.trim_start_matches('/').split_once('/').unwrap_or(("", ""));
    let record = json!({"hook": hook, "path": format!("?{query}"), "review": review});
    hooks.received.lock().unwrap().entry(case.to_owned()).or_default().push(record);
    let behavior = hooks.next(&path).unwrap_or_default();
    let work = hooks.on_call.lock().unwrap().as_ref().map(|work| work());
    if let Some(work) = work {
        work.await;
    }
    if let Some(seconds) = behavior["delay"].as_f64() {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    let text = |field: &str, default: &str| behavior[field].as_str().unwrap_or(default).to_owned();
    let mut response =
        http::Response::builder().status(u16::try_from(behavior["code"].as_u64().unwrap_or(200)).unwrap());
    let (kind, body) = match behavior["do"].as_str().unwrap_or_default() {
        "close" => return Err(std::io::Error::other("closed")),
        "http" => (text("contentType", "text/plain"), text("body", "")),
        "raw" => (text("contentType", "application/json"), text("body", "")),
        "convert" => (text("contentType", "application/json"), converted(&behavior, &review).to_string()),
        _ => (text("contentType", "application/json"), reviewed(&behavior, &review).to_string()),
    };
    for (name, value) in behavior["headers"].as_object().into_iter().flatten() {
        response = response.header(name, value.as_str().unwrap());
    }
    Ok(response.header("content-type", kind).body(Full::new(body.into())).unwrap())
}

/// The review with which a hook answers.
fn reviewed(behavior: &Value, review: &Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": behavior["do"] == "allow"});
    for field in ["status", "warnings", "auditAnnotations"] {
        if let Some(value) = behavior.get(field) {
            response[field] = value.clone();
        }
    }
    let patch = match (behavior.get("patch"), behavior.get("patchText"), behavior.get("patchRepeat")) {
        (Some(patch), ..) => Some(patch.to_string()),
        (_, Some(text), _) => text.as_str().map(ToOwned::to_owned),
        (.., Some(repeat)) => {
            let times = usize::try_from(repeat["times"].as_u64().unwrap()).unwrap();
            Some(Value::Array(vec![repeat["op"].clone(); times]).to_string())
        }
        _ => None,
    };
    if let Some(patch) = patch {
        response["patch"] = STANDARD.encode(patch).into();
        response["patchType"] = "JSONPatch".into();
    }
    if let Some(pad) = behavior["pad"].as_u64() {
        response["status"] = json!({"message": "x".repeat(usize::try_from(pad).unwrap())});
    }
    finished(behavior, review, response)
}

/// A response with what a behavior overrides and omits, in its review.
fn finished(behavior: &Value, review: &Value, mut response: Value) -> Value {
    for (field, value) in behavior["response"].as_object().into_iter().flatten() {
        response[field] = value.clone();
    }
    for field in behavior["omit"].as_array().into_iter().flatten() {
        response.as_object_mut().unwrap().remove(field.as_str().unwrap());
    }
    let mut answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    for (field, value) in behavior["review"].as_object().into_iter().flatten() {
        answer[field] = value.clone();
    }
    for field in behavior["omitReview"].as_array().into_iter().flatten() {
        answer.as_object_mut().unwrap().remove(field.as_str().unwrap());
    }
    answer
}

/// The review with which a conversion hook answers: `spec.hostPort` in v2 is `spec.host` and `spec.port`.
fn converted(behavior: &Value, review: &Value) -> Value {
    let desired = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects: Vec<Value> = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    if behavior.get("echo").is_none() {
        objects.iter_mut().for_each(|object| convert(object, desired));
    }
    let last = objects.len().saturating_sub(1);
    for (index, object) in objects.iter_mut().enumerate() {
        let all = behavior["set"].as_object().into_iter().flatten();
        let only_last = behavior["setLast"].as_object().into_iter().flatten().filter(|_| index == last);
        all.chain(only_last).for_each(|(pointer, value)| set(object, pointer, value));
    }
    if let Some(drop) = behavior["drop"].as_u64() {
        objects.drain(..usize::try_from(drop).unwrap().min(objects.len()));
    }
    if behavior.get("dup").is_some() {
        objects.extend(objects.first().cloned());
    }
    if behavior.get("reverse").is_some() {
        objects.reverse();
    }
    if let Some(given) = behavior["objects"].as_array() {
        objects.clone_from(given);
    }
    let result = behavior.get("result").cloned().unwrap_or_else(|| json!({"status": "Success"}));
    let response = json!({"uid": review["request"]["uid"], "convertedObjects": objects, "result": result});
    finished(behavior, review, response)
}

fn convert(object: &mut Value, desired: &str) {
    object["apiVersion"] = desired.into();
    let Some(spec) = object["spec"].as_object_mut() else { return };
    if desired.ends_with("/v2") {
        if let Some(joined) = spec.remove("hostPort") {
            let (host, port) = joined.as_str().unwrap().split_once(':').unwrap_or((joined.as_str().unwrap(), ""));
            spec.insert("host".to_owned(), host.into());
            spec.insert("port".to_owned(), port.into());
        }
    } else if spec.contains_key("host") || spec.contains_key("port") {
        let part = |value: Option<Value>| value.map(|it| it.as_str().map_or(it.to_string(), ToOwned::to_owned));
        let (host, port) = (part(spec.remove("host")), part(spec.remove("port")));
        let joined = format!("{}:{}", host.unwrap_or_default(), port.unwrap_or_default());
        spec.insert("hostPort".to_owned(), joined.into());
    }
}

fn set(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let Some(Value::Object(parent)) = object.pointer_mut(parent) else { return };
    if value == "<delete>" {
        parent.remove(field);
    } else {
        parent.insert(field.to_owned(), value.clone());
    }
}
