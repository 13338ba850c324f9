//! Services' endpoints, ingresses and their classes, network policies, addresses.

use api::json::Value;

use super::Description::{Field, Text};
use super::{AGE, NAME, PLAIN, Printer, age, joined, name, or, or_none, selector_text, text};

/// At most this many items are shown in a cell.
const SHOWN_MAX: usize = 3;

/// The first items, and how many more there are.
fn some_of(items: &[String]) -> String {
    let shown: Vec<&str> = items.iter().take(SHOWN_MAX).map(String::as_str).collect();
    match items.len().saturating_sub(shown.len()) {
        _ if items.is_empty() => "<unset>".to_owned(),
        0 => shown.join(","),
        more => format!("{} + {more} more...", shown.join(",")),
    }
}

pub(crate) const ENDPOINTS: Printer = Printer {
    columns: &[NAME, text("Endpoints", Field("io.k8s.api.core.v1.Endpoints", "subsets")), AGE],
    cells: |it, now| {
        let subsets = it.list("subsets");
        let mut all = Vec::new();
        for subset in subsets {
            let ports = subset.list("ports");
            let addresses = subset.list("addresses").iter().map(|it| it.text("ip"));
            if ports.is_empty() {
                all.extend(addresses.map(ToOwned::to_owned));
                continue;
            }
            for port in ports {
                let port = port.int("port");
                let host = |ip: &str| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
                all.extend(addresses.clone().map(host));
            }
        }
        let shown = match (subsets.is_empty(), all.is_empty()) {
            (true, _) => "<none>".to_owned(),
            (false, true) => String::new(),
            _ => some_of(&all),
        };
        vec![name(it), shown.into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const ENDPOINT_SLICES: Printer = Printer {
    columns: &[
        NAME,
        text("AddressType", Field("io.k8s.api.discovery.v1.EndpointSlice", "addressType")),
        text("Ports", Field("io.k8s.api.discovery.v1.EndpointSlice", "ports")),
        text("Endpoints", Field("io.k8s.api.discovery.v1.EndpointSlice", "endpoints")),
        AGE,
    ],
    cells: |it, now| {
        let port = |port: &Value| match port.get("port").and_then(Value::as_i64) {
            Some(number) => number.to_string(),
            None => port.str_at(&["name"]).unwrap_or("*").to_owned(),
        };
        let ports: Vec<String> = it.list("ports").iter().map(port).collect();
        let addresses = it.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
        let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
        vec![name(it), or(it, &["addressType"], ""), some_of(&ports).into(), some_of(&addresses).into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const INGRESSES: Printer = Printer {
    columns: &[
        NAME,
        text("Class", Text("The name of the IngressClass resource that should be used for additional configuration")),
        text("Hosts", Text("Hosts that incoming requests are matched against before the ingress rule")),
        text("Address", Text("Address is a list containing ingress points for the load-balancer")),
        text("Ports", Text("Ports of TLS configurations that open")),
        AGE,
    ],
    cells: |it, now| {
        let class = match it.str_at(&["spec", "ingressClassName"]) {
            Some(class) => class.into(),
            None => "<none>".into(),
        };
        let ports = if it.list_at(&["spec", "tls"]).is_empty() { "80" } else { "80, 443" };
        let mut addresses: Vec<&str> = it
            .list_at(&["status", "loadBalancer", "ingress"])
            .iter()
            .filter_map(|it| {
                let part = |field| it.str_at(&[field]).filter(|text| !text.is_empty());
                part("ip").or_else(|| part("hostname"))
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        vec![
            name(it),
            class,
            hosts(it.list_at(&["spec", "rules"])).into(),
            addresses.join(",").into(),
            ports.into(),
            age(it, now),
        ]
    },
    ..PLAIN
};

/// The first hosts; how many more is counted by rules, as Kubernetes does it.
fn hosts(rules: &[Value]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN_MAX;
        let host = rule.text("host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len().saturating_sub(SHOWN_MAX)),
    }
}

pub(crate) const INGRESS_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        text("Controller", Text("Controller that is responsible for handling this class")),
        text("Parameters", Text("A reference to a resource with additional parameters")),
        AGE,
    ],
    cells: |it, now| {
        let default = it.at(&["metadata", "annotations", "ingressclass.kubernetes.io/is-default-class"]);
        let mut shown = it.text_at(&["metadata", "name"]).to_owned();
        if default.and_then(Value::as_str) == Some("true") {
            shown.push_str(" (default)");
        }
        let parameters = it.at(&["spec", "parameters"]).filter(|it| !it.is_null()).map(|it| {
            let text = |field| it.text(field);
            let group = it.str_at(&["apiGroup"]).map(|group| format!(".{group}")).unwrap_or_default();
            format!("{}{group}/{}", text("kind"), text("name"))
        });
        let parameters = parameters.unwrap_or_else(|| "<none>".to_owned());
        vec![shown.into(), or(it, &["spec", "controller"], ""), parameters.into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const POLICIES: Printer = Printer {
    columns: &[NAME, text("Pod-Selector", Field("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector")), AGE],
    cells: |it, now| vec![name(it), selector_text(it.at(&["spec", "podSelector"])).into(), age(it, now)],
    ..PLAIN
};

pub(crate) const SERVICE_RANGES: Printer = Printer {
    columns: &[NAME, text("CIDRs", Field("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs")), AGE],
    cells: |it, now| {
        let ranges: Vec<&str> = it.list_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
        vec![name(it), ranges.join(",").into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const ADDRESSES: Printer = Printer {
    columns: &[NAME, text("ParentRef", Field("io.k8s.api.networking.v1.IPAddressSpec", "parentRef")), AGE],
    cells: |it, now| {
        let parent = it.at(&["spec", "parentRef"]).filter(|it| !it.is_null()).map(|parent| {
            let text = |field| parent.text(field);
            let group = if text("group").is_empty() { String::new() } else { format!(".{}", text("group")) };
            let namespace =
                if text("namespace").is_empty() { String::new() } else { format!("/{}", text("namespace")) };
            format!("{}{}{namespace}/{}", text("resource").to_lowercase(), group.to_lowercase(), text("name"))
        });
        vec![name(it), parent.unwrap_or_else(|| "<none>".to_owned()).into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const API_SERVICES: Printer = Printer {
    columns: &[
        NAME,
        text("Service", Text("The reference to the service that hosts this API endpoint.")),
        text("Available", Text("Whether this service is available.")),
        AGE,
    ],
    cells: |it, now| {
        let service = it.at(&["spec", "service"]).filter(|it| !it.is_null()).map(|service| {
            let text = |field| service.text(field);
            format!("{}/{}", text("namespace"), text("name"))
        });
        let conditions = it.list_at(&["status", "conditions"]);
        let condition = conditions.iter().find(|it| it.str_at(&["type"]) == Some("Available"));
        let available = condition.map_or_else(
            || "Unknown".to_owned(),
            |condition| {
                let text = |field| condition.text(field);
                match (text("status"), text("reason")) {
                    ("True", _) => "True".to_owned(),
                    (status, "") => status.to_owned(),
                    (status, reason) => format!("{status} ({reason})"),
                }
            },
        );
        vec![name(it), service.unwrap_or_else(|| "Local".to_owned()).into(), available.into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const POD_TEMPLATES: Printer = Printer {
    columns: &[
        NAME,
        text("Containers", Text("Names of each container in the template.")),
        text("Images", Text("Images referenced by each container in the template.")),
        text("Pod Labels", Text("The labels for the pod template.")),
    ],
    cells: |it, _| {
        let containers = it.list_at(&["template", "spec", "containers"]);
        vec![
            name(it),
            joined(containers, "name").into(),
            joined(containers, "image").into(),
            super::label_text(it.at(&["template", "metadata", "labels"])).into(),
        ]
    },
    ..PLAIN
};

pub(crate) const TRUST_BUNDLES: Printer = Printer {
    columns: &[NAME, text("SignerName", Field("io.k8s.api.certificates.v1.ClusterTrustBundleSpec", "signerName"))],
    cells: |it, _| vec![name(it), or_none(it, &["spec", "signerName"])],
    ..PLAIN
};
