//! etcd's API (v3) for a [`Store`] of this process, for test environments that start their own `etcd`.
//!
//! Serves the requests that [`Etcd`](super::Etcd) sends, and `GET /health`; any other method is refused as unimplemented. The
//! protocol is gRPC over plain HTTP/2: one message per frame, status in the trailers. Data lives as long as the store does.

use locks::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::proto::{
    CompactionRequest, CompactionResponse, Event, EventType, KeyValue, LeaseGrantRequest, LeaseGrantResponse,
    Operation, RangeRequest, RangeResponse, ResponseHeader, ResponseOp, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse, WatchAction, WatchCreateRequest, WatchRequest, WatchResponse, methods,
};
use super::{EVERYTHING, revision, signed};
use crate::watch::Batch;
use crate::{Change, Entry, Error, Guard, ListOptions, Outcome, Revision, Store, Watch, Write};

/// Version reported to clients: recent enough for progress requests.
const VERSION: &str = "3.6.0";
/// Largest request message, above the largest object that an API server stores.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of leases; the oldest are dropped first, and their keys then never expire.
const LEASES_MAX: usize = 100_000;
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Responses of one watch that wait for the client.
const WATCH_RESPONSES_MAX: usize = 16;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves a store until the process or the future ends.
pub async fn serve(listener: TcpListener, store: Arc<dyn Store>) {
    let service = Arc::new(Service { store, leases: Mutex::default(), next_lease: AtomicI64::new(1) });
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = accept(&listener) => match accepted {
                Ok(stream) => stream,
                // Most often there are no more file descriptors: wait until there are.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let service = service.clone();
        connections.spawn(async move {
            let answer = hyper::service::service_fn(move |request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.answer(request).await) }
            });
            // A connection that breaks is the client's to reopen.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// Accepts a connection. Small answers are sent at once: with Nagle's algorithm each would wait for the client's delayed
/// acknowledgment, 40 ms.
async fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    // The option fails on a connection that is already closed, which its task finds out.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A gRPC status other than OK.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn invalid(message: &str) -> Self {
        Self::new(3, format!("etcdserver: {message}"))
    }

    fn unimplemented(what: &str) -> Self {
        Self::new(12, format!("celplane's etcd does not serve {what}: use a real etcd"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Compacted { .. } => Self::new(11, "etcdserver: mvcc: required revision has been compacted"),
            Error::FutureRevision { .. } => Self::new(11, "etcdserver: mvcc: required revision is a future revision"),
            Error::TooLarge { .. } => Self::invalid("request is too large"),
            Error::Full { .. } => Self::new(8, "etcdserver: mvcc: database space exceeded"),
            Error::Refused(_) => Self::invalid(&error.to_string()),
            other => Self::new(14, format!("etcdserver: {other}")),
        }
    }
}

struct Service {
    store: Arc<dyn Store>,
    /// Time to live by lease.
    leases: Mutex<BTreeMap<i64, Duration>>,
    next_lease: AtomicI64,
}

impl Service {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if request.method() == Method::GET && path == "/health" {
            return health();
        }
        let answered = match path.as_str() {
            "/etcdserverpb.Watch/Watch" => self.watch(request.into_body()).await,
            _ => self.unary(&path, request.into_body()).await,
        };
        answered.unwrap_or_else(|failure| failed(&failure))
    }

    async fn unary(&self, path: &str, body: Incoming) -> Result<Response<Body>, Failure> {
        let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
        let mut body = BytesMut::from(body.map_err(|error| Failure::new(13, error.to_string()))?.to_bytes());
        let message = take_message(&mut body)?.ok_or_else(|| Failure::invalid("the request is incomplete"))?;
        let reply = match path {
            methods::RANGE => encode(&self.range(decode(message)?).await?),
            methods::TXN => encode(&self.transaction(decode(message)?).await?),
            methods::COMPACT => {
                let CompactionRequest { revision: at } = decode(message)?;
                self.store.compact(revision(at)).await?;
                encode(&CompactionResponse {})
            }
            methods::LEASE_GRANT => {
                let LeaseGrantRequest { ttl } = decode(message)?;
                encode(&LeaseGrantResponse { id: self.grant(ttl) })
            }
            methods::STATUS => {
                let StatusRequest {} = decode(message)?;
                encode(&StatusResponse { version: VERSION.to_owned() })
            }
            other => return Err(Failure::unimplemented(other)),
        };
        let frames = [Ok(Frame::data(reply)), Ok(Frame::trailers(ok_trailers()))];
        Ok(grpc(StreamBody::new(tokio_stream::iter(frames)).boxed_unsync()))
    }

    fn grant(&self, ttl: i64) -> i64 {
        let id = self.next_lease.fetch_add(1, Ordering::Relaxed);
        let mut leases = self.leases.lock();
        if leases.len() >= LEASES_MAX {
            leases.pop_first();
        }
        leases.insert(id, Duration::from_secs(u64::try_from(ttl).unwrap_or(1)));
        id
    }

    fn time_to_live(&self, lease: i64) -> Option<Duration> {
        self.leases.lock().get(&lease).copied()
    }

    async fn header(&self) -> Result<Option<ResponseHeader>, Failure> {
        Ok(header(self.store.current_revision().await?))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        let at = Some(revision(request.revision)).filter(|revision| *revision != 0);
        if request.range_end.is_empty() && at.is_none() {
            let reading = self.store.get(text(&request.key)?, 0).await?;
            let entry = reading.entry.as_ref();
            return Ok(RangeResponse {
                header: header(reading.revision),
                count: entry.map_or(0, |_| 1),
                kvs: if request.count_only { Vec::new() } else { entry.map(pair).into_iter().collect() },
                more: false,
            });
        }
        let (prefix, after_key) = bounds(&request.key, &request.range_end)?;
        let limit = match (request.count_only, request.limit) {
            (true, _) => Some(0),
            (false, ..=0) => None,
            (false, limit) => usize::try_from(limit).ok(),
        };
        let options = ListOptions { revision: at, limit, after_key, bytes_max: None };
        let page = self.store.list(&prefix, options).await?;
        // As in etcd, the header has the current revision, regardless of the one that was read.
        let header = if at.is_none() { header(page.revision) } else { self.header().await? };
        let returned = u64::try_from(page.entries.len()).unwrap_or(u64::MAX);
        Ok(RangeResponse {
            header,
            count: signed(page.remaining.saturating_add(returned)),
            more: page.remaining > 0 && !request.count_only,
            kvs: page.entries.iter().map(pair).collect(),
        })
    }

    /// One guarded write: compare the key's revision, then put or delete it, else read it.
    async fn transaction(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        let ([compare], [change]) = (request.compare.as_slice(), request.success.as_slice()) else {
            return Err(Failure::unimplemented("transactions of several operations"));
        };
        let Some(since) = compare.mod_revision.filter(|_| compare.target == 2 && compare.result == 0) else {
            return Err(Failure::unimplemented("comparisons other than of the revision"));
        };
        let (key, change) = match &change.request {
            Some(Operation::Put(put)) => {
                let ttl = if put.lease == 0 { None } else { self.time_to_live(put.lease) };
                (&put.key, Change::Put { value: put.value.clone(), ttl })
            }
            Some(Operation::DeleteRange(delete)) => (&delete.key, Change::Delete),
            _ => return Err(Failure::unimplemented("transactions that only read")),
        };
        if *key != compare.key {
            return Err(Failure::unimplemented("transactions over several keys"));
        }
        let guard = if since == 0 { Guard::Absent } else { Guard::Unchanged(revision(since)) };
        match self.store.write(Write { key: text(key)?.to_owned(), guard, change }).await? {
            Outcome::Done { revision } => {
                Ok(TxnResponse { header: header(revision), succeeded: true, responses: Vec::new() })
            }
            Outcome::Conflict { current } => {
                let found: Vec<KeyValue> = current.as_ref().map(pair).into_iter().collect();
                let count = i64::from(!found.is_empty());
                let range = RangeResponse { header: None, kvs: found, more: false, count };
                let responses = vec![ResponseOp { range: Some(range) }];
                Ok(TxnResponse { header: self.header().await?, succeeded: false, responses })
            }
        }
    }

    /// Opens the one watch of a stream.
    async fn watch(self: Arc<Self>, mut body: Incoming) -> Result<Response<Body>, Failure> {
        let mut received = BytesMut::new();
        let Some(first) = next_request(&mut body, &mut received).await? else {
            return Err(Failure::invalid("the stream ended before a watch was created"));
        };
        let Some(WatchAction::Create(create)) = first.action else {
            return Err(Failure::unimplemented("progress before a watch is created"));
        };
        let (responses, outgoing) = mpsc::channel(WATCH_RESPONSES_MAX);
        tokio::spawn(async move {
            let ended = self.follow(create, body, received, &responses).await;
            let trailers = match ended {
                Ok(()) => ok_trailers(),
                Err(failure) => trailers(&failure),
            };
            let _ = responses.send(Ok(Frame::trailers(trailers))).await;
        });
        Ok(grpc(StreamBody::new(ReceiverStream::new(outgoing)).boxed_unsync()))
    }

    async fn follow(
        &self,
        create: WatchCreateRequest,
        mut body: Incoming,
        mut received: BytesMut,
        responses: &mpsc::Sender<Result<Frame<Bytes>, Infallible>>,
    ) -> Result<(), Failure> {
        let created = WatchResponse { header: self.header().await?, created: true, ..WatchResponse::default() };
        let mut watch = match self.open(&create).await {
            Ok(watch) => watch,
            Err(Error::Compacted { oldest, .. }) => {
                send(responses, &created).await;
                send(responses, &compacted(oldest)).await;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let progress = watch.progress_request();
        // The revision up to which every change has been sent.
        let mut covered = 0;
        send(responses, &created).await;
        loop {
            tokio::select! {
                // Dropped by the client: nothing is left to do.
                () = responses.closed() => return Ok(()),
                request = next_request(&mut body, &mut received) => match request? {
                    None => return Ok(()),
                    Some(WatchRequest { action: Some(WatchAction::Progress(_)) }) => {
                        let current = self.store.current_revision().await?;
                        if covered >= current {
                            send(responses, &WatchResponse { header: header(covered), ..WatchResponse::default() }).await;
                        } else {
                            progress.reach(current);
                        }
                    }
                    Some(_) => return Err(Failure::unimplemented("several watches on one stream")),
                },
                batch = watch.next() => match batch {
                    Ok(batch) => {
                        covered = batch.revision;
                        send(responses, &changes(&batch)).await;
                    }
                    Err(Error::Compacted { oldest, .. }) => {
                        send(responses, &compacted(oldest)).await;
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    /// The changes from a revision on. etcd keeps the change at the revision of a compaction, the store only
    /// later ones.
    async fn open(&self, create: &WatchCreateRequest) -> Result<Watch, Error> {
        let (prefix, _) = bounds(&create.key, &create.range_end)
            .map_err(|failure| Error::Refused(crate::Cause::new(failure.message)))?;
        let start = match revision(create.start_revision) {
            0 => return self.store.watch(&prefix, self.store.current_revision().await?).await,
            start => start,
        };
        match self.store.watch(&prefix, start.saturating_sub(1)).await {
            Err(Error::Compacted { .. }) => self.store.watch(&prefix, start).await,
            watch => watch,
        }
    }
}

fn changes(batch: &Batch) -> WatchResponse {
    let events = batch.events.iter().map(|event| {
        let kind = if event.value.is_some() { EventType::Put } else { EventType::Delete };
        let key = Bytes::copy_from_slice(event.key.as_bytes());
        let previous = event.previous.as_ref().map(|previous| KeyValue {
            key: key.clone(),
            mod_revision: signed(previous.revision),
            value: previous.value.clone(),
        });
        let value = event.value.clone().unwrap_or_default();
        let kv = KeyValue { key, mod_revision: signed(event.revision), value };
        Event { r#type: kind.into(), kv: Some(kv), prev_kv: previous }
    });
    WatchResponse { header: header(batch.revision), events: events.collect(), ..WatchResponse::default() }
}

fn compacted(oldest: Revision) -> WatchResponse {
    let cancel_reason = "etcdserver: mvcc: required revision has been compacted".to_owned();
    WatchResponse { canceled: true, compact_revision: signed(oldest.max(1)), cancel_reason, ..WatchResponse::default() }
}

async fn send(responses: &mpsc::Sender<Result<Frame<Bytes>, Infallible>>, response: &WatchResponse) {
    // The loop detects a client that has disconnected.
    let _ = responses.send(Ok(Frame::data(encode(response)))).await;
}

/// Reads the next request of a stream.
async fn next_request(body: &mut Incoming, received: &mut BytesMut) -> Result<Option<WatchRequest>, Failure> {
    loop {
        if let Some(message) = take_message(received)? {
            return decode(message).map(Some);
        }
        let Some(frame) = body.frame().await else { return Ok(None) };
        let Ok(frame) = frame else { return Ok(None) };
        if let Ok(data) = frame.into_data() {
            received.extend_from_slice(&data);
        }
    }
}

/// Splits off the first message: a flag for compression, the length, the message.
fn take_message(received: &mut BytesMut) -> Result<Option<Bytes>, Failure> {
    const PREFIX: usize = 5;
    let Some(mut prefix) = received.get(..PREFIX) else { return Ok(None) };
    if prefix.get_u8() != 0 {
        return Err(Failure::unimplemented("compressed messages"));
    }
    let length = usize::try_from(prefix.get_u32()).unwrap_or(usize::MAX);
    if length > MESSAGE_BYTES_MAX {
        return Err(Failure::invalid("request is too large"));
    }
    let end = length.saturating_add(PREFIX);
    if received.len() < end {
        return Ok(None);
    }
    let mut message = received.split_to(end);
    message.advance(PREFIX);
    Ok(Some(message.freeze()))
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Failure> {
    M::decode(message).map_err(|error| Failure::invalid(&error.to_string()))
}

fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(length.saturating_add(5));
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.put_slice(&message.encode_to_vec());
    frame.freeze()
}

/// The prefix that a range covers, and the key after which it starts.
fn bounds(key: &Bytes, range_end: &Bytes) -> Result<(String, Option<String>), Failure> {
    let prefix = match range_end.as_ref() {
        b"" => key.to_vec(),
        EVERYTHING => Vec::new(),
        end => {
            let mut prefix = end.to_vec();
            let last = prefix.last_mut().ok_or_else(|| Failure::invalid("empty range"))?;
            *last = last.checked_sub(1).ok_or_else(|| Failure::unimplemented("ranges other than of a prefix"))?;
            prefix
        }
    };
    let prefix = text(&prefix)?.to_owned();
    let start = if key.as_ref() == EVERYTHING { &[] } else { key.as_ref() };
    let after_key = match start.strip_suffix(&[0]) {
        _ if start == prefix.as_bytes() => None,
        Some(before) => Some(text(before)?.to_owned()),
        None => return Err(Failure::unimplemented("ranges other than of a prefix")),
    };
    Ok((prefix, after_key))
}

fn text(key: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(key).map_err(|_| Failure::invalid("a key is not UTF-8"))
}

fn pair(entry: &Entry) -> KeyValue {
    let key = Bytes::copy_from_slice(entry.key.as_bytes());
    KeyValue { key, mod_revision: signed(entry.revision), value: entry.value.clone() }
}

fn header(revision: Revision) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision: signed(revision) })
}

fn health() -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(br#"{"health":"true","reason":""}"#)).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn grpc(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A response of trailers only.
fn failed(failure: &Failure) -> Response<Body> {
    let mut response = grpc(Full::new(Bytes::new()).boxed_unsync());
    response.headers_mut().extend(trailers(failure));
    response
}

fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

fn trailers(failure: &Failure) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(failure.code)));
    // gRPC escapes characters that are invalid in a header; our messages are plain apart from a client's text.
    let message: String =
        failure.message.chars().map(|c| if (c.is_ascii_graphic() || c == ' ') && c != '%' { c } else { ' ' }).collect();
    if let Ok(message) = HeaderValue::from_str(&message) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_small_answers_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(accept(&listener).await.unwrap().nodelay().unwrap());
        drop(client);
    }
}
