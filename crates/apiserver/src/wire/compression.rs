//! Compressing long answers, while they are sent.

use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};

use crate::wire::body::Body;
use crate::wire::listing::{Listing, ReadyBytes};

/// Longer answers are compressed if the client takes it.
const COMPRESS_MIN: usize = 128 << 10;

/// The answer in the encoding that the client takes.
pub(crate) fn compress(headers: &http::HeaderMap, mut response: Response<Body>) -> Response<Body> {
    let accepts = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let accepts = accepts.is_some_and(|value| value.split(',').any(|it| it.trim().starts_with("gzip")));
    let length = match response.body() {
        Body::Listing(listing) => listing.bytes,
        body => body.len().unwrap_or_default(),
    };
    if !accepts || length < COMPRESS_MIN {
        return response;
    }
    let mut listing = match std::mem::replace(response.body_mut(), Body::empty()) {
        Body::Full(bytes) => Box::new(Listing::new(ReadyBytes([bytes].into()), length)),
        Body::Pieces(pieces) => Box::new(Listing::new(ReadyBytes(pieces), length)),
        Body::Listing(listing) => listing,
        other => {
            *response.body_mut() = other;
            return response;
        }
    };
    listing.compress();
    *response.body_mut() = Body::Listing(listing);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(http::header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}
