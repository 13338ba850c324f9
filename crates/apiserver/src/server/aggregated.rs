//! Requests for aggregated APIs: passed on to the server of their group and version, with the user in their head.
//!
//! Bodies are streams in both directions. Watches end with their client, other answers have as long as any request.
//! Connections that change their protocol pass through as bytes. Follows `handler_proxy.go` in `kube-aggregator` of
//! Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::upgrade::OnUpgrade;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::time::Instant;

use super::{Flow, RequestBody, Server};
use crate::aggregator::endpoint::Endpoint;
use crate::aggregator::{RemoteVersion, headers};
use crate::audit;
use crate::authorization;
use crate::outbound::forward::{Exchange, empty};
use crate::state::passing::{encoded_path, is_upgrade};
use crate::wire::answer::Answer;
use crate::wire::budget::Charge;
use crate::wire::request::{Query, Target, Verb};
use crate::wire::status::{Failure, Result};

/// The longest body of a request that is passed on. Aggregated API servers have limits of their own.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes in the query of a request, as Go writes it.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

impl Server {
    /// The aggregated API server for a path that names no resource.
    pub(super) fn find_aggregated_path(&self, path: &str) -> Option<RemoteVersion> {
        let below = path.strip_prefix("/apis/")?;
        let below = percent_decode_str(below).decode_utf8().ok()?;
        let (group, version) = below.strip_suffix('/').unwrap_or(&below).split_once('/')?;
        self.aggregator.find(group, version)
    }

    /// Passes a request on to an aggregated API server. One for a resource has been authorized.
    pub(super) async fn forward(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        body: RequestBody,
        flow: &Flow<'_>,
        remote: &RemoteVersion,
    ) -> Result<Answer> {
        let user = flow.asked.user;
        if flow.asked.target.is_none() {
            let verb = parts.method.as_str().to_lowercase();
            let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
            let asked = authorization::Request::Path { verb: &verb, path: &path };
            if self.authorizer.authorize(user, asked).is_err() {
                self.catch_up().await;
                self.authorizer.authorize(user, asked)?;
            }
        }
        let is_upgrade = is_upgrade(&parts.headers);
        let is_long = is_upgrade || is_long_running(flow.asked.target);
        let _seat = match self.seat(flow, None).await {
            // The other server may take long to begin such an answer.
            Ok(seat) => Some(seat).filter(|_| !is_long),
            Err(refused) => return Ok(refused),
        };
        if remote.is_local {
            return self.resource_metrics(parts, flow).await;
        }
        if remote.is_simulated {
            return Ok(simulated(remote, flow.asked.target));
        }
        let charge = self.charge_exchange(&user.name)?;
        let endpoint = if remote.is_available { self.aggregator.endpoint(remote).ok() } else { None };
        let Some(endpoint) = endpoint else { return Ok(Answer::text(503, "service unavailable\n")) };
        let path = encoded_path(&percent_decode_str(parts.uri.path()).collect::<Vec<u8>>());
        let target = match encoded(flow.query) {
            query if query.is_empty() => path.clone(),
            query => format!("{path}?{query}"),
        };
        let failed = |why: String| Ok(Answer::text(503, format!("{why}\n")));
        let head = self.head(parts, flow, &endpoint, &path, is_upgrade);
        let (head, uri) = match (head, target.parse::<http::Uri>()) {
            (Ok(head), Ok(uri)) => (head, uri),
            (Err(why), _) => return failed(format!("error trying to reach service: {why}")),
            (_, Err(_)) => return Err(Failure::bad_request("the path cannot be passed on")),
        };
        let mut request = Request::new(match is_upgrade {
            true => empty(),
            false => Limited::new(body, REQUEST_BYTES_MAX).map_err(too_large).boxed_unsync(),
        });
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = head;
        let deadline = if is_long { None } else { Some(self.deadline(flow.query)) };
        let certificate = self.aggregator.certificate();
        let sent = self.aggregator.forwarder.send(&endpoint.destination, certificate, request);
        let late = || {
            let message = "Timeout: request did not complete within the allotted timeout";
            Failure::new(504, "Timeout", message).with_no_details()
        };
        let exchange = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, sent).await.map_err(|_| late())?,
            None => sent.await,
        };
        match exchange {
            Err(why) if why == TOO_LARGE => Err(Failure::new(413, "RequestEntityTooLarge", why)),
            Err(why) if is_upgrade => failed(why),
            Err(why) => failed(format!("error trying to reach service: {why}")),
            Ok(exchange) if is_upgrade => {
                let client = parts.extensions.get::<OnUpgrade>().cloned();
                self.pass_upgrade(client, exchange, self.deadline(&Query::default()), charge).or_else(failed)
            }
            Ok(exchange) => Ok(self.passed_back(exchange, deadline, charge)),
        }
    }

    /// The head of a request that is passed on.
    fn head(
        &self,
        parts: &http::request::Parts,
        flow: &Flow<'_>,
        endpoint: &Endpoint,
        path: &str,
        is_upgrade: bool,
    ) -> std::result::Result<HeaderMap, String> {
        let mut head = match is_upgrade {
            true => headers::upgrade(&parts.headers, &endpoint.host)?,
            false => headers::passed_on(&parts.headers, &endpoint.host)?,
        };
        if !is_upgrade {
            headers::set_forwarded(&mut head, &endpoint.host, path)?;
            // The length is that of the body that is sent.
            head.remove(http::header::CONTENT_LENGTH);
        }
        if let Some(audit::Peer(address)) = parts.extensions.get() {
            headers::add_client(&mut head, *address);
        }
        headers::set_user(&mut head, flow.asked.user)?;
        Ok(head)
    }

    /// The time by which the whole answer has to be there.
    fn deadline(&self, query: &Query) -> Instant {
        let wanted = api::duration::Duration::parse(query.get("timeout")).ok().map(|it| it.nanos);
        let wanted = wanted.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
        let limit = self.options.request_timeout;
        let time = wanted.map_or(limit, |nanos| Duration::from_nanos(nanos).min(limit));
        let now = Instant::now();
        now.checked_add(time).unwrap_or(now)
    }

    /// The answer of an aggregated API server, for the client.
    fn passed_back(self: &Arc<Self>, exchange: Exchange, deadline: Option<Instant>, charge: Charge) -> Answer {
        let response = &exchange.response;
        if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
            let text = "the backend attempted to redirect this request, which is not permitted";
            return Answer::bytes(502, "text/plain; charset=utf-8", text);
        }
        self.pass_back(exchange, deadline, charge)
    }
}

const TOO_LARGE: &str = "Request entity too large: limit is 67108864";

fn too_large(error: Box<dyn std::error::Error + Send + Sync>) -> std::io::Error {
    if error.is::<LengthLimitError>() { std::io::Error::other(TOO_LARGE) } else { std::io::Error::other(error) }
}

/// Whether a request may last as long as its client wants.
fn is_long_running(target: Option<&Target>) -> bool {
    let parts = ["attach", "exec", "proxy", "log", "portforward"];
    target.is_some_and(|it| it.verb == Some(Verb::Watch) || parts.contains(&it.first_subresource()))
}

/// A query in the order of its keys.
fn encoded(query: &Query) -> String {
    let mut pairs: Vec<(&str, &str)> = query.pairs().collect();
    pairs.sort_by_key(|(key, _)| *key);
    let encode = |text: &str| utf8_percent_encode(text, QUERY).to_string().replace(' ', "+");
    let pairs = pairs.into_iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The answer for a server whose pods are simulated. Discovery has no resources, so that clients which read all of it work.
fn simulated(remote: &RemoteVersion, target: Option<&Target>) -> Answer {
    if target.is_none() {
        let group_version = format!("{}/{}", remote.group, remote.version);
        let list = api::json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": []
        });
        return Answer::json(200, &list);
    }
    let (namespace, name, _) = &remote.service;
    let text = format!(
        "service unavailable: the pods of service/{name} in {} are simulated; map it to a local process with --backend\n",
        api::go_text::quote(namespace)
    );
    Answer::text(503, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_sorted_and_encoded() {
        let query = Query::parse("limit=5&labelSelector=a%3Db&x=1+2&limit=4&empty");
        assert_eq!(encoded(&query), "empty=&labelSelector=a%3Db&limit=5&limit=4&x=1+2");
    }
}
