//! What the tests with real containers need. They skip themselves without it.

use crate::command::{program, root};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Programs and files, one per line. The tests read the same list.
const NEEDED: &str = "crates/celplane/tests/containers/needed.txt";
/// Directories of programs that a user's `PATH` may lack.
const DIRECTORIES: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

/// The tests that are skipped, and what they need.
pub(crate) fn skipped(path: &OsStr) -> Option<String> {
    let list = std::fs::read_to_string(root().join(NEEDED)).unwrap_or_default();
    let mut missing = missing(&list, path);
    // Namespaces need permissions that root may lack, in a container for example.
    let made = program("unshare", ["-m", "-n", "true"]).output().is_ok_and(|output| output.status.success());
    if !made {
        missing.push("the permission to make namespaces, as root".to_owned());
    }
    (!missing.is_empty()).then(|| format!("tests with real containers (missing: {})", missing.join(", ")))
}

/// The lines of a list whose files are not here: those without a slash are programs.
fn missing(list: &str, path: &OsStr) -> Vec<String> {
    let directories: Vec<PathBuf> = std::env::split_paths(path).chain(DIRECTORIES.map(PathBuf::from)).collect();
    let is_here = |line: &&str| match line.contains('/') {
        true => Path::new(line).is_file(),
        false => directories.iter().any(|directory| directory.join(line).is_file()),
    };
    list.lines().filter(|line| !is_here(line)).map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_and_files_are_named() {
        let found = missing("sh\nno-such-program\n/no/such/file\n", OsStr::new("/bin"));
        assert_eq!(found, ["no-such-program", "/no/such/file"]);
        assert!(root().join(NEEDED).is_file());
    }
}
