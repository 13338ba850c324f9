//! The meaning of a name in the cluster's domain, and of a name that stands for an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::Name;

/// The meaning of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The domain itself.
    Apex,
    /// A name that has no records but names below it: `svc`, `pod`, `dns`.
    Branch,
    /// The version of the schema: `dns-version`.
    Version,
    /// The name server: `ns.dns`.
    NameServer,
    /// A namespace below `svc` or `pod`.
    Namespace(String),
    /// `ADDRESS.NAMESPACE.pod`.
    Pod { namespace: String, address: String },
    /// A Service, or a part of it.
    Service { namespace: String, service: String, part: Part },
    /// A name that cannot exist.
    Unknown,
}

/// A part of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole Service.
    All,
    /// `HOST.SERVICE…`.
    Host(String),
    /// `_PORT._PROTOCOL.SERVICE…`.
    Port { name: String, protocol: String },
}

/// Labels of a name in lower case, or none if a label is not text.
fn labels(name: &Name) -> Option<Vec<String>> {
    name.iter().map(|label| String::from_utf8(label.to_ascii_lowercase()).ok()).collect()
}

/// The meaning of a name below `domain`; none if the name is outside of it.
pub(super) fn meaning(name: &Name, domain: &[Vec<u8>]) -> Option<Meaning> {
    let count = name.iter().count().checked_sub(domain.len())?;
    if !name.iter().skip(count).zip(domain).all(|(label, wanted)| label.eq_ignore_ascii_case(wanted)) {
        return None;
    }
    let Some(labels) = labels(name) else { return Some(Meaning::Unknown) };
    let labels: Vec<&str> = labels.iter().take(count).map(String::as_str).collect();
    let owned = |text: &str| text.to_owned();
    let service = |namespace: &str, service: &str, part| Meaning::Service {
        namespace: owned(namespace),
        service: owned(service),
        part,
    };
    Some(match labels.as_slice() {
        [] => Meaning::Apex,
        ["svc" | "pod" | "dns"] => Meaning::Branch,
        ["dns-version"] => Meaning::Version,
        ["ns", "dns"] => Meaning::NameServer,
        [namespace, "svc" | "pod"] => Meaning::Namespace(owned(namespace)),
        [address, namespace, "pod"] => Meaning::Pod { namespace: owned(namespace), address: owned(address) },
        [name, namespace, "svc"] => service(namespace, name, Part::All),
        [host, name, namespace, "svc"] => service(namespace, name, Part::Host(owned(host))),
        [port, protocol, name, namespace, "svc"] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
            (Some(port), Some(protocol)) => {
                service(namespace, name, Part::Port { name: owned(port), protocol: owned(protocol) })
            }
            _ => Meaning::Unknown,
        },
        _ => Meaning::Unknown,
    })
}

/// The address of a name below `in-addr.arpa` or `ip6.arpa`.
pub(super) fn reverse_address(name: &Name) -> Option<IpAddr> {
    let labels = labels(name)?;
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [parts @ .., "in-addr", "arpa"] if parts.len() == 4 => {
            let mut octets = [0_u8; 4];
            for (octet, part) in octets.iter_mut().zip(parts.iter().rev()) {
                // `parse` accepts a sign and leading zeros, which are other names.
                *octet = part.parse().ok().filter(|octet: &u8| octet.to_string() == *part)?;
            }
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        }
        [parts @ .., "ip6", "arpa"] if parts.len() == 32 => {
            let mut number = 0_u128;
            for part in parts.iter().rev() {
                let digit = (part.len() == 1).then(|| u8::from_str_radix(part, 16).ok()).flatten()?;
                number = number.checked_shl(4)? | u128::from(digit);
            }
            Some(IpAddr::V6(Ipv6Addr::from(number)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    #[test]
    fn reverse_names_are_addresses() {
        let check = |text: &str, address: Option<&str>| {
            assert_eq!(reverse_address(&name(text)), address.map(|it| it.parse().unwrap()), "{text}");
        };
        check("1.0.3.10.in-addr.arpa.", Some("10.3.0.1"));
        check("1.0.3.10.IN-ADDR.arpa.", Some("10.3.0.1"));
        for text in ["3.10.in-addr.arpa.", "01.0.3.10.in-addr.arpa.", "256.0.3.10.in-addr.arpa."] {
            check(text, None);
        }
        let nibbles = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
        check(nibbles, Some("2001:db8::1"));
        check(&nibbles.replace("b.d", "g.d"), None);
    }

    #[test]
    fn domain_is_compared_without_case() {
        let domain = [b"cluster".to_vec(), b"local".to_vec()];
        assert_eq!(meaning(&name("CLUSTER.Local."), &domain), Some(Meaning::Apex));
        for outside in ["local.", "cluster.local.example.", "xcluster.local.", "."] {
            assert_eq!(meaning(&name(outside), &domain), None, "{outside}");
        }
    }
}
