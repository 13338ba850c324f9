//! A certificate request (PKCS #10): subject, key, alternative names and signature.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    ALTERNATIVE_NAMES, BIT_STRING, INTEGER, Names, OBJECT_IDENTIFIER, SEQUENCE, SET, element, pem_blocks, read_names,
    split_element,
};

/// Attributes are optional and come last.
const ATTRIBUTES: u8 = 0xa0;
/// 1.2.840.113549.1.9.14
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];

/// The raw parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline<'a> {
    /// The signed part.
    pub information: &'a [u8],
    /// The subject, with its tag.
    pub subject: &'a [u8],
    /// The public key with its algorithm, with its tag.
    pub key: &'a [u8],
    /// The content after the key.
    attributes: &'a [u8],
    /// The identifier of the signature's algorithm.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

/// Subject alternative names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Names of hosts.
    pub dns: Vec<String>,
    /// Addresses of people.
    pub emails: Vec<String>,
    /// Addresses of hosts.
    pub addresses: Vec<IpAddr>,
    /// Identifiers of resources.
    pub uris: Vec<String>,
}

/// A request that could be read. Whether its signature holds is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Parts of the request.
    pub outline: Outline<'a>,
    /// Subject of the request.
    pub names: Names,
    /// Subject alternative names.
    pub alternatives: AlternativeNames,
}

/// The content of the first block of a PEM text, if that is a request.
#[must_use]
pub fn from_pem(text: &str) -> Option<Vec<u8>> {
    let block = pem_blocks(text).into_iter().next()?;
    (block.kind == "CERTIFICATE REQUEST").then_some(block.bytes)
}

impl<'a> Outline<'a> {
    pub(super) fn read(request: &'a [u8]) -> Option<Self> {
        let (SEQUENCE, content, rest) = element(request)? else { return None };
        let (information, signed) = split_element(content)?;
        let (SEQUENCE, algorithm, signed) = element(signed)? else { return None };
        let (OBJECT_IDENTIFIER, algorithm, _) = element(algorithm)? else { return None };
        // No signature has bits that do not count.
        let (BIT_STRING, [0, signature @ ..], after) = element(signed)? else { return None };
        let (SEQUENCE, inner, _) = element(information)? else { return None };
        let (INTEGER, _, inner) = element(inner)? else { return None };
        let (subject, inner) = split_element(inner)?;
        let (key, attributes) = split_element(inner)?;
        let are_sequences = subject.first() == Some(&SEQUENCE) && key.first() == Some(&SEQUENCE);
        let is_whole = rest.is_empty() && after.is_empty() && are_sequences;
        is_whole.then_some(Self { information, subject, key, attributes, algorithm, signature })
    }
}

impl<'a> Request<'a> {
    /// Reads a request; none if it is not clear.
    #[must_use]
    pub fn read(request: &'a [u8]) -> Option<Self> {
        let outline = Outline::read(request)?;
        let names = read_names(outline.subject)?;
        Some(Self { outline, names, alternatives: alternatives(outline.attributes)? })
    }
}

fn alternatives(attributes: &[u8]) -> Option<AlternativeNames> {
    let mut names = AlternativeNames::default();
    if attributes.is_empty() {
        return Some(names);
    }
    let (ATTRIBUTES, mut attributes, _) = element(attributes)? else { return None };
    while !attributes.is_empty() {
        let (SEQUENCE, attribute, after) = element(attributes)? else { return None };
        attributes = after;
        let (OBJECT_IDENTIFIER, kind, values) = element(attribute)? else { return None };
        if kind != EXTENSION_REQUEST {
            continue;
        }
        let (SET, values, _) = element(values)? else { return None };
        let (SEQUENCE, mut extensions, _) = element(values)? else { return None };
        while !extensions.is_empty() {
            let (SEQUENCE, extension, after) = element(extensions)? else { return None };
            extensions = after;
            if let Some(value) = super::extension_value(extension, ALTERNATIVE_NAMES)? {
                read_alternatives(value, &mut names)?;
            }
        }
    }
    Some(names)
}

pub(super) fn read_alternatives(value: &[u8], names: &mut AlternativeNames) -> Option<()> {
    const EMAIL: u8 = 0x81;
    const DNS: u8 = 0x82;
    const URI: u8 = 0x86;
    const ADDRESS: u8 = 0x87;
    let (SEQUENCE, mut list, _) = element(value)? else { return None };
    while !list.is_empty() {
        let (tag, content, after) = element(list)?;
        list = after;
        let text = || String::from_utf8(content.to_vec()).ok().filter(|text| text.is_ascii());
        match tag {
            EMAIL => names.emails.push(text()?),
            DNS => names.dns.push(text()?),
            URI => names.uris.push(text()?),
            ADDRESS => names.addresses.push(address(content)?),
            // Go reads no others.
            _ => {}
        }
    }
    Some(())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).ok().map(|it| IpAddr::V4(Ipv4Addr::from(it)));
    four.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|it| IpAddr::V6(Ipv6Addr::from(it))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `openssl req` with the subject `O=system:nodes, CN=system:node:x1` and the names `DNS:x1, IP:192.0.2.9`.
    const SERVING: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBEDCBuAIBADAwMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxFzAVBgNVBAMMDnN5
c3RlbTpub2RlOngxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEln93dxhtZwZZ
w4obQYBG9IGv4xSuPY1sIJ1ZaJ/6donjW9GVmSfO+Qe21PVD5AlzjeFGw4yNhCg/
gf01kybjq6AmMCQGCSqGSIb3DQEJDjEXMBUwEwYDVR0RBAwwCoICeDGHBMAAAgkw
CgYIKoZIzj0EAwIDRwAwRAIgEEErv2eRCQ6cCyIzjhCR1ItFX5Ah+e6Sireq+X/0
rtECIHwTvNLH7UyAv8049nH33GGjaob/2cW0HcLwctZ/Y4z/
-----END CERTIFICATE REQUEST-----
";

    #[test]
    fn request_contains_subject_and_alternative_names() {
        let bytes = from_pem(SERVING).unwrap();
        let request = Request::read(&bytes).unwrap();
        assert_eq!(request.names.common_name, "system:node:x1");
        assert_eq!(request.names.organizations, ["system:nodes"]);
        assert_eq!(request.alternatives.dns, ["x1"]);
        assert_eq!(request.alternatives.addresses, ["192.0.2.9".parse::<IpAddr>().unwrap()]);
        for cut in 0..bytes.len() {
            assert_eq!(Request::read(&bytes[..cut]), None);
        }
        assert_eq!(from_pem(&SERVING.replace("CERTIFICATE REQUEST", "CERTIFICATE")), None);
    }
}
