//! The resolver configuration of pods.
//!
//! Follows `network/dns` of Kubernetes' kubelet, with its limits: three servers, 32 search domains, 2,048 characters of them.

use api::core::v1::Pod;
use api::json::Value;
use cri::messages as m;

use super::manifest::texts;

const SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;
/// Characters of one search domain: some resolvers end the process on longer ones.
const SEARCH_LENGTH_MAX: usize = 253;

/// The node's own resolver and the cluster's.
#[derive(Debug, Clone, Default)]
pub struct Dns {
    /// Addresses of the cluster's resolver.
    pub cluster_servers: Vec<String>,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// The node's `resolv.conf`.
    pub resolv_conf: String,
}

impl Dns {
    fn of_node(&self) -> m::DnsConfig {
        let mut config = m::DnsConfig::default();
        for line in self.resolv_conf.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => config.servers.extend(words.next().map(ToOwned::to_owned)),
                // The last line counts.
                Some("search") => {
                    let domains = words.filter(|domain| *domain != ".");
                    config.searches = domains.map(|domain| domain.trim_end_matches('.').to_owned()).collect();
                }
                Some("options") => words.for_each(|option| set_option(&mut config.options, option.to_owned())),
                _ => {}
            }
        }
        config
    }

    /// The resolver configuration of a pod, and a message for each limit that it exceeds.
    pub(super) fn of_pod(&self, pod: &Pod, manifest: &Value) -> (m::DnsConfig, Vec<String>) {
        let is_cluster = match manifest.text_at(&["spec", "dnsPolicy"]) {
            "ClusterFirst" => !pod.spec.host_network,
            "ClusterFirstWithHostNet" => true,
            _ => false,
        };
        let mut config = match manifest.text_at(&["spec", "dnsPolicy"]) {
            "None" => m::DnsConfig::default(),
            _ if is_cluster && !self.cluster_servers.is_empty() => {
                let domain = &self.cluster_domain;
                let namespace = &pod.metadata.namespace;
                let mut searches = Vec::new();
                if !domain.is_empty() {
                    searches.extend([format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()]);
                }
                searches.extend(self.of_node().searches);
                let servers = self.cluster_servers.clone();
                m::DnsConfig { servers, searches, options: vec!["ndots:5".to_owned()] }
            }
            _ => self.of_node(),
        };
        if let Some(own) = manifest.at(&["spec", "dnsConfig"]) {
            config.servers.extend(texts(own, &["nameservers"]));
            config.searches.extend(texts(own, &["searches"]));
            for option in own.list("options") {
                let value = option.str_at(&["value"]).filter(|value| !value.is_empty());
                let value = value.map(|value| format!(":{value}")).unwrap_or_default();
                set_option(&mut config.options, format!("{}{value}", option.text("name")));
            }
        }
        omit_duplicates(&mut config.servers);
        omit_duplicates(&mut config.searches);
        let messages = limit(&mut config);
        (config, messages)
    }
}

/// Adds an option; it replaces one of the same name.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    let own = name(&option);
    options.retain(|known| name(known) != own);
    options.push(option);
}

fn omit_duplicates(texts: &mut Vec<String>) {
    let mut known = std::collections::HashSet::new();
    texts.retain(|text| known.insert(text.clone()));
}

/// Cuts what exceeds the limits, and returns upstream's message for each of them.
fn limit(config: &mut m::DnsConfig) -> Vec<String> {
    let mut messages = Vec::new();
    if config.servers.len() > SERVERS_MAX {
        config.servers.truncate(SERVERS_MAX);
        messages.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let count = config.searches.len();
    config.searches.truncate(SEARCHES_MAX);
    config.searches.retain(|search| search.len() <= SEARCH_LENGTH_MAX);
    while config.searches.join(" ").len() > SEARCH_CHARACTERS_MAX {
        config.searches.pop();
    }
    if config.searches.len() < count {
        messages.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "# x\nnameserver 192.0.2.1\nsearch old.example\nsearch example.com. corp.example .\n\
        options ndots:1 timeout:2\noptions ndots:2\n";

    fn config(policy: &str, host_network: bool, own: Value, servers: &[&str]) -> (m::DnsConfig, Vec<String>) {
        let mut pod = Pod::default();
        pod.metadata.namespace = "a".into();
        pod.spec.host_network = host_network;
        let manifest = api::json!({"spec": {"dnsPolicy": policy, "dnsConfig": own}});
        let dns = Dns {
            cluster_servers: servers.iter().map(|it| (*it).to_owned()).collect(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: NODE.to_owned(),
        };
        dns.of_pod(&pod, &manifest)
    }

    #[track_caller]
    fn check(policy: &str, host_network: bool, own: Value, lines: [&str; 3]) {
        let (config, messages) = config(policy, host_network, own, &["10.96.0.10"]);
        let made = [config.servers, config.searches, config.options].map(|words| words.join(" "));
        assert_eq!((made.each_ref().map(String::as_str), messages), (lines, Vec::new()));
    }

    #[test]
    fn policies_are_those_of_kubernetes() {
        let none = Value::object;
        let cluster = "a.svc.cluster.local svc.cluster.local cluster.local example.com corp.example";
        let of_cluster = ["10.96.0.10", cluster, "ndots:5"];
        let of_node = ["192.0.2.1", "example.com corp.example", "timeout:2 ndots:2"];
        check("ClusterFirst", false, none(), of_cluster);
        check("ClusterFirst", true, none(), of_node);
        check("ClusterFirstWithHostNet", true, none(), of_cluster);
        check("Default", false, none(), of_node);
        check("None", false, none(), ["", "", ""]);
    }

    #[test]
    fn own_configuration_is_merged() {
        let own = || {
            api::json!({
                "nameservers": ["192.0.2.9", "10.96.0.10"], "searches": ["my.example", "cluster.local"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
            })
        };
        let searches = "a.svc.cluster.local svc.cluster.local cluster.local example.com corp.example my.example";
        check("ClusterFirst", false, own(), ["10.96.0.10 192.0.2.9", searches, "ndots:2 edns0"]);
        check("None", false, own(), ["192.0.2.9 10.96.0.10", "my.example cluster.local", "ndots:2 edns0"]);
    }

    #[test]
    fn limits_cut_servers_and_searches() {
        let many: Vec<Value> = (0..40).map(|number| format!("d{number}.example").into()).collect();
        let own =
            api::json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"], "searches": (Value::Array(many))});
        let (made, messages) = config("ClusterFirst", false, own, &["10.96.0.10"]);
        assert_eq!((made.servers.len(), made.searches.len(), messages.len()), (3, 32, 2));
        assert_eq!(
            messages[0],
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.96.0.10 192.0.2.1 192.0.2.2"
        );
        let long: Vec<Value> = (0..20).map(|number| format!("{number}.{}", "x".repeat(200)).into()).collect();
        let own = api::json!({"searches": (Value::Array(long))});
        let (made, _) = config("None", false, own, &[]);
        assert!(made.searches.join(" ").len() <= 2048 && made.searches.len() == 10);
    }
}
