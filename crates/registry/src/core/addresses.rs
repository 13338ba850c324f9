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

/// Returns a warning for an address that is accepted but not canonical.
pub(crate) fn warn(text: &str, at: &Path<'_>) -> Option<String> {
    let address = parse_sloppy(text)?;
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => None,
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_none() => (it.to_string() != text).then(|| {
            format!(
                "{at}: IPv6 address {} should be in RFC 5952 canonical format ({})",
                quote(text),
                quote(&it.to_string())
            )
        }),
        _ => Some(format!(
            "{at}: non-standard IP address {} is invalid: use {}",
            quote(text),
            quote(&address.to_string())
        )),
    }
}

/// Whether the addresses are of both families; none if one is not an address.
pub(crate) fn is_dual_stack<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<bool> {
    let parsed: Option<Vec<IpAddr>> = addresses.map(parse_sloppy).collect();
    let parsed = parsed?;
    Some(parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6))
}

fn quote(text: &str) -> String {
    api::go_text::quote(text)
}

/// An address and the length of its prefix; of a mapped address the last 32 bits count.
pub(crate) fn parse_range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u8 = if is_number { length.parse().ok()? } else { return None };
    let has_colons = address.contains(':');
    let address = parse_sloppy(address)?;
    let max = if has_colons { 128 } else { 32 };
    let counted = if has_colons && address.is_ipv4() { length.saturating_sub(96) } else { length };
    (length <= max).then_some((address, counted))
}

/// The prefix length of a range as it is written; 0 if it cannot be read.
pub(crate) fn written_length(range: &str) -> u8 {
    range.split_once('/').and_then(|(_, length)| length.parse().ok()).unwrap_or_default()
}

/// Whether an address is in a range.
pub(crate) fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && masked(network, length) == masked(address, length)
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(it) & mask))
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(it) & mask))
        }
    }
}

/// Returns warnings for ranges that are accepted but not canonical.
pub(crate) fn warn_range(text: &str, at: &Path<'_>) -> Vec<String> {
    let Some((address, length)) = parse_range(text) else { return Vec::new() };
    let range = format!("{}/{length}", masked(address, length));
    let mut warnings = Vec::new();
    if masked(address, length) != address {
        let single = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
        warnings.push(format!(
            "{at}: CIDR value {} is ambiguous in this context (should be {} or {}?)",
            quote(text),
            quote(&range),
            quote(&single)
        ));
    }
    let (host, prefix) = text.split_once('/').unwrap_or((text, ""));
    let has_zeros = prefix.len() > 1 && prefix.starts_with('0');
    let is_standard = host.parse::<IpAddr>().is_ok_and(|it| it.is_ipv4() == address.is_ipv4()) && !has_zeros;
    if !is_standard {
        warnings.push(format!("{at}: non-standard CIDR value {} is invalid: use {}", quote(text), quote(&range)));
    }
    if warnings.is_empty() && address.is_ipv6() && range != text {
        warnings.push(format!(
            "{at}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&range)
        ));
    }
    warnings
}

/// Adds what is wrong with the address of an interface and the length of its network's prefix.
pub(crate) fn validate_interface(text: &str, at: Path<'_>, errors: &mut Errors) {
    let mapped = text.split_once('/').and_then(|(address, length)| {
        let address = address.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()?;
        let length: u8 = length.parse().ok().filter(|length| *length <= 128)?;
        // For a mapped address the last 32 bits count.
        Some((IpAddr::V4(address), if length > 32 { length.saturating_sub(96) } else { length }))
    });
    let Some((address, length)) = mapped.or_else(|| parse_range(text)) else {
        errors.invalid(at, text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
        return;
    };
    let canonical = format!("{address}/{length}");
    if canonical != text {
        errors.invalid(at, text, format!("must be in canonical form ({})", quote(&canonical)));
    }
}

/// Validates a range of addresses in CIDR notation.
pub(crate) fn validate_range(text: &str, at: Path<'_>, errors: &mut Errors) {
    if let Some(complaint) = range_complaint(text) {
        errors.invalid(at, text, complaint);
    }
}

/// The same for ranges that are written in one way only.
pub(crate) fn validate_canonical_range(text: &str, at: Path<'_>, errors: &mut Errors) {
    let canonical = parse_range(text).map(|(address, length)| format!("{}/{length}", masked(address, length)));
    match (range_complaint(text), canonical) {
        (Some(complaint), _) => errors.invalid(at, text, complaint),
        (None, Some(canonical)) if canonical != text => {
            errors.invalid(at, text, format!("must be in canonical form ({})", quote(&canonical)));
        }
        (None, _) => {}
    }
}

fn range_complaint(text: &str) -> Option<&'static str> {
    let Some((address, length)) = parse_range(text) else {
        return Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    };
    let (host, prefix) = text.split_once('/').unwrap_or((text, ""));
    let has_zeros = prefix.len() > 1 && prefix.starts_with('0');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(it)) if !has_zeros && it.to_ipv4_mapped().is_some() => {
            Some("must not have an IPv4-mapped IPv6 address")
        }
        Ok(_) if !has_zeros => {
            (masked(address, length) != address).then_some("must not have bits set beyond the prefix length")
        }
        _ => Some("must not have leading 0s in IP or prefix length"),
    }
}
