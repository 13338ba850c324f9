//! Questions to the zone.

use std::net::IpAddr;

use api::json::Text;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HINFO, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::name::{Meaning, Part, meaning, reverse_address};
use super::objects::{Endpoint, Port, undashed};
use super::{Backing, Entry, Service, Zone};
use crate::answer::Answer;

/// TTL of records, in seconds, as in kubeadm's configuration.
const TTL: u32 = 30;
/// TTL of the schema version.
const VERSION_TTL: u32 = 28_800;
/// Version of the specification.
const VERSION: &str = "1.1.0";
/// Number of external names that are followed within the zone.
const ALIASES_MAX: usize = 8;
/// Endpoints that a lookup examines for each record that it may return: user-defined slices may repeat endpoints.
const EXAMINED_PER_RECORD: usize = 4;
/// Owner names of a reverse lookup.
const POINTERS_MAX: usize = 32;
/// Namespace and name of the Service through which pods reach this server.
pub(crate) const DNS_SERVICE: (&str, &str) = ("kube-system", "kube-dns");

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult {
    /// The name is not part of the zone.
    Outside,
    /// The answer.
    Answer(Answer),
    /// The name leads out of the zone: the answer so far, and the name to resolve.
    Alias(Answer, Name),
}

/// Records of one name.
enum Records {
    /// The name does not exist.
    Missing,
    /// The name exists; records of the requested type, and additional ones.
    Some(Vec<RData>, Vec<Record>),
    /// The name stands for another one.
    Alias(Name),
}

impl Records {
    fn none() -> Self {
        Records::Some(Vec::new(), Vec::new())
    }
}

impl Zone {
    /// Answers a question with at most `limit` records.
    #[must_use]
    pub fn lookup(&self, name: &Name, record_type: RecordType, limit: usize) -> LookupResult {
        let Some(mut found) = meaning(name, &self.domain) else { return self.reverse(name, record_type) };
        let mut answer = Answer { is_authoritative: true, ..Answer::empty(ResponseCode::NoError) };
        let mut owner = name.clone();
        for _ in 0..=ALIASES_MAX {
            match self.records(&found, record_type, limit) {
                Records::Missing => {
                    return LookupResult::Answer(self.negative(answer, ResponseCode::NXDomain));
                }
                Records::Some(records, additionals) => {
                    answer.is_truncated = records.len() > limit;
                    let ttl = if found == Meaning::Version { VERSION_TTL } else { TTL };
                    let records = records.into_iter().take(limit);
                    answer.answers.extend(records.map(|data| Record::from_rdata(owner.clone(), ttl, data)));
                    answer.additionals = additionals;
                    if answer.answers.is_empty() {
                        return LookupResult::Answer(self.negative(answer, ResponseCode::NoError));
                    }
                    return LookupResult::Answer(answer);
                }
                Records::Alias(target) => {
                    let alias = RData::CNAME(CNAME(target.clone()));
                    answer.answers.push(Record::from_rdata(owner, TTL, alias));
                    if record_type == RecordType::CNAME {
                        return LookupResult::Answer(answer);
                    }
                    let Some(next) = meaning(&target, &self.domain) else { return LookupResult::Alias(answer, target) };
                    (found, owner) = (next, target);
                }
            }
        }
        // External names that lead in a circle.
        LookupResult::Answer(Answer::empty(ResponseCode::ServFail))
    }

    /// Completes a negative answer. A name that is not known yet may exist.
    fn negative(&self, mut answer: Answer, code: ResponseCode) -> Answer {
        if !self.has_synced {
            return Answer::empty(ResponseCode::ServFail);
        }
        answer.code = code;
        answer.authorities = vec![Record::from_rdata(self.origin.clone(), TTL, self.authority())];
        answer
    }

    fn authority(&self) -> RData {
        let (server, mail) = (self.below(&["ns", "dns"]), self.below(&["hostmaster"]));
        RData::SOA(SOA::new(server, mail, self.serial, 7200, 1800, 86_400, TTL))
    }

    /// A name in the zone; the origin if it would be too long.
    fn below(&self, labels: &[&str]) -> Name {
        let labels = labels.iter().map(|label| label.as_bytes());
        let name = Name::from_labels(labels.chain(self.domain.iter().map(Vec::as_slice)));
        name.unwrap_or_else(|_| self.origin.clone())
    }

    fn records(&self, found: &Meaning, record_type: RecordType, limit: usize) -> Records {
        // RFC 8482: one small record instead of all records.
        let minimal = || Records::Some(vec![RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()))], Vec::new());
        let exists = |namespace: &str| self.namespaces.get(namespace).is_some_and(|namespace| namespace.exists);
        let records = match found {
            Meaning::Unknown => Records::Missing,
            Meaning::Branch => Records::none(),
            Meaning::Apex => match record_type {
                RecordType::SOA => Records::Some(vec![self.authority()], Vec::new()),
                RecordType::NS => {
                    let name = self.below(&["ns", "dns"]);
                    let addresses = self.server_addresses().into_iter();
                    let glue = addresses.map(|data| Record::from_rdata(name.clone(), TTL, data)).collect();
                    Records::Some(vec![RData::NS(NS(name))], glue)
                }
                _ => Records::none(),
            },
            Meaning::Version => match record_type {
                RecordType::TXT => Records::Some(vec![RData::TXT(TXT::new(vec![VERSION.to_owned()]))], Vec::new()),
                _ => Records::none(),
            },
            Meaning::NameServer => {
                let addresses = self.server_addresses().into_iter();
                Records::Some(addresses.filter(|data| data.record_type() == record_type).collect(), Vec::new())
            }
            Meaning::Namespace(namespace) if exists(namespace) => Records::none(),
            Meaning::Pod { namespace, address } if exists(namespace) => match undashed(address) {
                Some(address) => Records::Some(typed([address], record_type), Vec::new()),
                None => Records::Missing,
            },
            Meaning::Service { namespace, service, part } if exists(namespace) => {
                let entry = self.namespaces.get(namespace.as_str()).and_then(|it| it.services.get(service.as_str()));
                let found = entry.and_then(|entry| Some((entry, entry.service.as_deref()?)));
                match found {
                    Some((entry, object)) => {
                        let owner = OwnerNames { zone: self, namespace, service };
                        records_of_service(&owner, entry, object, part, record_type, limit)
                    }
                    None => Records::Missing,
                }
            }
            Meaning::Namespace(_) | Meaning::Pod { .. } | Meaning::Service { .. } => Records::Missing,
        };
        match records {
            Records::Some(..) if record_type == RecordType::ANY => minimal(),
            records => records,
        }
    }

    /// The addresses of this server: those of its Service.
    fn server_addresses(&self) -> Vec<RData> {
        let (namespace, service) = DNS_SERVICE;
        let entry = self.namespaces.get(namespace).and_then(|namespace| namespace.services.get(service));
        let service = entry.and_then(|entry| entry.service.as_deref());
        service.into_iter().flat_map(Service::cluster_addresses).map(|address| data(*address)).collect()
    }

    /// Names of an address of the cluster. Other addresses are outside of the zone.
    fn reverse(&self, name: &Name, record_type: RecordType) -> LookupResult {
        let Some(address) = reverse_address(name) else { return LookupResult::Outside };
        let first = (address, Text::default(), Text::default(), Text::default());
        let of_service = self.cluster_addresses.range(first.clone()..).take_while(|owner| owner.0 == address);
        let mut names: Vec<Name> =
            of_service.take(1).map(|(_, namespace, service, _)| self.below(&[service, namespace, "svc"])).collect();
        if names.is_empty() {
            let owners = self.endpoint_addresses.range(first..).take_while(|(owner, _)| owner.0 == address);
            let owners = owners.take(POINTERS_MAX);
            names.extend(
                owners.map(|((_, namespace, service, host), _)| self.below(&[host, service, namespace, "svc"])),
            );
        }
        if names.is_empty() {
            return LookupResult::Outside;
        }
        let mut answer = Answer { is_authoritative: true, ..Answer::empty(ResponseCode::NoError) };
        if record_type != RecordType::PTR {
            return LookupResult::Answer(self.negative(answer, ResponseCode::NoError));
        }
        let pointers = names.into_iter().map(|target| RData::PTR(PTR(target)));
        answer.answers = pointers.map(|data| Record::from_rdata(name.clone(), TTL, data)).collect();
        LookupResult::Answer(answer)
    }
}

/// Names of a Service and its endpoints.
struct OwnerNames<'a> {
    zone: &'a Zone,
    namespace: &'a str,
    service: &'a str,
}

impl OwnerNames<'_> {
    fn service(&self) -> Name {
        self.zone.below(&[self.service, self.namespace, "svc"])
    }

    fn host(&self, host: &str) -> Name {
        self.zone.below(&[host, self.service, self.namespace, "svc"])
    }
}

fn records_of_service(
    names: &OwnerNames<'_>,
    entry: &Entry,
    service: &Service,
    part: &Part,
    record_type: RecordType,
    limit: usize,
) -> Records {
    let wants_ports = record_type == RecordType::SRV;
    match (&service.backing, part) {
        (Backing::Nothing, _) => Records::Missing,
        (Backing::External(target), Part::All) => match record_type {
            // Records that a CNAME does not lead to.
            RecordType::SRV | RecordType::SOA | RecordType::NS | RecordType::PTR => Records::none(),
            RecordType::ANY => Records::none(),
            _ => Records::Alias(target.clone()),
        },
        (Backing::External(_), _) => Records::Missing,
        (_, Part::Host(host)) => {
            let mut addresses = entry.endpoints.of_host(host).peekable();
            if addresses.peek().is_none() {
                return Records::Missing;
            }
            Records::Some(typed(addresses.take(limit.saturating_add(1)), record_type), Vec::new())
        }
        (Backing::Cluster(addresses), part) => {
            let matching: Vec<&Port> = service.ports.iter().filter(|port| part.has(port)).collect();
            if matching.is_empty() && !matches!(part, Part::All) {
                return Records::Missing;
            }
            match wants_ports {
                true => service_records(matching.into_iter().map(|port| (names.service(), port.number)), |_| {
                    addresses.to_vec()
                }),
                false => Records::Some(typed(addresses.iter().copied(), record_type), Vec::new()),
            }
        }
        (Backing::Headless, Part::All) if !wants_ports => {
            if entry.endpoints.is_empty() {
                return Records::Missing;
            }
            let one_more = limit.saturating_add(1);
            let addresses = match record_type {
                RecordType::A => entry.endpoints.v4(one_more),
                RecordType::AAAA => entry.endpoints.v6(one_more),
                _ => Vec::new(),
            };
            Records::Some(typed(addresses, record_type), Vec::new())
        }
        (Backing::Headless, part) => headless_records(names, entry, part, record_type, limit),
    }
}

impl Part {
    fn has(&self, port: &Port) -> bool {
        match self {
            Part::Port { name, protocol } => port.is(name, protocol),
            _ => true,
        }
    }
}

/// Records of a headless Service that depend on its ports.
fn headless_records(
    names: &OwnerNames<'_>,
    entry: &Entry,
    part: &Part,
    record_type: RecordType,
    limit: usize,
) -> Records {
    let one_more = limit.saturating_add(1);
    let examined = entry.endpoints.with_ports().take(one_more.saturating_mul(EXAMINED_PER_RECORD));
    let mut matching: Vec<(&Endpoint, &Port)> = examined.filter(|(_, port)| part.has(port)).take(one_more).collect();
    if matching.is_empty() {
        return match part {
            Part::All if !entry.endpoints.is_empty() => Records::none(),
            _ => Records::Missing,
        };
    }
    if record_type != RecordType::SRV {
        matching.sort_by_key(|(endpoint, _)| endpoint.address);
        matching.dedup_by_key(|(endpoint, _)| endpoint.address);
        return Records::Some(typed(matching.iter().map(|(endpoint, _)| endpoint.address), record_type), Vec::new());
    }
    let key = |it: &(&Endpoint, &Port)| (it.0.host.clone(), it.1.number);
    matching.sort_by_key(key);
    matching.dedup_by_key(|it| key(it));
    let targets = matching.iter().map(|(endpoint, port)| (names.host(&endpoint.host), port.number));
    service_records(targets, |at| matching.get(at).map(|(endpoint, _)| endpoint.address).into_iter().collect())
}

/// SRV records of equal weight, with the addresses of their targets.
fn service_records(
    targets: impl ExactSizeIterator<Item = (Name, u16)>,
    addresses: impl Fn(usize) -> Vec<IpAddr>,
) -> Records {
    // As CoreDNS: the weights of all records add up to about 100.
    let count = u16::try_from(targets.len()).unwrap_or(u16::MAX);
    let weight = 100_u16.checked_div(count).unwrap_or(100).max(1);
    let (mut records, mut additionals) = (Vec::new(), Vec::<Record>::new());
    for (at, (target, port)) in targets.enumerate() {
        // Targets are in order: equal ones follow each other.
        if additionals.last().is_none_or(|last| last.name != target) {
            let glue = addresses(at).into_iter().map(|address| Record::from_rdata(target.clone(), TTL, data(address)));
            additionals.extend(glue);
        }
        records.push(RData::SRV(SRV::new(0, weight, port, target)));
    }
    Records::Some(records, additionals)
}

fn data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

/// Addresses of the requested family.
fn typed(addresses: impl IntoIterator<Item = IpAddr>, record_type: RecordType) -> Vec<RData> {
    addresses.into_iter().map(data).filter(|data| data.record_type() == record_type).collect()
}
