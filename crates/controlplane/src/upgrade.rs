//! Connections that change their protocol on the way: exec, attach and port-forward pass through as bytes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use telemetry::logs::chain;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

/// The longest body of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Time limit for the answer to an upgrade.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that belong to an upgrade.
fn is_passed(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == UPGRADE
        || name.as_str().starts_with("x-stream-protocol-version")
        || name.as_str().starts_with("sec-websocket-")
}

/// The part of a request's head that an upgrade needs.
pub(crate) fn passed_headers(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(name, _)| is_passed(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Upgrades a connection to another server on behalf of the client, and copies bytes in both directions once
/// both sides agree. Returns the other server's response for the client.
pub(crate) async fn relay<S>(
    stream: S,
    host: &str,
    method: Method,
    path: &str,
    headers: &HeaderMap,
    client: OnUpgrade,
) -> Result<Response<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(err = %chain(&error), "Connection ended");
        }
    });
    let mut request = Request::builder().method(method).uri(path).body(Empty::<Bytes>::new())?;
    *request.headers_mut() = passed_headers(headers);
    request.headers_mut().insert(HOST, host.parse()?);
    let answered = tokio::time::timeout(TIMEOUT, sender.send_request(request)).await;
    let mut answer = answered.context("no answer in time")??;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (parts, body) = answer.into_parts();
        let body = tokio::time::timeout(TIMEOUT, Limited::new(body, REFUSAL_BYTES_MAX).collect()).await;
        let body = body.context("no answer in time")?.map_err(|error| anyhow::anyhow!(error))?;
        return Ok(Response::from_parts(parts, body.to_bytes()));
    }
    let server = hyper::upgrade::on(&mut answer);
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = passed_headers(answer.headers());
    tokio::spawn(async move {
        // The client's side is there once it has the answer.
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => return debug!(err = %chain(&error), "Upgrade failed"),
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
            debug!(err = %chain(&error), "Upgraded connection ended");
        }
    });
    Ok(response)
}
