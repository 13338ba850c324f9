//! The rules of one Service.
//!
//! | chain | traffic |
//! |---|---|
//! | `service-…` | policy `Cluster`: one of all usable endpoints |
//! | `local-…` | policy `Local`: one of the node's own |
//! | `external-…` | node port, load balancer and external IPs: masquerades or short-circuits, then one of the two above |
//! | `firewall-…` | drops sources outside of `loadBalancerSourceRanges` |
//! | `endpoint-…` | one endpoint, if clients keep theirs; `affinity-…` is the set of these clients |
//!
//! Ports with few endpoints, without affinity and reached by the cluster IP only, have no chains: their endpoints are elements of maps that all
//! Services share. `nft` reads all chains before every transaction, which takes 40 ms with 10,000 of them.
//!
//! Follows `syncProxyRules` in `pkg/proxy/nftables/proxier.go` of Kubernetes.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::network::{Network, Protocol};
use crate::plan::{Plan, PlannedPort};
use crate::rules::{Element, Name, SHARED_ENDPOINTS_MAX, ServiceRules, Verdict, join, shared_chain};
use crate::service::{Port, Service};
use crate::topology::{Categories, NodeTopology, categorize};

/// Most endpoints that are chosen by one rule each. More are in a map of the rule's own; the kernel takes time proportional to the number of
/// such maps to add one, which would be 24 s for 10,000 Services.
const RULES_MAX: usize = 8;

/// Most endpoints of a port whose clients are remembered, each in a set of the endpoint. The kernel takes time proportional to the number of sets to add
/// one: the rules of 40,000 would take minutes. Clients of ports with more endpoints, or of Services beyond the limits of [`Plan`], are assigned
/// by a hash of their address.
const REMEMBERED_MAX: usize = 1000;
/// A fixed seed: clients keep their endpoint when the rules are written again.
const HASH_SEED: &str = "0x63656c70";

/// Facts of the node that all rules depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name and zone.
    pub topology: NodeTopology,
    /// The node's primary address.
    pub address: Ipv4Addr,
    /// Addresses of pods; traffic from others to Services is masqueraded.
    pub pod_network: Option<Network>,
    /// Bit of the packet mark that requests masquerading.
    pub masquerade_mark: u32,
}

impl NodeFacts {
    /// The statement that requests masquerading.
    #[must_use]
    pub fn masquerade(&self) -> String {
        format!("mark set mark or {:#x}", self.masquerade_mark)
    }
}

/// Returns the rules of a Service on a node, for the ports of its plan.
#[must_use]
pub fn decide(service: &Service, plan: &Plan<'_>, node: &NodeFacts) -> ServiceRules {
    let mut rules = ServiceRules::default();
    for PlannedPort { port, endpoints } in &plan.ports {
        let (cluster, local) = (service.uses_cluster_endpoints(port), service.uses_local_endpoints(port));
        let categories = categorize(endpoints, &node.topology, cluster, local);
        let affinity_seconds = plan.affinity_seconds;
        PortRules { service, port, node, affinity_seconds, categories: &categories, rules: &mut rules }.add();
    }
    rules
}

struct PortRules<'a> {
    service: &'a Service,
    port: &'a Port,
    node: &'a NodeFacts,
    affinity_seconds: Option<u32>,
    categories: &'a Categories<'a>,
    rules: &'a mut ServiceRules,
}

impl PortRules<'_> {
    fn add(&mut self) {
        let (service, categories) = (self.service, self.categories);
        let has_internal = categories.has_any && !(service.internal_policy_local && categories.local.is_empty());
        let has_external = categories.has_any && !(service.external_policy_local && categories.local.is_empty());
        self.rules.internal_without_local =
            self.rules.internal_without_local.saturating_add(usize::from(categories.has_any && !has_internal));
        self.rules.external_without_local =
            self.rules.external_without_local.saturating_add(usize::from(categories.has_any && !has_external));
        self.cluster_ip(has_internal);
        self.external_addresses(has_external);
        self.hairpins();
        self.endpoint_chains();
        if categories.has_any && service.is_external(self.port) {
            self.external_chain(has_external);
        }
    }

    /// Services without any endpoint reject; those with endpoints on other nodes only drop.
    fn unavailable(&self) -> Verdict {
        if self.categories.has_any { Verdict::Drop } else { Verdict::Reject }
    }

    fn element(&mut self, element: Element, verdict: Verdict) {
        self.rules.elements.push((element, verdict));
    }

    fn cluster_ip(&mut self, has_endpoints: bool) {
        let (address, protocol, port) = (self.service.cluster_ip, self.port.protocol, self.port.port);
        self.element(Element::ClusterIp(address), Verdict::Member);
        if let Some((count, endpoints)) = self.shared_endpoints() {
            let chain = shared_chain(protocol, count);
            self.element(Element::Service(address, protocol, port), Verdict::Goto(chain));
            for (number, endpoint) in (0..count).zip(endpoints) {
                let element = Element::Endpoint(number, address, protocol, port);
                self.element(element, Verdict::Endpoint(endpoint));
            }
        } else if has_endpoints {
            let prefix = if self.service.internal_policy_local { "local" } else { "service" };
            let chain = self.chain_name(prefix);
            self.element(Element::Service(address, protocol, port), Verdict::Goto(chain));
        } else {
            self.element(Element::NoEndpoint(address, protocol, port), self.unavailable());
        }
    }

    /// The endpoints and their number, if they are in the shared maps.
    fn shared_endpoints(&self) -> Option<(u8, Vec<SocketAddrV4>)> {
        let (service, categories) = (self.service, self.categories);
        let endpoints = if service.internal_policy_local { &categories.local } else { &categories.cluster };
        let count = u8::try_from(endpoints.len()).ok().filter(|it| (1..=SHARED_ENDPOINTS_MAX).contains(it))?;
        let has_own_chains = service.affinity_seconds.is_some() || service.is_external(self.port);
        (!has_own_chains).then(|| (count, endpoints.iter().map(|it| it.address).collect()))
    }

    /// With the policy `Local` and no local endpoint, both elements exist: traffic of the node itself and its pods still finds the
    /// chain, and the rest is dropped.
    fn external_addresses(&mut self, has_endpoints: bool) {
        let (service, protocol, port) = (self.service, self.port.protocol, self.port.port);
        let chain = self.chain_name("external");
        for address in service.external_ips.iter().chain(&service.load_balancer_ips) {
            if self.categories.has_any {
                self.element(Element::Service(*address, protocol, port), Verdict::Goto(chain.clone()));
            }
            if !has_endpoints {
                self.element(Element::NoEndpoint(*address, protocol, port), self.unavailable());
            }
        }
        if let Some(node_port) = self.port.node_port {
            if self.categories.has_any {
                self.element(Element::NodePort(protocol, node_port), Verdict::Goto(chain));
            }
            if !has_endpoints {
                self.element(Element::NoEndpointNodePort(protocol, node_port), self.unavailable());
            }
        }
        self.firewall();
    }

    fn firewall(&mut self) {
        let service = self.service;
        if service.load_balancer_ips.is_empty() || (service.source_ranges.is_empty() && !service.rejects_sources) {
            return;
        }
        let chain = self.chain_name("firewall");
        for address in &service.load_balancer_ips {
            let element = Element::Firewall(*address, self.port.protocol, self.port.port);
            self.element(element, Verdict::Goto(chain.clone()));
        }
        let mut sources: Vec<String> = service.source_ranges.iter().map(ToString::to_string).collect();
        // The node's own requests to an address that is also local have that address as their source.
        if service.source_ranges.iter().any(|it| it.contains(self.node.address)) {
            sources.extend(service.load_balancer_ips.iter().map(ToString::to_string));
        }
        let rule = if sources.is_empty() {
            "drop".to_owned()
        } else {
            format!("ip saddr != {{ {} }} drop", join(sources.iter()))
        };
        self.chain(chain, vec![rule]);
    }

    fn hairpins(&mut self) {
        let protocol = self.port.protocol;
        for endpoint in self.categories.reachable.iter().filter(|it| it.facts.is_local) {
            let element = Element::Hairpin(*endpoint.address.ip(), protocol, endpoint.address.port());
            self.element(element, Verdict::Member);
        }
    }

    fn endpoint_chains(&mut self) {
        if self.shared_endpoints().is_some() {
            return;
        }
        let categories = self.categories;
        let is_hashed = self.affinity_seconds.is_none() || categories.reachable.len() > REMEMBERED_MAX;
        for (prefix, endpoints) in [("service", &categories.cluster), ("local", &categories.local)] {
            if endpoints.is_empty() {
                continue;
            }
            let rules = match self.service.affinity_seconds {
                Some(_) if is_hashed => {
                    let number = format!("jhash ip saddr mod {} seed {HASH_SEED}", endpoints.len());
                    vec![translate_by(&number, self.port.protocol, endpoints)]
                }
                Some(seconds) => self.jumps(seconds, endpoints),
                None => translate(self.port.protocol, endpoints),
            };
            let chain = self.chain_name(prefix);
            self.chain(chain, rules);
        }
        let Some(seconds) = self.affinity_seconds.filter(|_| !is_hashed) else { return };
        for endpoint in &categories.reachable {
            let (chain, set) = (self.endpoint_name("endpoint", endpoint), self.affinity_name(seconds, endpoint));
            let update = format!("update @{set} {{ ip saddr }}");
            self.rules.sets.push((set, seconds));
            let rules = [update].into_iter().chain(translate(self.port.protocol, &[endpoint])).collect();
            self.chain(chain, rules);
        }
    }

    /// Clients go to the endpoint that remembers them, or to a random one.
    fn jumps(&self, seconds: u32, endpoints: &[&Endpoint]) -> Vec<String> {
        let chains: Vec<(Name, Name)> =
            endpoints.iter().map(|it| (self.affinity_name(seconds, it), self.endpoint_name("endpoint", it))).collect();
        let remembered = chains.iter().map(|(set, chain)| format!("ip saddr @{set} goto {chain}"));
        let targets = chains.iter().map(|(_, chain)| format!("goto {chain}")).collect::<Vec<_>>();
        if targets.len() <= RULES_MAX {
            return remembered.chain(one_of(&targets)).collect();
        }
        let random = join(targets.iter().enumerate().map(|(number, target)| format!("{number} : {target}")));
        remembered.chain([format!("numgen random mod {} vmap {{ {random} }}", endpoints.len())]).collect()
    }

    fn external_chain(&mut self, has_endpoints: bool) {
        let cluster = self.chain_name("service");
        let masquerade = self.node.masquerade();
        let mut rules = Vec::new();
        if self.service.external_policy_local {
            // Traffic of pods and of the node itself is treated as if it came from outside through a load balancer: the policy does not apply.
            if let Some(pods) = self.node.pod_network {
                rules.push(format!("ip saddr {pods} goto {cluster}"));
            }
            rules.push(format!("fib saddr type local {masquerade}"));
            rules.push(format!("fib saddr type local goto {cluster}"));
        } else {
            // The endpoint may be on another node, whose response must pass here.
            rules.push(masquerade);
        }
        if has_endpoints {
            let chain = if self.service.external_policy_local { self.chain_name("local") } else { cluster };
            rules.push(format!("goto {chain}"));
        }
        let chain = self.chain_name("external");
        self.chain(chain, rules);
    }

    fn chain(&mut self, name: Name, rules: Vec<String>) {
        self.rules.chains.push((name, rules.into()));
    }

    fn chain_name(&self, prefix: &str) -> Name {
        let (key, port) = (&self.service.key, self.port);
        Arc::from(format!("{prefix}-{}/{}/{}/{}", key.namespace, key.name, port.protocol.name(), port.name))
    }

    fn endpoint_name(&self, prefix: &str, endpoint: &Endpoint) -> Name {
        let (chain, address) = (self.chain_name(prefix), endpoint.address);
        Arc::from(format!("{chain}__{}/{}", address.ip(), address.port()))
    }

    /// The timeout is a part of the name: it cannot be changed while rules use the set.
    fn affinity_name(&self, seconds: u32, endpoint: &Endpoint) -> Name {
        self.endpoint_name(&format!("affinity-{seconds}"), endpoint)
    }
}

/// Translates the destination to an endpoint, a random one of several.
fn translate(protocol: Protocol, endpoints: &[&Endpoint]) -> Vec<String> {
    if endpoints.len() <= RULES_MAX {
        let protocol = protocol.name();
        let targets: Vec<String> = endpoints.iter().map(|it| format!("dnat to {}", it.address)).collect();
        return one_of(&targets).map(|rule| format!("meta l4proto {protocol} {rule}")).collect();
    }
    vec![translate_by(&format!("numgen random mod {}", endpoints.len()), protocol, endpoints)]
}

/// Translates the destination to the endpoint of a number.
fn translate_by(number: &str, protocol: Protocol, endpoints: &[&Endpoint]) -> String {
    let targets = endpoints.iter().map(|it| it.address).enumerate();
    let targets = join(targets.map(|(number, it)| format!("{number} : {} . {}", it.ip(), it.port())));
    format!("meta l4proto {} dnat ip addr . port to {number} map {{ {targets} }}", protocol.name())
}

/// One rule per target, each with the same probability: the first of n with 1/n, the next with 1/(n - 1), the last always.
pub(crate) fn one_of(targets: &[String]) -> impl Iterator<Item = String> {
    targets.iter().enumerate().map(|(number, target)| match targets.len().saturating_sub(number) {
        1 => target.clone(),
        left => format!("numgen random mod {left} 0 {target}"),
    })
}
