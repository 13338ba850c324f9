//! Objects in protobuf, as some clients send them instead of JSON.
//!
//! Driven by the table of types, in both directions: [`read()`] gives the JSON document that the JSON path would have
//! read, which [`decode`](super::decode) brings into its normal form; [`write()`] takes a document in normal form. An
//! object travels in an [`Envelope`] that names its kind. Follows Kubernetes' `runtime.Unknown`, the code that
//! gogo/protobuf generates for the types, and its error texts.

mod read;
mod wire;
mod write;

pub use read::read;
pub use write::{Writer, envelope_around, write, write_envelope, write_event};

use wire::Wire;

/// Prefix of every envelope.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Invalid protobuf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The bytes are broken; the text is gogo/protobuf's.
    #[error("{0}")]
    Malformed(String),
    /// The bytes may be right, but this field cannot be read from protobuf here.
    #[error("field `{0}` cannot be read from protobuf")]
    Unsupported(&'static str),
    /// Lists of the object hold more than [`crate::json::ELEMENTS_MAX`] objects.
    #[error("{}", crate::json::TOO_MANY_ELEMENTS)]
    TooManyElements,
}

impl ProtobufError {
    fn malformed(text: impl Into<String>) -> Self {
        Self::Malformed(text.into())
    }
}

/// An object that is not decoded yet, with its declared type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope<'a> {
    /// Group and version, may be empty.
    pub api_version: String,
    /// The kind, may be empty.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
    /// Encoding of `raw`; empty for plain protobuf.
    pub content_encoding: String,
    /// Content type of `raw`; empty for protobuf.
    pub content_type: String,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope, the magic bytes included.
    ///
    /// # Errors
    /// [`ProtobufError::Malformed`] with Kubernetes' text.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        if bytes.is_empty() {
            return Err(ProtobufError::malformed("empty data"));
        }
        let Some(message) = bytes.strip_prefix(MAGIC) else {
            let text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
            return Err(ProtobufError::malformed(text));
        };
        if message.is_empty() {
            return Err(ProtobufError::malformed("empty body"));
        }
        let mut envelope = Self::default();
        let mut wire = Wire::new(message);
        while let Some(tag) = wire.tag("Unknown")? {
            match tag.number {
                1 => envelope.read_type(wire.message(tag, "TypeMeta")?)?,
                2 => envelope.raw = wire.message(tag, "Raw")?,
                3 => envelope.content_encoding = wire.text(tag, "ContentEncoding")?,
                4 => envelope.content_type = wire.text(tag, "ContentType")?,
                _ => wire.skip(tag)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, message: &[u8]) -> Result<(), ProtobufError> {
        let mut wire = Wire::new(message);
        while let Some(tag) = wire.tag("TypeMeta")? {
            match tag.number {
                1 => self.api_version = wire.text(tag, "APIVersion")?,
                2 => self.kind = wire.text(tag, "Kind")?,
                _ => wire.skip(tag)?,
            }
        }
        Ok(())
    }
}
