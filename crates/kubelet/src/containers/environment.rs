//! The environment of a container: variables of services, `envFrom`, `env`, and `$(NAME)` in values, commands and arguments.
//!
//! Follows `makeEnvironmentVariables` in `kubelet_pods.go` of Kubernetes.

use std::collections::BTreeMap;

use api::core::v1::{Pod, Service};
use api::json::Value;

use crate::static_pods;

use super::manifest::{self, amount};
use super::sources::{Holder, Sources};
use super::volumes::MountedVolumes;

/// Largest file of variables, in bytes.
const ENV_FILE_BYTES_MAX: u64 = 1 << 20;

/// Facts of the node and the pod's sandbox that variables can name.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) node: String,
    pub(super) host_ip: String,
    pub(super) pod_ips: Vec<String>,
    /// Capacity of the node, for limits that a container does not set.
    pub(super) cpu_milli: i64,
    pub(super) memory: i64,
    pub(super) ephemeral_storage: i64,
}

/// Variables in the order in which they are set.
#[derive(Debug, Default)]
pub(super) struct Variables {
    entries: Vec<(String, String)>,
}

impl Variables {
    fn set(&mut self, name: &str, value: String) {
        match self.entries.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.entries.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A text with `$(NAME)` replaced; unknown names stay, and `$$` is a dollar sign.
    pub(super) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name).map(ToOwned::to_owned))
    }

    /// Like [`Variables::expand`], but an unknown name is a failure.
    pub(super) fn expand_all(&self, text: &str) -> Result<String, String> {
        let mut missing = Vec::new();
        let expanded = expand(text, |name| {
            let known = self.get(name);
            if known.is_none() {
                missing.push(name.to_owned());
            }
            known.map(ToOwned::to_owned)
        });
        if missing.is_empty() { Ok(expanded) } else { Err(format!("missing value for {}", missing.join(", "))) }
    }

    pub(super) fn into_entries(self) -> Vec<(String, String)> {
        self.entries
    }
}

fn expand(text: &str, mut lookup: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, following)) = after.strip_prefix('(').and_then(|it| it.split_once(')')) {
            out.push_str(&lookup(name).unwrap_or_else(|| format!("$({name})")));
            rest = following;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The variables of a container.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub(super) async fn variables(
    sources: &Sources,
    api_server: Option<&(String, u16)>,
    pod: &Pod,
    manifest: &Value,
    container: &Value,
    facts: &Facts,
    mounted: &MountedVolumes,
) -> Result<Variables, String> {
    let namespace = pod.metadata.namespace.as_str();
    let mut variables = Variables::default();
    let links = manifest.bool_at(&["spec", "enableServiceLinks"]).unwrap_or(true);
    let mut of_services = BTreeMap::new();
    for service in sources.services.store().list() {
        let is_master = service.metadata.namespace == "default" && service.metadata.name == "kubernetes";
        if is_master || links && service.metadata.namespace == namespace {
            service_variables(&service, api_server.filter(|_| is_master), &mut of_services);
        }
    }
    for source in container.list("envFrom") {
        add_all(sources, namespace, source, &mut variables).await?;
    }
    for entry in container.list("env") {
        let name = entry.text("name");
        let value = match entry.get("valueFrom") {
            None => Some(expand(entry.text("value"), |wanted| {
                variables.get(wanted).map(ToOwned::to_owned).or_else(|| of_services.get(wanted).cloned())
            })),
            Some(from) if from.get("fileKeyRef").is_some() => of_file(mounted, from)?,
            Some(from) => value_from(sources, pod, manifest, container, facts, from).await?,
        };
        if let Some(value) = value {
            variables.set(name, value);
        }
    }
    for (name, value) in of_services {
        if variables.get(&name).is_none() {
            variables.set(&name, value);
        }
    }
    Ok(variables)
}

async fn add_all(sources: &Sources, namespace: &str, source: &Value, variables: &mut Variables) -> Result<(), String> {
    let prefix = source.text("prefix");
    for (field, holder) in [("configMapRef", Holder::ConfigMap), ("secretRef", Holder::Secret)] {
        let Some(reference) = source.get(field) else { continue };
        let name = reference.text("name");
        let data = sources.data(holder, namespace, name).await.map_err(|error| error.to_string())?;
        match data {
            Some(data) => {
                for (key, value) in data {
                    variables.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
                }
            }
            None if reference.flag("optional") => {}
            None => return Err(format!("{} \"{name}\" not found", holder.lower())),
        }
    }
    Ok(())
}

/// The value of a `fileKeyRef`: a variable in a file that an earlier container left in a volume.
fn of_file(mounted: &MountedVolumes, from: &Value) -> Result<Option<String>, String> {
    let field = |name: &str| from.text_at(&["fileKeyRef", name]);
    let (volume, key, path) = (field("volumeName"), field("key"), field("path"));
    let root =
        mounted.path(volume).ok_or_else(|| format!("cannot find the volume \"{volume}\" referenced by FileKeyRef"))?;
    let bytes = mounted.read(volume, path, ENV_FILE_BYTES_MAX).map_err(|_| "couldn't parse env file".to_owned())?;
    let content = String::from_utf8(bytes).map_err(|_| "couldn't parse env file".to_owned())?;
    match env_file(&content, key).ok_or("couldn't parse env file")? {
        value if !value.is_empty() => Ok(Some(value)),
        _ if from.flag_at(&["fileKeyRef", "optional"]) => Ok(None),
        _ => {
            let shown = root.join(path).display().to_string();
            Err(format!("environment variable key \"{key}\" not found in file \"{shown}\""))
        }
    }
}

/// The value of a variable in a file of lines `NAME='value'`; empty if it is not there, nothing if the file is
/// malformed. Follows `ParseEnv` of Kubernetes' kubelet, which reads no further than the variable.
fn env_file(content: &str, key: &str) -> Option<String> {
    let mut rest = content;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            rest = after;
            continue;
        }
        let (name, value) = line.split_once('=')?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return None;
        }
        // A shell takes `A= 'b'` for an empty value.
        if value.starts_with([' ', '\t']) {
            if name == key {
                return Some(String::new());
            }
            rest = after;
            continue;
        }
        // The value may continue in the next lines.
        let (_, quoted) = rest.split_once('=')?;
        let (value, after) = quoted.strip_prefix('\'')?.split_once('\'')?;
        let (tail, after) = after.split_once('\n').unwrap_or((after, ""));
        let tail = tail.trim_start_matches([' ', '\t']);
        if !tail.is_empty() && !tail.starts_with('#') {
            return None;
        }
        if name == key {
            return Some(value.to_owned());
        }
        rest = after;
    }
    Some(String::new())
}

async fn value_from(
    sources: &Sources,
    pod: &Pod,
    manifest: &Value,
    container: &Value,
    facts: &Facts,
    from: &Value,
) -> Result<Option<String>, String> {
    let namespace = pod.metadata.namespace.as_str();
    if let Some(reference) = from.get("fieldRef") {
        return field(pod, manifest, reference.text("fieldPath"), facts).map(Some);
    }
    if let Some(reference) = from.get("resourceFieldRef") {
        let named = reference.str_at(&["containerName"]).and_then(|name| manifest::find(manifest, name));
        let container = named.map_or(container, |(_, it)| it);
        return resource(container, reference, facts).map(Some);
    }
    for (name, holder) in [("configMapKeyRef", Holder::ConfigMap), ("secretKeyRef", Holder::Secret)] {
        let Some(reference) = from.get(name) else { continue };
        let (object, key) = (reference.text("name"), reference.text("key"));
        let is_optional = reference.flag("optional");
        let data = sources.data(holder, namespace, object).await.map_err(|error| error.to_string())?;
        let Some(data) = data else {
            return if is_optional { Ok(None) } else { Err(format!("{} \"{object}\" not found", holder.lower())) };
        };
        return match data.get(key) {
            Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            None if is_optional => Ok(None),
            None => Err(format!("couldn't find key {key} in {} {namespace}/{object}", holder.kind())),
        };
    }
    Err("unsupported source of an environment variable".to_owned())
}

/// The value of a `fieldRef`.
pub(super) fn field(pod: &Pod, manifest: &Value, path: &str, facts: &Facts) -> Result<String, String> {
    let keyed = |prefix: &str| path.strip_prefix(prefix).and_then(|it| it.strip_suffix("']"));
    if let Some(key) = keyed("metadata.annotations['") {
        return Ok(pod.metadata.annotations.get(key).map(ToString::to_string).unwrap_or_default());
    }
    if let Some(key) = keyed("metadata.labels['") {
        return Ok(pod.metadata.labels.get(key).map(ToString::to_string).unwrap_or_default());
    }
    let quoted = |map: &[(String, String)]| {
        let lines = map.iter().map(|(key, value)| format!("{key}={}", api::json::to_string(&value.as_str().into())));
        lines.collect::<Vec<_>>().join("\n")
    };
    let pairs = |field: &str| {
        let map = manifest.object_at(&["metadata", field]);
        let pairs = map.into_iter().flat_map(|map| map.iter());
        let mut pairs: Vec<(String, String)> =
            pairs.map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned())).collect();
        pairs.sort();
        pairs
    };
    Ok(match path {
        "metadata.name" => pod.metadata.name.to_string(),
        "metadata.namespace" => pod.metadata.namespace.to_string(),
        "metadata.uid" => pod.metadata.uid.to_string(),
        "metadata.labels" => quoted(&pairs("labels")),
        "metadata.annotations" => {
            let mut all = pairs("annotations");
            // The agent adds where and when it got the pod.
            let seen = pod.status.start_time.or(pod.metadata.creation_timestamp);
            if let Some(seen) = seen.filter(|_| !pod.metadata.annotations.contains_key(static_pods::SOURCE)) {
                all.push((static_pods::SEEN.to_owned(), seen.to_string()));
                all.push((static_pods::SOURCE.to_owned(), "api".to_owned()));
                all.sort();
            }
            quoted(&all)
        }
        "spec.nodeName" => facts.node.clone(),
        "spec.serviceAccountName" => manifest.text_at(&["spec", "serviceAccountName"]).to_owned(),
        "status.hostIP" | "status.hostIPs" => facts.host_ip.clone(),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// The value of a `resourceFieldRef`, rounded up to its divisor.
pub(super) fn resource(container: &Value, reference: &Value, facts: &Facts) -> Result<String, String> {
    let wanted = reference.text("resource");
    let (kind, name) = wanted.split_once('.').ok_or_else(|| format!("unsupported container resource : {wanted}"))?;
    let is_cpu = name == "cpu";
    let read = |quantity: api::Quantity| if is_cpu { quantity.milli_value() } else { quantity.value() };
    let given = amount(container, kind, name).map(read);
    let whole = match (kind, name) {
        ("limits", "cpu") => facts.cpu_milli,
        ("limits", "memory") => facts.memory,
        ("limits", "ephemeral-storage") => facts.ephemeral_storage,
        _ => 0,
    };
    let limit = amount(container, "limits", name).map(read).filter(|_| kind == "requests");
    let value = given.or(limit).unwrap_or(whole);
    let divisor = reference.str_at(&["divisor"]).filter(|it| *it != "0").and_then(|it| api::Quantity::parse(it).ok());
    let divisor = divisor.map_or(if is_cpu { 1000 } else { 1 }, read).max(1);
    let up = value.saturating_add(divisor).saturating_sub(1).checked_div(divisor).unwrap_or(0);
    Ok(up.to_string())
}

/// The variables that name a service. `instead` replaces its address.
fn service_variables(service: &Service, instead: Option<&(String, u16)>, variables: &mut BTreeMap<String, String>) {
    let spec = &service.spec;
    if matches!(spec.cluster_ip.as_str(), "" | "None") || spec.ports.is_empty() {
        return;
    }
    let name = service.metadata.name.to_uppercase().replace('-', "_");
    let host = instead.map_or_else(|| spec.cluster_ip.to_string(), |(host, _)| host.clone());
    let mut set = |key: String, value: String| {
        variables.insert(format!("{name}_{key}"), value);
    };
    set("SERVICE_HOST".to_owned(), host.clone());
    for (index, port) in spec.ports.iter().enumerate() {
        let number = instead.map_or_else(|| port.port.to_string(), |(_, port)| port.to_string());
        let protocol = if port.protocol.is_empty() { "TCP" } else { port.protocol.as_str() };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if index == 0 {
            set("SERVICE_PORT".to_owned(), number.clone());
            set("PORT".to_owned(), url.clone());
        }
        if !port.name.is_empty() {
            set(format!("SERVICE_PORT_{}", port.name.to_uppercase().replace('-', "_")), number.clone());
        }
        let prefix = format!("PORT_{}_{protocol}", port.port);
        set(prefix.clone(), url);
        set(format!("{prefix}_PROTO"), protocol.to_lowercase());
        set(format!("{prefix}_PORT"), number);
        set(format!("{prefix}_ADDR"), host.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut variables = Variables::default();
        variables.set("A", "1".to_owned());
        assert_eq!(variables.expand(text), expected);
    }

    #[test]
    fn references_are_expanded_as_upstream_does() {
        check("x$(A)y", "x1y");
        check("$$(A)", "$(A)");
        check("$(B)$", "$(B)$");
        check("$(A", "$(A");
        check("$A$$$$", "$A$$");
    }

    #[test]
    fn files_of_variables_are_parsed_strictly() {
        let file = "# note\n\n A='1'\nB='two\nlines' # more\nC= 'x'\nD=''\n";
        let value = |key: &str| env_file(file, key);
        assert_eq!(value("A").as_deref(), Some("1"));
        assert_eq!(value("B").as_deref(), Some("two\nlines"));
        assert_eq!(value("C").as_deref(), Some(""));
        assert_eq!(value("missing").as_deref(), Some(""));
        for bad in ["A=1", "A ='1'", "='1'", "A", "A='1", "A='1'x"] {
            assert_eq!(env_file(bad, "B"), None, "{bad}");
        }
    }

    #[test]
    fn resources_are_rounded_up() {
        let facts = Facts { cpu_milli: 4000, memory: 1 << 30, ..Facts::default() };
        let container = api::json!({"resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "10Mi"}}});
        let value = |name: &str, divisor: &str| {
            resource(&container, &api::json!({"resource": name, "divisor": divisor}), &facts).unwrap()
        };
        assert_eq!(value("limits.cpu", "0"), "2");
        assert_eq!(value("limits.cpu", "1m"), "1500");
        assert_eq!(value("requests.cpu", "1"), "2");
        assert_eq!(value("requests.memory", "1Mi"), "10");
        assert_eq!(value("limits.memory", "1"), (1_u64 << 30).to_string());
    }

    #[test]
    fn services_are_named_by_variables() {
        let service = api::json!({"metadata": {"name": "my-web", "namespace": "d"},
            "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "http", "port": 80}, {"name": "s-ctp", "port": 9, "protocol": "SCTP"}]}});
        let service: Service = api::json::from_value(&service).unwrap();
        let mut all = BTreeMap::new();
        service_variables(&service, None, &mut all);
        assert_eq!(all["MY_WEB_SERVICE_PORT_HTTP"], "80");
        assert_eq!(all["MY_WEB_PORT"], "tcp://10.0.0.9:80");
        assert_eq!(all["MY_WEB_PORT_9_SCTP_PROTO"], "sctp");
        let mut moved = BTreeMap::new();
        service_variables(&service, Some(&("192.0.2.1".to_owned(), 6443)), &mut moved);
        assert_eq!(moved["MY_WEB_SERVICE_HOST"], "192.0.2.1");
        assert_eq!(moved["MY_WEB_SERVICE_PORT"], "6443");
    }
}
