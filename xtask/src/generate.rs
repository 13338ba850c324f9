//! `cargo xtask generate`: writes checked-in files that are derived from other facts.
//!
//! A generator is one line in [`GENERATORS`] and its own file. It returns the contents of its files; writing
//! them, and comparing them under `--check`, happens here.

use crate::command::root;
use crate::reject_unknown_flags;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str = "write the generated files, or compare them with --check";

/// One generator: its name, and what it derives.
struct Generator {
    name: &'static str,
    files: fn(&Path) -> Result<Vec<File>>,
}

/// A file that a generator owns: path below the workspace root, and its whole text.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

const GENERATORS: &[Generator] = &[
    Generator { name: "types", files: crate::types::files },
    #[cfg(feature = "descriptions")]
    Generator { name: "descriptions", files: crate::descriptions::files },
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &["--check"])?;
    let root = root();
    let mut outdated = Vec::new();
    for generator in GENERATORS {
        let files = (generator.files)(&root).with_context(|| format!("generator `{}`", generator.name))?;
        for file in files {
            if is_current(&root, &file) {
                continue;
            }
            if arguments.is_empty() {
                write(&root, &file)?;
                println!("wrote {}", file.path.display());
            } else {
                outdated.push(file.path.display().to_string());
            }
        }
    }
    if !outdated.is_empty() {
        bail!("out of date, run `cargo xtask generate`: {}", outdated.join(", "));
    }
    Ok(())
}

fn is_current(root: &Path, file: &File) -> bool {
    std::fs::read_to_string(root.join(&file.path)).is_ok_and(|text| text == file.text)
}

fn write(root: &Path, file: &File) -> Result<()> {
    let path = root.join(&file.path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_current_until_its_source_changes() {
        let root = std::env::temp_dir().join(format!("xtask-generate-{}", std::process::id()));
        let mut file = File { path: "new/folder/table.txt".into(), text: "one\n".into() };
        assert!(!is_current(&root, &file));
        write(&root, &file).unwrap();
        assert!(is_current(&root, &file));
        file.text.push_str("two\n");
        assert!(!is_current(&root, &file));
        std::fs::remove_dir_all(root).unwrap();
    }
}
