//! Container Device Interface: the changes to a container that a device stands for, read from files of drivers.
//!
//! containerd applies them by itself from version 2 on. For older versions the agent does: variables, mounts and device
//! nodes have fields in CRI. Hooks have none, so that a device with hooks is refused there.
//! Follows the CDI specification, version 0.8; files of `/var/run/cdi` precede those of `/etc/cdi`.

use std::path::{Path, PathBuf};

use api::json::Value;
use cri::messages as m;

/// Directories of descriptions, the one with precedence first.
pub(crate) const DIRECTORIES: [&str; 2] = ["/var/run/cdi", "/etc/cdi"];
/// Most files that are read, and most bytes of one.
const FILES_MAX: usize = 1000;
const BYTES_MAX: u64 = 1 << 20;

/// Changes to a container.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Edits {
    /// Variables, in order.
    pub(crate) envs: Vec<(String, String)>,
    pub(crate) mounts: Vec<m::Mount>,
    pub(crate) devices: Vec<m::Device>,
}

/// Whether a runtime leaves devices to its caller: containerd before version 2.
pub(crate) fn is_left_to_caller(runtime: &str, version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next().and_then(|it| it.parse::<u32>().ok());
    runtime == "containerd" && major.is_some_and(|major| major < 2)
}

/// The changes for devices, each named `vendor.com/class=name`.
///
/// # Errors
/// A device that no file describes, or whose changes cannot be made.
pub(crate) fn edits(directories: &[PathBuf], names: &[String]) -> Result<Edits, String> {
    let documents: Vec<Value> = directories.iter().flat_map(|it| read_all(it)).collect();
    let mut edits = Edits::default();
    let mut general: Vec<&str> = Vec::new();
    for name in names {
        let Some((kind, device)) = name.split_once('=') else { return Err(format!("\"{name}\" is no CDI device")) };
        let of_kind = documents.iter().filter(|it| it.text("kind") == kind);
        let mut found = of_kind.filter_map(|it| {
            let described = it.list("devices").iter().find(|row| row.text("name") == device)?;
            Some((it, described))
        });
        let Some((document, described)) = found.next() else {
            return Err(format!("unresolvable CDI devices {name}"));
        };
        // The changes that all devices of a kind share are made once.
        if !general.contains(&kind) {
            general.push(kind);
            edits.add(document.get("containerEdits"), name)?;
        }
        edits.add(described.get("containerEdits"), name)?;
    }
    Ok(edits)
}

impl Edits {
    fn add(&mut self, given: Option<&Value>, name: &str) -> Result<(), String> {
        let Some(given) = given else { return Ok(()) };
        for unsupported in ["hooks", "intelRdt", "additionalGids"] {
            let is_empty = given.get(unsupported).is_none_or(|it| match it {
                Value::Array(rows) => rows.is_empty(),
                other => other.is_null(),
            });
            if !is_empty {
                return Err(format!("CDI device {name} has {unsupported}, which need containerd 2"));
            }
        }
        for variable in given.list("env").iter().filter_map(Value::as_str) {
            let (key, value) = variable.split_once('=').unwrap_or((variable, ""));
            self.envs.push((key.to_owned(), value.to_owned()));
        }
        for mount in given.list("mounts") {
            let is_read_only = mount.list("options").iter().any(|it| it.as_str() == Some("ro"));
            self.mounts.push(m::Mount {
                container_path: mount.text("containerPath").to_owned(),
                host_path: mount.text("hostPath").to_owned(),
                readonly: is_read_only,
                ..m::Mount::default()
            });
        }
        for node in given.list("deviceNodes") {
            let (path, host) = (node.text("path"), node.text("hostPath"));
            let permissions = node.text("permissions");
            self.devices.push(m::Device {
                container_path: path.to_owned(),
                host_path: if host.is_empty() { path } else { host }.to_owned(),
                permissions: if permissions.is_empty() { "rw" } else { permissions }.to_owned(),
            });
        }
        Ok(())
    }
}

/// The descriptions in a directory, in the order of their names. Files that are none are passed over.
fn read_all(directory: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "json" || it == "yaml"));
    files.sort();
    files.truncate(FILES_MAX);
    files.iter().filter_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Option<Value> {
    std::fs::metadata(path).ok().filter(|it| it.is_file() && it.len() <= BYTES_MAX)?;
    let text = std::fs::read_to_string(path).ok()?;
    // JSON is YAML, too.
    let (documents, error) = api::yaml::parse_documents(&text);
    if error.is_some() { None } else { documents.into_iter().next().map(|it| it.value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"cdiVersion": "0.6.0", "kind": "v.com/gpu", "containerEdits": {"env": ["ALL=1"]}, "devices": [
        {"name": "a", "containerEdits": {"env": ["A=x=y"], "deviceNodes": [{"path": "/dev/null"}],
            "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "bind"]}]}},
        {"name": "b", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/x"}]}}]}"#;

    fn described(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let path = directory.path().to_owned();
        (directory, vec![path])
    }

    #[test]
    fn devices_become_variables_mounts_and_nodes() {
        let yaml = "kind: v.com/nic\ndevices:\n- {name: nic0, containerEdits: {env: [N=1]}}\n";
        let (_kept, directories) = described(&[("1.json", FIRST), ("2.yaml", yaml), ("3.json", "{")]);
        let names = ["v.com/gpu=a", "v.com/nic=nic0"].map(str::to_owned);
        let made = edits(&directories, &names).unwrap();
        let variables: Vec<String> = made.envs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(variables, ["ALL=1", "A=x=y", "N=1"]);
        assert!(made.mounts[0].readonly && made.mounts[0].container_path == "/c");
        assert_eq!((made.devices[0].host_path.as_str(), made.devices[0].permissions.as_str()), ("/dev/null", "rw"));
    }

    #[test]
    fn devices_that_cannot_be_added_are_refused() {
        let (_kept, directories) = described(&[("1.json", FIRST)]);
        let why = |name: &str| edits(&directories, &[name.to_owned()]).unwrap_err();
        assert_eq!(why("v.com/gpu=c"), "unresolvable CDI devices v.com/gpu=c");
        assert!(why("v.com/gpu=b").contains("has hooks"));
        assert!(why("gpu").contains("no CDI device"));
    }

    #[test]
    fn containerd_applies_devices_from_version_two() {
        assert!(is_left_to_caller("containerd", "1.6.20~ds1") && is_left_to_caller("containerd", "v1.7.24"));
        assert!(!is_left_to_caller("containerd", "2.1.9") && !is_left_to_caller("cri-o", "1.30.0"));
    }
}
