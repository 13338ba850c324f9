//! `cargo xtask tidy`: checks of the shape of the project that the compiler and clippy cannot make.
//!
//! A check is one line in [`CHECKS`] and its own file; it reads the tree through [`Tree`] and reports through
//! [`Findings`], so that one run reports every problem.

mod dependencies;
mod doc_paths;
pub(crate) mod layers;
mod licenses;
mod purity;
mod sources;
mod test_files;
mod wording;

use crate::command::{cargo, output, program, root};
use crate::reject_unknown_flags;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "check crate dependencies, purity, module shape, wording, licenses";

/// Crates that hold rules and touch nothing outside: no clock, file, socket, environment, thread.
const PURE_CRATES: &[&str] = &["cel", "api", "cel-kubernetes", "matching", "dra", "registry", "patching", "scheduling"];

type Check = fn(&Tree, &mut Findings) -> Result<()>;

const CHECKS: &[Check] = &[
    dependencies::check,
    purity::check,
    sources::check,
    layers::check,
    test_files::check,
    doc_paths::check,
    wording::check,
    licenses::check,
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &["--update"])?;
    let tree = Tree::read()?;
    if !arguments.is_empty() {
        wording::update(&tree)?;
    }
    let mut findings = Findings::default();
    for check in CHECKS {
        check(&tree, &mut findings)?;
    }
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    if !findings.errors.is_empty() {
        bail!("tidy found {} error(s)", findings.errors.len());
    }
    println!("tidy: {} files, {} crates", tree.files.len(), tree.crates.len());
    Ok(())
}

/// The files and crates that the checks read.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// Files that are or could be committed, relative to the root.
    pub(crate) files: Vec<String>,
    pub(crate) crates: Vec<Crate>,
}

/// A member of the workspace.
pub(crate) struct Crate {
    /// Name of its folder, which the conventions use.
    pub(crate) name: String,
    folder: PathBuf,
    dependencies: Vec<Dependency>,
}

pub(crate) struct Dependency {
    package: String,
    /// The folder's name, if it is a crate of ours.
    ours: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Development,
    Build,
}

#[derive(Default)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Tree {
    pub(crate) fn read() -> Result<Self> {
        let root = root();
        let listed = output(&mut program(
            "git",
            ["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        ))?;
        let files = listed.lines().filter(|file| root.join(file).is_file()).map(str::to_owned).collect();
        let metadata = output(&mut cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata = serde_json::from_str(&metadata).context("`cargo metadata` is not JSON")?;
        Ok(Self { root, files, crates: crates(&metadata) })
    }

    fn text(&self, file: &str) -> Result<String> {
        std::fs::read_to_string(self.root.join(file)).with_context(|| format!("cannot read {file}"))
    }
}

/// The workspace's crates, from the output of `cargo metadata --no-deps`.
fn crates(metadata: &Value) -> Vec<Crate> {
    let packages = metadata.get("packages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    packages
        .iter()
        .filter_map(|package| {
            let manifest = PathBuf::from(package.get("manifest_path")?.as_str()?);
            let folder = manifest.parent()?.to_owned();
            let dependencies = package.get("dependencies")?.as_array()?.iter().filter_map(dependency).collect();
            Some(Crate { name: folder.file_name()?.to_str()?.to_owned(), folder, dependencies })
        })
        .collect()
}

fn dependency(entry: &Value) -> Option<Dependency> {
    let kind = match entry.get("kind").and_then(Value::as_str) {
        Some("dev") => Kind::Development,
        Some("build") => Kind::Build,
        _ => Kind::Normal,
    };
    let ours = entry.get("path").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    Some(Dependency { package: entry.get("name")?.as_str()?.to_owned(), ours: ours.map(str::to_owned), kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crates_are_named_by_folder_and_know_their_dependencies() {
        let metadata = json!({"packages": [{
            "name": "celplane-matching",
            "manifest_path": "/project/crates/matching/Cargo.toml",
            "dependencies": [
                {"name": "celplane-cel", "path": "/project/crates/cel", "kind": null},
                {"name": "proptest", "kind": "dev"},
            ],
        }]});
        let crates = crates(&metadata);
        assert_eq!(crates.len(), 1);
        assert_eq!(crates[0].name, "matching");
        let [cel, proptest] = crates[0].dependencies.as_slice() else { panic!("two dependencies") };
        assert_eq!(cel.ours.as_deref(), Some("cel"));
        assert!(cel.kind == Kind::Normal && proptest.kind == Kind::Development);
        assert_eq!((proptest.package.as_str(), &proptest.ours), ("proptest", &None));
    }
}
