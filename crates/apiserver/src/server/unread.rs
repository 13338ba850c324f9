//! The rest of a body when the response is ready before it was read, as after a rejection.
//!
//! Over HTTP/1.1 it precedes the next request, and a client that is still sending may not receive the response
//! if its data is not read. Over HTTP/2 some clients treat it as a failure if their stream is closed. So it is
//! read and discarded, as far as it could have been accepted and arrives soon.

use locks::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The rest has to come within this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The body of a request, of which the rest can be had after it has been dropped.
pub(super) struct ReturnedBody {
    body: Option<Incoming>,
    rest: Rest,
}

/// The rest of a body.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl ReturnedBody {
    pub(super) fn new(body: Incoming) -> (Self, Rest) {
        let rest = Rest::default();
        (Self { body: Some(body), rest: rest.clone() }, rest)
    }
}

impl Drop for ReturnedBody {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        *self.rest.0.lock() = body;
    }
}

impl http_body::Body for ReturnedBody {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

impl Rest {
    /// Reads what is left while the answer is sent: over HTTP/2 it stands before nothing.
    pub(super) fn read_meanwhile(self, bytes_max: u64) {
        let is_read = self.0.lock().is_none();
        if !is_read {
            tokio::spawn(self.read(bytes_max));
        }
    }

    /// Reads what is left, at most this many bytes. False if there is more, or it does not come.
    pub(super) async fn read(self, bytes_max: u64) -> bool {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest else { return true };
        if rest.size_hint().lower() > bytes_max {
            return false;
        }
        let read = async {
            let mut left = bytes_max;
            while let Some(frame) = rest.frame().await {
                let length = frame.map(|frame| frame.data_ref().map_or(0, bytes::Bytes::len)).unwrap_or(usize::MAX);
                match left.checked_sub(u64::try_from(length).unwrap_or(u64::MAX)) {
                    Some(fewer) => left = fewer,
                    None => return false,
                }
            }
            true
        };
        tokio::time::timeout(TIMEOUT, read).await.unwrap_or(false)
    }
}
