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

/// The method that begins an upgrade: handshakes of websockets are GET requests.
pub(crate) fn method(headers: &HeaderMap) -> Method {
    let is_websocket = headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if is_websocket { Method::GET } else { Method::POST }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// The bytes of a head, with its empty line.
    async fn head(stream: &mut DuplexStream) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(bytes).unwrap().to_lowercase()
    }

    /// Relays the upgrade of a client to an agent, and returns both their ends of the connection.
    async fn relayed(request: &'static str, answer: &'static str) -> (DuplexStream, DuplexStream, String, String) {
        let (mut client, own_of_client) = tokio::io::duplex(4096);
        let (mut agent, own_of_agent) = tokio::io::duplex(4096);
        let own_of_agent = std::sync::Arc::new(locks::Mutex::new(Some(own_of_agent)));
        let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
            let agent = own_of_agent.lock().take().unwrap();
            async move {
                let client = hyper::upgrade::on(&mut request);
                let headers = request.headers();
                let answer = relay(agent, "n", method(headers), "/exec/ns/p/c", headers, client).await;
                anyhow::Ok(answer?.map(http_body_util::Full::new))
            }
        });
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(server.serve_connection(TokioIo::new(own_of_client), service).with_upgrades());
        client.write_all(request.as_bytes()).await.unwrap();
        let asked = head(&mut agent).await;
        agent.write_all(answer.as_bytes()).await.unwrap();
        let answered = head(&mut client).await;
        (client, agent, asked, answered)
    }

    #[tokio::test]
    async fn websockets_and_other_protocols_pass_through() {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nCookie: c=d\r\n\
                       Sec-WebSocket-Key: a2V5\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: c2Vl\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";
        let (mut client, mut agent, asked, answered) = relayed(request, answer).await;
        assert!(asked.starts_with("get /exec/ns/p/c http/1.1\r\n"), "{asked}");
        assert!(asked.contains("sec-websocket-key: a2v5") && !asked.contains("cookie"), "{asked}");
        assert!(answered.contains("101 ") && answered.contains("sec-websocket-accept: c2vl"), "{answered}");
        assert!(answered.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{answered}");
        client.write_all(b"to the agent").await.unwrap();
        agent.write_all(b"to the client").await.unwrap();
        let (mut there, mut back) = ([0; 12], [0; 13]);
        agent.read_exact(&mut there).await.unwrap();
        client.read_exact(&mut back).await.unwrap();
        assert_eq!((&there, &back), (b"to the agent", b"to the client"));
        let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        let (_client, _agent, asked, _) = relayed(request, answer).await;
        assert!(asked.starts_with("post /exec/ns/p/c http/1.1\r\n"), "{asked}");
    }
}
