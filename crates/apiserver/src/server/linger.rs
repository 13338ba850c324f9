//! A stream whose last response reaches a peer that is still sending.
//!
//! Data that arrives at a closed socket makes the system discard unread output: a client that sends an
//! oversized body would never receive the rejection. So incoming data is drained for a moment after the
//! response, where that is requested. Follows `closeWriteAndWait` in Go's `net/http`.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connections::TrackedConnection;

/// Maximum time of draining, as in Go.
const LINGERS: Duration = Duration::from_millis(500);
/// Maximum number of bytes to drain.
const BYTES_MAX: usize = 16 << 20;

/// Reads on when it is shut down, if that is wanted.
pub(super) struct Linger<S> {
    stream: S,
    is_wanted: LingerFlag,
    until: Option<Pin<Box<Sleep>>>,
    /// Bytes received since the end.
    bytes: usize,
    /// The place of the connection.
    _tracked: Option<Arc<TrackedConnection>>,
}

/// A flag that makes a stream linger.
#[derive(Debug, Clone, Default)]
pub(super) struct LingerFlag(Arc<AtomicBool>);

impl LingerFlag {
    /// Makes the stream linger when it is closed.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S> Linger<S> {
    pub(super) fn new(stream: S, tracked: Option<Arc<TrackedConnection>>) -> (Self, LingerFlag) {
        let is_wanted = LingerFlag::default();
        (Self { stream, is_wanted: is_wanted.clone(), until: None, bytes: 0, _tracked: tracked }, is_wanted)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, is_wanted, until, bytes, .. } = &mut *self;
        if until.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            if !is_wanted.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let until = until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGERS)));
        let mut thrown_away = [0; 16 << 10];
        while *bytes < BYTES_MAX && until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut thrown_away);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            *bytes = bytes.saturating_add(buffer.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn uploading_client_is_drained_briefly() {
        for (is_wanted, finishes, taken, lasted) in [
            (false, true, false, Duration::ZERO),
            (true, true, true, Duration::from_millis(100)),
            (true, false, true, LINGERS),
        ] {
            let (near, mut far) = tokio::io::duplex(4);
            let (mut stream, wanted) = Linger::new(near, None);
            if is_wanted {
                wanted.set();
            }
            let sending = tokio::spawn(async move {
                let is_taken = tokio::time::timeout(Duration::from_millis(50), far.write_all(&[0; 1000])).await.is_ok();
                tokio::time::sleep(Duration::from_millis(100)).await;
                let kept = if finishes { None } else { Some(far) };
                (is_taken, kept)
            });
            stream.write_all(b"no").await.unwrap();
            let started = Instant::now();
            stream.shutdown().await.unwrap();
            assert_eq!(started.elapsed(), lasted, "{is_wanted} {finishes}");
            let (is_taken, kept) = sending.await.unwrap();
            assert_eq!(is_taken, taken);
            if let Some(mut far) = kept {
                let mut said = [0; 2];
                far.read_exact(&mut said).await.unwrap();
                assert_eq!(&said, b"no");
            }
        }
    }
}
