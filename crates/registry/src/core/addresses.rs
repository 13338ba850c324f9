//! IP addresses in fields that once took sloppy forms.
//!
//! Follows `apimachinery/pkg/util/validation/ip.go` with strict validation on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::field::{Errors, Path};

/// An address as Go's sloppy parser reads it: leading zeros are ignored.
pub(crate) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(|it| it.to_ipv4_mapped().map_or(IpAddr::V6(it), IpAddr::V4));
    }
    let parts: Vec<&str> = text.split('.').collect();
    let [a, b, c, d] = parts.as_slice() else { return None };
    let octet = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { part.parse::<u64>().ok().and_then(|it| u8::try_from(it).ok()) } else { None }
    };
    Some(IpAddr::V4(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?)))
}

/// Adds what is wrong with an address. Those in `known` were accepted before.
pub(crate) fn validate(text: &str, known: &[&str], at: Path<'_>, errors: &mut Errors) {
    if known.contains(&text) {
        return;
    }
    if parse_sloppy(text).is_none() {
        errors.invalid(at, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        return;
    }
    match text.parse::<IpAddr>() {
        Err(_) => errors.invalid(at, text, "must not have leading 0s"),
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            errors.invalid(at, text, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
    }
}

/// What users are told about addresses that are accepted but not canonical.
pub(crate) fn warn(text: &str, at: &Path<'_>) -> Option<String> {
    let address = parse_sloppy(text)?;
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => None,
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_none() => (it.to_string() != text).then(|| {
            format!("{at}: IPv6 address {} should be in RFC 5952 canonical format ({})", quote(text), quote(&it.to_string()))
        }),
        _ => Some(format!("{at}: non-standard IP address {} is invalid: use {}", quote(text), quote(&address.to_string()))),
    }
}

/// Whether the addresses are of both families; none if one is no address.
pub(crate) fn is_dual_stack<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<bool> {
    let parsed: Option<Vec<IpAddr>> = addresses.map(parse_sloppy).collect();
    let parsed = parsed?;
    Some(parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6))
}

fn quote(text: &str) -> String {
    api::go_text::quote(text)
}
