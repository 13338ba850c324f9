//! Validation of formats, with the errors of invalid texts.
//!
//! The rules are Kubernetes' regular expressions, checked octet by octet; the texts quote them. Some count octets and
//! say "characters", others say "bytes", as Kubernetes does. Follows Kubernetes `apimachinery/pkg/util/validation`,
//! `apimachinery/pkg/api/validate/content` and `kube-openapi/pkg/validation/strfmt`.

use std::borrow::Cow;

use crate::libraries::urls::Url;

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_REGEX: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035_REGEX: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
    start with an alphabetic character, and end with an alphanumeric character";
const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character";

/// A name to which something is appended may end in a dash.
pub(super) fn prefix(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    match bytes {
        // Kubernetes: the octet before the dash goes as well.
        [kept @ .., _, b'-'] => Cow::Owned([kept, b"a"].concat()),
        _ => Cow::Borrowed(bytes),
    }
}

pub(super) fn dns1123_label(text: &[u8]) -> Vec<String> {
    let mut messages = too_long(text, LABEL_MAX, "characters");
    if !is_label(text) {
        messages.push(if is_subdomain(text) {
            "must not contain dots".into()
        } else {
            regex_message(LABEL, LABEL_REGEX, &["my-name", "123-abc"])
        });
    }
    messages
}

pub(super) fn dns1123_subdomain(text: &[u8]) -> Vec<String> {
    subdomain(text, "characters")
}

fn subdomain(text: &[u8], unit: &str) -> Vec<String> {
    let mut messages = too_long(text, SUBDOMAIN_MAX, unit);
    if !is_subdomain(text) {
        messages.push(regex_message(SUBDOMAIN, SUBDOMAIN_REGEX, &["example.com"]));
    }
    messages
}

pub(super) fn dns1035_label(text: &[u8]) -> Vec<String> {
    let mut messages = too_long(text, LABEL_MAX, "characters");
    if !(is_label(text) && text.first().is_some_and(u8::is_ascii_alphabetic)) {
        messages.push(regex_message(LABEL_1035, LABEL_1035_REGEX, &["my-name", "abc-123"]));
    }
    messages
}

pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let name_message = || regex_message(LABEL_KEY, LABEL_KEY_REGEX, &["MyName", "my.name", "123-abc"]);
    let mut messages = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let suffix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {suffix}", name_message())];
        }
        Some(("", name)) => {
            messages.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let wrong = subdomain(prefix.as_bytes(), "bytes");
            messages.extend(wrong.into_iter().map(|message| format!("prefix part {message}")));
            name
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".into());
    }
    messages.extend(too_long(name.as_bytes(), LABEL_MAX, "bytes").into_iter().map(|it| format!("name part {it}")));
    if !is_label_key(name.as_bytes()) {
        messages.push(format!("name part {}", name_message()));
    }
    messages
}

pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut messages = too_long(text.as_bytes(), LABEL_MAX, "bytes");
    if !(text.is_empty() || is_label_key(text.as_bytes())) {
        let regex = format!("({LABEL_KEY_REGEX})?");
        messages.push(regex_message(LABEL_VALUE, &regex, &["MyValue", "my_value", "12345"]));
    }
    messages
}

pub(super) fn uri(text: &str) -> Vec<String> {
    Url::check_request_target(text).err().map(|error| error.to_string()).into_iter().collect()
}

pub(super) fn uuid(text: &str) -> Vec<String> {
    let mut rest = text.as_bytes();
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match rest.split_at_checked(digits) {
            Some((group, after)) if group.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return vec!["does not match the UUID format".into()],
        }
    }
    message_unless(rest.is_empty(), "does not match the UUID format")
}

pub(super) fn base64(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let body = bytes.strip_suffix(b"==").or_else(|| bytes.strip_suffix(b"=")).unwrap_or(bytes);
    let is_complete = !bytes.is_empty() && bytes.len().is_multiple_of(4);
    let is_body = body.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    message_unless(is_complete && is_body, "invalid base64")
}

pub(super) fn date(text: &str) -> Vec<String> {
    message_unless(is_date(text.as_bytes()), "invalid date")
}

pub(super) fn date_time(text: &str) -> Vec<String> {
    // Text after a second T is ignored.
    let mut parts = text.split(['t', 'T']);
    let is_date_time = match (parts.next(), parts.next()) {
        (Some(date), Some(time)) => is_date(date.as_bytes()) && is_time(time).is_some(),
        _ => false,
    };
    message_unless(is_date_time, "invalid datetime")
}

fn message_unless(is_valid: bool, message: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![message.to_owned()] }
}

fn too_long(text: &[u8], max: usize, unit: &str) -> Vec<String> {
    message_unless(text.len() <= max, &format!("must be no more than {max} {unit}"))
}

fn regex_message(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn is_lower_alphanumeric(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &[u8]) -> bool {
    text.iter().all(|byte| is_lower_alphanumeric(byte) || *byte == b'-')
        && text.first().is_some_and(is_lower_alphanumeric)
        && text.last().is_some_and(is_lower_alphanumeric)
}

fn is_subdomain(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'.').all(is_label)
}

fn is_label_key(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether a text is an existing date such as `2006-01-02`.
fn is_date(text: &[u8]) -> bool {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return false };
    let (Some(century), Some(year)) = (two_digits(y1, y2), two_digits(y3, y4)) else { return false };
    let (Some(month), Some(day)) = (two_digits(m1, m2), two_digits(d1, d2)) else { return false };
    let is_leap = year % 4 == 0 && (year != 0 || century % 4 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn two_digits(tens: u8, ones: u8) -> Option<u8> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| byte.wrapping_sub(b'0'));
    digit(tens)?.checked_mul(10)?.checked_add(digit(ones)?)
}

/// `15:04:05`, perhaps a fraction behind any character, and a zone.
fn is_time(text: &str) -> Option<()> {
    let (clock, rest) = text.as_bytes().split_at_checked(8)?;
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = clock else { return None };
    let is_clock = two_digits(h1, h2)? <= 23 && two_digits(m1, m2)? <= 59 && two_digits(s1, s2)? <= 59;
    let rest = std::str::from_utf8(rest).ok()?;
    let zone_start = rest.len().checked_sub(if rest.ends_with(['z', 'Z']) { 1 } else { 6 })?;
    let (fraction, zone) = rest.split_at_checked(zone_start)?;
    let is_zone = match zone.as_bytes() {
        [b'z' | b'Z'] => true,
        &[b'+' | b'-', h1, h2, b':', m1, m2] => two_digits(h1, h2).and(two_digits(m1, m2)).is_some(),
        _ => false,
    };
    let mut digits = fraction.chars();
    let is_fraction = match digits.next() {
        None => true,
        Some(point) => point != '\n' && !digits.as_str().is_empty() && digits.all(|digit| digit.is_ascii_digit()),
    };
    (is_clock && is_zone && is_fraction).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(validate: fn(&str) -> Vec<String>, valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert_eq!(validate(text), Vec::<String>::new(), "{text}");
        }
        for text in invalid {
            assert!(!validate(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn names_follow_their_regular_expressions() {
        let long = "a".repeat(64);
        let label: fn(&str) -> Vec<String> = |text| dns1123_label(text.as_bytes());
        check(label, &["a", "0", "a-b", "a--b"], &["", "-a", "a-", "A", "a_b", "a.b", "é", &long]);
        check(|text| dns1123_subdomain(text.as_bytes()), &["a.b", "a"], &["", "a..b", ".a", "a.", "a.-b"]);
        check(|text| dns1035_label(text.as_bytes()), &["a", "a0"], &["0a", "", "a-"]);
        check(|text| dns1123_label(&prefix(text)), &["a-", "ab-", "--", "a--"], &["-", "-a-"]);
        check(label_value, &["", "a", "A_b.c-d"], &["-a", "a-", "a b", &long]);
        check(qualified_name, &["a", "example.com/a"], &["", "/a", "a/", "a/b/c", "A.com/a"]);
    }

    #[test]
    fn messages_quote_rule_and_examples() {
        assert_eq!(
            dns1123_label(b"-a"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
              with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(dns1123_label(b"a.b"), ["must not contain dots"]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/b/c").len(), 1);
    }

    #[test]
    fn encodings_and_times() {
        let hex = "123e4567-e89b-12d3-a456-426614174000";
        check(
            uuid,
            &[hex, &hex.replace('-', ""), &hex.to_uppercase()],
            &["", "x", &format!("{hex}0"), &hex.replace('e', "g")],
        );
        check(base64, &["YQ==", "YWI=", "YWJj", "++//"], &["", "YQ", "YQ=", "Y===", "YQ==YQ==", "Y Q="]);
        check(
            date,
            &["2024-02-29", "0000-01-01", "2000-02-29"],
            &["2023-02-29", "1900-02-29", "2024-13-01", "2024-1-01", "2024-00-10", "2024-01-00"],
        );
        check(
            date_time,
            &[
                "2024-01-01T00:00:00Z",
                "2024-01-01t23:59:59.5+99:99",
                "2024-01-01T00:00:00,12z",
                "2024-01-01T00:00:00Ztail",
            ],
            &[
                "",
                "2024-01-01",
                "2024-01-01T24:00:00Z",
                "2024-01-01T00:00:60Z",
                "2024-01-01T00:00:00",
                "2024-01-01T00:00:00.Z",
                "2024-01-01 00:00:00Z",
            ],
        );
    }
}
