//! Calls to one of several etcd members: selection, time limits, retries, and errors.
//!
//! A call uses the member that answered last. When that fails the next one is used. Reads are repeated; a write
//! only if it certainly never left this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Response, Status};

use super::Options;
use crate::{Cause, Error, Revision};

/// Unread watch events of one watch take at most so much memory here; etcd keeps the rest.
const WATCH_WINDOW_BYTES: u32 = 256 << 10;
/// All watches share a connection; this is room for thousands that do not read.
const WATCHES_WINDOW_BYTES: u32 = 1 << 30;
/// Idle connections are probed so often: etcd allows one probe per 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Time limit for one member before a read is tried on the next.
const ATTEMPT: Duration = Duration::from_secs(3);
const BACKOFF: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Member {
    calls: Channel,
    // A separate connection, because watches that do not read block its flow control.
    watches: Channel,
}

#[derive(Debug)]
pub(super) struct Connection {
    members: Vec<Member>,
    current: AtomicUsize,
    timeout: Duration,
}

impl Connection {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let refuse = |error: tonic::transport::Error| Error::Refused(Cause::new(error));
        let tls = options.tls.as_ref().map(|tls| {
            let mut config = ClientTlsConfig::new();
            if let Some(authority) = &tls.authority_pem {
                config = config.ca_certificate(Certificate::from_pem(authority));
            }
            if let Some((certificate, key)) = &tls.identity_pem {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                config = config.domain_name(name);
            }
            config
        });
        let mut members = Vec::new();
        for address in &options.endpoints {
            let mut endpoint = Endpoint::from_shared(address.clone())
                .map_err(refuse)?
                .connect_timeout(ATTEMPT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(refuse)?;
            }
            let watches = endpoint
                .clone()
                .initial_stream_window_size(WATCH_WINDOW_BYTES)
                .initial_connection_window_size(WATCHES_WINDOW_BYTES);
            members.push(Member { calls: endpoint.connect_lazy(), watches: watches.connect_lazy() });
        }
        if members.is_empty() {
            return Err(Error::Refused(Cause::new("no etcd endpoint is given")));
        }
        Ok(Self { members, current: AtomicUsize::new(0), timeout: options.timeout })
    }

    /// The member whose turn it is, and a number by which to give up on it.
    fn member(&self) -> Result<(usize, &Member), Error> {
        let turn = self.current.load(Ordering::Acquire);
        let position = turn.checked_rem(self.members.len()).unwrap_or_default();
        let member =
            self.members.get(position).ok_or_else(|| Error::Refused(Cause::new("no etcd endpoint is given")))?;
        Ok((turn, member))
    }

    /// Switches to the next member, unless another call has already done so.
    pub(super) fn give_up_on(&self, turn: usize) {
        let _ = self.current.compare_exchange(turn, turn.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the channels for watches, and for calls about them.
    pub(super) fn for_watching(&self) -> Result<(usize, Channel, Channel), Error> {
        let (turn, member) = self.member()?;
        Ok((turn, member.watches.clone(), member.calls.clone()))
    }

    /// A call that changes nothing: tried on one member after the other while there is time.
    pub(super) async fn read<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.run(call, ATTEMPT.min(self.timeout), passes).await
    }

    /// A call that may change something: tried again only if no member can have seen it.
    pub(super) async fn write<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.run(call, self.timeout, was_never_sent).await
    }

    async fn run<T, F>(
        &self,
        call: impl Fn(Channel) -> F,
        attempt: Duration,
        again: fn(&Status) -> bool,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let started = Instant::now();
        let deadline = started.checked_add(self.timeout).unwrap_or(started);
        let mut backoff = BACKOFF;
        loop {
            let (turn, member) = self.member().map_err(|error| Status::internal(error.to_string()))?;
            let until = Instant::now().checked_add(attempt).unwrap_or(deadline).min(deadline);
            let status = match tokio::time::timeout_at(until, call(member.calls.clone())).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("etcd does not answer"),
            };
            if passes(&status) {
                self.give_up_on(turn);
            }
            let next = Instant::now().checked_add(backoff).unwrap_or(deadline);
            if !again(&status) || next >= deadline {
                return Err(status);
            }
            tokio::time::sleep_until(next).await;
            backoff = backoff.saturating_mul(2).min(Duration::from_secs(1));
        }
    }
}

/// Whether the same call may succeed later, or on another member.
pub(super) fn passes(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal | Code::Aborted
    )
}

fn was_never_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Maps an error of etcd. Its texts are part of its interface: codes alone do not distinguish these cases.
pub(super) fn error(status: Status, requested: Revision) -> Error {
    let text = status.message();
    if text.contains("required revision has been compacted") {
        return Error::Compacted { requested, oldest: requested.saturating_add(1) };
    }
    if text.contains("required revision is a future revision") {
        return Error::FutureRevision { requested, current: requested.saturating_sub(1) };
    }
    if text.contains("request is too large") || text.contains("larger than max") {
        return Error::TooLarge { what: "request", size: 0, limit: 0 };
    }
    if text.contains("database space exceeded") {
        return Error::full();
    }
    match status.code() {
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => {
            Error::Refused(Cause::new(status))
        }
        Code::DeadlineExceeded => Error::TimedOut(Cause::new(status)),
        _ => Error::Unavailable(Cause::new(status)),
    }
}
