//! One integration binary per crate: every file in `tests/` is a module of it, or a binary of its own by name.
//!
//! With `autotests = false` cargo does not look for tests. A file that is not declared would never run, without
//! notice.

use super::{Findings, Tree};
use anyhow::Result;

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    for file in &tree.files {
        let Some((folder, name)) = file.strip_suffix(".rs").and_then(|file| file.split_once("/tests/")) else {
            continue;
        };
        if name.contains('/') || name == "main" {
            continue;
        }
        let main = format!("{folder}/tests/main.rs");
        let manifest = tree.text(&format!("{folder}/Cargo.toml"))?;
        let is_module = tree.files.contains(&main) && tree.text(&main)?.lines().any(|line| declares(line, name));
        if !is_module && !manifest.contains(&format!("name = \"{name}\"")) {
            findings.errors.push(format!("{file}: not a module of {main}, so it never runs"));
        }
    }
    Ok(())
}

fn declares(line: &str, name: &str) -> bool {
    line.trim_start_matches("pub(crate) ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_binary_names_is_found() {
        let root = std::env::temp_dir().join(format!("xtask-test-files-{}", std::process::id()));
        let files = [
            ("c/Cargo.toml", "[[test]]\nname = \"alone\"\n"),
            ("c/tests/main.rs", "mod named;\n"),
            ("c/tests/named.rs", ""),
            ("c/tests/alone.rs", ""),
            ("c/tests/forgotten.rs", ""),
            ("c/tests/named/part.rs", ""),
        ];
        for (file, text) in files {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        }
        let files = files.iter().map(|(file, _)| (*file).to_owned()).collect();
        let tree = Tree { root: root.clone(), files, crates: Vec::new() };
        let mut findings = Findings::default();
        check(&tree, &mut findings).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        assert_eq!(findings.errors, ["c/tests/forgotten.rs: not a module of c/tests/main.rs, so it never runs"]);
    }
}
