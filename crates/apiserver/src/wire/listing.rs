//! Long answers: made piece by piece, away from the threads that serve connections, as fast as the client reads.
//!
//! A piece is work for one of the [`Threads`]; only a few pieces are rendered ahead, so the memory of a list
//! does not grow with the collection. A slow reader releases its seat, and is disconnected when there are too
//! many of them or the time is over; an abort never looks like a regular end.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::wire::budget::Charge;
use crate::wire::heavy::Threads;

/// Number of pieces of one answer that are encoded concurrently.
pub(crate) const AHEAD: usize = 2;
/// A client that does not take a piece for this long is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of responses to slow clients.
const SLOW_MAX: usize = 256;

/// A part of an answer that is still to be made; none if that fails.
pub(crate) type Work = Box<dyn FnOnce() -> Option<ResponsePart> + Send>;

/// Prepares the first part; returns whether that succeeded.
pub(crate) type Measure = Box<dyn FnOnce() -> bool + Send>;

/// A part of an answer.
#[derive(Debug)]
pub(crate) struct ResponsePart {
    pub(crate) bytes: Bytes,
    /// If it consists of items: how much stands before them that separates them from others.
    pub(crate) items: Option<usize>,
}

impl ResponsePart {
    /// Bytes as they are.
    pub(crate) fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), items: None }
    }
}

/// An answer in parts.
pub(crate) trait Parts: Send {
    /// The next of what must be known before the first part; none when all of it is.
    fn measure(&mut self) -> Option<Measure> {
        None
    }

    /// The next part; none at the end.
    fn next(&mut self) -> Option<Work>;

    /// Number of parts that may be rendered at a time.
    fn ahead(&self) -> usize {
        AHEAD
    }

    /// Texts before all items, behind them, and in their place if there are none.
    fn brackets(&self) -> [&'static [u8]; 3];

    /// Text after the items.
    fn tail(&self) -> Bytes;
}

/// An answer that is still to be made.
pub struct Listing {
    parts: Box<dyn Parts>,
    /// About how long it will be.
    pub(crate) bytes: usize,
    gzip: Option<flate2::write::GzEncoder<Vec<u8>>>,
    held: HeldResources,
    state: State,
}

/// Resources that a response holds while it is sent.
#[derive(Default)]
pub(crate) struct HeldResources {
    /// Given back when the client does not keep up.
    seat: Option<Box<dyn Send>>,
    /// The bytes that count until all of it is sent.
    charge: Option<Charge>,
    /// Called when the client has taken nothing for too long.
    stalled: Option<StalledCallback>,
}

/// Called when the client does not read the response.
pub(crate) type StalledCallback = Box<dyn FnOnce() + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No item has been written.
    Empty,
    Items,
    Ended,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Listing {
    pub(crate) fn new(parts: impl Parts + 'static, bytes: usize) -> Self {
        Self { parts: Box::new(parts), bytes, gzip: None, held: HeldResources::default(), state: State::Empty }
    }

    /// The same in another form.
    pub(crate) fn map<P: Parts + 'static>(self, form: impl FnOnce(Box<dyn Parts>) -> P) -> Self {
        Self { parts: Box::new(form(self.parts)), ..self }
    }

    /// Compresses it.
    pub(crate) fn compress(&mut self) {
        self.gzip = Some(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    }

    /// Holds something for as long as the client keeps up.
    pub(crate) fn hold(&mut self, seat: Box<dyn Send>) {
        self.held.seat = Some(seat);
    }

    /// Releases the resources that are held only while the client keeps up.
    pub(crate) fn release(&mut self) {
        self.held.seat = None;
    }

    /// Counts its bytes until it is sent.
    pub(crate) fn charge(&mut self, charge: Charge) {
        self.held.charge = Some(charge);
    }

    /// Calls this when the client takes nothing.
    pub(crate) fn when_stalled(&mut self, stalled: StalledCallback) {
        self.held.stalled = Some(stalled);
    }

    /// Takes what it holds.
    pub(crate) fn take_held(&mut self) -> HeldResources {
        std::mem::take(&mut self.held)
    }

    /// Holds what another answer held.
    pub(crate) fn set_held(&mut self, held: HeldResources) {
        self.held = held;
    }

    /// Appends a part to the response, after those before it.
    fn add(&mut self, made: ResponsePart) -> Bytes {
        let mut bytes = made.bytes;
        if let Some(separator) = made.items.filter(|_| self.state == State::Empty) {
            self.state = State::Items;
            bytes.advance(separator.min(bytes.len()));
            let [open, ..] = self.parts.brackets();
            bytes = [open, &bytes].concat().into();
        }
        self.squeeze(bytes)
    }

    /// The end of the answer; nothing the second time.
    fn end(&mut self) -> Option<Bytes> {
        if self.state == State::Ended {
            return None;
        }
        let [_, close, empty] = self.parts.brackets();
        let before = if self.state == State::Empty { empty } else { close };
        let tail = [before, &self.parts.tail()].concat().into();
        self.state = State::Ended;
        let last = self.squeeze(tail);
        match self.gzip.take().map(flate2::write::GzEncoder::finish) {
            Some(Ok(rest)) => Some([last, rest.into()].concat().into()),
            _ => Some(last),
        }
    }

    fn squeeze(&mut self, bytes: Bytes) -> Bytes {
        match &mut self.gzip {
            // Writing to memory does not fail.
            Some(gzip) => match gzip.write_all(&bytes) {
                Ok(()) => std::mem::take(gzip.get_mut()).into(),
                Err(_) => Bytes::new(),
            },
            None => bytes,
        }
    }

    /// The next bytes, made here and now; none at the end. An error if they cannot be made.
    pub(crate) fn next_bytes(&mut self) -> Option<Result<Bytes, Cut>> {
        while let Some(measure) = self.parts.measure() {
            if !measure() {
                return Some(Err(Cut));
            }
        }
        loop {
            let bytes = match self.parts.next() {
                Some(work) => match work() {
                    Some(made) => self.add(made),
                    None => return Some(Err(Cut)),
                },
                None => return self.end().map(Ok),
            };
            if !bytes.is_empty() {
                return Some(Ok(bytes));
            }
        }
    }
}

/// An answer ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response was truncated")]
pub(crate) struct Cut;

/// An item of the body's stream.
#[derive(Debug)]
pub enum Piece {
    /// A part of the response.
    Bytes(Bytes),
    /// All of it was sent.
    End,
}

/// Makes long answers, a few parts at a time.
#[derive(Debug, Clone)]
pub(crate) struct Makers {
    threads: Threads,
    slow: Arc<Semaphore>,
    /// No answer takes longer to be read.
    time_max: Duration,
    /// A client that does not take a piece for this long is cut off.
    stalled_after: Duration,
}

impl Makers {
    pub(crate) fn new(time_max: Duration, stalled_after: Duration) -> Self {
        Self { threads: Threads::default(), slow: Arc::new(Semaphore::new(SLOW_MAX)), time_max, stalled_after }
    }

    /// The threads that long work is done on.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Starts to produce the body of a list response.
    pub(crate) fn start(&self, listing: Listing) -> mpsc::Receiver<Piece> {
        let (sender, receiver) = mpsc::channel(1);
        let makers = self.clone();
        tokio::spawn(async move { makers.make(listing, sender).await });
        receiver
    }

    /// Renders everything; `None` if that fails or the client has disconnected.
    async fn make(&self, mut listing: Listing, sender: mpsc::Sender<Piece>) -> Option<()> {
        let until = Instant::now().checked_add(self.time_max)?;
        let (held, slow, stalled_after) = (listing.take_held(), self.slow.clone(), self.stalled_after);
        let mut reader = Reader { sender, held, _slow: None, until, slow, stalled_after };
        loop {
            let ahead = listing.parts.ahead();
            let some: Vec<Measure> = std::iter::from_fn(|| listing.parts.measure()).take(ahead).collect();
            if some.is_empty() {
                break;
            }
            let measured = join_all(some.into_iter().map(|measure| self.threads.run(measure))).await;
            if reader.sender.is_closed() || measured.contains(&None) || measured.contains(&Some(false)) {
                return None;
            }
        }
        let mut ahead: VecDeque<oneshot::Receiver<Option<ResponsePart>>> = VecDeque::new();
        let mut given = 0_usize;
        loop {
            // For a client that has not read anything yet, nothing is made ahead: it may never read.
            let ahead_max = if given > AHEAD { listing.parts.ahead() } else { 1 };
            while ahead.len() < ahead_max
                && let Some(work) = listing.parts.next()
            {
                ahead.push_back(self.threads.start(work));
            }
            let Some(next) = ahead.pop_front() else { break };
            let made = next.await.ok()??;
            let bytes = if listing.gzip.is_some() {
                let (back, bytes) = self
                    .threads
                    .run(move || {
                        let bytes = listing.add(made);
                        (listing, bytes)
                    })
                    .await?;
                listing = back;
                bytes
            } else {
                listing.add(made)
            };
            reader.give(bytes).await?;
            given = given.saturating_add(1);
        }
        reader.give(listing.end()?).await?;
        reader.sender.send(Piece::End).await.ok()
    }
}

/// The client of an answer.
struct Reader {
    sender: mpsc::Sender<Piece>,
    held: HeldResources,
    _slow: Option<tokio::sync::OwnedSemaphorePermit>,
    until: Instant,
    slow: Arc<Semaphore>,
    stalled_after: Duration,
}

impl Reader {
    /// Sends bytes; `None` if the client has disconnected, or its time is over.
    async fn give(&mut self, bytes: Bytes) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        if self.held.seat.is_some() {
            match tokio::time::timeout(SLOW_AFTER, self.sender.reserve()).await {
                Ok(room) => {
                    room.ok()?.send(Piece::Bytes(bytes));
                    return Some(());
                }
                Err(_) => {
                    self.held.seat = None;
                    self._slow = Some(self.slow.clone().try_acquire_owned().ok()?);
                }
            }
        }
        let stalled = Instant::now().checked_add(self.stalled_after)?;
        let sent = self.sender.send(Piece::Bytes(bytes));
        match tokio::time::timeout_at(self.until.min(stalled), sent).await {
            Ok(sent) => sent.ok(),
            Err(_) => {
                self.held.stalled.take().into_iter().for_each(|stalled| stalled());
                None
            }
        }
    }
}

/// Bytes that are there already.
pub(crate) struct ReadyBytes(pub(crate) VecDeque<Bytes>);

/// Pieces of this size are compressed at a time.
const READY_PIECE: usize = 256 << 10;

impl Parts for ReadyBytes {
    fn next(&mut self) -> Option<Work> {
        let first = self.0.front_mut()?;
        let bytes = first.split_to(first.len().min(READY_PIECE));
        if first.is_empty() {
            self.0.pop_front();
        }
        Some(Box::new(move || Some(ResponsePart::plain(bytes))))
    }

    fn brackets(&self) -> [&'static [u8]; 3] {
        [b"", b"", b""]
    }

    fn tail(&self) -> Bytes {
        Bytes::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A list of numbers.
    struct Numbers {
        next: usize,
        end: usize,
        made: Arc<AtomicUsize>,
        head: bool,
    }

    impl Parts for Numbers {
        fn next(&mut self) -> Option<Work> {
            if std::mem::take(&mut self.head) {
                return Some(Box::new(|| Some(ResponsePart::plain("{\"items\":"))));
            }
            if self.next >= self.end {
                return None;
            }
            let (number, made) = (self.next, self.made.clone());
            self.next = self.next.saturating_add(1);
            Some(Box::new(move || {
                made.fetch_add(1, Ordering::Relaxed);
                Some(ResponsePart { bytes: format!(",{number}").into(), items: Some(1) })
            }))
        }

        fn brackets(&self) -> [&'static [u8]; 3] {
            [b"[", b"]", b"null"]
        }

        fn tail(&self) -> Bytes {
            Bytes::from_static(b"}\n")
        }
    }

    fn numbers(end: usize) -> (Listing, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        (Listing::new(Numbers { next: 0, end, made: made.clone(), head: true }, 100), made)
    }

    async fn read(mut receiver: mpsc::Receiver<Piece>) -> Option<String> {
        let mut text = Vec::new();
        while let Some(piece) = receiver.recv().await {
            match piece {
                Piece::Bytes(bytes) => text.extend_from_slice(&bytes),
                Piece::End => return Some(String::from_utf8(text).unwrap()),
            }
        }
        None
    }

    #[tokio::test]
    async fn items_are_joined_in_order() {
        let makers = Makers::new(Duration::from_secs(60), Duration::from_secs(60));
        for (end, expected) in [(0, "{\"items\":null}\n"), (1, "{\"items\":[0]}\n"), (4, "{\"items\":[0,1,2,3]}\n")] {
            assert_eq!(read(makers.start(numbers(end).0)).await.unwrap(), expected);
            let mut here = numbers(end).0;
            let bytes: Vec<u8> = std::iter::from_fn(|| here.next_bytes()).flat_map(Result::unwrap).collect();
            assert_eq!(bytes, expected.as_bytes());
        }
    }

    #[tokio::test]
    async fn compressed_it_is_the_same() {
        let mut listing = numbers(2000).0;
        listing.compress();
        let mut receiver = Makers::new(Duration::from_secs(60), Duration::from_secs(60)).start(listing);
        let mut compressed = Vec::new();
        while let Some(Piece::Bytes(bytes)) = receiver.recv().await {
            compressed.extend_from_slice(&bytes);
        }
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*compressed), &mut text).unwrap();
        let mut here = numbers(2000).0;
        let plain: Vec<u8> = std::iter::from_fn(|| here.next_bytes()).flat_map(Result::unwrap).collect();
        assert_eq!(text.as_bytes(), plain);
    }

    #[tokio::test]
    async fn a_slow_client_costs_little_and_not_for_ever() {
        let (mut listing, made) = numbers(1000);
        let seat = Arc::new(());
        listing.hold(Box::new(seat.clone()));
        let receiver = Makers::new(SLOW_AFTER * 3, SLOW_AFTER * 3).start(listing);
        // The seat is given back, and in the end the client is cut off.
        while Arc::strong_count(&seat) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(made.load(Ordering::Relaxed) <= 2 + AHEAD, "{made:?}");
        while !receiver.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(made.load(Ordering::Relaxed) <= 2 + AHEAD, "{made:?}");
        assert_eq!(read(receiver).await, None);
    }

    #[tokio::test]
    async fn a_part_that_fails_is_not_an_end() {
        struct BrokenParts(bool);
        impl Parts for BrokenParts {
            fn next(&mut self) -> Option<Work> {
                std::mem::take(&mut self.0).then(|| -> Work { Box::new(|| panic!("expected in this test")) })
            }
            fn brackets(&self) -> [&'static [u8]; 3] {
                [b"", b"", b""]
            }
            fn tail(&self) -> Bytes {
                Bytes::new()
            }
        }
        let makers = Makers::new(Duration::from_secs(60), Duration::from_secs(60));
        assert_eq!(read(makers.start(Listing::new(BrokenParts(true), 0))).await, None);
    }
}
