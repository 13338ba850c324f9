//! Paths that the documentation names exist.
//!
//! A path is a word in backticks with a slash in it that ends like a file or a folder of sources. It may be
//! relative to the root of the project, to `crates/`, or to a crate's sources.

use super::{Findings, Tree};
use anyhow::Result;

const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".txt", ".jsonl", "/"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    for file in tree.files.iter().filter(|file| file.ends_with(".md") && !file.contains("/tests/")) {
        for (number, line) in tree.text(file)?.lines().enumerate() {
            for path in paths(line).filter(|path| !exists(&tree.files, path)) {
                let number = number.saturating_add(1);
                findings.errors.push(format!("{file}:{number}: `{path}` does not exist"));
            }
        }
    }
    Ok(())
}

/// The words in backticks that look like paths.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let is_path = word.contains('/') && ENDINGS.iter().any(|ending| word.ends_with(ending));
        // A pattern, an address, a command, or a file of the user's.
        let is_other = word.contains(['*', '<', '…', ' ', ':', '{', '$', '~', '=']) || word.starts_with('/');
        is_path && !is_other
    })
}

fn exists(files: &[String], path: &str) -> bool {
    let path = path.trim_start_matches("./");
    let is_folder = path.ends_with('/');
    files.iter().any(|file| {
        let at_root = if is_folder { file.starts_with(path) } else { file == path };
        let within = format!("/{path}");
        at_root || if is_folder { file.contains(&within) } else { file.ends_with(&within) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_that_end_like_files() {
        let line = "see `crates/a/src/b.rs`, `a/b/`, `GET /x/`, `crates/<crate>/tests/`, `x.rs` and `semver/`";
        assert_eq!(paths(line).collect::<Vec<_>>(), ["crates/a/src/b.rs", "a/b/", "semver/"]);
    }

    #[test]
    fn a_path_may_begin_anywhere() {
        let files = ["crates/a/src/b.rs".to_owned(), "docs/c.md".to_owned()];
        for path in ["crates/a/src/b.rs", "a/src/b.rs", "src/b.rs", "docs/", "a/src/", "docs/c.md"] {
            assert!(exists(&files, path), "{path}");
        }
        for path in ["crates/a/src/c.rs", "rc/b.rs", "ocs/", "c/"] {
            assert!(!exists(&files, path), "{path}");
        }
    }
}
