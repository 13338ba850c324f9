//! Response bodies: one piece, several pieces that are shared with others, or a stream that lasts.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::wire::budget::Charge;
use crate::wire::listing::{Cut, HeldResources, Listing, Piece, ReadyBytes};
use crate::wire::transcoding::{self, TranscodedList};

/// More bytes are a long body.
const LONG: usize = 64 << 10;
/// Minimum number of bytes that count for a list in progress.
const LISTING_BYTES_MIN: usize = 1 << 20;
/// Maximum number of bytes that count for a list in progress.
const LISTING_BYTES_MAX: usize = 4 << 20;

/// Body of a response.
#[derive(Debug)]
pub enum Body {
    /// All of it at once.
    Full(Bytes),
    /// Piece by piece; the length is known.
    Pieces(VecDeque<Bytes>),
    /// Until the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
    /// The same, with each part written in another form.
    Written(mpsc::Receiver<Bytes>, fn(&Bytes) -> Bytes),
    /// Still to be made.
    Listing(Box<Listing>),
    /// Being made.
    Listed(mpsc::Receiver<Piece>),
    /// One whose bytes count until it is sent.
    Counted(Box<(Body, Charge)>),
}

impl Body {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::Full(Bytes::new())
    }

    /// Length in bytes, if known.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        match self {
            Body::Full(bytes) => Some(bytes.len()),
            Body::Pieces(pieces) => Some(pieces.iter().map(Bytes::len).fold(0, usize::saturating_add)),
            Body::Counted(counted) => counted.0.len(),
            Body::Stream(_) | Body::Written(..) | Body::Listing(_) | Body::Listed(_) => None,
        }
    }

    /// All bytes, if they are there or can be made. What can be made is then there.
    #[must_use]
    pub(crate) fn whole(&mut self) -> Option<Bytes> {
        match self {
            Body::Full(bytes) => Some(bytes.clone()),
            Body::Pieces(pieces) => Some(pieces.iter().flatten().copied().collect()),
            Body::Listing(listing) => {
                let pieces: Result<Vec<Bytes>, _> = std::iter::from_fn(|| listing.next_bytes()).collect();
                *self = Body::Full(pieces.ok()?.concat().into());
                self.whole()
            }
            Body::Counted(counted) => counted.0.whole(),
            Body::Stream(_) | Body::Written(..) | Body::Listed(_) => None,
        }
    }

    /// A list that is still to be made, in another form; none if it is something else.
    pub(super) fn transcoded(&mut self, into: transcoding::Form) -> Option<Self> {
        match std::mem::replace(self, Body::empty()) {
            Body::Listing(listing) => {
                Some(Body::Listing(Box::new(listing.map(|list| TranscodedList::new(list, into)))))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Resources held while it is sent, if any.
    pub(crate) fn take_held(&mut self) -> Option<HeldResources> {
        match self {
            Body::Listing(listing) => Some(listing.take_held()),
            _ => None,
        }
    }

    /// Approximate number of bytes that only this body holds in memory: for a list in progress, those that are
    /// rendered ahead.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            Body::Full(bytes) if bytes.is_unique() => bytes.len(),
            Body::Pieces(pieces) => pieces.iter().filter(|piece| piece.is_unique()).map(Bytes::len).sum(),
            Body::Listing(listing) => listing.bytes.clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX),
            Body::Full(_) | Body::Stream(_) | Body::Written(..) | Body::Listed(_) | Body::Counted(_) => 0,
        }
    }

    /// Counts it until it is sent.
    pub(crate) fn charge(&mut self, charge: Charge) {
        match self {
            Body::Listing(listing) => listing.charge(charge),
            _ => *self = Body::Counted(Box::new((std::mem::replace(self, Body::empty()), charge))),
        }
    }

    /// Holds something while it is sent, if it is long.
    pub(crate) fn hold(&mut self, held: HeldResources) {
        if !self.is_long() {
            return;
        }
        let length = self.len().unwrap_or_default();
        let mut listing = match std::mem::replace(self, Body::empty()) {
            Body::Full(bytes) => Box::new(Listing::new(ReadyBytes([bytes].into()), length)),
            Body::Pieces(pieces) => Box::new(Listing::new(ReadyBytes(pieces), length)),
            Body::Listing(listing) => listing,
            other => return *self = other,
        };
        listing.set_held(held);
        *self = Body::Listing(listing);
    }

    /// Whether it takes a while to do something with all of it.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Body::Listing(_)) || self.len().is_some_and(|length| length > LONG)
    }

    /// Whether it is known to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Full(bytes.into())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut *self {
            Body::Full(bytes) if bytes.is_empty() => None,
            Body::Full(bytes) => Some(std::mem::take(bytes)),
            Body::Pieces(pieces) => pieces.pop_front(),
            Body::Counted(counted) => return Pin::new(&mut counted.0).poll_frame(context),
            Body::Stream(receiver) => std::task::ready!(receiver.poll_recv(context)),
            Body::Written(receiver, write) => std::task::ready!(receiver.poll_recv(context)).map(|it| write(&it)),
            Body::Listing(listing) => match listing.next_bytes() {
                Some(Err(cut)) => return Poll::Ready(Some(Err(io::Error::other(cut)))),
                next => next.and_then(Result::ok),
            },
            Body::Listed(receiver) => match std::task::ready!(receiver.poll_recv(context)) {
                Some(Piece::Bytes(bytes)) => Some(bytes),
                Some(Piece::End) => {
                    *self = Body::empty();
                    None
                }
                None => return Poll::Ready(Some(Err(io::Error::other(Cut)))),
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.len() {
            Some(length) => SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX)),
            None => SizeHint::default(),
        }
    }
}
