//! `cidr`, `isCIDR`, and containment in networks.
//!
//! A network keeps the address it was written with: `10.1.2.3/8` is not equal to `10.0.0.0/8`. Follows Kubernetes
//! `apiserver/pkg/cel/library/cidr.go` and Go's `netip.Prefix`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::go_text;
use cel::cost::{CallSite, Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

use super::ip::{self, IpValue, is_mapped, parse_address};
use super::price::{self, PARSE};
use super::{computed, library, native, opaque, opaque_eq, text};

/// The library.
pub fn cidr() -> Library {
    Library { types: vec![(TYPE_NAME, Type::opaque(TYPE_NAME))], ..library("kubernetes.net.cidr", 0, OVERLOADS) }
}

const TYPE_NAME: &str = "net.CIDR";

/// A network as a CEL value: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrValue {
    /// The address as written.
    pub address: IpAddr,
    /// INVARIANT: at most 32 or 128.
    pub prefix_length: u8,
}

// The overloads that take text follow the others: for overloads chosen at run time, Kubernetes charges nothing
// for reading the text.
static OVERLOADS: &[Overload] = &[
    computed(native("string_to_cidr", "cidr(string) -> opaque(net.CIDR)", PARSE, |operands| {
        parse(text(operands, 0)?).map(Value::opaque)
    })),
    computed(native(
        "cidr_contains_ip_ip",
        "opaque(net.CIDR).containsIP(opaque(net.IP)) -> bool",
        CONTAINS_ADDRESS,
        |operands| Ok(Value::Bool(network(operands, 0)?.contains(opaque::<IpValue>(operands, 1)?.0))),
    )),
    computed(native(
        "cidr_contains_ip_string",
        "opaque(net.CIDR).containsIP(string) -> bool",
        CONTAINS_ADDRESS_TEXT,
        |operands| {
            let network = network(operands, 0)?;
            // Kubernetes drops the reason.
            let address = ip::parse(text(operands, 1)?).map_err(|_| EvalError::no_such_overload())?;
            Ok(Value::Bool(network.contains(address.0)))
        },
    )),
    computed(native(
        "cidr_contains_cidr",
        "opaque(net.CIDR).containsCIDR(opaque(net.CIDR)) -> bool",
        CONTAINS_NETWORK,
        |operands| Ok(Value::Bool(network(operands, 0)?.contains_network(network(operands, 1)?))),
    )),
    computed(native(
        "cidr_contains_cidr_string",
        "opaque(net.CIDR).containsCIDR(string) -> bool",
        CONTAINS_NETWORK_TEXT,
        |operands| {
            let network = network(operands, 0)?;
            Ok(Value::Bool(network.contains_network(&parse(text(operands, 1)?)?)))
        },
    )),
    computed(native("cidr_ip", "opaque(net.CIDR).ip() -> opaque(net.IP)", Price::ONE, |operands| {
        Ok(Value::opaque(IpValue(network(operands, 0)?.address)))
    })),
    computed(native("cidr_prefix_length", "opaque(net.CIDR).prefixLength() -> int", Price::ONE, |operands| {
        Ok(Value::Int(network(operands, 0)?.prefix_length.into()))
    })),
    computed(native("cidr_masked", "opaque(net.CIDR).masked() -> opaque(net.CIDR)", Price::ONE, |operands| {
        Ok(Value::opaque(network(operands, 0)?.masked()))
    })),
    computed(native("is_cidr", "isCIDR(string) -> bool", PARSE, |operands| {
        Ok(Value::Bool(parse(text(operands, 0)?).is_ok()))
    })),
    computed(native("cidr_to_string", "string(opaque(net.CIDR)) -> string", Price::ONE, |operands| {
        Ok(Value::string(HostValue::text(network(operands, 0)?)))
    })),
];

/// Two addresses are compared.
const CONTAINS_ADDRESS: Price = Price::Sized {
    estimate: |_| estimate_address().into(),
    actual: |operands, _| actual_address(operands),
    when_dynamic: true,
};

const CONTAINS_ADDRESS_TEXT: Price = Price::Sized {
    estimate: |site| estimate_address().plus(estimate_text(site)).into(),
    actual: |operands, _| actual_address(operands).saturating_add(actual_text(operands)),
    when_dynamic: true,
};

/// Two addresses are compared, one is masked, and the prefixes are compared.
const CONTAINS_NETWORK: Price = Price::Sized {
    estimate: |_| estimate_network().into(),
    actual: |operands, _| actual_network(operands),
    when_dynamic: true,
};

const CONTAINS_NETWORK_TEXT: Price = Price::Sized {
    estimate: |site| estimate_network().plus(estimate_text(site)).into(),
    actual: |operands, _| actual_network(operands).saturating_add(actual_text(operands)),
    when_dynamic: true,
};

fn estimate_address() -> Cost {
    // Twice the octets of an address of either kind.
    ADDRESS_SIZE.plus(ADDRESS_SIZE).times_factor(STRING_TRAVERSAL_FACTOR)
}

fn estimate_network() -> Cost {
    estimate_address().plus(ADDRESS_SIZE.times_factor(STRING_TRAVERSAL_FACTOR)).plus(Cost::exactly(1))
}

fn estimate_text(site: &dyn CallSite) -> Cost {
    site.size(1).times_factor(STRING_TRAVERSAL_FACTOR)
}

const ADDRESS_SIZE: Size = Size { min: 4, max: 16 };

fn actual_address(operands: &[Value<'_>]) -> u64 {
    price::read(price::size(operands, 0).saturating_mul(2))
}

fn actual_network(operands: &[Value<'_>]) -> u64 {
    let masked = price::read(price::size(operands, 0)).saturating_add(1);
    actual_address(operands).saturating_add(masked)
}

fn actual_text(operands: &[Value<'_>]) -> u64 {
    price::read(price::size(operands, 1))
}

impl CidrValue {
    /// Whether the network contains the address. An address of the other family is not contained.
    pub fn contains(&self, address: IpAddr) -> bool {
        mask(self.address, self.prefix_length) == mask(address, self.prefix_length)
    }

    /// Whether the network contains the whole other network.
    pub fn contains_network(&self, other: &CidrValue) -> bool {
        self.prefix_length <= other.prefix_length && self.contains(other.address)
    }

    /// The same network with the host bits zero.
    #[must_use]
    pub fn masked(&self) -> CidrValue {
        CidrValue { address: mask(self.address, self.prefix_length), ..*self }
    }
}

/// Keeps the leading bits.
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let rest = 32_u32.saturating_sub(bits.into());
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0)))
        }
        IpAddr::V6(address) => {
            let rest = 128_u32.saturating_sub(bits.into());
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0)))
        }
    }
}

fn network<'o>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o CidrValue, EvalError> {
    opaque(operands, operand)
}

/// Parses a network, or returns an error in Kubernetes' words.
fn parse(text: &str) -> Result<CidrValue, EvalError> {
    const CONTEXT: &str = "network address parse error during conversion from string";
    let network = parse_prefix(text).map_err(|message| {
        // Kubernetes repeats the text.
        let quoted = go_text::quote(text);
        EvalError::other(format!("{CONTEXT}: {CONTEXT}: netip.ParsePrefix({quoted}): {message}"))
    })?;
    if is_mapped(network.address) {
        return Err(EvalError::other(format!("{CONTEXT}: {}", ip::mapped(text))));
    }
    Ok(network)
}

fn parse_prefix(text: &str) -> Result<CidrValue, String> {
    let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
    let (address, has_zone) = parse_address(address).map_err(|error| error.to_string())?;
    if has_zone {
        return Err("IPv6 zones cannot be present in a prefix".into());
    }
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit()) && !(bits.len() > 1 && bits.starts_with('0'));
    let bits: i64 = match bits.parse() {
        Ok(number) if is_number => number,
        _ => return Err(format!("bad bits after slash: {}", go_text::quote(bits))),
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    match u8::try_from(bits) {
        Ok(prefix_length) if prefix_length <= max => Ok(CidrValue { address, prefix_length }),
        _ => Err("prefix length out of range".into()),
    }
}

impl HostValue for CidrValue {
    fn type_of(&self) -> Type {
        Type::opaque(TYPE_NAME)
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a == b)
    }

    fn text(&self) -> String {
        format!("{}/{}", self.address, self.prefix_length)
    }

    fn go_type_name(&self) -> &'static str {
        "cel.CIDR"
    }

    fn size(&self) -> u64 {
        self.prefix_length.div_ceil(8).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, other: &str, contains: bool) {
        assert_eq!(parse(network).unwrap().contains_network(&parse(other).unwrap()), contains, "{network} {other}");
    }

    #[test]
    fn a_network_contains_longer_prefixes_of_its_family() {
        check("10.1.2.3/8", "10.200.0.0/16", true);
        check("10.0.0.0/8", "10.0.0.0/8", true);
        check("10.0.0.0/16", "10.0.0.0/8", false);
        check("10.0.0.0/8", "11.0.0.0/16", false);
        check("0.0.0.0/0", "10.0.0.0/8", true);
        check("::/0", "10.0.0.0/8", false);
        check("2001:db8::/32", "2001:db8:1::/48", true);
        check("2001:db8::1/128", "2001:db8::1/128", true);
    }

    #[track_caller]
    fn check_error(text: &str, message: &str) {
        let error = parse(text).unwrap_err();
        let context = "network address parse error during conversion from string: ";
        assert_eq!(error.message().strip_prefix(context).unwrap(), message);
    }

    #[test]
    fn errors_are_those_of_kubernetes() {
        let go = |text: &str, message: &str| {
            let context = "network address parse error during conversion from string: ";
            check_error(text, &format!("{context}netip.ParsePrefix({}): {message}", go_text::quote(text)));
        };
        go("", "no '/'");
        go("10.0.0.0/8/8", "ParseAddr(\"10.0.0.0/8\"): unexpected character (at \"/8\")");
        go("10.0.0.0/", "bad bits after slash: \"\"");
        go("10.0.0.0/08", "bad bits after slash: \"08\"");
        go("10.0.0.0/+8", "bad bits after slash: \"+8\"");
        go("10.0.0.0/99999999999999999999", "bad bits after slash: \"99999999999999999999\"");
        go("10.0.0.0/33", "prefix length out of range");
        go("fe80::%eth0/64", "IPv6 zones cannot be present in a prefix");
        check_error("::ffff:1.2.3.0/120", "IPv4-mapped IPv6 address \"::ffff:1.2.3.0/120\" is not allowed");
    }

    #[test]
    fn masking_keeps_the_leading_bits() {
        assert_eq!(HostValue::text(&parse("10.1.2.3/8").unwrap().masked()), "10.0.0.0/8");
        assert_eq!(HostValue::text(&parse("2001:db8:ffff::1/33").unwrap().masked()), "2001:db8:8000::/33");
        assert_eq!(parse("10.1.2.3/9").unwrap().size(), 2);
    }
}
