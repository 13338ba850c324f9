//! `proxy` of nodes, pods and services: a request is passed on to a node agent or to a port of a pod.
//!
//! Addresses of this machine and of its link are refused: they lead to services that only the server can reach. Links in HTML
//! are not rewritten. Follows `ResourceLocation` of the registries of nodes, pods and services in Kubernetes.

use std::net::IpAddr;
use std::time::Duration;

use api::go_text::quote;
use api::json::Value;
use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};

use super::super::Call;
use super::log;
use crate::aggregator::headers;
use crate::audit::Peer;
use crate::outbound::addresses;
use crate::outbound::backends::join_host_port;
use crate::outbound::forward::{self, Destination, Exchange};
use crate::outbound::verifier::Trust;
use crate::resources;
use crate::state::StreamFailure;
use crate::state::passing::{encoded_path, is_upgrade};
use crate::wire::answer::Answer;
use crate::wire::status::{Failure, Result};

/// Time until a server has to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A name with a scheme and a port, such as `https:web:8443`.
struct Reference<'a> {
    is_https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str, kind: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            return Err(Failure::bad_request(format!("invalid {kind} request {}", quote(text))));
        }
        Ok(Self { is_https: scheme == "https", name, port })
    }
}

/// The server that a request is passed on to.
enum Place {
    /// An address with a port.
    Address { address: String, is_https: bool },
    /// The agent of a node.
    Agent { node: Option<Value>, name: String },
}

/// Passes a request on.
pub(super) async fn proxy(call: &Call<'_>) -> Result<Answer> {
    call.wait_for_now().await?;
    let Some(parts) = call.parts else { return Err(Failure::internal("the request has no path")) };
    let place = match call.resource.plural {
        "nodes" => node(call)?,
        "pods" => pod(call)?,
        _ => service(call)?,
    };
    let path = path(call, &parts.uri);
    if path.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) && !is_upgrade(call.headers) {
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        return Ok(Answer::bytes(301, "", "").with_header(LOCATION, format!("{}/{query}", parts.uri.path())));
    }
    let charge = call.server.charge_exchange(&call.user.name)?;
    let is_upgrade = is_upgrade(call.headers);
    let unavailable = |why: String| Failure::new(503, "ServiceUnavailable", why);
    let failed = |why: String| match is_upgrade {
        true => unavailable(why),
        false => unavailable(format!("error trying to reach service: {why}")),
    };
    let host = match &place {
        Place::Address { address, .. } => address.clone(),
        Place::Agent { name, .. } => name.clone(),
    };
    let request = request(call, parts, &host, &path).map_err(failed)?;
    let work = async {
        match place {
            Place::Address { address, is_https } => {
                let name = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let tls = is_https.then_some((name, Trust::Anything));
                forward::send_once(&Destination { address, tls }, request).await.map_err(failed)
            }
            Place::Agent { node, name } => to_agent(call, node, &name, request).await,
        }
    };
    let late = || Failure::new(504, "Timeout", "Timeout: the server behind the proxy did not answer in time");
    let mut exchange = tokio::time::timeout(TIMEOUT, work).await.map_err(|_| late())??;
    rewrite_location(&mut exchange, &host, &prefix(call, parts.uri.path()));
    if is_upgrade {
        let now = tokio::time::Instant::now();
        let deadline = now.checked_add(TIMEOUT).unwrap_or(now);
        return call.server.pass_upgrade(call.upgrade.clone(), exchange, deadline, charge).map_err(unavailable);
    }
    Ok(call.server.pass_back(exchange, None, charge))
}

async fn to_agent(
    call: &Call<'_>,
    node: Option<Value>,
    name: &str,
    request: Request<forward::Body>,
) -> Result<Exchange> {
    let Some(kubelets) = call.server.kubelets() else {
        return Err(Failure::internal(format!("the kubelet of node {name} cannot be reached from this server")));
    };
    let stream = kubelets.connect(node, name.to_owned()).await.map_err(|failure| match failure {
        StreamFailure::Refused(why) => Failure::bad_request(why),
        StreamFailure::Unreachable(why) => Failure::new(503, "ServiceUnavailable", why),
    })?;
    let failed = |why: String| Failure::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}"));
    forward::send_over(stream, request).await.map_err(failed)
}

/// The part of the path behind `proxy`, without steps upwards; empty if there is not even a slash.
fn path(call: &Call<'_>, uri: &Uri) -> String {
    let below = call.target.subresource.strip_prefix("proxy").unwrap_or_default();
    let ends_with_slash = uri.path().ends_with('/');
    clean(below, ends_with_slash)
}

/// Resolves `.` and `..` within the root, and removes double slashes.
fn clean(path: &str, ends_with_slash: bool) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut cleaned: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
    if cleaned.is_empty() && !path.is_empty() || ends_with_slash && !cleaned.ends_with('/') {
        cleaned.push('/');
    }
    encoded_path(cleaned.as_bytes())
}

/// The path of the `proxy` itself, below which the other server's paths are.
fn prefix(call: &Call<'_>, path: &str) -> String {
    let below = call.target.subresource.strip_prefix("proxy").unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    path.strip_suffix(below).unwrap_or(path).to_owned()
}

/// Rewrites a redirect to the same server so that it leads through the proxy.
fn rewrite_location(exchange: &mut Exchange, host: &str, prefix: &str) {
    let headers = exchange.response.headers_mut();
    let Some(location) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let own = ["http", "https"].iter().find_map(|scheme| location.strip_prefix(&format!("{scheme}://{host}")));
    let path = match own {
        Some("") => "/",
        Some(path) if path.starts_with('/') => path,
        None if location.starts_with('/') && !location.starts_with("//") => location,
        _ => return,
    };
    if !path.starts_with(prefix)
        && let Ok(value) = HeaderValue::from_str(&format!("{prefix}{path}"))
    {
        headers.insert(LOCATION, value);
    }
}

/// The request for the other server.
fn request(
    call: &Call<'_>,
    parts: &http::request::Parts,
    host: &str,
    path: &str,
) -> std::result::Result<Request<forward::Body>, String> {
    // Reads of the bare `proxy` are redirected to the path with a slash; other methods are passed on.
    let path = if path.is_empty() { "/" } else { path };
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let is_upgrade = is_upgrade(call.headers);
    let mut head = match is_upgrade {
        true => headers::upgrade(call.headers, host)?,
        false => headers::passed_on(call.headers, host)?,
    };
    headers::remove_identity(&mut head);
    if !is_upgrade {
        headers::set_forwarded(&mut head, host, parts.uri.path())?;
        head.remove(http::header::CONTENT_LENGTH);
    }
    if let Some(Peer(address)) = parts.extensions.get() {
        headers::add_client(&mut head, *address);
    }
    let body = if is_upgrade { bytes::Bytes::new() } else { call.body.clone() };
    let mut request = Request::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = target.parse().map_err(|_| format!("invalid path {}", quote(&target)))?;
    *request.headers_mut() = head;
    Ok(request)
}

fn allowed(address: &str) -> Result<&str> {
    let is_allowed = address.parse::<IpAddr>().is_ok_and(addresses::is_allowed);
    if is_allowed { Ok(address) } else { Err(Failure::bad_request("address not allowed")) }
}

fn number(port: &str) -> Result<u16> {
    let number = port.parse::<u16>().ok().filter(|it| *it != 0);
    number.ok_or_else(|| Failure::bad_request(format!("invalid port {}", quote(port))))
}

fn node(call: &Call<'_>) -> Result<Place> {
    let reference = Reference::parse(&call.target.name, "node")?;
    let Some(node) = log::node(call, reference.name) else {
        return Err(Failure::not_found(call.resource, reference.name));
    };
    if call.server.backends.is_simulated_node(reference.name) {
        return Err(nothing_runs(reference.name));
    }
    let agent_port = node.i64_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
    if reference.port.is_empty() || reference.port.parse() == Ok(agent_port.unwrap_or_default()) {
        return Ok(Place::Agent { node: Some(node), name: reference.name.to_owned() });
    }
    let addresses = node.list_at(&["status", "addresses"]);
    let internal = addresses.iter().find(|it| it.str_at(&["type"]) == Some("InternalIP"));
    let address = internal.and_then(|it| it.str_at(&["address"])).unwrap_or_default();
    let address = join_host_port(allowed(address)?, number(reference.port)?);
    Ok(Place::Address { address, is_https: reference.is_https })
}

fn nothing_runs(node: &str) -> Box<Failure> {
    Failure::bad_request(format!("containers of node {node} are simulated, not run: there is nothing to connect to"))
}

fn pod(call: &Call<'_>) -> Result<Place> {
    let reference = Reference::parse(&call.target.name, "pod")?;
    let found = call.cache().get(&call.resource.key(&call.target.namespace, reference.name));
    let Some(pod) = found.map(|pod| pod.decode()) else {
        return Err(Failure::not_found(call.resource, reference.name));
    };
    let node = pod.text_at(&["spec", "nodeName"]);
    let address = allowed(pod.text_at(&["status", "podIP"]))?;
    if call.server.backends.is_simulated_node(node) {
        return Err(nothing_runs(node));
    }
    let port = match reference.port {
        "" => {
            let containers = pod.list_at(&["spec", "containers"]);
            let mut ports = containers.iter().filter_map(|it| it.get("ports").and_then(Value::as_array)?.first());
            let port = ports.next().and_then(|it| it.get("containerPort")).and_then(Value::as_i64);
            let default = if reference.is_https { 443 } else { 80 };
            port.and_then(|port| u16::try_from(port).ok()).unwrap_or(default)
        }
        port => number(port)?,
    };
    Ok(Place::Address { address: join_host_port(address, port), is_https: reference.is_https })
}

fn service(call: &Call<'_>) -> Result<Place> {
    let reference = Reference::parse(&call.target.name, "service")?;
    let (namespace, name, is_https) = (&call.target.namespace, reference.name, reference.is_https);
    let unavailable = |why: String| Failure::new(503, "ServiceUnavailable", why);
    let backends = &call.server.backends;
    let service = backends.object(resources::SERVICES, namespace, name);
    let ports = service.as_ref().and_then(|it| it.at(&["spec", "ports"])).and_then(Value::as_array).unwrap_or_default();
    let given = |port: &Value| port.get("port").and_then(Value::as_i64);
    let wanted = reference.port.parse::<i64>().ok();
    let found = ports.iter().find(|port| match wanted {
        Some(number) => given(port) == Some(number),
        None => port.text("name") == reference.port,
    });
    let mapped = wanted.or_else(|| given(found?)).and_then(|port| u16::try_from(port).ok());
    let mapped = mapped.and_then(|port| backends.mapped.get(&(namespace.clone(), name.to_owned(), port)));
    if let Some(address) = mapped {
        return Ok(Place::Address { address: address.clone(), is_https });
    }
    let port_name = match (wanted, found) {
        (Some(_), None) if service.is_none() => return Err(Failure::not_found(call.resource, name)),
        (Some(number), None) => {
            return Err(unavailable(format!("no service port {number} found for service {}", quote(name))));
        }
        (Some(_), Some(port)) => port.text("name"),
        (None, _) => reference.port,
    };
    let none = || unavailable(format!("no endpoints available for service {}", quote(name)));
    let mut simulated = None;
    for (address, port, pod) in backends.pods(namespace, name, port_name) {
        // Only addresses that are really those of pods: authors of EndpointSlices can write any.
        let Some(pod) = backends.object(resources::PODS, namespace, &pod) else { continue };
        let addresses = pod.list_at(&["status", "podIPs"]);
        if !addresses.iter().any(|it| it.str_at(&["ip"]) == Some(&address)) || allowed(&address).is_err() {
            continue;
        }
        let node = pod.text_at(&["spec", "nodeName"]);
        if backends.is_simulated_node(node) {
            simulated = Some(nothing_runs(node));
            continue;
        }
        return Ok(Place::Address { address: join_host_port(&address, port), is_https });
    }
    Err(simulated.unwrap_or_else(none))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_scheme_name_and_port() {
        let parsed =
            |text: &str| Reference::parse(text, "pod").map(|it| (it.is_https, it.name.to_owned(), it.port.to_owned()));
        assert_eq!(parsed("web").unwrap(), (false, "web".to_owned(), String::new()));
        assert_eq!(parsed("https:web:8443").unwrap(), (true, "web".to_owned(), "8443".to_owned()));
        for wrong in ["", ":80", "ftp:web:21", "a:b:c:d"] {
            assert_eq!(parsed(wrong).unwrap_err().message, format!("invalid pod request {}", quote(wrong)));
        }
    }

    #[test]
    fn paths_do_not_leave_the_root() {
        for (path, slash, expected) in [
            ("", false, ""),
            ("", true, "/"),
            ("/", true, "/"),
            ("/a/b", false, "/a/b"),
            ("/a/../../../etc/", true, "/etc/"),
            ("/..", false, "/"),
            ("//a/./b c", false, "/a/b%20c"),
        ] {
            assert_eq!(clean(path, slash), expected, "{path}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_refused() {
        for refused in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "::ffff:127.0.0.1", "", "web"] {
            assert!(allowed(refused).is_err(), "{refused}");
        }
        assert!(allowed("10.1.2.3").is_ok() && allowed("fd00::1").is_ok());
    }
}
