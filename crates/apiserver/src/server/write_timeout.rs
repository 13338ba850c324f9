//! A stream that times out if its peer does not read.
//!
//! Without it a client that stops reading would hold its connection, and what is buffered for it, for as long as it likes.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Fails with [`io::ErrorKind::TimedOut`] when nothing could be written for some time.
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Runs while the peer does not take what it is given. Made when that happens first: most peers read.
    waiting: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None, is_waiting: false }
    }

    /// Passes on what became of an attempt to write, unless there have been none that succeeded for too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, attempt: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.is_waiting = false;
            return attempt;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            let until = Instant::now().checked_add(self.limit).unwrap_or_else(Instant::now);
            match &mut self.waiting {
                Some(waiting) => waiting.as_mut().reset(until),
                None => self.waiting = Some(Box::pin(tokio::time::sleep_until(until))),
            }
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(context, data);
        self.judge(context, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, attempt)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, attempt)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_given_up() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut stream = WriteTimeout::new(near, Duration::from_secs(5));
        stream.write_all(b"1234").await.unwrap();
        let started = Instant::now();
        assert_eq!(stream.write_all(b"5").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), Duration::from_secs(5));
        // A peer that reads in time does not time out.
        far.read_exact(&mut [0; 4]).await.unwrap();
        stream.write_all(b"5678").await.unwrap();
        let later = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(4)).await;
            far.read_exact(&mut [0; 4]).await.unwrap();
            far
        });
        stream.write_all(b"9").await.unwrap();
        later.await.unwrap();
    }
}
