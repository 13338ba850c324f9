//! Addresses as Go's `net/netip` reads them, with its messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::go_text;

/// A reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressError<'t> {
    text: &'t str,
    message: &'static str,
    at: &'t str,
}

impl fmt::Display for AddressError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParseAddr({}): {}", go_text::quote(self.text), self.message)?;
        if !self.at.is_empty() {
            write!(f, " (at {})", go_text::quote(self.at))?;
        }
        Ok(())
    }
}

type ParseResult<'t, T> = Result<T, AddressError<'t>>;

fn error<'t, T>(text: &'t str, message: &'static str, at: &'t str) -> ParseResult<'t, T> {
    Err(AddressError { text, message, at })
}

/// The address that a text means, and whether it names a zone.
pub(crate) fn parse_address(text: &str) -> ParseResult<'_, (IpAddr, bool)> {
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => Ok((IpAddr::V4(parse_v4(text, text)?), false)),
        Some(b':') => parse_v6(text).map(|(address, has_zone)| (IpAddr::V6(address), has_zone)),
        Some(_) => error(text, "missing IPv6 address", ""),
        None => error(text, "unable to parse IP", ""),
    }
}

/// Whether an address is an IPv4 address inside an IPv6 one.
pub(crate) fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// `part` of `text` is an IPv4 address.
fn parse_v4<'t>(text: &'t str, part: &'t str) -> ParseResult<'t, Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut complete = octets.iter_mut();
    let mut octet: Option<u8> = None;
    for (index, byte) in part.bytes().enumerate() {
        let rest = part.get(index..).unwrap_or_default();
        match (byte, octet) {
            (b'0'..=b'9', Some(0)) => return error(text, "IPv4 field has octet with leading zero", ""),
            (b'0'..=b'9', _) => {
                let digit = byte.wrapping_sub(b'0');
                let value = octet.unwrap_or(0).checked_mul(10).and_then(|tens| tens.checked_add(digit));
                if value.is_none() {
                    return error(text, "IPv4 field has value >255", "");
                }
                octet = value;
            }
            (b'.', None) => return error(text, "IPv4 field must have at least one digit", rest),
            (b'.', Some(_)) if rest.len() == 1 => {
                return error(text, "IPv4 field must have at least one digit", rest);
            }
            // The last octet is not complete before the text ends.
            (b'.', Some(_)) if complete.len() == 1 => return error(text, "IPv4 address too long", ""),
            (b'.', Some(value)) => {
                if let Some(place) = complete.next() {
                    *place = value;
                }
                octet = None;
            }
            _ => return error(text, "unexpected character", rest),
        }
    }
    match (complete.next(), complete.next(), octet) {
        (Some(place), None, Some(value)) => *place = value,
        _ => return error(text, "IPv4 address too short", ""),
    }
    Ok(Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> ParseResult<'_, (Ipv6Addr, bool)> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(rest, zone)| (rest, Some(zone)));
    if zone == Some("") {
        return error(text, "zone must be a non-empty string", "");
    }
    // The fields before and after the `::`.
    let mut fields: Vec<u16> = Vec::with_capacity(8);
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((Ipv6Addr::UNSPECIFIED, zone.is_some()));
        }
    }
    while fields.len() < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return error(text, "each group must have 4 or less digits", rest);
        }
        let (number, after) = rest.split_at_checked(digits).unwrap_or((rest, ""));
        let Ok(field) = u16::from_str_radix(number, 16) else {
            return error(text, "each colon-separated field must have at least one digit", rest);
        };
        if after.starts_with('.') {
            if ellipsis.is_none() && fields.len() != 6 {
                return error(text, "embedded IPv4 address must replace the final 2 fields of the address", rest);
            }
            if fields.len() > 6 {
                return error(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest);
            }
            let [a, b, c, d] = parse_v4(text, rest)?.octets();
            fields.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            rest = "";
            break;
        }
        fields.push(field);
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return error(text, "unexpected character, want colon", rest);
        };
        if after.is_empty() {
            return error(text, "colon must be followed by more characters", rest);
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return error(text, "multiple :: in address", rest);
            }
            ellipsis = Some(fields.len());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return error(text, "trailing garbage after address", rest);
    }
    match (ellipsis, 8_usize.checked_sub(fields.len())) {
        (None, Some(0)) => {}
        (None, _) => return error(text, "address string too short", ""),
        (Some(_), None | Some(0)) => {
            return error(text, "the :: must expand to at least one field of zeros", "");
        }
        (Some(at), Some(missing)) => drop(fields.splice(at..at, std::iter::repeat_n(0, missing))),
    }
    // INVARIANT: there are eight fields now.
    let segments: [u16; 8] = fields.try_into().unwrap_or_default();
    Ok((Ipv6Addr::from(segments), zone.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, printed: &str) {
        assert_eq!(parse_address(text).unwrap().0.to_string(), printed);
    }

    #[track_caller]
    fn check_error(text: &str, message: &str) {
        assert_eq!(
            parse_address(text).unwrap_err().to_string(),
            format!("ParseAddr({}): {message}", go_text::quote(text))
        );
    }

    #[test]
    fn addresses_are_printed_in_canonical_form() {
        check("1.2.3.4", "1.2.3.4");
        check("2001:DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1");
        check("::", "::");
        check("1::", "1::");
        check("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0");
        check("::ffff:1.2.3.4", "::ffff:1.2.3.4");
        check("64:ff9b::192.0.2.33", "64:ff9b::c000:221");
        check("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304");
        assert!(parse_address("fe80::1%eth0").unwrap().1);
    }

    #[test]
    fn errors_are_those_of_go() {
        check_error("", "unable to parse IP");
        check_error("%a", "missing IPv6 address");
        check_error("1.2.3", "IPv4 address too short");
        check_error("1.2.3.4.5", "IPv4 address too long");
        check_error("1.2.3.", "IPv4 field must have at least one digit (at \".\")");
        check_error(".1.2.3", "IPv4 field must have at least one digit (at \".1.2.3\")");
        check_error("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")");
        check_error("1.2.3.04", "IPv4 field has octet with leading zero");
        check_error("256.0.0.1", "IPv4 field has value >255");
        check_error("1.2.3.4/24", "unexpected character (at \"/24\")");
        check_error("1.2.3.4é", "unexpected character (at \"é\")");
        check_error("1:2:3:4:5:6:7", "address string too short");
        check_error("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")");
        check_error("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros");
        check_error("1::2::3", "multiple :: in address (at \":3\")");
        check_error("12345::", "each group must have 4 or less digits (at \"12345::\")");
        check_error("1:g", "each colon-separated field must have at least one digit (at \"g\")");
        check_error("1:2g", "unexpected character, want colon (at \"g\")");
        check_error("1:", "colon must be followed by more characters (at \":\")");
        check_error("::1%", "zone must be a non-empty string");
        check_error(
            "1:1.2.3.4",
            "embedded IPv4 address must replace the final 2 fields of the address (at \"1.2.3.4\")",
        );
        check_error(
            "1:2:3:4:5:6:7:1.2.3.4",
            "embedded IPv4 address must replace the final 2 fields of the address (at \"1.2.3.4\")",
        );
        check_error(
            "::2:3:4:5:6:7:8:1.2.3.4",
            "too many hex fields to fit an embedded IPv4 at the end of the address (at \"1.2.3.4\")",
        );
        check_error("::1.2.3", "IPv4 address too short");
    }
}
