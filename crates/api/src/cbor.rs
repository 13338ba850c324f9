//! Documents in CBOR (RFC 8949), as Kubernetes' serializer reads and writes them.
//!
//! What has no JSON form is refused: other map keys than strings, repeated keys, integers beyond 64 bits, `undefined`,
//! numbers that are not finite. Strings are written as byte strings, as Kubernetes does, and read from both kinds.
//! Nothing is reserved by a length that the input only announces, and nesting is bounded as in [`mod@json`].

use std::collections::HashSet;

use crate::base64;
use crate::json::{self, Float, Object, Text, Value};
use crate::time::Timestamp;

/// The tag that marks data as CBOR and means nothing else: each document starts with it.
pub const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const SIMPLE: u8 = 7;
/// Ends an item of indefinite length.
const BREAK: u8 = 0xff;
/// The years 1 to 9999: RFC 3339 has no others.
const EPOCH_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Below this many keys comparing all pairs is cheaper than a set.
const FEW_KEYS: usize = 8;

/// A reason why bytes are not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CborError {
    #[error("cbor: unexpected EOF")]
    UnexpectedEnd,
    #[error("cbor: {0} bytes of extraneous data starting at index {1}")]
    Extraneous(usize, usize),
    #[error("cbor: exceeded max nested level {}", json::MAX_DEPTH)]
    TooDeep,
    #[error("cbor: invalid additional information {1} for major type {0}")]
    BadInformation(u8, u8),
    #[error("cbor: unexpected \"break\" code")]
    UnexpectedBreak,
    #[error("cbor: wrong element type {0} for indefinite-length string")]
    BadChunk(u8),
    #[error("cbor: invalid UTF-8 string")]
    InvalidUtf8,
    #[error("cbor: integer overflows 64 bits")]
    Overflow,
    #[error("cbor: number is not finite")]
    NotFinite,
    #[error("cbor: invalid map key type")]
    BadKey,
    #[error("cbor: found duplicate map key {0:?}")]
    DuplicateKey(String),
    #[error("cbor: simple value {0} is not recognized")]
    BadSimple(u64),
    #[error("cbor: tag {0} cannot enclose this content")]
    BadTag(u64),
}

/// Reads one document; there must be nothing behind it.
///
/// # Errors
/// If the bytes are not CBOR, or contain values that JSON does not support.
pub fn parse(bytes: &[u8]) -> Result<Value, CborError> {
    let mut reader = Reader { rest: bytes };
    let value = reader.value(0)?;
    match reader.rest.len() {
        0 => Ok(value),
        left => Err(CborError::Extraneous(left, bytes.len().saturating_sub(left))),
    }
}

/// Writes a document behind the tag that marks it as CBOR.
#[must_use]
pub fn to_bytes(value: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write_value(&mut out, value);
    out
}

/// Start of a list of unknown length, and its end.
pub const LIST_START: &[u8] = &[0x9f];
/// See [`LIST_START`].
pub const LIST_END: &[u8] = &[BREAK];
/// A list without items.
pub const NO_ITEMS: &[u8] = &[0x80];
/// The null value.
pub const NULL: &[u8] = &[0xf6];

/// The start of a document with these fields and, as the last one, `list`, whose value is still to be written.
#[must_use]
pub fn start_of_list(fields: &Object, list: &str) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write_length(&mut out, MAP, fields.len().saturating_add(1));
    for (key, value) in fields.iter() {
        write_string(&mut out, key);
        write_value(&mut out, value);
    }
    write_string(&mut out, list);
    out
}

/// Writes a value inside a document.
pub fn append(out: &mut Vec<u8>, value: &Value) {
    write_value(out, value);
}

struct Reader<'a> {
    rest: &'a [u8],
}

/// The head of an item: its major type, and its argument; none for an indefinite length.
struct Head {
    major: u8,
    information: u8,
    argument: Option<u64>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], CborError> {
        let count = usize::try_from(count).map_err(|_| CborError::UnexpectedEnd)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CborError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, CborError> {
        let (first, rest) = self.rest.split_first().ok_or(CborError::UnexpectedEnd)?;
        self.rest = rest;
        let (major, information) = (first >> 5, first & 0x1f);
        let argument = match information {
            0..=23 => Some(u64::from(information)),
            24..=27 => {
                let bytes = self.take(1 << (information & 3))?;
                Some(bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
            }
            31 if matches!(major, BYTES..=MAP) => None,
            31 if major == SIMPLE => return Err(CborError::UnexpectedBreak),
            _ => return Err(CborError::BadInformation(major, information)),
        };
        Ok(Head { major, information, argument })
    }

    /// Whether the end of an item of indefinite length follows, which is then passed.
    fn ends(&mut self) -> bool {
        match self.rest.split_first() {
            Some((&BREAK, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, CborError> {
        if depth > json::MAX_DEPTH {
            return Err(CborError::TooDeep);
        }
        let inner = depth.saturating_add(1);
        let head = self.head()?;
        match (head.major, head.argument) {
            (UNSIGNED, Some(number)) => i64::try_from(number).map(Value::Int).map_err(|_| CborError::Overflow),
            (NEGATIVE, Some(number)) => {
                i64::try_from(number).map(|it| Value::Int(!it)).map_err(|_| CborError::Overflow)
            }
            (BYTES | TEXT, length) => Ok(Value::String(utf8(self.string(head.major, length)?)?)),
            (ARRAY, length) => self.array(length, inner),
            (MAP, length) => self.map(length, inner),
            (TAG, Some(tag)) => self.tagged(tag, inner),
            (_, argument) => simple(head.information, argument.unwrap_or_default()),
        }
    }

    fn string(&mut self, major: u8, length: Option<u64>) -> Result<Vec<u8>, CborError> {
        if let Some(length) = length {
            return Ok(self.take(length)?.to_vec());
        }
        let mut whole = Vec::new();
        while !self.ends() {
            let chunk = self.head()?;
            let Some(length) = chunk.argument.filter(|_| chunk.major == major) else {
                return Err(CborError::BadChunk(chunk.major));
            };
            let bytes = self.take(length)?;
            // Each chunk of a text is a text.
            if major == TEXT && std::str::from_utf8(bytes).is_err() {
                return Err(CborError::InvalidUtf8);
            }
            whole.extend_from_slice(bytes);
        }
        Ok(whole)
    }

    fn array(&mut self, length: Option<u64>, depth: usize) -> Result<Value, CborError> {
        let mut items = Vec::new();
        let mut left = length;
        while left != Some(0) && !(left.is_none() && self.ends()) {
            items.push(self.value(depth)?);
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, length: Option<u64>, depth: usize) -> Result<Value, CborError> {
        let mut entries: Vec<(Text, Value)> = Vec::new();
        let mut left = length;
        while left != Some(0) && !(left.is_none() && self.ends()) {
            let head = self.head()?;
            if !matches!(head.major, BYTES | TEXT) {
                return Err(CborError::BadKey);
            }
            let key = utf8(self.string(head.major, head.argument)?)?;
            entries.push((key, self.value(depth)?));
            left = left.map(|left| left.saturating_sub(1));
        }
        match duplicate(&entries) {
            Some(key) => Err(CborError::DuplicateKey(key.to_owned())),
            None => Ok(Value::Object(Object::from_distinct(entries))),
        }
    }

    fn tagged(&mut self, tag: u64, depth: usize) -> Result<Value, CborError> {
        if let 21..=23 = tag
            && let Some(first) = self.rest.first()
            && first >> 5 == BYTES
        {
            // Bytes that become text later, in the encoding that the tag names.
            let head = self.head()?;
            let bytes = self.string(BYTES, head.argument)?;
            return Ok(Value::String(match tag {
                21 => base64::encode(&bytes).replace('+', "-").replace('/', "_").trim_end_matches('=').into(),
                22 => base64::encode(&bytes).into(),
                _ => bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
            }));
        }
        let content = self.value(depth)?;
        match (tag, &content) {
            (0, Value::String(text)) => match Timestamp::parse(text) {
                Ok(_) => Ok(content),
                Err(_) => Err(CborError::BadTag(tag)),
            },
            (1, Value::Int(seconds)) if EPOCH_SECONDS.contains(seconds) => {
                Ok(Value::String(Timestamp { seconds: *seconds, nanos: 0 }.to_string().into()))
            }
            (0..=3, _) => Err(CborError::BadTag(tag)),
            _ => Ok(content),
        }
    }
}

fn utf8(bytes: Vec<u8>) -> Result<Text, CborError> {
    String::from_utf8(bytes).map(Text::from).map_err(|_| CborError::InvalidUtf8)
}

fn simple(information: u8, argument: u64) -> Result<Value, CborError> {
    let number = match information {
        20 => return Ok(Value::Bool(false)),
        21 => return Ok(Value::Bool(true)),
        22 => return Ok(Value::Null),
        25 => u16::try_from(argument).map(half).unwrap_or_default(),
        26 => u32::try_from(argument).map(|bits| f64::from(f32::from_bits(bits))).unwrap_or_default(),
        27 => f64::from_bits(argument),
        _ => return Err(CborError::BadSimple(argument)),
    };
    if number.is_finite() { Ok(Value::Float(Float::new(number))) } else { Err(CborError::NotFinite) }
}

/// A number of 16 bits: five of exponent, ten of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 => f64::INFINITY,
        _ => (fraction + 1024.0) * 2_f64.powi(exponent.saturating_sub(25)),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

fn duplicate(entries: &[(Text, Value)]) -> Option<&str> {
    if entries.len() <= FEW_KEYS {
        let before = |index: usize| entries.iter().take(index);
        let repeated = entries.iter().enumerate().find(|(index, it)| before(*index).any(|other| other.0 == it.0));
        return repeated.map(|(_, (key, _))| key.as_str());
    }
    let mut seen = HashSet::with_capacity(entries.len());
    entries.iter().map(|(key, _)| key.as_str()).find(|key| !seen.insert(*key))
}

fn write_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let first = major << 5;
    let bytes = argument.to_be_bytes();
    let (information, width) = match argument {
        0..=23 => {
            out.push(first | bytes.last().copied().unwrap_or_default());
            return;
        }
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(first | information);
    out.extend(bytes.iter().skip(bytes.len().saturating_sub(width)));
}

fn write_length(out: &mut Vec<u8>, major: u8, length: usize) {
    write_head(out, major, u64::try_from(length).unwrap_or(u64::MAX));
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    write_length(out, BYTES, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(false) => out.push(0xf4),
        Value::Bool(true) => out.push(0xf5),
        Value::Int(number) => match u64::try_from(*number) {
            Ok(number) => write_head(out, UNSIGNED, number),
            Err(_) => write_head(out, NEGATIVE, number.unsigned_abs().saturating_sub(1)),
        },
        Value::Float(number) => write_float(out, number.get()),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            write_length(out, ARRAY, items.len());
            items.iter().for_each(|item| write_value(out, item));
        }
        Value::Object(fields) => {
            write_length(out, MAP, fields.len());
            for (key, value) in fields.iter() {
                write_string(out, key);
                write_value(out, value);
            }
        }
    }
}

/// Writes a float, in 32 bits if that is exact. Non-finite numbers are `null`, as in JSON.
fn write_float(out: &mut Vec<u8>, number: f64) {
    if !number.is_finite() {
        out.push(0xf6);
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whether it was exact is asked right after")]
    let short = number as f32;
    if f64::from(short).to_bits() == number.to_bits() {
        out.push(0xfa);
        out.extend(short.to_be_bytes());
    } else {
        out.push(0xfb);
        out.extend(number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|it| *it != b' ').collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[track_caller]
    fn check(hex: &str, expected: &str) {
        let text = match parse(&bytes(hex)) {
            Ok(value) => json::to_string(&value),
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected, "{hex}");
    }

    /// Most examples are from RFC 8949, appendix A.
    #[test]
    fn examples_of_the_standard_are_read() {
        check("00", "0");
        check("1864", "100");
        check("1b 7fffffffffffffff", "9223372036854775807");
        check("3903e7", "-1000");
        check("3b 7fffffffffffffff", "-9223372036854775808");
        check("f9 3e00", "1.5");
        check("f9 7bff", "65504");
        check("f9 0001", "5.960464477539063e-8");
        check("f9 c400", "-4");
        check("fa 47c35000", "100000");
        check("fb 3ff199999999999a", "1.1");
        check("f4", "false");
        check("f6", "null");
        check("64 49455446", "\"IETF\"");
        check("44 49455446", "\"IETF\"");
        check("7f 65 7374726561 64 6d696e67 ff", "\"streaming\"");
        check("83 01 82 02 03 82 04 05", "[1,[2,3],[4,5]]");
        check("9f ff", "[]");
        check("a2 61 61 01 61 62 82 02 03", "{\"a\":1,\"b\":[2,3]}");
        check("bf 61 61 01 ff", "{\"a\":1}");
        check("d9d9f7 a0", "{}");
        check("d6 43 010203", "\"AQID\"");
        check("d5 42 fbff", "\"-_8\"");
        check("d7 42 abcd", "\"ABCD\"");
        check("c0 74 323031332d30332d32315432303a30343a30305a", "\"2013-03-21T20:04:00Z\"");
        check("c1 1a 514b67b0", "\"2013-03-21T20:04:00Z\"");
    }

    #[test]
    fn values_outside_json_are_rejected() {
        check("", "cbor: unexpected EOF");
        check("1b ffffffffffffffff", "cbor: integer overflows 64 bits");
        check("3b ffffffffffffffff", "cbor: integer overflows 64 bits");
        check("f9 7c00", "cbor: number is not finite");
        check("f9 7e00", "cbor: number is not finite");
        check("f7", "cbor: simple value 23 is not recognized");
        check("f8 ff", "cbor: simple value 255 is not recognized");
        check("61 ff", "cbor: invalid UTF-8 string");
        check("41 ff", "cbor: invalid UTF-8 string");
        check("a1 01 02", "cbor: invalid map key type");
        check("a2 6161 01 4161 02", "cbor: found duplicate map key \"a\"");
        check("c2 49 010000000000000000", "cbor: tag 2 cannot enclose this content");
        check("c0 61 61", "cbor: tag 0 cannot enclose this content");
        check("ff", "cbor: unexpected \"break\" code");
        check("1c", "cbor: invalid additional information 28 for major type 0");
        check("7f 41 61 ff", "cbor: wrong element type 2 for indefinite-length string");
        check("00 00", "cbor: 1 bytes of extraneous data starting at index 1");
        // Lengths that are only announced.
        check("9b ffffffffffffffff", "cbor: unexpected EOF");
        check("bb ffffffffffffffff", "cbor: unexpected EOF");
        check("5b ffffffffffffffff", "cbor: unexpected EOF");
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = |levels: usize| parse(&[vec![0x81; levels], vec![0]].concat());
        assert!(deep(json::MAX_DEPTH).is_ok());
        assert_eq!(deep(json::MAX_DEPTH + 1), Err(CborError::TooDeep));
        assert_eq!(parse(&vec![0xc6; 1 << 20]), Err(CborError::TooDeep));
    }

    #[test]
    fn many_keys_are_compared_too() {
        let mut document = vec![0xb8, 40];
        for index in [(0..39_u8).collect(), vec![7]].concat() {
            document.extend([0x41, b'0' + index, 0xf6]);
        }
        assert_eq!(parse(&document), Err(CborError::DuplicateKey("7".to_owned())));
    }

    #[test]
    fn any_bytes_are_a_document_or_an_error() {
        // Heads of all kinds, so that most inputs get past the first byte.
        const HEADS: &[u8] =
            b"\x00\x18\x1b\x20\x3b\x41\x5f\x61\x7f\x82\x9f\xa1\xbf\xc0\xc1\xd6\xd9\xf4\xf6\xf9\xfa\xfb\xffa1";
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()
        };
        let mut documents = 0;
        for _ in 0..50_000 {
            let mut input = Vec::new();
            for _ in 0..=next()[0] % 8 {
                let [kind, head, byte, ..] = next();
                input.push(if kind < 200 { HEADS[usize::from(head) % HEADS.len()] } else { byte });
            }
            if let Ok(value) = parse(&input) {
                documents += 1;
                assert_eq!(parse(&to_bytes(&value)), Ok(value.clone()), "{input:?}");
                assert!(json::parse(json::to_string(&value).as_bytes()).is_ok(), "{input:?}");
            }
        }
        assert!(documents > 1000, "{documents}");
    }

    #[test]
    fn written_values_round_trip() {
        let text = r#"{"a":[null,true,false,0,23,24,255,256,65535,65536,4294967296,-1,-25,-9223372036854775808],"b":{"c":1.5,"d":0.1,"e":"ü"}}"#;
        let value = json::parse(text.as_bytes()).unwrap();
        let written = to_bytes(&value);
        assert!(written.starts_with(&SELF_DESCRIBED));
        assert_eq!(parse(&written), Ok(value));
        // As written by Kubernetes' own encoder.
        assert_eq!(to_bytes(&json::parse(br#"{"k":"v","n":-500}"#).unwrap()), bytes("d9d9f7 a2 416b 4176 416e 3901f3"));
    }
}
