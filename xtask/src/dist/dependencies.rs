//! The crates that are linked into the program, from `cargo metadata`.

use crate::command::{cargo, output, root};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// All crates of the program, ordered by name and version.
pub(super) struct Dependencies {
    /// Version of the program itself.
    pub(super) version: String,
    pub(super) crates: Vec<Package>,
}

/// One crate.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression; empty if the crate declares none.
    pub(super) license: String,
    /// Directory of its sources.
    pub(super) directory: PathBuf,
    /// Part of this workspace.
    pub(super) is_ours: bool,
    /// SHA-256 of the published archive.
    pub(super) checksum: Option<String>,
    /// Identifiers of the crates that it uses, as `name@version`.
    pub(super) uses: BTreeSet<String>,
}

impl Package {
    pub(super) fn identifier(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Reads the normal (not build or development) dependencies of the program for Linux.
pub(super) fn read() -> Result<Dependencies> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let text = output(&mut cargo(["metadata", "--format-version=1", "--locked", "--filter-platform", &platform]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let packages = by_id(metadata.pointer("/packages"));
    let nodes = by_id(metadata.pointer("/resolve/nodes"));
    let program = packages.iter().find(|(_, package)| package["name"] == "celplane").context("no crate celplane")?;
    let mut reached = BTreeMap::new();
    let mut waiting = vec![*program.0];
    while let Some(id) = waiting.pop() {
        if reached.contains_key(id) {
            continue;
        }
        let uses = normal_dependencies(nodes.get(id).copied().unwrap_or(&Value::Null));
        waiting.extend(&uses);
        reached.insert(id, uses);
    }
    let checksums = checksums(&lock);
    let mut crates = Vec::new();
    for (id, uses) in &reached {
        let Some(package) = packages.get(id) else { continue };
        let used = uses.iter().filter_map(|id| packages.get(id)).map(|package| identifier(package)).collect();
        crates.push(describe(package, used, &checksums));
    }
    crates.sort_by_key(Package::identifier);
    Ok(Dependencies { version: text_of(program.1, "version"), crates })
}

fn describe(package: &Value, uses: BTreeSet<String>, checksums: &BTreeMap<String, String>) -> Package {
    let manifest = PathBuf::from(text_of(package, "manifest_path"));
    Package {
        name: text_of(package, "name"),
        version: text_of(package, "version"),
        license: text_of(package, "license"),
        directory: manifest.parent().unwrap_or(&manifest).to_owned(),
        is_ours: package["source"].is_null(),
        checksum: checksums.get(&identifier(package)).cloned(),
        uses,
    }
}

fn by_id(list: Option<&Value>) -> BTreeMap<&str, &Value> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| Some((item["id"].as_str()?, item))).collect()
}

fn normal_dependencies(node: &Value) -> Vec<&str> {
    let items = node["deps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_normal =
        |kinds: &Value| kinds.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
    items.iter().filter(|item| is_normal(&item["dep_kinds"])).filter_map(|item| item["pkg"].as_str()).collect()
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn identifier(package: &Value) -> String {
    format!("{}@{}", text_of(package, "name"), text_of(package, "version"))
}

/// Checksums of a lock file by `name@version`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let value =
        |line: &str, key: &str| Some(line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned());
    let mut found = BTreeMap::new();
    for entry in lock.split("[[package]]") {
        let read = |key: &str| entry.lines().find_map(|line| value(line, key));
        if let (Some(name), Some(version), Some(checksum)) = (read("name"), read("version"), read("checksum")) {
            found.insert(format!("{name}@{version}"), checksum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_contains_its_crates_and_no_development_dependency() {
        let dependencies = read().unwrap();
        let names: Vec<&str> = dependencies.crates.iter().map(|package| package.name.as_str()).collect();
        assert!(names.contains(&"celplane-cel") && names.contains(&"tokio"), "{names:?}");
        assert!(!names.contains(&"proptest"), "{names:?}");
        for package in &dependencies.crates {
            assert_eq!(package.is_ours, package.checksum.is_none(), "{}", package.name);
            assert!(!package.license.is_empty(), "{} declares no license", package.name);
        }
    }
}
