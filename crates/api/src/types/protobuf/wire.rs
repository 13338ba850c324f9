//! The wire format: tags, varints and lengths, with gogo/protobuf's texts for errors.

use super::ProtobufError;

type Result<T> = std::result::Result<T, ProtobufError>;

/// Header of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    /// The field's number, above 0.
    pub(super) number: u32,
    /// Wire type: 0 varint, 1 and 5 fixed, 2 with a length, 3 and 4 around a group.
    pub(super) kind: u8,
}

/// The rest of a message.
#[derive(Debug, Clone)]
pub(super) struct Wire<'a> {
    rest: &'a [u8],
}

fn end() -> ProtobufError {
    ProtobufError::malformed("unexpected EOF")
}

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A number in groups of seven bits; bits beyond 64 are dropped.
    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        while shift < 64 {
            let (byte, rest) = self.rest.split_first().ok_or_else(end)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
            shift = shift.saturating_add(7);
        }
        Err(ProtobufError::malformed("proto: integer overflow"))
    }

    /// The next tag of a message of the type `owner`, `None` at its end.
    pub(super) fn tag(&mut self, owner: &str) -> Result<Option<Tag>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let wire = self.varint()?;
        let kind = low_bits(wire) & 7;
        if kind == 4 {
            return Err(ProtobufError::malformed(format!("proto: {owner}: wiretype end group for non-group")));
        }
        // Go keeps 32 bits, with a sign.
        let number = u32::try_from((wire >> 3) & 0xffff_ffff).unwrap_or(u32::MAX);
        let signed = number.cast_signed();
        if signed <= 0 {
            return Err(ProtobufError::malformed(format!("proto: {owner}: illegal tag {signed} (wire type {wire})")));
        }
        Ok(Some(Tag { number, kind }))
    }

    /// A number of bytes.
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(end)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes behind their length.
    pub(super) fn delimited(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()?;
        if length.cast_signed() < 0 {
            return Err(ProtobufError::malformed("proto: negative length found during unmarshaling"));
        }
        self.take(usize::try_from(length).map_err(|_| end())?)
    }

    fn expect(tag: Tag, kind: u8, field: &str) -> Result<()> {
        if tag.kind == kind {
            return Ok(());
        }
        Err(ProtobufError::malformed(format!("proto: wrong wireType = {} for field {field}", tag.kind)))
    }

    /// The bytes of a field that is a message, bytes or text. `field` is its name in Go.
    pub(super) fn message(&mut self, tag: Tag, field: &str) -> Result<&'a [u8]> {
        Self::expect(tag, 2, field)?;
        self.delimited()
    }

    /// The text of a field. Invalid UTF-8 is replaced, as when Go writes it as JSON.
    pub(super) fn text(&mut self, tag: Tag, field: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(self.message(tag, field)?).into_owned())
    }

    /// The number of a field.
    pub(super) fn number(&mut self, tag: Tag, field: &str) -> Result<u64> {
        Self::expect(tag, 0, field)?;
        self.varint()
    }

    /// The floating-point number of a field.
    pub(super) fn double(&mut self, tag: Tag, field: &str) -> Result<f64> {
        Self::expect(tag, 1, field)?;
        let bytes = self.take(8)?;
        Ok(bytes.try_into().map_or(0.0, f64::from_le_bytes))
    }

    /// Skips an unknown field.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<()> {
        let mut depth = 0_usize;
        let mut kind = tag.kind;
        loop {
            match kind {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => drop(self.delimited()?),
                3 => depth = depth.saturating_add(1),
                4 if depth == 0 => return Err(ProtobufError::malformed("proto: unexpected end of group")),
                4 => depth = depth.saturating_sub(1),
                5 => drop(self.take(4)?),
                other => return Err(ProtobufError::malformed(format!("proto: illegal wireType {other}"))),
            }
            if depth == 0 {
                return Ok(());
            }
            kind = low_bits(self.varint()?) & 7;
        }
    }
}

/// The lowest eight bits.
pub(super) fn low_bits(value: u64) -> u8 {
    value.to_le_bytes().first().copied().unwrap_or_default()
}
