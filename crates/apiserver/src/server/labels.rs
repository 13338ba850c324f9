//! Labels of a request in metrics and logs.

use std::borrow::Cow;
use std::time::Duration;

use tracing::info;

use super::Server;
use crate::audit;
use crate::custom::rows::Row;
use crate::metrics::Labels;
use crate::wire::request::{Target, Verb};

impl Server {
    pub(super) fn labels_of<'a>(&self, method: &http::Method, target: Option<&'a Target>) -> Labels<'a> {
        let unnamed = Labels { verb: method_label(method), ..Labels::default() };
        let Some(target) = target else { return unnamed };
        let custom = || self.customs.snapshot().find(&target.group, &target.version, &target.resource).cloned();
        let row = self.find_built_in(target).map(Row::BuiltIn).or_else(|| custom().map(Row::Custom));
        let Some(row) = row else { return unnamed };
        let resource = row.resource();
        let verb = match target.verb {
            Some(Verb::List) => "LIST",
            Some(Verb::Watch) => "WATCH",
            Some(Verb::DeleteCollection) => "DELETECOLLECTION",
            Some(Verb::Get) => "GET",
            _ => method_label(method),
        };
        let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let subresource = resource.subresource(&target.subresource).map_or("", |it| it.name);
        Labels { verb, group: &target.group, version: &target.version, resource: &target.resource, subresource, scope }
    }
}

/// A line for a request, with Kubernetes' keys.
pub(super) fn log_request(parts: &http::request::Parts, verb: &str, code: u16, latency: Duration) {
    let text = |name: http::HeaderName| {
        parts.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default()
    };
    let source = parts.extensions.get().map(|audit::Peer(address)| address.to_string()).unwrap_or_default();
    info!(
        verb = verb.to_uppercase(),
        URI = parts.uri.path_and_query().map_or("/", |it| it.as_str()),
        ?latency,
        userAgent = %text(http::header::USER_AGENT),
        auditID = %text(audit::AUDIT_ID),
        srcIP = source,
        resp = code,
        "HTTP"
    );
}

/// The verb of a request, as rules name it.
pub(crate) fn verb_name(method: &http::Method, target: Option<&Target>) -> Cow<'static, str> {
    let verb = target.and_then(|target| target.verb);
    match (verb, target) {
        (Some(verb), _) => verb.name().into(),
        // Kubernetes: a method that means nothing to resources has no name there.
        (None, Some(_)) => "".into(),
        (None, None) => method.as_str().to_lowercase().into(),
    }
}

/// Methods as metrics name them. Clients invent others without end; all of those are one.
fn method_label(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        "TRACE" => "TRACE",
        _ => "other",
    }
}
