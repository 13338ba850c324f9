//! Answers of other servers, passed on to the client: bodies as streams, and connections that change their protocol.
//!
//! Used for aggregated APIs and for the `proxy` of nodes, pods and services.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONNECTION, UPGRADE};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use telemetry::logs::chain;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

use super::Server;
use crate::aggregator::headers;
use crate::audit;
use crate::outbound::forward::Exchange;
use crate::wire;
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::budget::Charge;
use crate::wire::listing::Piece;
use crate::wire::status::Failure;

/// Parts of an answer that wait for its client.
const PIECES_WAITING: usize = 2;
/// Bytes that an exchange counts as among the unread answers of its user: buffers of the connection to the other server, parts that wait,
/// and the buffer of the client's stream.
const PASSED_BYTES: usize = 256 << 10;
/// Bytes in the path of a request, as Go writes it.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Percent-encodes a decoded path.
pub(crate) fn encoded_path(path: &[u8]) -> String {
    percent_encode(path, PATH).to_string()
}

/// Whether a request asks to change the protocol of its connection.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_named = named.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case("upgrade"));
    is_named && headers.contains_key(UPGRADE)
}

impl Server {
    /// Counts an exchange with another server until its answer is sent: it takes a connection and memory, however small its request is.
    ///
    /// # Errors
    /// 429 if the user has too many.
    pub(crate) fn charge_exchange(&self, user: &str) -> wire::status::Result<Charge> {
        self.budgets.take(user, PASSED_BYTES).ok_or_else(|| {
            let message = "too many requests are passed on to other servers, please try again later";
            Failure::new(429, "TooManyRequests", message).with_detail("retryAfterSeconds", 1_i64)
        })
    }

    /// The answer of another server for the client; its body has to be there by the deadline.
    pub(crate) fn pass_back(self: &Arc<Self>, exchange: Exchange, deadline: Option<Instant>, charge: Charge) -> Answer {
        let response = &exchange.response;
        let code = response.status().as_u16();
        let mut headers = headers::answered(response.headers().clone());
        // That of this server is sent.
        headers.remove(audit::AUDIT_ID);
        let mut body = self.stream_body(exchange, deadline);
        body.charge(charge);
        Answer { passed_on: Some(Box::new(headers)), body, ..Answer::bytes(code, "", "") }
    }

    /// Passes a body on until it ends, the client leaves, or the time is over.
    fn stream_body(self: &Arc<Self>, exchange: Exchange, deadline: Option<Instant>) -> Body {
        let (sender, receiver) = mpsc::channel(PIECES_WAITING);
        let server = self.clone();
        tokio::spawn(async move {
            let mut stopping = server.stopping();
            let (response, connection) = exchange.into_parts();
            let mut body = response.into_body();
            let over = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                is_whole = copy(&mut body, &sender) => if is_whole {
                    server.aggregator.forwarder.put_back(connection);
                },
                () = sender.closed() => {}
                () = over => {}
                // A watch ends; the rest of another answer is missing.
                () = stopping.stopped() => if deadline.is_none() {
                    let _ = sender.send(Piece::End).await;
                },
            }
        });
        Body::Listed(receiver)
    }

    /// Connects the client with a server that changed the protocol; an error of that server is passed on.
    ///
    /// # Errors
    /// Kubernetes' text for an answer that is neither.
    pub(crate) fn pass_upgrade(
        self: &Arc<Self>,
        client: Option<OnUpgrade>,
        mut exchange: Exchange,
        deadline: Instant,
        charge: Charge,
    ) -> Result<Answer, String> {
        let code = exchange.response.status().as_u16();
        if code != 101 {
            if code < 400 {
                return Err(format!("invalid upgrade response: status code {code}"));
            }
            return Ok(self.pass_back(exchange, Some(deadline), charge));
        }
        let Some(client) = client else { return Err("request connection cannot be hijacked".to_owned()) };
        let server = hyper::upgrade::on(&mut exchange.response);
        let mut headers = exchange.response.headers().clone();
        headers.remove(audit::AUDIT_ID);
        let mut stopping = self.stopping();
        tokio::spawn(async move {
            // The connection lives as long as its sender.
            let _exchange = (exchange, charge);
            tokio::select! {
                () = connect(client, server) => {}
                () = stopping.stopped() => {}
            }
        });
        Ok(Answer { passed_on: Some(Box::new(headers)), ..Answer::bytes(101, "", "") })
    }
}

/// Passes a body on; true if the client has all of it.
async fn copy(body: &mut Incoming, sender: &mpsc::Sender<Piece>) -> bool {
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(bytes) = frame.into_data() else { continue };
        if sender.send(Piece::Bytes(bytes)).await.is_err() {
            return false;
        }
    }
    sender.send(Piece::End).await.is_ok()
}

/// Copies bytes between the client and a server until one of them ends.
async fn connect(client: OnUpgrade, server: OnUpgrade) {
    // The client's side is there once it has the answer.
    let (client, server) = match tokio::try_join!(client, server) {
        Ok(both) => both,
        Err(error) => return debug!(err = %chain(&error), "Upgrade failed"),
    };
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
        debug!(err = %chain(&error), "Upgraded connection ended");
    }
}
