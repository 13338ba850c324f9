//! `ip`, `isIP`, `ip.isCanonical` and the classification of addresses.
//!
//! Addresses with a zone and IPv4 addresses inside IPv6 ones are refused. Follows Kubernetes
//! `apiserver/pkg/cel/library/ip.go`; networks are in [`cidr`](super::cidr).

mod parse;

use std::net::IpAddr;

use api::go_text;
use cel::cost::{Price, STRING_TRAVERSAL_FACTOR};
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

pub(super) use parse::{is_mapped, parse_address};

use super::price::{self, PARSE};
use super::{computed, library, native, opaque, opaque_eq, text};

/// The library.
pub fn ip() -> Library {
    Library { types: vec![(TYPE_NAME, Type::opaque(TYPE_NAME))], ..library("kubernetes.net.ip", 0, OVERLOADS) }
}

const TYPE_NAME: &str = "net.IP";

/// An address as a CEL value.
#[derive(Clone, Copy, Debug)]
pub struct IpValue(pub IpAddr);

/// The text is parsed, formatted and compared with the original.
const CANONICAL: Price = Price::Sized {
    estimate: |site| site.size(0).times_factor(2.0 * STRING_TRAVERSAL_FACTOR).into(),
    actual: |operands, _| price::scaled(price::size(operands, 0), 2.0 * STRING_TRAVERSAL_FACTOR),
    when_dynamic: true,
};

static OVERLOADS: &[Overload] = &[
    computed(native("string_to_ip", "ip(string) -> opaque(net.IP)", PARSE, |operands| {
        parse(text(operands, 0)?).map(Value::opaque)
    })),
    computed(native("ip_family", "opaque(net.IP).family() -> int", Price::ONE, |operands| {
        Ok(Value::Int(if address(operands)?.is_ipv4() { 4 } else { 6 }))
    })),
    computed(native("ip_is_canonical", ":ip.isCanonical(string) -> bool", CANONICAL, |operands| {
        let text = text(operands, 0)?;
        Ok(Value::Bool(parse(text)?.0.to_string() == text))
    })),
    computed(native("ip_is_unspecified", "opaque(net.IP).isUnspecified() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(address(operands)?.is_unspecified()))
    })),
    computed(native("ip_is_loopback", "opaque(net.IP).isLoopback() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(address(operands)?.is_loopback()))
    })),
    computed(native(
        "ip_is_link_local_multicast",
        "opaque(net.IP).isLinkLocalMulticast() -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(is_link_local_multicast(address(operands)?))),
    )),
    computed(native(
        "ip_is_link_local_unicast",
        "opaque(net.IP).isLinkLocalUnicast() -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(is_link_local_unicast(address(operands)?))),
    )),
    computed(native("ip_is_global_unicast", "opaque(net.IP).isGlobalUnicast() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(is_global_unicast(address(operands)?)))
    })),
    computed(native("is_ip", "isIP(string) -> bool", PARSE, |operands| {
        Ok(Value::Bool(parse(text(operands, 0)?).is_ok()))
    })),
    computed(native("ip_to_string", "string(opaque(net.IP)) -> string", Price::ONE, |operands| {
        Ok(Value::string(address(operands)?.to_string()))
    })),
];

/// Parses an address, or returns an error in Kubernetes' words.
pub(super) fn parse(text: &str) -> Result<IpValue, EvalError> {
    let quoted = || go_text::quote(text);
    match parse_address(text) {
        Err(error) => {
            let message = format!("IP Address {} parse error during conversion from string: {error}", quoted());
            Err(EvalError::other(message))
        }
        Ok((_, true)) => Err(EvalError::other(format!("IP address {} with zone value is not allowed", quoted()))),
        Ok((address, false)) if is_mapped(address) => Err(mapped(text)),
        Ok((address, false)) => Ok(IpValue(address)),
    }
}

/// The error about an IPv4 address inside an IPv6 one.
pub(super) fn mapped(text: &str) -> EvalError {
    EvalError::other(format!("IPv4-mapped IPv6 address {} is not allowed", go_text::quote(text)))
}

fn address(operands: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    opaque::<IpValue>(operands, 0).map(|ip| ip.0)
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => first_segment(address) & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => first_segment(address) & 0xffc0 == 0xfe80,
    }
}

/// Whether an address is global unicast; private addresses count.
fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_broadcast;
    !is_special && !is_link_local_unicast(address)
}

fn first_segment(address: std::net::Ipv6Addr) -> u16 {
    let [first, ..] = address.segments();
    first
}

impl HostValue for IpValue {
    fn type_of(&self) -> Type {
        Type::opaque(TYPE_NAME)
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a.0 == b.0)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn go_type_name(&self) -> &'static str {
        "cel.IP"
    }

    fn size(&self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}
