//! Warnings about accepted but probably unintended values.
//!
//! Follows `pkg/api/pod/warnings.go`.

mod overlaps;

use std::collections::BTreeMap;

use api::field::Path;
use api::go_text::quote;
use api::json::Value;
use api::names;
use api::well_known::{
    ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD, LABEL_INSTANCE_TYPE,
    LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE,
};

use self::overlaps::{Paths, Ports};
use super::profiles;
use crate::core::addresses;
use crate::document::same;
use crate::seen::SeenKeys;
use crate::strategy::Context;

pub(super) fn pod(pod: &Value, old: Option<&Value>, _: &Context<'_>) -> Vec<String> {
    // People rarely change pods themselves.
    if old.is_some() {
        return Vec::new();
    }
    let mut warnings = super::profiles::warnings(pod);
    let complaints = names::dns1123_label(pod.field("metadata").text("name"));
    if !complaints.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
    warnings.extend(template(pod, &Path::ROOT));
    warnings
}

/// Warnings about a pod or a template at `at`.
pub(crate) fn template(template: &Value, at: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (metadata, spec) = (template.field("metadata"), template.field("spec"));
    let spec_at = at.child("spec");
    warn_labels(spec, &spec_at, &mut warnings);
    warn_annotations(metadata, at, &mut warnings);
    warn_volumes(spec, &spec_at, &mut warnings);
    warn_duplicates(spec, &spec_at, &mut warnings);
    let overhead = spec_at.child("overhead");
    for name in ["memory", "ephemeral-storage"] {
        warn_fraction(spec.field("overhead"), name, &overhead, &mut warnings);
    }
    warn_seccomp(metadata, spec, at, &mut warnings);
    warn_containers(template, at, &mut warnings);
    warn_ports(spec, &spec_at, &mut warnings);
    if spec.optional_int("terminationGracePeriodSeconds").is_some_and(|it| it < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec_at.child("terminationGracePeriodSeconds")
        ));
    }
    warn_affinity(spec, &spec_at, &mut warnings);
    let dns = spec_at.child("dnsConfig");
    let list = dns.child("nameservers");
    for (index, server) in spec.field("dnsConfig").texts("nameservers").enumerate() {
        warnings.extend(addresses::warn(server, &list.index(index)));
    }
    let list = spec_at.child("hostAliases");
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        warnings.extend(addresses::warn(alias.text("ip"), &list.index(index).child("ip")));
    }
    warnings
}

/// Returns the deprecation warning of a node label.
pub(crate) fn deprecated_label(key: &str) -> Option<String> {
    let replacement = match key {
        "failure-domain.beta.kubernetes.io/zone" => LABEL_TOPOLOGY_ZONE,
        "failure-domain.beta.kubernetes.io/region" => LABEL_TOPOLOGY_REGION,
        "beta.kubernetes.io/instance-type" => LABEL_INSTANCE_TYPE,
        "beta.kubernetes.io/os" => return Some("deprecated since v1.14; use \"kubernetes.io/os\" instead".to_owned()),
        "beta.kubernetes.io/arch" => {
            return Some("deprecated since v1.14; use \"kubernetes.io/arch\" instead".to_owned());
        }
        _ => return None,
    };
    Some(format!("deprecated since v1.17; use \"{replacement}\" instead"))
}

/// Warnings about a term of a node selector.
pub(crate) fn node_selector_term(term: &Value, checks_values: bool, at: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let list = at.child("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        let here = list.index(index);
        let key = requirement.text("key");
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {message}", here.child("key")));
        }
        if checks_values {
            let values = here.child("values");
            for (index, value) in requirement.texts("values").enumerate() {
                for complaint in names::label_value(value) {
                    warnings.push(format!("{}: {value} is invalid, {complaint}", values.index(index)));
                }
            }
        }
    }
    warnings
}

fn warn_labels(spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let selector = at.child("nodeSelector");
    for key in spec.map("nodeSelector").keys() {
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {message}", selector.key(key)));
        }
    }
    let affinity = spec.field("affinity").field("nodeAffinity");
    let here = at.child("affinity");
    let here = here.child("nodeAffinity");
    let required = here.child("requiredDuringSchedulingIgnoredDuringExecution");
    let list = required.child("nodeSelectorTerms");
    let terms = affinity.field("requiredDuringSchedulingIgnoredDuringExecution").list("nodeSelectorTerms");
    for (index, term) in terms.iter().enumerate() {
        warnings.extend(node_selector_term(term, false, &list.index(index)));
    }
    let list = here.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        let here = list.index(index);
        warnings.extend(node_selector_term(term.field("preference"), true, &here.child("preference")));
    }
    let list = at.child("topologySpreadConstraints");
    for (index, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let here = list.index(index);
        let key = constraint.text("topologyKey");
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {message}", here.child("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            warnings.push(format!("{}: a null labelSelector results in matching no pod", here.child("labelSelector")));
        }
    }
}

fn warn_annotations(metadata: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let metadata_at = at.child("metadata");
    let here = metadata_at.child("annotations");
    for (key, message) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ] {
        if metadata.map("annotations").contains_key(key) {
            warnings.push(format!("{}: {message}", here.key(key)));
        }
    }
}

fn warn_volumes(spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    const DEPRECATED: &[(&str, &str, &str)] = &[
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let list = at.child("volumes");
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        for (_, shown, message) in DEPRECATED.iter().filter(|(kind, ..)| volume.has(kind)) {
            warnings.push(format!("{}: {message}", list.index(index).child(shown)));
        }
    }
    for volume in spec.list("volumes") {
        warn_overlaps(volume, warnings);
    }
}

/// Files of a volume that hide each other.
fn warn_overlaps(volume: &Value, warnings: &mut Vec<String>) {
    let name = || quote(volume.text("name"));
    for (kind, word, key) in
        [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", "")]
    {
        let source = volume.field(kind);
        let what = || if key.is_empty() { word.to_owned() } else { format!("{word} {}", quote(source.text(key))) };
        let mut paths = Paths::default();
        for item in source.list("items") {
            for collision in paths.add(item.text("path"), "") {
                warnings.push(format!("volume {} ({}): overlapping paths: {collision}", name(), what()));
            }
        }
    }
    let mut paths = Paths::default();
    for source in volume.field("projected").list("sources") {
        if source.as_object().is_some_and(|fields| fields.values().all(Value::is_null)) {
            warnings.push(format!("volume {} (Projected) has no sources provided", name()));
            continue;
        }
        for (path, from) in projected_paths(source) {
            for collision in paths.add(&path, &from) {
                warnings.push(format!("volume {} (Projected): overlapping paths: {collision}", name()));
            }
        }
    }
}

fn projected_paths(source: &Value) -> Vec<(String, String)> {
    let items = |kind: &str, from: String| -> Vec<(String, String)> {
        source.field(kind).list("items").iter().map(|it| (it.text("path").to_owned(), from.clone())).collect()
    };
    if source.field("configMap").has("items") {
        return items("configMap", format!("ConfigMap {}", quote(source.field("configMap").text("name"))));
    }
    if source.field("secret").has("items") {
        return items("secret", format!("Secret {}", quote(source.field("secret").text("name"))));
    }
    if source.field("downwardAPI").has("items") {
        return items("downwardAPI", "DownwardAPI".to_owned());
    }
    if let Some(token) = source.optional("serviceAccountToken") {
        return vec![(token.text("path").to_owned(), "ServiceAccountToken".to_owned())];
    }
    if let Some(bundle) = source.optional("clusterTrustBundle") {
        let name = bundle.optional_text("name").unwrap_or_else(|| bundle.text("signerName"));
        return vec![(bundle.text("path").to_owned(), format!("ClusterTrustBundle {}", quote(name)))];
    }
    let certificate = source.field("podCertificate");
    let named = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let set = named.into_iter().filter(|(name, _)| !certificate.text(name).is_empty());
    set.map(|(name, from)| (certificate.text(name).to_owned(), from.to_owned())).collect()
}

fn warn_duplicates(spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    for (list, name, word) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let here = at.child(list);
        let mut seen = SeenKeys::default();
        for (index, item) in spec.list(list).iter().enumerate() {
            let value = item.text(name);
            if seen.contains(&value) {
                warnings.push(format!("{}: duplicate {word} {}", here.index(index).child(name), quote(value)));
            } else {
                seen.insert(value);
            }
        }
    }
    let here = at.child("imagePullSecrets");
    for (index, item) in spec.list("imagePullSecrets").iter().enumerate() {
        if item.text("name").is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", here.index(index).child("name")));
        }
    }
}

fn warn_fraction(amounts: &Value, name: &str, at: &Path<'_>, warnings: &mut Vec<String>) {
    if let Some(amount) = amounts.quantity(name).filter(|it| it.milli_value() % 1000 != 0) {
        let text = quote(&amount.to_string());
        warnings.push(format!("{}: fractional byte value {text} is invalid, must be an integer", at.key(name)));
    }
}

/// The annotation of a pod that its field replaced.
fn warn_seccomp(metadata: &Value, spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let key = ANNOTATION_SECCOMP_POD;
    let has_field = spec.field("securityContext").has("seccompProfile");
    if !has_field && metadata.map("annotations").contains_key(key) {
        let at = at.child("metadata");
        let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warnings.push(format!("{}: {text}", at.child("annotations").key(key)));
    }
}

/// Annotations of a container that fields replaced. Pods are warned of AppArmor where their annotations are copied.
fn warn_profiles(template: &Value, container: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let annotations = template.field("metadata").map("annotations");
    if annotations.is_empty() {
        return;
    }
    let metadata_at = at.child("metadata");
    let here = metadata_at.child("annotations");
    let context = container.field("securityContext");
    let key = format!("{}{}", ANNOTATION_SECCOMP_CONTAINER_PREFIX, container.text("name"));
    if !context.has("seccompProfile") && annotations.contains_key(&key) {
        let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warnings.push(format!("{}: {text}", here.key(&key)));
    }
    let key = format!("{}{}", ANNOTATION_APP_ARMOR_PREFIX, container.text("name"));
    let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { return };
    let of_pod = template.field("spec").field("securityContext").optional("appArmorProfile");
    let is_same = of_pod.is_some_and(|of_pod| profiles::profile_of(annotation).is_some_and(|it| same(&it, of_pod)));
    let is_template = !at.to_string().is_empty();
    if is_template && !context.has("appArmorProfile") && !is_same {
        let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        warnings.push(format!("{}: {text}", here.key(&key)));
    }
}

fn warn_containers(template: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let spec_at = at.child("spec");
    for (list, index, container) in super::containers(template.field("spec")) {
        warn_profiles(template, container, at, warnings);
        let list = spec_at.child(list);
        let here = list.index(index);
        let resources = here.child("resources");
        for name in ["memory", "ephemeral-storage"] {
            for kind in ["limits", "requests"] {
                warn_fraction(container.field("resources").field(kind), name, &resources.child(kind), warnings);
            }
        }
        let variables = here.child("env");
        let mut seen = SeenKeys::default();
        for (index, variable) in container.list("env").iter().enumerate() {
            let name = variable.text("name");
            if !seen.contains(&name) {
                seen.insert(name);
                continue;
            }
            let reference = format!("$({name})");
            let value = variable.text("value");
            if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
                warnings.push(format!(
                    "{}: hides previous definition of {}, which may be dropped when using apply",
                    variables.index(index),
                    quote(name)
                ));
            }
        }
    }
}

fn warn_ports(spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    let mut ports = Ports::default();
    let mut places: Vec<((&str, usize, usize), &Value)> = Vec::new();
    // Written only in warnings: most pods get none.
    let path = |(list, container, port): (&str, usize, usize)| {
        let list = at.child(list);
        let here = list.index(container);
        let here = here.child("ports");
        here.index(port).to_string()
    };
    for (list, container_index, container) in super::containers(spec) {
        for (index, port) in container.list("ports").iter().enumerate() {
            let place = (list, container_index, index);
            let (address, host) = (port.text("hostIP"), port.int("hostPort"));
            if !address.is_empty() && host == 0 {
                warnings.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{} HostPort:{host} ContainerPort:{} Protocol:{} HostIP:{address}}}",
                    path(place),
                    port.text("name"),
                    port.int("containerPort"),
                    port.text("protocol"),
                ));
            }
            for (other, word) in ports.add(port) {
                if let Some((other, _)) = places.get(other) {
                    warnings.push(format!("{}: {word} with {}", path(place), path(*other)));
                }
            }
            places.push((place, port));
        }
    }
    let mut names: BTreeMap<&str, (&str, usize, usize)> = BTreeMap::new();
    for (place, port) in &places {
        let name = port.text("name");
        if name.is_empty() {
            continue;
        }
        match names.get(name) {
            Some(other) => warnings.push(format!(
                "{}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                path(*place),
                quote(name),
                other = path(*other),
            )),
            None => drop(names.insert(name, *place)),
        }
    }
}

fn warn_affinity(spec: &Value, at: &Path<'_>, warnings: &mut Vec<String>) {
    const MESSAGE: &str = "a null labelSelector results in matching no pod";
    let here = at.child("affinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.field("affinity").field(kind);
        let here = here.child(kind);
        let list = here.child("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if !term.has("labelSelector") {
                warnings.push(format!("{}: {MESSAGE}", list.index(index).child("labelSelector")));
            }
        }
        let list = here.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if !term.field("podAffinityTerm").has("labelSelector") {
                let here = list.index(index);
                let here = here.child("podAffinityTerm");
                warnings.push(format!("{}: {MESSAGE}", here.child("labelSelector")));
            }
        }
    }
}
