//! Base64.
//!
//! Decoding takes text with and without padding and passes over line ends, as Go's `encoding/base64` does.
//!
//! Follows cel-go's `ext.Encoders`, version 0.

use super::{native, text, unexpected};
use crate::cost::Price;
use crate::env::{Library, LibraryVersion, Overload};
use crate::value::{Bytes, EvalError, Value};

/// `base64.encode` and `base64.decode`.
pub fn encoders() -> Library {
    Library {
        name: "cel.lib.ext.encoders",
        version: LibraryVersion(0),
        overloads: OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: &[],
        validators: &[],
        partial: &[],
    }
}

static OVERLOADS: &[Overload] = &[
    native("base64_decode_string", ":base64.decode(string) -> bytes", Price::ONE, |operands| {
        let text = text(operands, 0)?.as_bytes();
        // Text without padding is tried second, and the error of that attempt is reported.
        let octets = decode(text, true)
            .or_else(|_| decode(text, false))
            .map_err(|CorruptOctet(at)| EvalError::other(format!("illegal base64 data at input byte {at}")))?;
        Ok(Value::Bytes(Bytes::Shared(octets.into())))
    }),
    native("base64_encode_bytes", ":base64.encode(bytes) -> string", Price::ONE, |operands| match operands {
        [Value::Bytes(octets)] => Ok(Value::string(encode(octets))),
        _ => Err(unexpected()),
    }),
];

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3).saturating_mul(4));
    for chunk in octets.chunks(3) {
        let bits = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |bits, octet| bits << 8 | u32::from(*octet));
        for place in 0..4_u32 {
            let digit = bits >> 18_u32.saturating_sub(place.saturating_mul(6)) & 0x3f;
            let letter = ALPHABET.get(digit as usize).filter(|_| (place as usize) <= chunk.len());
            text.push(letter.map_or('=', |letter| char::from(*letter)));
        }
    }
    text
}

/// The place of the first octet that does not belong there.
#[derive(Debug, PartialEq, Eq)]
struct CorruptOctet(usize);

fn decode(text: &[u8], padded: bool) -> Result<Vec<u8>, CorruptOctet> {
    let mut octets = Vec::with_capacity(text.len().saturating_mul(3).saturating_div(4));
    let mut at = 0_usize;
    // Four digits make three octets; fewer only at the end.
    while at < text.len() {
        let mut bits = 0_u32;
        let mut digits = 0_u32;
        let mut ended = false;
        while digits < 4 && !ended {
            let Some(octet) = text.get(at) else {
                match digits {
                    0 => return Ok(octets),
                    1 => return Err(CorruptOctet(at.saturating_sub(1))),
                    _ if padded => return Err(CorruptOctet(at.saturating_sub(digits as usize))),
                    _ => break,
                }
            };
            at = at.saturating_add(1);
            match octet {
                b'\n' | b'\r' => {}
                b'=' if padded => {
                    end_padding(text, &mut at, digits)?;
                    ended = true;
                }
                _ => {
                    let digit = ALPHABET.iter().position(|letter| letter == octet);
                    let digit =
                        digit.and_then(|digit| u32::try_from(digit).ok()).ok_or(CorruptOctet(at.saturating_sub(1)))?;
                    bits = bits << 6 | digit;
                    digits = digits.saturating_add(1);
                }
            }
        }
        let bits = bits << 4_u32.saturating_sub(digits).saturating_mul(6);
        let [_, first, second, third] = bits.to_be_bytes();
        octets.extend([first, second, third].into_iter().take((digits as usize).saturating_sub(1)));
    }
    Ok(octets)
}

/// After the first `=`: maybe another one, line ends, and nothing else.
fn end_padding(text: &[u8], at: &mut usize, digits: u32) -> Result<(), CorruptOctet> {
    let pass_line_ends = |at: &mut usize| {
        while matches!(text.get(*at), Some(b'\n' | b'\r')) {
            *at = at.saturating_add(1);
        }
    };
    if digits < 2 {
        return Err(CorruptOctet(at.saturating_sub(1)));
    }
    if digits == 2 {
        pass_line_ends(at);
        match text.get(*at) {
            None => return Err(CorruptOctet(text.len())),
            Some(b'=') => *at = at.saturating_add(1),
            Some(_) => return Err(CorruptOctet(at.saturating_sub(1))),
        }
    }
    pass_line_ends(at);
    if *at < text.len() { Err(CorruptOctet(*at)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Call;

    #[track_caller]
    fn decodes(text: &'static str, expected: Result<&str, &str>) {
        let Call::Native(call) = OVERLOADS[0].call else { panic!() };
        match call(&[Value::str(text)]) {
            Ok(Value::Bytes(octets)) => assert_eq!(Ok(std::str::from_utf8(&octets).unwrap()), expected),
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(Err(error.message()), expected),
        }
    }

    #[test]
    fn text_and_octets() {
        for (octets, text) in [("", ""), ("h", "aA=="), ("he", "aGU="), ("hello", "aGVsbG8="), ("hello!", "aGVsbG8h")] {
            assert_eq!(encode(octets.as_bytes()), text);
            assert_eq!(decode(text.as_bytes(), true).unwrap(), octets.as_bytes());
        }
        decodes("aGVsbG8=", Ok("hello"));
        decodes("aGVsbG8", Ok("hello"));
        decodes("aGVs\nbG8=\n", Ok("hello"));
        decodes("aGVsbG8=x", Err("illegal base64 data at input byte 7"));
        decodes("!", Err("illegal base64 data at input byte 0"));
        decodes("a", Err("illegal base64 data at input byte 0"));
        decodes("aGV$bG8=", Err("illegal base64 data at input byte 3"));
    }
}
