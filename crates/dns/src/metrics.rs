//! Metrics under the names of CoreDNS, which dashboards use.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use telemetry::metrics::{Counter, Family, Histogram, Registry};

/// From 0.25 ms to 8 s.
const SECONDS: &[f64] = &[
    0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
];
const BYTES: &[f64] = &[0.0, 100.0, 200.0, 300.0, 400.0, 511.0, 1023.0, 2047.0, 4095.0, 8291.0, 16e3, 32e3, 48e3, 64e3];
/// Types with a label value of their own, as in CoreDNS.
const TYPES: [(RecordType, &str); 14] = [
    (RecordType::A, "A"),
    (RecordType::AAAA, "AAAA"),
    (RecordType::SRV, "SRV"),
    (RecordType::PTR, "PTR"),
    (RecordType::CNAME, "CNAME"),
    (RecordType::TXT, "TXT"),
    (RecordType::MX, "MX"),
    (RecordType::NS, "NS"),
    (RecordType::SOA, "SOA"),
    (RecordType::HTTPS, "HTTPS"),
    (RecordType::DS, "DS"),
    (RecordType::DNSKEY, "DNSKEY"),
    (RecordType::ANY, "ANY"),
    (RecordType::NAPTR, "NAPTR"),
];
const OTHER: &str = "other";

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Streams.
    Tcp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

/// Origin of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The cluster's zone.
    Zone,
    /// Another server, or the cache.
    Forward,
    /// A query that was refused.
    Refusal,
}

/// The metrics of a server.
pub struct Metrics {
    server: String,
    domain: String,
    requests: Arc<Family<Counter>>,
    /// Series of the frequent types over UDP and IPv4, so that no label is compared for them.
    frequent: Vec<Arc<Counter>>,
    durations: [Arc<Histogram>; 2],
    request_sizes: Arc<Family<Histogram>>,
    response_sizes: Arc<Family<Histogram>>,
    responses: Arc<Family<Counter>>,
    cache_requests: Arc<Counter>,
    cache_hits: [Arc<Counter>; 2],
    cache_misses: Arc<Counter>,
    pub(crate) rejected: Arc<Counter>,
    proxied: Arc<Family<Histogram>>,
}

impl Metrics {
    /// The metrics of a server that listens on a port.
    #[must_use]
    pub fn new(registry: &Registry, port: u16, domain: &str) -> Arc<Self> {
        let server = format!("dns://:{port}");
        let domain = format!("{}.", domain.trim_end_matches('.'));
        let requests = registry.family::<Counter>(
            "coredns_dns_requests_total",
            "Counter of DNS requests made per zone, protocol and family.",
            &["server", "zone", "view", "proto", "family", "type"],
            &[],
        );
        let durations = registry.family::<Histogram>(
            "coredns_dns_request_duration_seconds",
            "Histogram of the time (in seconds) each request took per zone.",
            &["server", "zone", "view"],
            SECONDS,
        );
        let sizes = |name, help| registry.family::<Histogram>(name, help, &["server", "zone", "view", "proto"], BYTES);
        let cache = |name, help| registry.family::<Counter>(name, help, &["server", "zones", "view"], &[]);
        let hits = registry.family::<Counter>(
            "coredns_cache_hits_total",
            "The count of cache hits.",
            &["server", "type", "zones", "view"],
            &[],
        );
        let frequent = TYPES.iter().map(|(_, name)| requests.with(&[&server, &domain, "", "udp", "1", name]));
        Arc::new(Self {
            frequent: frequent.collect(),
            durations: [durations.with(&[&server, &domain, ""]), durations.with(&[&server, ".", ""])],
            request_sizes: sizes("coredns_dns_request_size_bytes", "Size of requests in bytes."),
            response_sizes: sizes("coredns_dns_response_size_bytes", "Size of the returned response in bytes."),
            responses: registry.family::<Counter>(
                "coredns_dns_responses_total",
                "Counter of response status codes.",
                &["server", "zone", "view", "rcode", "plugin"],
                &[],
            ),
            cache_requests: cache("coredns_cache_requests_total", "The count of cache requests.")
                .with(&[&server, ".", ""]),
            cache_misses: cache("coredns_cache_misses_total", "The count of cache misses.").with(&[&server, ".", ""]),
            cache_hits: ["success", "denial"].map(|kind| hits.with(&[&server, kind, ".", ""])),
            rejected: registry
                .family::<Counter>(
                    "coredns_forward_max_concurrent_rejects_total",
                    "Counter of the number of queries rejected because the concurrent queries were at maximum.",
                    &[],
                    &[],
                )
                .with(&[]),
            proxied: registry.family::<Histogram>(
                "coredns_proxy_request_duration_seconds",
                "Histogram of the time each request took.",
                &["proxy_name", "to", "rcode"],
                SECONDS,
            ),
            requests,
            server,
            domain,
        })
    }

    /// Publishes the number of entries of the cache.
    pub(crate) fn publish_cache(&self, registry: &Registry, entries: impl Fn() -> usize + Send + Sync + 'static) {
        let labels = [self.server.as_str(), "success", ".", ""].map(ToOwned::to_owned).to_vec();
        registry.computed(
            "coredns_cache_entries",
            "The number of elements in the cache.",
            &["server", "type", "zones", "view"],
            move || vec![(labels.clone(), size(entries()))],
        );
    }

    fn zone(&self, source: Source) -> &str {
        match source {
            Source::Zone => &self.domain,
            Source::Forward | Source::Refusal => ".",
        }
    }

    /// Counts a request and its response.
    pub(crate) fn answered(&self, request: &Request, source: Source, code: ResponseCode, bytes: usize) {
        let zone = self.zone(source);
        let position = TYPES.iter().position(|(known, _)| Some(*known) == request.record_type);
        let (proto, family) = (request.transport.name(), if request.client.is_ipv4() { "1" } else { "2" });
        let is_frequent = source == Source::Zone && request.transport == Transport::Udp && request.client.is_ipv4();
        match position.filter(|_| is_frequent).and_then(|at| self.frequent.get(at)) {
            Some(series) => series.increment(),
            None => {
                let name = position.and_then(|at| TYPES.get(at)).map_or(OTHER, |(_, name)| name);
                self.requests.with(&[&self.server, zone, "", proto, family, name]).increment();
            }
        }
        let [own, other] = &self.durations;
        let durations = if source == Source::Zone { own } else { other };
        durations.observe_duration(request.started.elapsed());
        let labels = [self.server.as_str(), zone, "", proto];
        self.request_sizes.with(&labels).observe(size(request.bytes));
        self.response_sizes.with(&labels).observe(size(bytes));
        let plugin = match source {
            Source::Zone => "kubernetes",
            Source::Forward => "forward",
            Source::Refusal => "",
        };
        self.responses.with(&[&self.server, zone, "", code_name(code), plugin]).increment();
    }

    /// Counts a lookup in the cache.
    pub(crate) fn cached(&self, code: Option<ResponseCode>) {
        self.cache_requests.increment();
        let [success, denial] = &self.cache_hits;
        match code {
            None => self.cache_misses.increment(),
            Some(ResponseCode::NoError) => success.increment(),
            Some(_) => denial.increment(),
        }
    }

    /// Counts a query to another server.
    pub(crate) fn forwarded(&self, server: SocketAddr, code: ResponseCode, duration: Duration) {
        self.proxied.with(&["forward", &server.to_string(), code_name(code)]).observe_duration(duration);
    }
}

/// A request, as far as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) client: IpAddr,
    pub(crate) transport: Transport,
    pub(crate) record_type: Option<RecordType>,
    pub(crate) bytes: usize,
    pub(crate) started: std::time::Instant,
}

fn size(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Names of response codes as CoreDNS writes them.
fn code_name(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::BADVERS => "BADVERS",
        _ => OTHER,
    }
}
