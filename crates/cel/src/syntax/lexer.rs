//! Text → tokens, one at a time and without allocating.
//!
//! The longest match wins, as in the CEL grammar's generated lexer; if nothing matches, the token is
//! [`Kind::Error`] and covers the text up to and including the character that fits no token. Values of literals
//! are computed in `literal`; blanks and comments are skipped.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "offsets into the text and small steps beyond it; the text is at most u32::MAX bytes long, see `Lexer::new`"
)]

/// The kinds of tokens, numbered as in the CEL grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    Eof = 0,
    Equals = 1,
    NotEquals = 2,
    In = 3,
    Less = 4,
    LessEquals = 5,
    GreaterEquals = 6,
    Greater = 7,
    LogicalAnd = 8,
    LogicalOr = 9,
    LeftBracket = 10,
    RightBracket = 11,
    LeftBrace = 12,
    RightBrace = 13,
    LeftParen = 14,
    RightParen = 15,
    Dot = 16,
    Comma = 17,
    Minus = 18,
    Exclamation = 19,
    Question = 20,
    Colon = 21,
    Plus = 22,
    Star = 23,
    Slash = 24,
    Percent = 25,
    True = 26,
    False = 27,
    Null = 28,
    Float = 31,
    Int = 32,
    Uint = 33,
    String = 34,
    Bytes = 35,
    Identifier = 36,
    QuotedIdentifier = 37,
    /// No token: text that the lexer does not recognize.
    Error = 38,
}

/// A token: its kind and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Reads tokens from a text. Copying it is how to look ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of the text; text beyond 4 GiB is not seen.
    pub(crate) fn new(text: &'a str) -> Self {
        let text = if u32::try_from(text.len()).is_ok() { text } else { "" };
        Lexer { text, bytes: text.as_bytes(), at: 0 }
    }

    /// The text of a token.
    pub(crate) fn text(&self, token: Token) -> &'a str {
        self.text.get(token.start as usize..token.end as usize).unwrap_or("")
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn skip_hidden(&mut self) {
        while let Some(byte) = self.byte(self.at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0c => self.at += 1,
                b'/' if self.byte(self.at + 1) == Some(b'/') => {
                    let rest = self.bytes.get(self.at..).unwrap_or_default();
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// The next token; [`Kind::Eof`] again and again at the end.
    pub(crate) fn next_token(&mut self) -> Token {
        self.skip_hidden();
        let start = self.at;
        let (kind, end) = match self.byte(start) {
            None => (Kind::Eof, start),
            Some(byte) => self.scan(byte, start),
        };
        self.at = end;
        Token { kind, start: narrow(start), end: narrow(end) }
    }

    fn scan(&self, byte: u8, start: usize) -> (Kind, usize) {
        let one = |kind| (kind, start + 1);
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.scan_word(byte, start),
            b'0'..=b'9' => self.scan_number(byte, start),
            b'.' if self.byte(start + 1).is_some_and(|next| next.is_ascii_digit()) => {
                (Kind::Float, self.skip_exponent(self.skip_digits(start + 1)))
            }
            b'.' => one(Kind::Dot),
            b'\'' | b'"' => match self.scan_string(start, false) {
                Ok(end) => (Kind::String, end),
                Err(failed) => self.fail(failed),
            },
            b'`' => self.scan_quoted_identifier(start),
            b'(' => one(Kind::LeftParen),
            b')' => one(Kind::RightParen),
            b'[' => one(Kind::LeftBracket),
            b']' => one(Kind::RightBracket),
            b'{' => one(Kind::LeftBrace),
            b'}' => one(Kind::RightBrace),
            b',' => one(Kind::Comma),
            b':' => one(Kind::Colon),
            b'?' => one(Kind::Question),
            b'+' => one(Kind::Plus),
            b'-' => one(Kind::Minus),
            b'*' => one(Kind::Star),
            b'/' => one(Kind::Slash),
            b'%' => one(Kind::Percent),
            b'!' => self.scan_pair(start, b'=', Kind::NotEquals, Some(Kind::Exclamation)),
            b'<' => self.scan_pair(start, b'=', Kind::LessEquals, Some(Kind::Less)),
            b'>' => self.scan_pair(start, b'=', Kind::GreaterEquals, Some(Kind::Greater)),
            b'=' => self.scan_pair(start, b'=', Kind::Equals, None),
            b'&' => self.scan_pair(start, b'&', Kind::LogicalAnd, None),
            b'|' => self.scan_pair(start, b'|', Kind::LogicalOr, None),
            _ => self.fail(start),
        }
    }

    fn scan_pair(&self, start: usize, second: u8, pair: Kind, single: Option<Kind>) -> (Kind, usize) {
        if self.byte(start + 1) == Some(second) {
            (pair, start + 2)
        } else if let Some(kind) = single {
            (kind, start + 1)
        } else {
            self.fail(start + 1)
        }
    }

    /// An error whose text reaches to the end of the character at `failed`.
    fn fail(&self, failed: usize) -> (Kind, usize) {
        let length = self.text.get(failed..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        (Kind::Error, failed + length)
    }

    fn scan_word(&self, first: u8, start: usize) -> (Kind, usize) {
        if let Some(found) = self.scan_prefixed_string(first, start) {
            return found;
        }
        let rest = self.bytes.get(start..).unwrap_or_default();
        let length = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len());
        let kind = match rest.get(..length) {
            Some(b"in") => Kind::In,
            Some(b"true") => Kind::True,
            Some(b"false") => Kind::False,
            Some(b"null") => Kind::Null,
            _ => Kind::Identifier,
        };
        (kind, start + length)
    }

    /// `r'…'`, `b'…'`, `br'…'`; `None` where the letters are an identifier after all.
    fn scan_prefixed_string(&self, first: u8, start: usize) -> Option<(Kind, usize)> {
        let is_raw = |byte| matches!(byte, Some(b'r' | b'R'));
        let is_quote = |byte| matches!(byte, Some(b'\'' | b'"'));
        let is_bytes = matches!(first, b'b' | b'B');
        if !is_bytes && !is_raw(Some(first)) {
            return None;
        }
        let raw = !is_bytes || is_raw(self.byte(start + 1));
        let quote = start + 1 + usize::from(is_bytes && raw);
        if !is_quote(self.byte(quote)) {
            return None;
        }
        let end = self.scan_string(quote, raw).ok()?;
        Some((if is_bytes { Kind::Bytes } else { Kind::String }, end))
    }

    fn skip_digits(&self, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
    }

    fn skip_exponent(&self, from: usize) -> usize {
        if !matches!(self.byte(from), Some(b'e' | b'E')) {
            return from;
        }
        let digits = from + 1 + usize::from(matches!(self.byte(from + 1), Some(b'+' | b'-')));
        let end = self.skip_digits(digits);
        if end > digits { end } else { from }
    }

    fn scan_number(&self, first: u8, start: usize) -> (Kind, usize) {
        let mut end = self.skip_digits(start);
        if first == b'0' && end == start + 1 && self.byte(end) == Some(b'x') {
            let rest = self.bytes.get(end + 1..).unwrap_or_default();
            let digits = rest.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(rest.len());
            if digits > 0 {
                end += 1 + digits;
            }
            return self.integer_suffix(end);
        }
        if self.byte(end) == Some(b'.') && self.byte(end + 1).is_some_and(|next| next.is_ascii_digit()) {
            return (Kind::Float, self.skip_exponent(self.skip_digits(end + 1)));
        }
        let exponent_end = self.skip_exponent(end);
        if exponent_end > end { (Kind::Float, exponent_end) } else { self.integer_suffix(end) }
    }

    fn integer_suffix(&self, end: usize) -> (Kind, usize) {
        if matches!(self.byte(end), Some(b'u' | b'U')) { (Kind::Uint, end + 1) } else { (Kind::Int, end) }
    }

    /// The end of the string whose opening quote is at `quote`, or the offset of the character that breaks it.
    fn scan_string(&self, quote: usize, raw: bool) -> Result<usize, usize> {
        let mark = self.byte(quote).unwrap_or(0);
        if self.byte(quote + 1) == Some(mark) && self.byte(quote + 2) == Some(mark) {
            // Where three quotes open nothing, the first two are an empty string.
            return Ok(self.scan_triple_quoted(quote + 3, mark, raw).unwrap_or(quote + 2));
        }
        let mut at = quote + 1;
        loop {
            match self.byte(at) {
                None | Some(b'\n' | b'\r') => return Err(at),
                Some(byte) if byte == mark => return Ok(at + 1),
                Some(b'\\') if !raw => at = self.skip_escape(at)?,
                Some(_) => at += 1,
            }
        }
    }

    fn scan_triple_quoted(&self, from: usize, mark: u8, raw: bool) -> Option<usize> {
        let mut at = from;
        loop {
            match self.byte(at)? {
                byte if byte == mark && self.byte(at + 1) == Some(mark) && self.byte(at + 2) == Some(mark) => {
                    return Some(at + 3);
                }
                b'\\' if !raw => at = self.skip_escape(at).ok()?,
                _ => at += 1,
            }
        }
    }

    /// The offset behind the escape sequence at `at`, or of the character that breaks it.
    fn skip_escape(&self, at: usize) -> Result<usize, usize> {
        let digits = |count: usize, is_digit: fn(u8) -> bool| {
            let from = at + 2;
            match (from..from + count).find(|at| !self.byte(*at).is_some_and(is_digit)) {
                Some(failed) => Err(failed),
                None => Ok(from + count),
            }
        };
        let is_hex = |byte: u8| byte.is_ascii_hexdigit();
        match self.byte(at + 1) {
            Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(at + 2),
            Some(b'x' | b'X') => digits(2, is_hex),
            Some(b'u') => digits(4, is_hex),
            Some(b'U') => digits(8, is_hex),
            Some(b'0'..=b'3') => digits(2, |byte| matches!(byte, b'0'..=b'7')),
            _ => Err(at + 1),
        }
    }

    fn scan_quoted_identifier(&self, start: usize) -> (Kind, usize) {
        let mut at = start + 1;
        while self
            .byte(at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' '))
        {
            at += 1;
        }
        if at > start + 1 && self.byte(at) == Some(b'`') { (Kind::QuotedIdentifier, at + 1) } else { self.fail(at) }
    }
}

fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(Kind, &str)]) {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        loop {
            let token = lexer.next_token();
            if token.kind == Kind::Eof {
                break;
            }
            found.push((token.kind, lexer.text(token)));
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn the_longest_number_wins() {
        check("1.5e3", &[(Kind::Float, "1.5e3")]);
        check("1e+x", &[(Kind::Int, "1"), (Kind::Identifier, "e"), (Kind::Plus, "+"), (Kind::Identifier, "x")]);
        check("0xFu 0xg", &[(Kind::Uint, "0xFu"), (Kind::Int, "0"), (Kind::Identifier, "xg")]);
        check("1.foo", &[(Kind::Int, "1"), (Kind::Dot, "."), (Kind::Identifier, "foo")]);
        check("a.5", &[(Kind::Identifier, "a"), (Kind::Float, ".5")]);
    }

    #[test]
    fn strings_end_where_they_can() {
        check("r'\\' b\"\"\"a\"b\"\"\"", &[(Kind::String, "r'\\'"), (Kind::Bytes, "b\"\"\"a\"b\"\"\"")]);
        check("'''abc", &[(Kind::String, "''"), (Kind::Error, "'abc")]);
        check("rb'a'", &[(Kind::Identifier, "rb"), (Kind::String, "'a'")]);
        check("'a\\q'", &[(Kind::Error, "'a\\q"), (Kind::Error, "'")]);
    }

    #[test]
    fn errors_cover_the_character_that_fits_nothing() {
        check("a & b", &[(Kind::Identifier, "a"), (Kind::Error, "& "), (Kind::Identifier, "b")]);
        check("é`", &[(Kind::Error, "é"), (Kind::Error, "`")]);
    }

    #[test]
    fn comments_and_blanks_are_hidden() {
        check("// one\n 1 // two", &[(Kind::Int, "1")]);
    }
}
