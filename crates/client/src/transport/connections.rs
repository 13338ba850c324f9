//! Connections of one session: separate ones for watches and for requests, and further ones when streams run out.
//!
//! An HTTP/2 server limits the streams of a connection; upstream's API server allows 100. Beyond its limit, a request waits
//! inside the connection without any sign of it, and watches hold their streams for minutes. Streams are therefore counted
//! here: a watch never takes a stream from a request, a full connection is followed by another one, and a request that must
//! wait because all connections are full is logged and counted.

use locks::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use http::Uri;
use telemetry::metrics::{Counter, Family, Registry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::AnyError;

/// Streams used on one connection. Upstream's server allows 100; a stream that was just reset still counts there.
const STREAMS_MAX: usize = 90;
/// Connections for watches, and for requests. Together with the streams, this bounds what one client asks at a time.
const CONNECTIONS_MAX: usize = 16;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Answers that end when the server or the client ends them.
    Watch,
    /// Everything else.
    Request,
}

impl Purpose {
    /// The purpose of a connection for a request to this address.
    pub(crate) fn of(uri: &Uri) -> Self {
        let mut query = uri.query().unwrap_or_default().split('&');
        if query.any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true")) {
            Purpose::Watch
        } else {
            Purpose::Request
        }
    }

    fn name(self) -> &'static str {
        match self {
            Purpose::Watch => "watch",
            Purpose::Request => "request",
        }
    }
}

/// Counts requests that waited for a stream, once the metrics have a place.
#[derive(Default)]
pub(crate) struct Waits(OnceLock<Arc<Family<Counter>>>);

impl Waits {
    pub(crate) fn publish(&self, registry: &Registry) {
        self.0.get_or_init(|| {
            registry.family(
                "rest_client_stream_waits_total",
                "[ALPHA] Number of requests that waited because all connections to the API server were full.",
                &["purpose"],
                &[],
            )
        });
    }

    fn count(&self, purpose: Purpose) {
        if let Some(family) = self.0.get() {
            family.with(&[purpose.name()]).increment();
        }
    }
}

/// Connections for one purpose. `C` makes one HTTP/2 connection and keeps it.
pub(crate) struct Connections<C> {
    purpose: Purpose,
    make: Box<dyn Fn() -> Result<C, AnyError> + Send + Sync>,
    /// As many permits as there are streams on all connections together.
    free: Arc<Semaphore>,
    open: Mutex<Vec<Connection<C>>>,
    waits: Arc<Waits>,
    /// Set while requests have to wait: only the first of several is logged.
    is_full: AtomicBool,
}

struct Connection<C> {
    client: C,
    streams: Arc<AtomicUsize>,
}

/// A stream in use, until it is dropped.
pub(crate) struct Stream {
    streams: Arc<AtomicUsize>,
    // INVARIANT: dropped after `streams` was decremented, so that a permit always finds a connection with a free stream.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<C: Clone> Connections<C> {
    pub(crate) fn new(
        purpose: Purpose,
        waits: Arc<Waits>,
        make: impl Fn() -> Result<C, AnyError> + Send + Sync + 'static,
    ) -> Self {
        let free = Arc::new(Semaphore::new(STREAMS_MAX.saturating_mul(CONNECTIONS_MAX)));
        Self { purpose, make: Box::new(make), free, open: Mutex::default(), waits, is_full: AtomicBool::new(false) }
    }

    /// A connection with a free stream, which is taken. Waits if all connections are full.
    pub(crate) async fn stream(&self) -> Result<(C, Stream), AnyError> {
        let permit = if let Ok(permit) = self.free.clone().try_acquire_owned() {
            self.is_full.store(false, Ordering::Relaxed);
            permit
        } else {
            self.waits.count(self.purpose);
            if !self.is_full.swap(true, Ordering::Relaxed) {
                let purpose = self.purpose.name();
                warn!(purpose, connections = CONNECTIONS_MAX, streams = STREAMS_MAX, "Requests wait for a stream");
            }
            self.free.clone().acquire_owned().await?
        };
        let mut open = self.open.lock();
        let is_free = |connection: &Connection<C>| connection.streams.load(Ordering::Acquire) < STREAMS_MAX;
        let connection = match open.iter().position(is_free) {
            Some(at) => open.get(at),
            None => {
                open.push(Connection { client: (self.make)()?, streams: Arc::default() });
                open.last()
            }
        };
        let Some(connection) = connection else { return Err("no connection has a free stream".into()) };
        // Only incremented under the lock: two requests cannot take the last stream.
        connection.streams.fetch_add(1, Ordering::AcqRel);
        Ok((connection.client.clone(), Stream { streams: connection.streams.clone(), _permit: permit }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(waits: &Arc<Waits>) -> Connections<usize> {
        let next = AtomicUsize::new(0);
        Connections::new(Purpose::Watch, waits.clone(), move || Ok(next.fetch_add(1, Ordering::Relaxed)))
    }

    #[tokio::test]
    async fn full_connection_is_followed_by_another() {
        let connections = numbered(&Arc::default());
        let mut held = Vec::new();
        for _ in 0..STREAMS_MAX * 2 + 1 {
            held.push(connections.stream().await.unwrap());
        }
        let on = |number: usize| held.iter().filter(|(connection, _)| *connection == number).count();
        assert_eq!((on(0), on(1), on(2)), (STREAMS_MAX, STREAMS_MAX, 1));
        held.remove(0);
        // The first connection with a free stream is used, so that later ones become idle and are closed.
        assert_eq!(connections.stream().await.unwrap().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_beyond_all_streams_waits_and_is_counted() {
        let (waits, registry) = (Arc::new(Waits::default()), Registry::new());
        waits.publish(&registry);
        let connections = Arc::new(numbered(&waits));
        let mut held = Vec::new();
        for _ in 0..STREAMS_MAX * CONNECTIONS_MAX {
            held.push(connections.stream().await.unwrap());
        }
        assert!(!registry.text().contains("purpose"));
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { connections.stream().await.unwrap().0 }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert!(registry.text().contains("rest_client_stream_waits_total{purpose=\"watch\"} 1"));
        let (freed, _) = held.swap_remove(5 * STREAMS_MAX);
        assert_eq!(waiting.await.unwrap(), freed);
        assert_eq!(connections.open.lock().len(), CONNECTIONS_MAX);
    }

    #[test]
    fn watches_differ_from_requests_by_query() {
        let of = |uri: &'static str| Purpose::of(&Uri::from_static(uri));
        assert_eq!(of("/api/v1/pods?allowWatchBookmarks=true&watch=true"), Purpose::Watch);
        assert_eq!(of("/api/v1/namespaces/a/pods/b/log?follow=true"), Purpose::Watch);
        assert_eq!(of("/api/v1/pods?allowWatchBookmarks=true"), Purpose::Request);
        assert_eq!(of("/api/v1/pods"), Purpose::Request);
    }
}
