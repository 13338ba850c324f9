//! Base64 as Go's standard encoding reads and writes it, with its error texts.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Invalid base64, with the position of the first bad byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct DecodeError(usize);

/// Decodes text with padding; line breaks are ignored.
///
/// # Errors
/// The first byte that does not belong.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(text.len());
    let (mut buffer, mut count) = (0_u32, 0_usize);
    let mut bytes = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    while let Some((index, byte)) = bytes.next() {
        if byte == b'=' {
            // Padding ends the text: two or three digits are left over.
            match count {
                2 => match bytes.next() {
                    Some((_, b'=')) => {}
                    Some((index, _)) => return Err(DecodeError(index)),
                    None => return Err(DecodeError(text.len())),
                },
                3 => {}
                _ => return Err(DecodeError(index)),
            }
            if let Some((index, _)) = bytes.next() {
                return Err(DecodeError(index));
            }
            let bits = buffer << if count == 2 { 12 } else { 6 };
            out.extend(bits.to_be_bytes().into_iter().skip(1).take(count.saturating_sub(1)));
            return Ok(out);
        }
        let digit = digit(byte).ok_or(DecodeError(index))?;
        buffer = (buffer << 6) | digit;
        count = count.saturating_add(1);
        if count == 4 {
            out.extend(buffer.to_be_bytes().into_iter().skip(1));
            (buffer, count) = (0, 0);
        }
    }
    if count == 0 { Ok(out) } else { Err(DecodeError(text.len().saturating_sub(count))) }
}

/// Encodes with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut buffer = [0_u8; 4];
        for (slot, byte) in buffer.iter_mut().skip(1).zip(chunk) {
            *slot = *byte;
        }
        let bits = u32::from_be_bytes(buffer);
        for position in 0..4_usize {
            if position > chunk.len() {
                out.push('=');
                continue;
            }
            let shift = 18_usize.saturating_sub(position.saturating_mul(6));
            let index = usize::try_from((bits >> shift) & 63).unwrap_or(0);
            out.extend(ALPHABET.get(index).map(|byte| char::from(*byte)));
        }
    }
    out
}

fn digit(byte: u8) -> Option<u32> {
    ALPHABET.iter().position(|it| *it == byte).and_then(|index| u32::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_and_encoded() {
        for (bytes, text) in
            [(&b""[..], ""), (b"a", "YQ=="), (b"ab", "YWI="), (b"abc", "YWJj"), (b"\xff\xfe\xfd\xfc", "//79/A==")]
        {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).unwrap(), bytes);
        }
        assert_eq!(decode("YW\r\nJj").unwrap(), b"abc");
    }

    #[test]
    fn errors_name_the_byte() {
        for (text, at) in
            [("!", 0), ("YWJj!", 4), ("YQ", 0), ("YWJjYQ", 4), ("YQ=", 3), ("YQ=a", 3), ("YQ==YQ==", 4), ("=", 0)]
        {
            assert_eq!(decode(text), Err(DecodeError(at)), "{text}");
        }
    }
}
