//! From HTTP to a request, and from an answer to HTTP: paths, forms of bodies, status objects, warnings.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod cbor;
pub(crate) mod compression;
pub(crate) mod deadline;
pub(crate) mod etag;
pub(crate) mod heavy;
pub(crate) mod listing;
pub mod negotiation;
pub mod payload;
pub(crate) mod protobuf;
pub mod request;
pub(crate) mod shared;
pub mod status;
mod transcoding;
pub(crate) mod warnings;
