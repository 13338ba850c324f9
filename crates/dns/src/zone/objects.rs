//! Services and EndpointSlices as the zone needs them.

use std::net::IpAddr;

use api::json::{ConvertError, Text, Value};
use api::well_known::LABEL_SERVICE_NAME;
use hickory_proto::rr::Name;

/// Maximum length of a label of a DNS name.
const LABEL_MAX: usize = 63;

/// A port of a Service or of its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name; empty for an unnamed port.
    pub name: Text,
    /// The protocol in lower case.
    pub protocol: Text,
    /// The number.
    pub number: u16,
}

impl Port {
    fn read(value: &Value) -> Option<Self> {
        let number = u16::try_from(value.optional_int("port")?).ok()?;
        let protocol = value.optional_text("protocol").unwrap_or("TCP").to_ascii_lowercase();
        Some(Self { name: value.text("name").into(), protocol: protocol.into(), number })
    }

    /// Whether the port has this name and protocol, both in lower case.
    #[must_use]
    pub fn is(&self, name: &str, protocol: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.protocol == protocol
    }
}

/// The addresses behind the name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Cluster addresses.
    Cluster(Vec<IpAddr>),
    /// The addresses of the endpoints.
    Headless,
    /// Another name.
    External(Name),
    /// No address: it is not allocated, or an external name is not a name.
    Nothing,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its addresses.
    pub backing: Backing,
    /// Its ports.
    pub ports: Vec<Port>,
}

impl Service {
    /// Reads a Service. Fields that do not fit are left out.
    ///
    /// # Errors
    /// None: the signature is that of an informer's decoder.
    pub fn read(value: &Value) -> Result<Self, ConvertError> {
        let spec = value.field("spec");
        let ports = spec.list("ports").iter().filter_map(Port::read).collect();
        let addresses = || -> Vec<IpAddr> {
            let listed = spec.texts("clusterIPs").filter_map(|text| text.parse().ok());
            let mut addresses: Vec<IpAddr> = listed.collect();
            if addresses.is_empty() {
                addresses.extend(spec.text("clusterIP").parse::<IpAddr>().ok());
            }
            addresses
        };
        let backing = match (spec.text("type"), spec.text("clusterIP")) {
            ("ExternalName", _) => external(spec.text("externalName")),
            (_, "None") => Backing::Headless,
            _ => match addresses() {
                addresses if addresses.is_empty() => Backing::Nothing,
                addresses => Backing::Cluster(addresses),
            },
        };
        Ok(Self { backing, ports })
    }
}

/// An external name that is an address has no record: a CNAME cannot lead to it.
fn external(name: &str) -> Backing {
    if name.is_empty() || name.parse::<IpAddr>().is_ok() {
        return Backing::Nothing;
    }
    let labels = name.trim_end_matches('.').split('.').map(|label| label.as_bytes());
    Name::from_labels(labels).map_or(Backing::Nothing, Backing::External)
}

/// A ready endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The label below the name of the Service: the endpoint's hostname, or its address with dashes.
    pub host: Text,
}

/// An EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// The name of the Service.
    pub service: Text,
    /// Endpoints that are ready.
    pub endpoints: Vec<Endpoint>,
    /// Ports of all endpoints.
    pub ports: Vec<Port>,
}

impl Slice {
    /// Reads an EndpointSlice. Fields that do not fit are left out.
    ///
    /// # Errors
    /// None: the signature is that of an informer's decoder.
    pub fn read(value: &Value) -> Result<Self, ConvertError> {
        let mut endpoints = Vec::new();
        for endpoint in value.list("endpoints") {
            // Kubernetes: an unknown state counts as ready. The controller reports all endpoints as ready if the Service publishes
            // those that are not.
            if endpoint.bool_at(&["conditions", "ready"]) == Some(false) {
                continue;
            }
            let hostname = endpoint.text("hostname");
            for address in endpoint.texts("addresses").filter_map(|text| text.parse::<IpAddr>().ok()) {
                let host = match hostname {
                    "" => dashed(address),
                    name if name.len() > LABEL_MAX => continue,
                    name => name.to_ascii_lowercase().into(),
                };
                endpoints.push(Endpoint { address, host });
            }
        }
        Ok(Self {
            service: value.text_at(&["metadata", "labels", LABEL_SERVICE_NAME]).into(),
            endpoints,
            ports: value.list("ports").iter().filter_map(Port::read).collect(),
        })
    }
}

/// An address as a label: `10-0-0-1`, `2001-db8--1`.
#[must_use]
pub(super) fn dashed(address: IpAddr) -> Text {
    let text = address.to_string().replace(['.', ':'], "-");
    // As CoreDNS: a label does not end with a dash.
    if text.ends_with('-') { (text + "0").into() } else { text.into() }
}

/// The address that a label stands for.
#[must_use]
pub(super) fn undashed(label: &str) -> Option<IpAddr> {
    let dots = label.bytes().filter(|byte| *byte == b'-').count() == 3 && !label.contains("--");
    label.replace('-', if dots { "." } else { ":" }).parse().ok()
}
