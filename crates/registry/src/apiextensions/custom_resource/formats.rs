//! Formats of texts: what `format: ipv4` and its siblings accept.
//!
//! Follows the default registry of `kube-openapi`'s `strfmt`, which takes much of this from Go's standard
//! library: odd results here are odd results there. Dashes in names are ignored. Unknown formats accept
//! everything.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use api::duration::Duration;
use api::time::Timestamp;
use cel::regex::Regex;
use cel_kubernetes::libraries::urls::Url;

/// A format that texts can be checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format(fn(&str) -> bool);

impl Format {
    /// The format of this name, if there is one.
    pub(super) fn find(name: &str) -> Option<Self> {
        let accepts: fn(&str) -> bool = match name.replace('-', "").as_str() {
            "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|it| it.is_ascii_hexdigit()),
            "uri" => |text| Url::check_request_target(text).is_ok(),
            "email" => super::email::is_address,
            "hostname" => is_host_name,
            "ipv4" => |text| text.contains('.') && is_sloppy_address(text),
            "ipv6" => |text| text.contains(':') && is_strict_address(text),
            "cidr" => is_cidr,
            "mac" => is_mac,
            "uuid" => |text| is_uuid(text, None),
            "uuid3" => |text| is_uuid(text, Some(b'3')),
            "uuid4" => |text| is_uuid(text, Some(b'4')),
            "uuid5" => |text| is_uuid(text, Some(b'5')),
            "isbn" => |text| is_isbn10(text) || is_isbn13(text),
            "isbn10" => is_isbn10,
            "isbn13" => is_isbn13,
            "creditcard" => is_credit_card,
            "ssn" => is_social_security_number,
            "hexcolor" => is_hex_color,
            "rgbcolor" => |text| matches(&RGB_COLOR, text),
            "byte" => is_base64,
            "password" => |_| true,
            "date" => is_date,
            "duration" => is_duration,
            "datetime" => is_date_time,
            "k8sshortname" => |text| text.len() <= 63 && is_segment(text),
            "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_segment),
            _ => return None,
        };
        Some(Self(accepts))
    }

    /// Whether a text has the format.
    pub(super) fn accepts(self, text: &str) -> bool {
        (self.0)(text)
    }
}

type Pattern = LazyLock<Option<Regex>>;

static HOST_NAME: Pattern = LazyLock::new(|| {
    Regex::new(r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$").ok()
});

static RGB_COLOR: Pattern = LazyLock::new(|| {
    let number = r"(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])";
    Regex::new(&format!(r"^rgb\(\s*{number}\s*,\s*{number}\s*,\s*{number}\s*\)$")).ok()
});

static CREDIT_CARD: Pattern = LazyLock::new(|| {
    Regex::new(r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$").ok()
});

static SCALA_DURATION: Pattern = LazyLock::new(|| Regex::new(r"((\d+)\s*([A-Za-zµ]+))").ok());

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text).unwrap_or(false))
}

fn is_host_name(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && matches(&HOST_NAME, text)
}

/// Lower-case letters and digits, with dashes between.
fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = text.bytes();
    let ends = [bytes.clone().next(), bytes.clone().next_back()];
    ends.iter().all(|end| end.is_some_and(is_plain)) && bytes.all(|byte| is_plain(byte) || byte == b'-')
}

/// Like [`is_strict_address`], but parts of IPv4 addresses may have leading zeros.
fn is_sloppy_address(text: &str) -> bool {
    let Some((head, dotted)) = text.rsplit_once(':') else { return is_dotted(text, true) };
    is_dotted(dotted, true) && is_strict_address(&format!("{head}:0.0.0.0"))
}

/// Go's `net.ParseIP`: no zones.
fn is_strict_address(text: &str) -> bool {
    if text.contains(':') { text.parse::<Ipv6Addr>().is_ok() } else { is_dotted(text, false) }
}

fn is_dotted(text: &str, allows_leading_zeros: bool) -> bool {
    let is_part = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        let has_leading_zero = part.len() > 1 && part.starts_with('0');
        is_number && (allows_leading_zeros || !has_leading_zero) && part.parse::<u64>().is_ok_and(|it| it <= 255)
    };
    text.split('.').count() == 4 && text.split('.').all(is_part)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let is_number = !length.is_empty() && length.bytes().all(|it| it.is_ascii_digit());
    let max = if address.contains(':') { 128 } else { 32 };
    let is_address = if address.contains(':') && !address.contains('.') {
        is_strict_address(address)
    } else {
        is_sloppy_address(address)
    };
    is_address && is_number && length.parse::<u64>().is_ok_and(|it| it <= max)
}

/// 6, 8 or 20 octets: `00:00:5e:00:53:01`, with dashes, or in groups of four digits with dots.
fn is_mac(text: &str) -> bool {
    let octets = |separator: char, digits: usize| -> Option<usize> {
        let mut count = 0_usize;
        for group in text.split(separator) {
            if group.len() != digits || !group.bytes().all(|it| it.is_ascii_hexdigit()) {
                return None;
            }
            count = count.saturating_add(digits / 2);
        }
        Some(count)
    };
    let count = match text.as_bytes().get(2) {
        Some(b':') => octets(':', 2),
        Some(b'-') => octets('-', 2),
        _ => octets('.', 4),
    };
    text.len() >= 14 && matches!(count, Some(6 | 8 | 20))
}

/// Whether the text is a UUID of the version. Each of the dashes is optional.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text.as_bytes();
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, behind)) = rest.split_at_checked(digits) else { return false };
        let first = group.first().map_or(0, u8::to_ascii_lowercase);
        let is_first_right = match (index, version) {
            (2, Some(version)) => first == version,
            (3, Some(b'4' | b'5')) => matches!(first, b'8' | b'9' | b'a' | b'b'),
            _ => true,
        };
        if !is_first_right || !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

/// The text without white space and dashes.
fn condensed(text: &str) -> String {
    text.chars().filter(|it| !matches!(it, ' ' | '\t' | '\n' | '\r' | '\u{c}' | '-')).collect()
}

fn digits(text: &str) -> Option<Vec<u32>> {
    text.chars().map(|it| it.to_digit(10)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = condensed(text);
    let (body, check) = match text.strip_suffix('X') {
        Some(body) => (body.to_owned(), Some(10)),
        None => (text, None),
    };
    let Some(mut all) = digits(&body) else { return false };
    all.extend(check);
    let sum =
        all.iter().zip(1_u32..).fold(0_u32, |sum, (digit, factor)| sum.saturating_add(digit.saturating_mul(factor)));
    all.len() == 10 && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let Some(all) = digits(&condensed(text)) else { return false };
    let sum = all.iter().zip([1_u32, 3].into_iter().cycle());
    let sum = sum.fold(0_u32, |sum, (digit, factor)| sum.saturating_add(digit.saturating_mul(factor)));
    all.len() == 13 && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits_only: String = text.chars().filter(char::is_ascii_digit).collect();
    if !matches(&CREDIT_CARD, &digits_only) {
        return false;
    }
    let sum = digits_only.bytes().rev().zip([false, true].into_iter().cycle()).fold(0_u32, |sum, (digit, doubles)| {
        let digit = u32::from(digit.saturating_sub(b'0'));
        let digit = if doubles { digit.saturating_mul(2) } else { digit };
        sum.saturating_add(if digit >= 10 { digit.saturating_sub(9) } else { digit })
    });
    sum.is_multiple_of(10)
}

fn is_social_security_number(text: &str) -> bool {
    let is_right = |(index, byte): (usize, u8)| match index {
        3 | 6 => matches!(byte, b'-' | b' '),
        _ => byte.is_ascii_digit(),
    };
    text.len() == 11 && text.bytes().enumerate().all(is_right)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Whether the text is base64 with padding, in the standard alphabet, and not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len().saturating_sub(body.len());
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(is_letter)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// Only the part behind the first `t` counts; the offset may be any digits.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two = |from: usize, max: &str| {
        let part = text.get(from..from.saturating_add(2));
        part.is_some_and(|part| part.bytes().all(|it| it.is_ascii_digit()) && part <= max)
    };
    let colons = text.get(2..3) == Some(":") && text.get(5..6) == Some(":");
    if !colons || !two(0, "23") || !two(3, "59") || !two(6, "59") {
        return false;
    }
    let Some(rest) = text.get(8..) else { return false };
    is_zone(rest) || has_fraction_and_zone(rest)
}

/// Any character, then digits: the pattern has a dot that was not escaped.
fn has_fraction_and_zone(text: &str) -> bool {
    let mut characters = text.chars();
    if characters.next().is_none_or(|it| it == '\n') {
        return false;
    }
    let rest = characters.as_str();
    let zone = rest.trim_start_matches(|it: char| it.is_ascii_digit());
    zone.len() < rest.len() && is_zone(zone)
}

fn is_zone(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else { return text == "z" };
    let is_pair = |part: &str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_digit());
    offset.split_once(':').is_some_and(|(hours, minutes)| is_pair(hours) && is_pair(minutes))
}

/// Accepts durations as Go parses them, and those with the units of Scala anywhere in the text.
fn is_duration(text: &str) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    if Duration::parse(text).is_ok() {
        return true;
    }
    let Some(pattern) = SCALA_DURATION.as_ref() else { return false };
    let Ok(found) = pattern.captures_iter(text) else { return false };
    let mut is_known = false;
    for groups in found {
        if groups.get(2).is_none_or(|number| number.parse::<i64>().is_err()) {
            return false;
        }
        let unit = groups.get(3).unwrap_or_default().to_lowercase();
        is_known |= UNITS.iter().any(|variants| {
            variants.contains(&unit.as_str()) || variants.last().is_some_and(|stem| unit.starts_with(stem))
        });
    }
    is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, accepted: &[&str], refused: &[&str]) {
        let format = Format::find(format).unwrap();
        for text in accepted {
            assert!(format.accepts(text), "{text}");
        }
        for text in refused {
            assert!(!format.accepts(text), "{text}");
        }
    }

    #[test]
    fn formats_agree_with_go() {
        check("ipv4", &["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], &["1.2.3", "1.2.3.256", "::1", ""]);
        check("ipv6", &["::1", "2001:db8::"], &["1.2.3.4", "::1%eth0", "g::"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+1"]);
        check(
            "mac",
            &["00:00:5e:00:53:01", "00-00-5e-00-53-01", "0000.5e00.5301"],
            &["00:00:5e:00:53", "zz:00:5e:00:53:01"],
        );
        check("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123E4567e89b12d3a456426614174000"], &["123e4567", ""]);
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044", "x"]);
        check("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]);
        check("ssn", &["123-45-6789"], &["123456789"]);
        check("hexcolor", &["#FFFFFF", "abc"], &["#ffff"]);
        check("rgbcolor", &["rgb(255,0,1)"], &["rgb(256,0,1)"]);
        check("byte", &["aGk=", "AAAA"], &["", "aGk", "a===", "!!!!"]);
        check("date", &["2020-02-29"], &["2021-02-29", "2020-1-1", ""]);
        check(
            "date-time",
            &["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"],
            &["2020-01-01", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00"],
        );
        check("duration", &["1s", "1h30m", "2 days", "3 weeks"], &["", "x", "5"]);
        check("hostname", &["example.com", "a"], &["a_b.c", "-a", ""]);
        check("email", &["a@b.c", "Jo <jo@example.com>"], &["a", "@b", "a@"]);
        check("uri", &["https://a.b/c", "/path"], &["a.b", ""]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", "-a"]);
        check("k8s-long-name", &["a.b-c"], &["a..b", "a_b"]);
        assert!(Format::find("binary").is_none());
    }
}
