//! Limits on reviews by the address of the caller.
//!
//! Anything that reaches the port may send a review: the API server presents no certificate. So bodies have a deadline, their bytes count
//! for the address that sends them, and reviews of one address wait for each other before they wait for those of others.

use locks::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a review: an object of 3 MiB, twice, and what is around it.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Bytes of unread reviews of one address.
const CALLER_BYTES_MAX: usize = 32 << 20;
/// Time limit for a body. API servers wait for at most 30 s for the whole review.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Reviews at a time: each holds several times the memory of its text.
const REVIEWS_MAX: usize = 16;
/// and of one address.
const CALLER_REVIEWS_MAX: usize = 8;
/// Addresses without a request are forgotten once there are so many.
const CALLERS_KEPT: usize = 1024;

/// All callers.
pub(super) struct Callers {
    known: Mutex<HashMap<IpAddr, Weak<Caller>>>,
    reviews: Arc<Semaphore>,
}

/// The requests of one address.
pub(super) struct Caller {
    bytes: AtomicUsize,
    reviews: Arc<Semaphore>,
    all_reviews: Arc<Semaphore>,
}

/// A body that was received; its bytes count until this is dropped.
pub(super) struct ReviewBody {
    pub(super) bytes: Bytes,
    _count: Count,
}

/// A review that is being decided.
pub(super) struct Turn {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// Bytes that count for a caller.
struct Count {
    caller: Arc<Caller>,
    bytes: usize,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.caller.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Count {
    /// Adds bytes; false if the caller has too many.
    fn add(&mut self, bytes: usize) -> bool {
        let before = self.caller.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes = self.bytes.saturating_add(bytes);
        before.saturating_add(bytes) <= CALLER_BYTES_MAX
    }
}

impl Default for Callers {
    fn default() -> Self {
        Self { known: Mutex::default(), reviews: Arc::new(Semaphore::new(REVIEWS_MAX)) }
    }
}

impl Callers {
    /// The requests of an address.
    pub(super) fn of(&self, address: IpAddr) -> Arc<Caller> {
        let mut known = self.known.lock();
        if let Some(caller) = known.get(&address).and_then(Weak::upgrade) {
            return caller;
        }
        if known.len() >= CALLERS_KEPT {
            known.retain(|_, caller| caller.strong_count() > 0);
        }
        let caller = Arc::new(Caller {
            bytes: AtomicUsize::new(0),
            reviews: Arc::new(Semaphore::new(CALLER_REVIEWS_MAX)),
            all_reviews: self.reviews.clone(),
        });
        known.insert(address, Arc::downgrade(&caller));
        caller
    }
}

impl Caller {
    /// Receives a body.
    ///
    /// # Errors
    /// The code and the text of the refusal.
    pub(super) async fn receive<B>(self: &Arc<Self>, body: B) -> Result<ReviewBody, (StatusCode, &'static str)>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let received = tokio::time::timeout(BODY_TIMEOUT, self.collect(body)).await;
        received.unwrap_or(Err((StatusCode::REQUEST_TIMEOUT, "the review did not arrive in time\n")))
    }

    async fn collect<B>(self: &Arc<Self>, mut body: B) -> Result<ReviewBody, (StatusCode, &'static str)>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut count = Count { caller: self.clone(), bytes: 0 };
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "the review broke off\n"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len().saturating_add(data.len()) > BODY_BYTES_MAX {
                return Err((StatusCode::PAYLOAD_TOO_LARGE, "the review is too large\n"));
            }
            if !count.add(data.len()) {
                return Err((StatusCode::TOO_MANY_REQUESTS, "this address sends too many reviews\n"));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(ReviewBody { bytes: bytes.freeze(), _count: count })
    }

    /// Waits until a review may be decided; none if the process ends.
    pub(super) async fn turn(&self) -> Option<Turn> {
        let of_caller = self.reviews.clone().acquire_owned().await.ok()?;
        let of_all = self.all_reviews.clone().acquire_owned().await.ok()?;
        Some(Turn { _of_caller: of_caller, _of_all: of_all })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn pieces(count: usize, bytes: usize) -> impl Body<Data = Bytes> + Unpin {
        let piece = move |_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; bytes])));
        StreamBody::new(stream::iter((0..count).map(piece)))
    }

    fn code(received: Result<ReviewBody, (StatusCode, &'static str)>) -> u16 {
        received.err().map_or(200, |(code, _)| code.as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_are_bounded_in_bytes_and_time() {
        let callers = Callers::default();
        let received = callers.of(ONE).receive(pieces(8, 1 << 20)).await.ok().unwrap();
        assert_eq!(received.bytes.len(), 8 << 20);
        assert_eq!(code(callers.of(ONE).receive(pieces(9, 1 << 20)).await), 413);
        let silent = StreamBody::new(Box::pin(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        assert_eq!(code(callers.of(ONE).receive(silent).await), 408);
    }

    #[tokio::test]
    async fn bytes_count_for_their_address() {
        let callers = Callers::default();
        let mut kept = Vec::new();
        for _ in 0..4 {
            kept.push(callers.of(ONE).receive(pieces(8, 1 << 20)).await.ok().unwrap());
        }
        assert_eq!(code(callers.of(ONE).receive(pieces(1, 1)).await), 429);
        assert_eq!(code(callers.of(OTHER).receive(pieces(1, 1)).await), 200);
        drop(kept);
        assert_eq!(code(callers.of(ONE).receive(pieces(8, 1 << 20)).await), 200);
    }

    #[tokio::test]
    async fn one_address_leaves_turns_for_others() {
        let callers = Callers::default();
        let (one, other) = (callers.of(ONE), callers.of(OTHER));
        let mut turns = Vec::new();
        for _ in 0..CALLER_REVIEWS_MAX {
            turns.push(one.turn().await.unwrap());
        }
        assert!(futures::FutureExt::now_or_never(one.turn()).is_none());
        assert!(futures::FutureExt::now_or_never(other.turn()).is_some());
    }
}
