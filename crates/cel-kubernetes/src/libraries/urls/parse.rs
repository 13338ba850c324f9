//! URLs as Go reads and writes them.
//!
//! Keeps the parts as written, except for the host; decodes where Go's rules require it. Follows Go 1.26
//! `net/url` in accepted texts and messages.

use std::borrow::Cow;
use std::fmt;

use api::go_text;

use crate::libraries::ip::parse_address;

/// An absolute URL, or the path of one.
#[derive(Clone, Debug)]
pub struct Url {
    scheme: String,
    /// The part behind the scheme if no slash follows it: `a@b.c` of `mailto:a@b.c`.
    opaque: String,
    /// User and password as written.
    user: Option<String>,
    /// Decoded, with the port; not always UTF-8.
    host: Vec<u8>,
    /// Whether the scheme is followed by a single slash.
    omit_host: bool,
    path: String,
    /// Whether there is a `?` with an empty query.
    force_query: bool,
    query: String,
    fragment: String,
}

/// A reason why a text is not a URL, in the words of Go's `net/url`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {message}", go_text::quote(.text))]
pub struct ParseError {
    text: String,
    message: String,
}

/// The parts of a URL, which differ in the characters to escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    UserOrPassword,
    QueryComponent,
    Fragment,
}

impl Url {
    /// Reads an absolute URL or an absolute path, perhaps with a fragment.
    ///
    /// # Errors
    /// The first rule that `text` breaks, as the target of a request or as a URL.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::check_request_target(text)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse(before, false).map_err(|message| ParseError { text: before.into(), message })?;
        unescape(fragment, Part::Fragment).map_err(|message| ParseError { text: text.into(), message })?;
        url.fragment = fragment.into();
        Ok(url)
    }

    /// Checks that a text can be the target of an HTTP request; a `#` has no meaning there.
    ///
    /// # Errors
    /// The first rule that `text` breaks.
    pub fn check_request_target(text: &str) -> Result<(), ParseError> {
        parse(text, true).map(|_| ()).map_err(|message| ParseError { text: text.into(), message })
    }

    /// The scheme in lower case, empty if there is none.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host and port, decoded; octets that are not text read as U+FFFD.
    pub fn host(&self) -> String {
        to_text(&self.host)
    }

    /// The host without port and brackets.
    pub fn host_name(&self) -> String {
        to_text(split_port(&self.host).0)
    }

    /// The digits of the port, empty if there is none.
    pub fn port(&self) -> String {
        to_text(split_port(&self.host).1)
    }

    /// The path: as written if that is a valid encoding, else re-encoded.
    pub fn escaped_path(&self) -> Cow<'_, str> {
        escaped(&self.path, Part::Path)
    }

    /// The keys and values of the query, decoded, in order. Malformed ones are omitted.
    pub fn query(&self) -> impl Iterator<Item = (String, String)> {
        self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = unescape(key, Part::QueryComponent).ok()?;
            let value = unescape(value, Part::QueryComponent).ok()?;
            Some((to_text(&key), to_text(&value)))
        })
    }
}

/// Prints the URL as Go's `URL.String` does: parts that are not validly encoded are re-encoded.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            let has_authority = !self.host.is_empty() || self.user.is_some();
            if has_authority || (!self.scheme.is_empty() && !self.omit_host && !self.path.is_empty()) {
                f.write_str("//")?;
            }
            if let Some(user) = &self.user {
                let (name, password) = user.split_once(':').map_or((user.as_str(), None), |(a, b)| (a, Some(b)));
                f.write_str(&encoded_anew(name, Part::UserOrPassword))?;
                if let Some(password) = password {
                    write!(f, ":{}", encoded_anew(password, Part::UserOrPassword))?;
                }
                f.write_str("@")?;
            }
            f.write_str(&escape(&self.host, Part::Host))?;
            f.write_str(&self.escaped_path())?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if self.force_query || !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", escaped(&self.fragment, Part::Fragment))?;
        }
        Ok(())
    }
}

fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && is_request {
        return Err("empty url".into());
    }
    let mut url = Url {
        scheme: String::new(),
        opaque: String::new(),
        user: None,
        host: Vec::new(),
        omit_host: false,
        path: String::new(),
        force_query: false,
        query: String::new(),
        fragment: String::new(),
    };
    if text == "*" {
        url.path = text.into();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    url.force_query = query == Some("");
    url.query = query.unwrap_or_default().into();

    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.into();
            return Ok(url);
        }
        if is_request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let mut path = rest;
    let may_have_host = !url.scheme.is_empty() || (!is_request && !rest.starts_with("///"));
    if let (true, Some(authority)) = (may_have_host, rest.strip_prefix("//")) {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at_checked(end).unwrap_or((authority, ""));
        (url.user, url.host) = parse_authority(&url.scheme, authority)?;
        path = after;
    } else if !url.scheme.is_empty() && rest.starts_with('/') {
        url.omit_host = true;
    }
    unescape(path, Part::Path)?;
    url.path = path.into();
    Ok(url)
}

/// The scheme, if there is one, and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let none = Ok(("", text));
    let Some(end) = text.bytes().position(|byte| !is_scheme(byte)) else { return none };
    match text.split_at_checked(end) {
        Some((scheme, rest)) if rest.starts_with(':') => {
            if scheme.is_empty() {
                return Err("missing protocol scheme".into());
            }
            if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) {
                return none;
            }
            Ok((scheme, rest.strip_prefix(':').unwrap_or_default()))
        }
        _ => none,
    }
}

fn parse_authority(scheme: &str, authority: &str) -> Result<(Option<String>, Vec<u8>), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, parse_host(scheme, authority)?));
    };
    let host = parse_host(scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".into());
    }
    for part in user.splitn(2, ':') {
        unescape(part, Part::UserOrPassword)?;
    }
    Ok((Some(user.into()), host))
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    // Other schemes may name several hosts with ports.
    let is_strict = matches!(scheme, "http" | "https");
    let port = if is_strict { host.find(':') } else { host.rfind(':') };
    check_port(port.and_then(|port| host.get(port..)).unwrap_or_default())?;
    unescape(host, Part::Host).map(Cow::into_owned)
}

/// `[fe80::1%25en0]:80`: `%25` introduces a zone, in which more may be escaped than in a host.
fn parse_ip_literal(host: &str) -> Result<Vec<u8>, String> {
    let inside = host.strip_prefix('[').unwrap_or_default();
    let Some((inside, port)) = inside.rsplit_once(']') else {
        return Err("missing ']' in host".into());
    };
    check_port(port)?;
    let zone_start = inside.find("%25").unwrap_or(inside.len());
    let (address, zone) = inside.split_at_checked(zone_start).unwrap_or((inside, ""));
    let mut decoded = unescape(address, Part::Host)?.into_owned();
    decoded.extend_from_slice(&unescape(zone, Part::Zone)?);
    match parse_address(&to_text(&decoded)) {
        Ok((address, _)) if address.is_ipv6() => {}
        Ok(_) => return Err("invalid IP-literal".into()),
        Err(error) => return Err(format!("invalid host: {error}")),
    }
    Ok([b"[", decoded.as_slice(), b"]", port.as_bytes()].concat())
}

fn check_port(port: &str) -> Result<(), String> {
    if is_optional_port(port.as_bytes()) {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", go_text::quote(port)))
    }
}

/// Whether the text is empty, or a colon with digits.
fn is_optional_port(port: &[u8]) -> bool {
    match port.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}

/// Host and port; the host without brackets.
fn split_port(host: &[u8]) -> (&[u8], &[u8]) {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let (name, port) = match colon.and_then(|colon| host.split_at_checked(colon)) {
        Some((name, port)) if is_optional_port(port) => (name, port.get(1..).unwrap_or_default()),
        _ => (host, &[] as &[u8]),
    };
    let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]"));
    (bare.unwrap_or(name), port)
}

fn unescape(text: &str, part: Part) -> Result<Cow<'_, [u8]>, String> {
    let in_host = matches!(part, Part::Host | Part::Zone);
    let bytes = text.as_bytes();
    let plus_is_space = part == Part::QueryComponent;
    if !in_host && !bytes.iter().any(|byte| *byte == b'%' || (plus_is_space && *byte == b'+')) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let (Some(byte), Some(behind)) = (decode_hex(after), after.get(2..)) else {
                    let escape = [b"%", after.get(..after.len().min(2)).unwrap_or_default()].concat();
                    return Err(invalid_escape(&escape));
                };
                // In a host only non-ASCII octets can be escaped; in a zone also characters that are valid in a
                // host.
                let is_percent = byte == b'%';
                let is_allowed = match part {
                    Part::Host => byte >= 0x80 || is_percent,
                    Part::Zone => is_percent || byte == b' ' || !must_escape(byte, Part::Host),
                    _ => true,
                };
                if !is_allowed {
                    let escape = [b"%", after.get(..2).unwrap_or_default()].concat();
                    return Err(invalid_escape(&escape));
                }
                decoded.push(byte);
                rest = behind;
            }
            b'+' if plus_is_space => decoded.push(b' '),
            byte if in_host && byte.is_ascii() && must_escape(*byte, part) => {
                let character = char::from(*byte).to_string();
                return Err(format!("invalid character {} in host name", go_text::quote(&character)));
            }
            byte => decoded.push(*byte),
        }
    }
    Ok(Cow::Owned(decoded))
}

fn decode_hex(bytes: &[u8]) -> Option<u8> {
    let digit = |index: usize| char::from(*bytes.get(index)?).to_digit(16);
    u8::try_from(digit(0)?.checked_mul(16)?.checked_add(digit(1)?)?).ok()
}

fn invalid_escape(escape: &[u8]) -> String {
    // The cut can split a character; Go then shows its first octets.
    let mut quoted = String::from("invalid URL escape \"");
    for chunk in escape.utf8_chunks() {
        let valid = go_text::quote(chunk.valid());
        quoted.push_str(valid.strip_prefix('"').and_then(|valid| valid.strip_suffix('"')).unwrap_or(&valid));
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

/// The part as written if that is a valid encoding, else re-encoded.
fn escaped(text: &str, part: Part) -> Cow<'_, str> {
    let is_valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte, part);
    if text.bytes().all(is_valid) { Cow::Borrowed(text) } else { Cow::Owned(encoded_anew(text, part)) }
}

fn encoded_anew(text: &str, part: Part) -> String {
    // INVARIANT: parsing has decoded it once, so it can be decoded.
    unescape(text, part).map_or_else(|_| text.to_owned(), |decoded| escape(&decoded, part))
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        if must_escape(*byte, part) {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push(char::from(*byte));
        }
    }
    escaped
}

fn must_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let allowed: &[u8] = match part {
        Part::Path => b"$&+,/:;=@",
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::UserOrPassword => b"$&+,;=",
        Part::QueryComponent => b"",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !allowed.contains(&byte)
}

/// Octets as text: each that belongs to no character reads as U+FFFD, as Go reads it.
fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

#[cfg(test)]
mod tests;
