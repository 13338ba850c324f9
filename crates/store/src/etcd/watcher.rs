//! One watch on etcd: a stream that is opened again where it ended.
//!
//! Nothing is read ahead. If a reader stops, the stream's window fills, and etcd keeps the rest in its own
//! history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch as signal};
use tokio_stream::Stream;
use tonic::Streaming;

use super::connection::{Connection, error, passes};
use super::proto::{
    self, EventType, StatusRequest, StatusResponse, WatchAction, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse, call, methods,
};
use super::{Options, header_revision, own_key, revision, signed};
use crate::{Batch, Cause, Error, Event, PreviousValue, ProgressRequest, Revision, Source};

/// Interval for repeating progress requests: etcd answers them only while the watch has caught up.
const ASK_AGAIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Time limit for opening a stream before the next member is tried.
const OPENING: Duration = Duration::from_secs(3);

pub(super) struct Watcher {
    connection: Arc<Connection>,
    closed: signal::Receiver<bool>,
    range: (Bytes, Bytes),
    root: String,
    progress_interval: Duration,
    /// Every change up to here has been handed out.
    delivered: Revision,
    open: Option<OpenStream>,
    backoff: Duration,
    target: Arc<Target>,
}

/// The revision that a caller waits for.
struct Target {
    revision: AtomicU64,
    wake: Notify,
}

struct OpenStream {
    turn: usize,
    responses: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
    /// Whether the member answers progress requests reliably.
    can_be_asked: bool,
}

impl Watcher {
    pub(super) fn new(
        connection: Arc<Connection>,
        closed: signal::Receiver<bool>,
        range: (Bytes, Bytes),
        after: Revision,
        options: &Options,
    ) -> Self {
        Self {
            connection,
            closed,
            range,
            root: options.root.clone(),
            progress_interval: options.progress_interval,
            delivered: after,
            open: None,
            backoff: Duration::ZERO,
            target: Arc::new(Target { revision: AtomicU64::new(0), wake: Notify::new() }),
        }
    }

    /// Opens the stream after the last delivered event.
    async fn open(&self) -> Result<OpenStream, tonic::Status> {
        let internal = |error: Error| tonic::Status::internal(error.to_string());
        let (turn, watches, calls) = self.connection.for_watching().map_err(internal)?;
        let opening = async {
            let status: tonic::Response<StatusResponse> = call(calls, methods::STATUS, StatusRequest {}).await?;
            let version = status.into_inner().version;
            let (requests, outgoing) = mpsc::channel(4);
            let (key, range_end) = self.range.clone();
            let create = WatchCreateRequest {
                key,
                range_end,
                // One earlier than needed: etcd then reports compaction exactly when the next change may be missing.
                start_revision: signed(self.delivered.max(1)),
                progress_notify: true,
                prev_kv: true,
            };
            let create = WatchRequest { action: Some(WatchAction::Create(create)) };
            requests.send(create).await.map_err(|_| tonic::Status::cancelled("the stream has ended"))?;
            let responses = proto::watch(watches, OutgoingRequests(outgoing)).await?.into_inner();
            Ok(OpenStream { turn, responses, requests, can_be_asked: reports_progress_reliably(&version) })
        };
        let opened = tokio::time::timeout(OPENING, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(tonic::Status::deadline_exceeded("etcd does not answer")));
        if opened.as_ref().is_err_and(passes) {
            self.connection.give_up_on(turn);
        }
        opened
    }

    /// Returns the news of a response, if there are any.
    fn take(&mut self, response: WatchResponse) -> Result<Option<Batch>, Error> {
        if response.canceled {
            if response.compact_revision != 0 {
                let oldest = revision(response.compact_revision);
                return Err(Error::Compacted { requested: self.delivered, oldest });
            }
            self.open = None;
            return Err(Error::Refused(Cause::new(response.cancel_reason)));
        }
        if response.created {
            return Ok(None);
        }
        let reported = response.header;
        let progress = response.events.is_empty();
        let mut events = Vec::with_capacity(response.events.len());
        for event in response.events {
            let event = self.event(event)?;
            if event.revision > self.delivered {
                events.push(event);
            }
        }
        // With events the header may be ahead of events that are still to be sent.
        let reached = if progress { header_revision(reported) } else { events.last().map_or(0, |last| last.revision) };
        if reached <= self.delivered {
            return Ok(None);
        }
        self.delivered = reached;
        Ok(Some(Batch { events, revision: reached }))
    }

    fn event(&self, event: proto::Event) -> Result<Event, Error> {
        let deleted = event.r#type() == EventType::Delete;
        let pair = event.kv.ok_or_else(|| Error::Damaged(Cause::new("an event without a key")))?;
        Ok(Event {
            key: own_key(&self.root, &pair.key)?,
            revision: revision(pair.mod_revision),
            value: (!deleted).then_some(pair.value),
            previous: event
                .prev_kv
                .map(|previous| PreviousValue { revision: revision(previous.mod_revision), value: previous.value }),
        })
    }
}

#[async_trait]
impl Source for Watcher {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            if *self.closed.borrow() {
                return Err(Error::Closed);
            }
            let mut closed = self.closed.clone();
            let Some(open) = &mut self.open else {
                let opened = tokio::select! {
                    _ = closed.wait_for(|closed| *closed) => return Err(Error::Closed),
                    opened = async {
                        tokio::time::sleep(self.backoff).await;
                        self.open().await
                    } => opened,
                };
                match opened {
                    Ok(open) => self.open = Some(open),
                    Err(status) if passes(&status) => {
                        self.backoff = self.backoff.saturating_mul(2).clamp(ASK_AGAIN, BACKOFF_MAX);
                    }
                    Err(status) => return Err(error(status, self.delivered)),
                }
                continue;
            };
            let wanted = self.target.revision.load(Ordering::Acquire) > self.delivered;
            let pause = if wanted { ASK_AGAIN } else { self.progress_interval };
            if wanted && open.can_be_asked {
                ask_for_progress(&open.requests);
            }
            let response = tokio::select! {
                _ = closed.wait_for(|closed| *closed) => return Err(Error::Closed),
                response = open.responses.message() => response,
                () = self.target.wake.notified() => continue,
                () = tokio::time::sleep(pause) => {
                    if open.can_be_asked {
                        ask_for_progress(&open.requests);
                    }
                    continue;
                }
            };
            match response {
                Ok(Some(response)) => {
                    self.backoff = Duration::ZERO;
                    if let Some(batch) = self.take(response)? {
                        return Ok(batch);
                    }
                }
                // Ended by the member or by the network: continue on another member.
                Ok(None) => {
                    self.connection.give_up_on(open.turn);
                    self.open = None;
                }
                Err(status) if passes(&status) => {
                    self.connection.give_up_on(open.turn);
                    self.open = None;
                }
                Err(status) => {
                    self.open = None;
                    return Err(error(status, self.delivered));
                }
            }
        }
    }

    fn progress_request(&self) -> ProgressRequest {
        let target = Arc::downgrade(&self.target);
        ProgressRequest::new(move |revision| {
            if let Some(target) = target.upgrade() {
                target.revision.fetch_max(revision, Ordering::AcqRel);
                target.wake.notify_one();
            }
        })
    }
}

fn ask_for_progress(requests: &mpsc::Sender<WatchRequest>) {
    // If there is no room, there are questions enough.
    let _ = requests.try_send(WatchRequest { action: Some(WatchAction::Progress(WatchProgressRequest {})) });
}

/// Whether a version answers progress requests reliably. Older versions answer before they have sent the
/// covered events. Kubernetes uses the same limits.
fn reports_progress_reliably(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = [(); 3].map(|()| numbers.next().unwrap_or(0));
    version >= [3, 4, 31] && !([3, 5, 0]..[3, 5, 13]).contains(&version)
}

/// The stream's outgoing side.
struct OutgoingRequests(mpsc::Receiver<WatchRequest>);

impl Stream for OutgoingRequests {
    type Item = WatchRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<WatchRequest>> {
        self.0.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::reports_progress_reliably;

    #[test]
    fn only_fixed_versions_are_asked_for_progress() {
        for (version, reliable) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("4.0.0", true),
            ("", false),
            ("what", false),
        ] {
            assert_eq!(reports_progress_reliably(version), reliable, "{version}");
        }
    }
}
