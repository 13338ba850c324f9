//! Calls of webhooks: where their servers are, and the texts of calls that fail.
//!
//! Admission webhooks and conversion webhooks are called the same way. Services are resolved through their EndpointSlices.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Outbound, OutboundRequest, OutboundResponse};
use crate::resources::{self, Resource};
use api::go_text::quote;
use api::json::Value;
use api::well_known::LABEL_SERVICE_NAME;
use bytes::Bytes;
use cache::Cache;
use cache::stored::ServedObject;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};

/// Maximum length of a webhook's answer; a longer one fails the call.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The start of an answer that the text of an HTTP error shows, as in client-go.
const SHOWN_BYTES_MAX: usize = 2048;
/// Stands for an answer that is not a text.
const UNKNOWN: &str = "unknown";
/// Go: at most this many redirects are followed, and calls repeated.
const REPEATS_MAX: usize = 10;
/// Endpoints of a Service that are examined.
const ENDPOINTS_MAX: usize = 10_000;
/// Ready pods of a Service that are returned.
const PODS_MAX: usize = 100;

/// Treatment of calls to simulated pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimulatedBackends {
    /// They fail, as calls to servers that do not answer do in Kubernetes.
    #[default]
    Fail,
    /// They are skipped, with a warning.
    Skip,
}

/// A Service: namespace, name and port.
pub type ServicePort = (String, String, u16);

/// The server of a webhook, as a `clientConfig` names it.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    place: Place,
    /// Certificates of the authorities to trust, in PEM.
    authorities: Bytes,
}

/// The place of a webhook's server.
#[derive(Debug, Clone)]
enum Place {
    /// A URL.
    Url(String),
    /// A Service with a path.
    Service { namespace: String, name: String, port: i64, path: String },
}

impl Backend {
    /// Reads a `clientConfig`.
    pub(crate) fn of(config: &Value) -> Self {
        let text = |value: &Value, field: &str| value.text(field).to_owned();
        let place = match config.get("service").filter(|it| !it.is_null()) {
            Some(service) => Place::Service {
                namespace: text(service, "namespace"),
                name: text(service, "name"),
                port: service.get("port").and_then(Value::as_i64).unwrap_or(443),
                path: text(service, "path"),
            },
            None => Place::Url(text(config, "url")),
        };
        let authorities = api::base64::decode(&text(config, "caBundle")).unwrap_or_default();
        // Kubernetes: a bundle of nothing but spaces is none.
        let is_blank = authorities.iter().all(u8::is_ascii_whitespace);
        Self { place, authorities: if is_blank { Bytes::new() } else { authorities.into() } }
    }
}

/// The servers of webhooks, and the connections to them.
pub(crate) struct Backends {
    pub(crate) outbound: Arc<dyn Outbound>,
    /// The Services, EndpointSlices and Nodes.
    pub(crate) cache: Arc<Cache>,
    /// Services that local processes stand for.
    pub(crate) mapped: HashMap<ServicePort, String>,
    pub(crate) simulated: SimulatedBackends,
}

/// A Service without a pod that can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPod {
    /// The service has no EndpointSlice.
    NoSlices,
    /// None of its pods is ready and has the port.
    NotReady,
    /// Its pods are simulated, and such calls are skipped.
    Simulated,
}

/// An address with a port, as in a URL.
pub(crate) fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The address of an endpoint.
fn address(endpoint: &Value) -> Option<&str> {
    endpoint.get("addresses").and_then(Value::as_array).unwrap_or_default().iter().find_map(Value::as_str)
}

/// Whether an endpoint accepts connections.
fn is_ready(endpoint: &Value) -> bool {
    endpoint.bool_at(&["conditions", "ready"]) != Some(false)
}

/// A call without an answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// There was no usable HTTP response, in Go's words, which Kubernetes counts as 503.
    Unreachable(String),
    /// The answer was an HTTP error, in Go's words, with its code. The text can be the server's.
    Rejected(String, u16),
    /// The server is a simulated pod, and such calls are skipped.
    Simulated,
}

/// The server to call.
struct Server {
    /// The URL in texts, without a query.
    url: String,
    address: String,
    host: String,
    server_name: String,
    path: String,
}

impl Server {
    fn of_url(url: &str) -> Result<Self, String> {
        let rest =
            url.strip_prefix("https://").ok_or_else(|| format!("unsupported protocol scheme in {}", quote(url)))?;
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
        let address = if has_port { host.to_owned() } else { format!("{host}:443") };
        let server_name = address.rsplit_once(':').map_or(host, |(name, _)| name);
        let server_name = server_name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let url = format!("https://{host}{path}");
        Ok(Self { url, address, host: host.to_owned(), server_name, path: path.to_owned() })
    }

    /// The server that a `Location` leads to, which may be relative to this one. Go's `ServeMux` sends such a redirect for a
    /// path with two slashes, which envtest gives to webhooks.
    fn redirected(self, location: &str) -> Result<Self, String> {
        let location = location.split_once('#').map_or(location, |(before, _)| before);
        if let Some(rest) = location.strip_prefix("//") {
            return Self::of_url(&format!("https://{rest}"));
        }
        // A scheme comes before all slashes and queries.
        let is_absolute = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        if is_absolute {
            return Self::of_url(location);
        }
        let own = self.path.split_once('?').map_or(self.path.as_str(), |(before, _)| before);
        let path = match location {
            "" => own.to_owned(),
            query if query.starts_with('?') => format!("{own}{query}"),
            path if path.starts_with('/') => path.to_owned(),
            relative => format!("{}/{relative}", own.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Ok(Self { url: format!("https://{}{path}", self.host), path, ..self })
    }
}

impl Backends {
    /// Calls a webhook with a review, and returns the body of the answer.
    pub(crate) async fn call(&self, backend: &Backend, review: Bytes, timeout: Duration) -> Result<Bytes, NoAnswer> {
        let mut url = String::new();
        let work = self.exchange(backend, review, whole_seconds(timeout), &mut url);
        match tokio::time::timeout(timeout, work).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer::Unreachable(format!("Post {}: context deadline exceeded", quote(&url)))),
        }
    }

    async fn exchange(
        &self,
        backend: &Backend,
        mut review: Bytes,
        seconds: u64,
        shown: &mut String,
    ) -> Result<Bytes, NoAnswer> {
        let mut query = format!("?timeout={seconds}s");
        let mut server = match &backend.place {
            Place::Url(url) => Server::of_url(url).map_err(NoAnswer::Unreachable)?,
            Place::Service { namespace, name, port, path } => {
                let host = format!("{name}.{namespace}.svc");
                let path = if path.is_empty() { "/" } else { path };
                let url = format!("https://{host}:{port}{path}");
                *shown = format!("{url}{query}");
                let failed = |why: String| NoAnswer::Unreachable(format!("Post {}: {why}", quote(shown)));
                let address = self.resolve(namespace, name, *port).map_err(failed)?.ok_or(NoAnswer::Simulated)?;
                Server { url, address, host: format!("{host}:{port}"), server_name: host, path: path.to_owned() }
            }
        };
        for _ in 0..REPEATS_MAX {
            *shown = format!("{}{query}", server.url);
            let request = OutboundRequest {
                address: server.address.clone(),
                host: server.host.clone(),
                server_name: server.server_name.clone(),
                authorities: backend.authorities.clone(),
                path: format!("{}{query}", server.path),
                headers: headers(),
                body: review.clone(),
                answer_bytes_max: ANSWER_BYTES_MAX,
            };
            let answer = self.outbound.post(request).await;
            let answer = answer.map_err(|why| NoAnswer::Unreachable(format!("Post {}: {why}", quote(shown))))?;
            if let (301..=303 | 307 | 308, Some(to)) = (answer.code, header(&answer, LOCATION)) {
                server = server.redirected(&to).map_err(NoAnswer::Unreachable)?;
                query.clear();
                if answer.code < 307 {
                    // Go: such a redirect leads to a request without a body.
                    review = Bytes::new();
                }
                continue;
            }
            let is_busy = answer.code == 429 || answer.code >= 500;
            if let (true, Some(after)) = (is_busy, header(&answer, RETRY_AFTER).and_then(|it| it.parse::<u64>().ok())) {
                tokio::time::sleep(Duration::from_secs(after.min(30))).await;
                continue;
            }
            return read(answer);
        }
        Err(NoAnswer::Unreachable(format!("Post {}: stopped after {REPEATS_MAX} redirects", quote(shown))))
    }

    /// An object of the cache.
    pub(crate) fn object(&self, row: &Resource<'_>, namespace: &str, name: &str) -> Option<Value> {
        let found = self.cache.resource(&row.prefix()).get(&row.key(namespace, name));
        found.map(|object| object.decode())
    }

    /// The address of a Service; none if its pods are simulated and not to be called.
    fn resolve(&self, namespace: &str, name: &str, port: i64) -> Result<Option<String>, String> {
        let key = (namespace.to_owned(), name.to_owned(), u16::try_from(port).unwrap_or_default());
        if let Some(address) = self.mapped.get(&key) {
            return Ok(Some(address.clone()));
        }
        let service = self.object(resources::SERVICES, namespace, name);
        let service = service.ok_or_else(|| format!("service {} not found", quote(name)))?;
        if service.str_at(&["spec", "type"]) == Some("ExternalName") {
            let host = service.text_at(&["spec", "externalName"]);
            return Ok(Some(format!("{host}:{port}")));
        }
        let ports = service.list_at(&["spec", "ports"]);
        let found = ports.iter().find(|it| it.get("port").and_then(Value::as_i64) == Some(port));
        let found = found.ok_or_else(|| format!("no service port {port} found for service {}", quote(name)))?;
        if service.str_at(&["spec", "clusterIP"]) == Some("None") {
            return Err("cannot route to service with ClusterIP \"None\"".to_owned());
        }
        match self.pod(namespace, name, found.text("name")) {
            Ok(address) => Ok(Some(address)),
            Err(NoPod::Simulated) => Ok(None),
            Err(NoPod::NoSlices | NoPod::NotReady) => {
                Err(format!("no endpoints available for service {}", quote(name)))
            }
        }
    }

    /// The address of a ready pod of a Service, for the port of a name.
    pub(crate) fn pod(&self, namespace: &str, name: &str, port_name: &str) -> Result<String, NoPod> {
        let mut none = NoPod::NotReady;
        // Endpoints of one node follow each other often enough.
        let mut last_node: Option<(String, bool)> = None;
        let found = self.find_endpoint(namespace, name, port_name, |endpoint, port| {
            // A simulated pod that is not ready answers as little as one that is.
            if self.simulated == SimulatedBackends::Skip {
                let node = endpoint.text("nodeName");
                let known = last_node.take().filter(|(known, _)| known == node);
                let (_, is_simulated) =
                    last_node.insert(known.unwrap_or_else(|| (node.to_owned(), self.is_simulated_node(node))));
                if *is_simulated {
                    none = NoPod::Simulated;
                    return None;
                }
            }
            address(endpoint).filter(|_| is_ready(endpoint)).map(|address| join_host_port(address, port))
        });
        match found {
            None => Err(NoPod::NoSlices),
            Some(address) => address.ok_or(none),
        }
    }

    /// The ready pods of a Service for the port of a name: address, port and name, as EndpointSlices state them. At most [`PODS_MAX`].
    pub(crate) fn pods(&self, namespace: &str, name: &str, port_name: &str) -> Vec<(String, i64, String)> {
        let mut pods = Vec::new();
        self.find_endpoint(namespace, name, port_name, |endpoint, port| {
            let target = endpoint.get("targetRef").filter(|_| is_ready(endpoint))?;
            let pod = target.str_at(&["name"]).filter(|_| target.str_at(&["namespace"]) == Some(namespace))?;
            pods.push((address(endpoint)?.to_owned(), port, pod.to_owned()));
            (pods.len() >= PODS_MAX).then_some(())
        });
        pods
    }

    /// Passes endpoints of a Service with the port of a name to `find` until it returns something; none if the Service has no
    /// EndpointSlice. A Service may have 100,000 endpoints: at most [`ENDPOINTS_MAX`] of them are examined.
    fn find_endpoint<T>(
        &self,
        namespace: &str,
        name: &str,
        port_name: &str,
        mut find: impl FnMut(&Value, i64) -> Option<T>,
    ) -> Option<Option<T>> {
        let row = resources::ENDPOINT_SLICES;
        let is_of_service = |_: &str, slice: &ServedObject| slice.label(LABEL_SERVICE_NAME) == Some(name);
        let slices = self.cache.resource(&row.prefix()).list(&row.key(namespace, ""), None, 0, is_of_service).objects;
        if slices.is_empty() {
            return None;
        }
        let mut left = ENDPOINTS_MAX;
        for (_, slice) in slices {
            let slice = slice.decode();
            let port = slice.list("ports").iter().find(|it| it.text("name") == port_name);
            let Some(port) = port.and_then(|it| it.get("port")).and_then(Value::as_i64) else { continue };
            for endpoint in slice.list("endpoints").iter().take(left) {
                left = left.saturating_sub(1);
                if let Some(found) = find(endpoint, port) {
                    return Some(Some(found));
                }
            }
            if left == 0 {
                break;
            }
        }
        Some(None)
    }

    /// Whether nothing runs on a node.
    pub(crate) fn is_simulated_node(&self, name: &str) -> bool {
        let node = self.object(resources::NODES, "", name);
        node.is_some_and(|node| node.str_at(&["status", "nodeInfo", "kernelVersion"]) == Some("simulated"))
    }
}

/// Go: the query shows seconds, rounded up.
fn whole_seconds(timeout: Duration) -> u64 {
    let part = u64::from(timeout.subsec_nanos() > 0);
    timeout.as_secs().saturating_add(part).max(1)
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    headers
}

fn header(answer: &OutboundResponse, name: http::HeaderName) -> Option<String> {
    answer.headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
}

/// The body of an answer that is one. Follows `transformResponse` in client-go's `rest/request.go`.
fn read(answer: OutboundResponse) -> Result<Bytes, NoAnswer> {
    let OutboundResponse { code, body, .. } = &answer;
    if !(200..=206).contains(code) {
        let status = api::json::parse(body).ok().filter(|it| it.str_at(&["kind"]) == Some("Status"));
        let status = status.unwrap_or_default();
        let given = status.get("code").and_then(Value::as_i64).and_then(|it| u16::try_from(it).ok());
        let message = status.str_at(&["message"]).filter(|it| !it.is_empty());
        let why = message.map_or_else(|| code_text(*code, &shown_body(&answer)), ToOwned::to_owned);
        return Err(NoAnswer::Rejected(why, given.unwrap_or(*code)));
    }
    if body.is_empty() {
        let kind = header(&answer, CONTENT_TYPE).unwrap_or_default();
        let why = format!("0-length response with status code: {code} and content type: {kind}");
        return Err(NoAnswer::Unreachable(why));
    }
    Ok(answer.body)
}

/// The part of an answer that errors show. Follows `newUnstructuredResponseError` in client-go's `rest/request.go`: the start
/// of a text, and nothing of anything else.
fn shown_body(answer: &OutboundResponse) -> String {
    let is_absent = answer.headers.get(CONTENT_TYPE).is_none_or(HeaderValue::is_empty);
    let kind = header(answer, CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    // An answer that does not name its type is text.
    if is_absent || kind.trim_start().starts_with("text/") {
        let start = answer.body.get(..SHOWN_BYTES_MAX).unwrap_or(&answer.body);
        return String::from_utf8_lossy(start).trim().to_owned();
    }
    UNKNOWN.to_owned()
}

/// Follows `NewGenericServerResponse` in Kubernetes' `api/errors`.
fn code_text(code: u16, body: &str) -> String {
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        406 if body.is_empty() || body == UNKNOWN => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => body,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => return format!("an error on the server ({}) has prevented the request from succeeding", quote(body)),
        _ => return format!("the server responded with the status code {code} but did not return more information"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_may_be_relative() {
        let redirected = |location: &str| {
            let server = Server::of_url("https://hooks.test:8443//failing/a?x=1").unwrap();
            server.redirected(location).map(|it| (it.url, it.address, it.path))
        };
        for (location, url) in [
            ("/failing?timeout=10s", "https://hooks.test:8443/failing?timeout=10s"),
            ("b", "https://hooks.test:8443//failing/b"),
            ("b?u=https://c", "https://hooks.test:8443//failing/b?u=https://c"),
            ("?y", "https://hooks.test:8443//failing/a?y"),
            ("", "https://hooks.test:8443//failing/a"),
            ("/#part", "https://hooks.test:8443/"),
            ("//other.test/x", "https://other.test/x"),
            ("https://other.test:1/x", "https://other.test:1/x"),
        ] {
            let (found, address, path) = redirected(location).unwrap();
            assert_eq!(found, url, "{location}");
            let host = url.trim_start_matches("https://").split('/').next().unwrap();
            assert_eq!(address.trim_end_matches(":443"), host);
            assert!(found.ends_with(&path));
        }
        assert!(redirected("http://other.test/").is_err());
    }

    #[test]
    fn errors_show_the_start_of_texts_only() {
        let read_error = |code: u16, kind: Option<&'static str>, body: &str| {
            let headers = kind.map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind)));
            let body = Bytes::from(body.to_owned());
            match read(OutboundResponse { code, headers: headers.into_iter().collect(), body }) {
                Err(NoAnswer::Rejected(why, code)) => (why, code),
                other => panic!("{other:?}"),
            }
        };
        let failed =
            |said: &str| format!("an error on the server (\"{said}\") has prevented the request from succeeding");
        for (kind, shown) in [
            (None, "secret"),
            (Some(""), "secret"),
            (Some("text/plain; charset=utf-8"), "secret"),
            (Some("Text/HTML"), "secret"),
            (Some("application/json"), "unknown"),
            (Some("application/octet-stream"), "unknown"),
            (Some("textual"), "unknown"),
        ] {
            assert_eq!(read_error(500, kind, " secret\n"), (failed(shown), 500), "{kind:?}");
            assert_eq!(read_error(403, kind, " secret\n"), (shown.to_owned(), 403), "{kind:?}");
        }
        let unsupported = "the server was unable to respond with a content type that the client supports";
        assert_eq!(read_error(406, Some("application/json"), "x").0, unsupported);
        assert_eq!(read_error(406, None, "").0, unsupported);
        assert_eq!(read_error(406, None, "x").0, "x");
        // 2,048 bytes of the answer, before spaces are removed.
        let long = format!("  {}", "y".repeat(3000));
        assert_eq!(read_error(502, None, &long).0, failed(&"y".repeat(2046)));
        // A status is an answer in Kubernetes' form, whatever its type.
        let status = r#"{"kind":"Status","message":"why","code":409}"#;
        assert_eq!(read_error(500, Some("application/json"), status), ("why".to_owned(), 409));
    }
}
