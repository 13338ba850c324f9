//! Rules and differences as text for `nft -f -`: one file is one transaction.
//!
//! Only the proxy's own table is touched. Chains and priorities are those of kube-proxy.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::decide::{NodeFacts, one_of};
use crate::ledger::{Chain, Difference, RuleSet};
use crate::network::{Network, Protocol};
use crate::rules::{CONTAINERS, Element, Name, REJECT_CHAIN, SHARED_ENDPOINTS_MAX, Verdict, join, shared_chain};

/// Elements of one command: `nft` reports errors by command.
const ELEMENTS_PER_COMMAND: usize = 1000;
/// Longest name of a table.
const TABLE_BYTES_MAX: usize = 64;

/// Base chains: name, type, hook and priority.
const BASE_CHAINS: [(&str, &str, &str, i32); 8] = [
    // Before the translation of destinations, for the original ones.
    ("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    ("filter-output-pre-dnat", "filter", "output", -110),
    ("filter-input", "filter", "input", 0),
    ("filter-forward", "filter", "forward", 0),
    ("filter-output", "filter", "output", 0),
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
];

/// Chains that base chains jump to.
const JUMPS: [(&str, &str, &str); 11] = [
    ("filter-input", "ct state new ", "nodeport-endpoints-check"),
    ("filter-input", "ct state new ", "service-endpoints-check"),
    ("filter-forward", "ct state new ", "service-endpoints-check"),
    ("filter-output", "ct state new ", "service-endpoints-check"),
    ("filter-prerouting-pre-dnat", "ct state new ", "firewall-check"),
    ("filter-output-pre-dnat", "ct state new ", "firewall-check"),
    ("nat-output", "", "services"),
    ("nat-prerouting", "", "services"),
    ("nat-postrouting", "", "masquerading"),
    ("filter-forward", "ct state new ", "cluster-ips-check"),
    ("filter-output", "ct state new ", "cluster-ips-check"),
];

const OWN_CHAINS: [&str; 7] = [
    "nodeport-endpoints-check",
    "service-endpoints-check",
    "firewall-check",
    "services",
    "masquerading",
    "cluster-ips-check",
    REJECT_CHAIN,
];

/// The kernel limits ICMP messages to one per second and client, after six at once: more connections would time out. Resets have no limit.
const REJECTIONS: [&str; 2] = ["meta l4proto tcp reject with tcp reset", "reject"];

const DESTINATION: &str = "ip daddr . meta l4proto . th dport";

/// The name of the proxy's table, in the family `ip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(String);

/// A text that cannot be the name of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name of a table: up to 64 letters, digits, `-` and `_`, beginning with a letter")]
pub struct TableNameError(String);

impl std::str::FromStr for Table {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
        let begins = text.bytes().next().is_some_and(|it| it.is_ascii_alphabetic());
        let is_name = begins && text.len() <= TABLE_BYTES_MAX && text.bytes().all(fits);
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| TableNameError(text.to_owned()))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self("celplane-proxy".to_owned())
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses that accept node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every address of the machine except loopback.
    All,
    /// These addresses.
    Some(Vec<Ipv4Addr>),
}

/// Inputs of the rules that do not depend on Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The table.
    pub table: Table,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// Addresses that accept node ports.
    pub node_port_addresses: NodePortAddresses,
    /// The node's pods and all pods: traffic from the first to addresses outside of the second is masqueraded.
    pub pod_masquerade: Option<(Network, Network)>,
    /// Networks of cluster IPs: traffic to unallocated ones is dropped.
    pub service_networks: Vec<Network>,
}

struct Script<'a> {
    table: &'a Table,
    text: String,
}

impl Script<'_> {
    fn line(&mut self, command: &str, object: &str, rest: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{command} {object} ip {} {rest}", self.table);
    }

    fn rule(&mut self, chain: &str, rule: impl std::fmt::Display) {
        self.line("add", "rule", format_args!("{chain} {rule}"));
    }

    fn set(&mut self, name: &str, seconds: u32) {
        self.line(
            "add",
            "set",
            format_args!("{name} {{ type ipv4_addr ; flags dynamic,timeout ; timeout {seconds}s ; }}"),
        );
    }

    fn rules(&mut self, name: &Name, rules: &Chain) {
        for rule in rules.iter() {
            self.rule(name, rule);
        }
    }

    /// Elements in lists, one container after the other; they are sorted.
    fn elements<'e>(&mut self, command: &str, elements: impl Iterator<Item = (&'e Element, Option<&'e Verdict>)>) {
        let (mut container, mut count) = ("", 0_usize);
        for (element, verdict) in elements {
            if element.container() != container || count >= ELEMENTS_PER_COMMAND {
                self.text.push_str(if container.is_empty() { "" } else { " }\n" });
                (container, count) = (element.container(), 0);
                let _ = write!(self.text, "{command} element ip {} {container} {{ ", self.table);
            } else {
                self.text.push_str(" , ");
            }
            count = count.saturating_add(1);
            let _ = match verdict.filter(|it| **it != Verdict::Member) {
                Some(verdict) => write!(self.text, "{element} : {verdict}"),
                None => write!(self.text, "{element}"),
            };
        }
        self.text.push_str(if container.is_empty() { "" } else { " }\n" });
    }
}

/// The transaction that replaces the table, whatever it contains.
#[must_use]
pub fn replace(settings: &Settings, node: &NodeFacts, rules: &RuleSet) -> String {
    let mut script = Script { table: &settings.table, text: String::new() };
    remove_into(&mut script);
    script.line("add", "table", "");
    for (name, kind, hook, priority) in BASE_CHAINS {
        script.line("add", "chain", format_args!("{name} {{ type {kind} hook {hook} priority {priority} ; }}"));
    }
    for name in OWN_CHAINS {
        script.line("add", "chain", name);
    }
    for container in CONTAINERS {
        let object = if container.is_map { "map" } else { "set" };
        script.line("add", object, format_args!("{} {{ type {} ; }}", container.name, container.element_type));
    }
    for (from, condition, to) in JUMPS {
        script.rule(from, format_args!("{condition}jump {to}"));
    }
    own_rules(&mut script, settings, node);
    shared_chains(&mut script);
    for (name, seconds) in &rules.sets {
        script.set(name, *seconds);
    }
    for name in rules.chains.keys() {
        script.line("add", "chain", name);
    }
    for (name, chain) in &rules.chains {
        script.rules(name, chain);
    }
    script.elements("add", rules.elements.iter().map(|(element, verdict)| (element, Some(verdict))));
    script.text
}

fn own_rules(script: &mut Script<'_>, settings: &Settings, node: &NodeFacts) {
    let (mark, masquerade) = (node.masquerade_mark, node.masquerade());
    for reject in REJECTIONS {
        script.rule(REJECT_CHAIN, reject);
    }
    script.rule(
        "masquerading",
        format_args!("mark and {mark:#x} != 0 mark set mark xor {mark:#x} masquerade fully-random"),
    );
    let hairpin =
        "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random";
    script.rule("masquerading", hairpin);
    if let Some((own, all)) = settings.pod_masquerade {
        script.rule("masquerading", format_args!("ip saddr {own} ip daddr != {all} masquerade fully-random"));
    }
    // Unknown ports of known cluster IPs are refused at once instead of timing out.
    for reject in REJECTIONS {
        script.rule("cluster-ips-check", format_args!("ip daddr @cluster-ips {reject}"));
    }
    if !settings.service_networks.is_empty() {
        let networks = join(settings.service_networks.iter());
        script.rule("cluster-ips-check", format_args!("ip daddr {{ {networks} }} drop"));
    }
    script.rule("service-endpoints-check", format_args!("{DESTINATION} vmap @no-endpoint-services"));
    script.rule("firewall-check", format_args!("{DESTINATION} vmap @firewall-ips"));
    if settings.masquerade_all {
        script.rule("services", format_args!("ip daddr @cluster-ips {masquerade}"));
    } else if let Some(pods) = node.pod_network {
        // A machine outside of the cluster may use any node as the gateway to cluster IPs.
        script.rule("services", format_args!("ip daddr @cluster-ips ip saddr != {pods} {masquerade}"));
    }
    script.rule("services", format_args!("{DESTINATION} vmap @service-ips"));
    let (accepts, checks) = match &settings.node_port_addresses {
        NodePortAddresses::All => ("fib daddr type local ip daddr != 127.0.0.0/8", "ip daddr != 127.0.0.0/8"),
        NodePortAddresses::Some(addresses) => {
            script.line("add", "set", "nodeport-ips { type ipv4_addr ; }");
            if !addresses.is_empty() {
                script.line("add", "element", format_args!("nodeport-ips {{ {} }}", join(addresses.iter())));
            }
            ("ip daddr @nodeport-ips", "ip daddr @nodeport-ips")
        }
    };
    script.rule("services", format_args!("{accepts} meta l4proto . th dport vmap @service-nodeports"));
    script
        .rule("nodeport-endpoints-check", format_args!("{checks} meta l4proto . th dport vmap @no-endpoint-nodeports"));
}

/// Chains that choose among the endpoints in the shared maps, one per protocol and number of endpoints.
fn shared_chains(script: &mut Script<'_>) {
    for protocol in Protocol::ALL {
        for count in 1..=SHARED_ENDPOINTS_MAX {
            let chain = shared_chain(protocol, count);
            script.line("add", "chain", &chain);
            let target = |number: u8| format!("dnat ip addr . port to {DESTINATION} map @endpoint-{number}");
            let targets: Vec<String> = (0..count).map(target).collect();
            for rule in one_of(&targets) {
                script.rule(&chain, format_args!("meta l4proto {} {rule}", protocol.name()));
            }
        }
    }
}

/// The transaction that removes the table, if there is one.
#[must_use]
pub fn remove(table: &Table) -> String {
    let mut script = Script { table, text: String::new() };
    remove_into(&mut script);
    script.text
}

fn remove_into(script: &mut Script<'_>) {
    // Deleting a table that does not exist is an error; adding one that does is not.
    script.line("add", "table", "");
    script.line("delete", "table", "");
}

/// The transaction of a difference.
#[must_use]
pub fn update(table: &Table, steps: &Difference) -> String {
    let mut script = Script { table, text: String::new() };
    for name in &steps.new_chains {
        script.line("add", "chain", name);
    }
    // Rules that use a removed set are deleted before the set. New chains may be stale ones that were not deleted yet.
    for (name, _) in &steps.changed_chains {
        script.line("flush", "chain", name);
    }
    script.elements("delete", steps.removed_elements.iter().map(|it| (it, None)));
    for name in &steps.stale_chains {
        script.line("flush", "chain", name);
    }
    for name in &steps.removed_sets {
        script.line("delete", "set", name);
    }
    for (name, seconds) in &steps.added_sets {
        script.set(name, *seconds);
    }
    for (name, chain) in &steps.changed_chains {
        script.rules(name, chain);
    }
    script.elements("add", steps.added_elements.iter().map(|(element, verdict)| (element, Some(verdict))));
    script.text
}

/// The transaction that deletes stale chains. It is a later one: kernels before 6.2 notice only after a moment that a deleted element
/// no longer uses its chain.
#[must_use]
pub fn delete_chains<'a>(table: &Table, names: impl Iterator<Item = &'a Name>) -> String {
    let mut script = Script { table, text: String::new() };
    for name in names {
        script.line("delete", "chain", name);
    }
    script.text
}

/// The arguments of `nft` that fail if the table or its chain `services` is missing. Nothing is changed and no element is read.
#[must_use]
pub fn existence_arguments(table: &Table) -> [String; 6] {
    ["-c", "flush", "chain", "ip", &table.0, "services"].map(ToOwned::to_owned)
}

/// The arguments of `nft` that list the chain through which all traffic to Services passes, with handles. With thousands of
/// Services this takes a part of a second, because `nft` reads all elements first.
#[must_use]
pub fn list_arguments(table: &Table) -> [String; 6] {
    ["-a", "list", "chain", "ip", &table.0, "services"].map(ToOwned::to_owned)
}

#[cfg(test)]
pub(crate) mod tests;
