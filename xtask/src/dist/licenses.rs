//! License texts of third-party crates.

use super::dependencies::{Dependencies, Package};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Names that license files begin with.
const PREFIXES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Returns one section for each distinct set of texts, with the crates it applies to. A crate without a license file
/// is listed with its SPDX expression.
pub(super) fn render(dependencies: &Dependencies) -> Result<String> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without_text = Vec::new();
    for package in dependencies.crates.iter().filter(|package| !package.is_ours) {
        let text = texts(package)?;
        let title = format!("{} {} ({})", package.name, package.version, package.license);
        if text.is_empty() {
            without_text.push(title);
        } else {
            sections.entry(text).or_default().push(title);
        }
    }
    let line = "=".repeat(80);
    let mut out = String::from("Third-party software in Celplane\n\n");
    if !without_text.is_empty() {
        out.push_str(&format!("{line}\nCrates published without a license file:\n  {}\n\n", without_text.join("\n  ")));
    }
    for (text, titles) in sections {
        out.push_str(&format!("{line}\n{}\n{line}\n\n{}\n\n", titles.join("\n"), text.trim_end()));
    }
    Ok(out)
}

fn texts(package: &Package) -> Result<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    let entries =
        fs::read_dir(&package.directory).with_context(|| format!("cannot read {}", package.directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            files.push(entry.path());
        }
    }
    files.sort();
    let mut text = String::new();
    for file in files {
        text.push_str(&String::from_utf8_lossy(&fs::read(&file)?));
        text.push('\n');
    }
    Ok(text)
}
