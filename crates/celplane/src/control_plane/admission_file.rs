//! `--admission-control-config-file`: the configuration of admission plugins, an `AdmissionConfiguration`.
//!
//! A plugin is configured in place or in a separate file, whose path is relative to this one. An unknown name,
//! or a plugin without configuration, is an error: an ignored policy must not go unnoticed.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::json::Value;
use registry::pod_security;

const API_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
/// Size limit of a configuration file.
const BYTES_MAX: u64 = 1 << 20;

/// The configuration of the plugins that take one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PluginConfiguration {
    pub(super) pod_security: pod_security::Configuration,
}

/// Reads the file and those that it names.
pub(super) fn read(path: &Path) -> Result<PluginConfiguration> {
    let document = read_document(path)?;
    interpret(&document, path.parent().unwrap_or(Path::new(".")))
        .with_context(|| format!("cannot use `{}`", path.display()))
}

fn read_document(path: &Path) -> Result<Value> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read `{shown}`"))?.len();
    if size > BYTES_MAX {
        bail!("`{shown}` has {size} bytes, more than the limit of {BYTES_MAX}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
    let (documents, error) = api::yaml::parse_manifests(&text);
    if let Some(error) = error {
        return Err(error).with_context(|| format!("cannot parse `{shown}`"));
    }
    let [document] = documents.as_slice() else {
        bail!("`{shown}` must contain one document, not {}", documents.len())
    };
    Ok(document.value.clone())
}

fn interpret(document: &Value, directory: &Path) -> Result<PluginConfiguration> {
    let text = |value: &Value, field: &str| value.text(field).to_owned();
    let (api_version, kind) = (text(document, "apiVersion"), text(document, "kind"));
    if !API_VERSIONS.contains(&api_version.as_str()) || kind != "AdmissionConfiguration" {
        bail!("expected AdmissionConfiguration of {}, got `{kind}` of `{api_version}`", API_VERSIONS[0]);
    }
    check_fields(document, &["apiVersion", "kind", "plugins"])?;
    let mut found = PluginConfiguration::default();
    let mut names = Vec::new();
    for plugin in document.get("plugins").and_then(Value::as_array).unwrap_or_default() {
        check_fields(plugin, &["name", "path", "configuration"])?;
        let (name, path) = (text(plugin, "name"), text(plugin, "path"));
        if names.contains(&name) {
            bail!("admission plugin `{name}` is configured twice");
        }
        let configuration = match plugin.get("configuration").filter(|it| !it.is_null()) {
            Some(configuration) => Some(configuration.clone()),
            None if path.is_empty() => None,
            None => Some(read_document(&directory.join(&path))?),
        };
        match (name.as_str(), configuration) {
            ("PodSecurity", Some(configuration)) => {
                let read = pod_security::Configuration::read(&configuration).map_err(anyhow::Error::msg);
                found.pod_security = read.context("invalid configuration of admission plugin `PodSecurity`")?;
            }
            ("PodSecurity", None) => {}
            _ => {
                apiserver::admission::check_plugin_names(&[], std::slice::from_ref(&name))?;
                bail!("admission plugin `{name}` takes no configuration");
            }
        }
        names.push(name);
    }
    Ok(found)
}

fn check_fields(value: &Value, known: &[&str]) -> Result<()> {
    let Some(fields) = value.as_object() else { bail!("expected an object, got `{value}`") };
    match fields.keys().find(|key| !known.contains(key)) {
        Some(key) => bail!("unknown field `{key}`; known are {}", known.join(", ")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A file that is removed at the end.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("celplane-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const HEADER: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
    const POD_SECURITY: &str = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline}\n";

    fn error(name: &str, text: &str) -> String {
        let file = File::new(name, text);
        format!("{:#}", read(&file.0).unwrap_err()).replace(&*file.0.to_string_lossy(), "FILE")
    }

    #[test]
    fn plugin_is_configured_in_place_or_by_a_relative_path() {
        let own = File::new("own.yaml", POD_SECURITY);
        let name = own.0.file_name().unwrap().to_string_lossy().into_owned();
        let by_path = File::new("by-path.yaml", &format!("{HEADER}plugins: [{{name: PodSecurity, path: {name}}}]\n"));
        let inner = POD_SECURITY.replace('\n', "\n    ");
        let text = format!("{HEADER}plugins:\n- name: PodSecurity\n  configuration:\n    {inner}\n");
        let in_place = File::new("in-place.yaml", &text);
        let found = read(&by_path.0).unwrap();
        assert_eq!(found.pod_security.defaults.enforce.to_string(), "baseline:latest");
        assert_eq!(read(&in_place.0).unwrap(), found);
    }

    #[test]
    fn wrong_files_are_rejected() {
        assert_eq!(
            error("unknown", &format!("{HEADER}plugins: [{{name: PodSecurityy}}]")),
            "cannot use `FILE`: unknown admission plugin `PodSecurityy`"
        );
        assert_eq!(
            error("other", &format!("{HEADER}plugins: [{{name: LimitRanger}}]")),
            "cannot use `FILE`: admission plugin `LimitRanger` takes no configuration"
        );
        assert_eq!(
            error("twice", &format!("{HEADER}plugins: [{{name: PodSecurity}}, {{name: PodSecurity}}]")),
            "cannot use `FILE`: admission plugin `PodSecurity` is configured twice"
        );
        assert_eq!(
            error("field", &format!("{HEADER}plugin: []")),
            "cannot use `FILE`: unknown field `plugin`; known are apiVersion, kind, plugins"
        );
        assert_eq!(
            error("kind", "apiVersion: v1\nkind: Pod"),
            "cannot use `FILE`: expected AdmissionConfiguration of apiserver.config.k8s.io/v1, got `Pod` of `v1`"
        );
        let level = format!(
            "{HEADER}plugins: [{{name: PodSecurity, configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {{enforce: strict}}}}}}]"
        );
        assert_eq!(
            error("level", &level),
            "cannot use `FILE`: invalid configuration of admission plugin `PodSecurity`: defaults.enforce: Invalid value: \"strict\": must be one of privileged, baseline, restricted"
        );
    }
}
