//! A range of addresses, such as `10.96.0.0/12`.

use std::net::IpAddr;

/// Addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    is_v4: bool,
    /// As many bits as the family has, the first bit of an address on the left.
    first: u128,
    bits: u32,
}

impl Range {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (is_v4, address) = number(address.parse().ok()?);
        let bits: u32 = bits.parse().ok()?;
        let host = width(is_v4).checked_sub(bits)?;
        Some(Self { is_v4, first: address & !low(host), bits })
    }

    /// Mask of the host part of addresses.
    fn host_mask(&self) -> u128 {
        low(width(self.is_v4).saturating_sub(self.bits))
    }

    /// Whether this range contains another one.
    pub(super) fn contains(&self, other: &Self) -> bool {
        self.is_v4 == other.is_v4 && self.bits <= other.bits && other.first & !self.host_mask() == self.first
    }

    /// Whether services can have this address: all of the range except the first and, in IPv4, the last.
    pub(super) fn gives_out(&self, address: IpAddr) -> bool {
        let (is_v4, address) = number(address);
        let is_inside = is_v4 == self.is_v4 && address & !self.host_mask() == self.first;
        let is_last = is_v4 && address == self.first | self.host_mask();
        is_inside && address != self.first && !is_last
    }
}

fn number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, u128::from(address.to_bits())),
        IpAddr::V6(address) => (false, address.to_bits()),
    }
}

fn width(is_v4: bool) -> u32 {
    if is_v4 { 32 } else { 128 }
}

/// This many low bits set.
fn low(bits: u32) -> u128 {
    1_u128.checked_shl(bits).map_or(u128::MAX, |it| it.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, address: &str, wanted: bool) {
        let range = Range::parse(range).unwrap();
        assert_eq!(range.gives_out(address.parse().unwrap()), wanted, "{address}");
    }

    #[test]
    fn the_ends_of_a_range_are_not_given_out() {
        check("10.0.1.0/24", "10.0.1.0", false);
        check("10.0.1.0/24", "10.0.1.1", true);
        check("10.0.1.0/24", "10.0.1.255", false);
        check("10.0.1.0/24", "10.0.2.1", false);
        check("10.0.1.0/24", "fd00::1", false);
        check("fd00::/120", "fd00::ff", true);
        check("fd00::/120", "fd00::", false);
        check("0.0.0.0/0", "9.9.9.9", true);
        check("::/0", "fd00::1", true);
    }

    #[test]
    fn a_range_contains_itself_and_narrower_ones() {
        let range = |text: &str| Range::parse(text).unwrap();
        assert!(range("10.0.0.0/8").contains(&range("10.1.0.0/16")));
        assert!(range("10.0.0.0/8").contains(&range("10.0.0.0/8")));
        assert!(!range("10.1.0.0/16").contains(&range("10.0.0.0/8")));
        assert!(!range("0.0.0.0/0").contains(&range("fd00::/64")));
        assert_eq!((Range::parse("10.0.0.0"), Range::parse("10.0.0.0/33")), (None, None));
    }
}
