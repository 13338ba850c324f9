//! Archives with the same bytes for the same content: `tar.gz` through the system's tar, and `ar`.

use crate::command::{self, program};
use anyhow::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Packs `name` inside `directory` into the file `to`.
pub(super) fn tar_gz(directory: &Path, name: &str, to: &Path) -> Result<()> {
    let tar = to.with_extension("");
    let mut pack = program("tar", ["--create", "--format=gnu", "--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
    pack.args(["--numeric-owner", "--mode=u+rw,go+r,go-w,a+X"]);
    pack.arg("--file").arg(&tar).arg("--directory").arg(directory).arg(name);
    command::output(&mut pack)?;
    let mut compress = program("gzip", ["--no-name", "--best", "--force"]);
    command::output(compress.arg(&tar))?;
    Ok(())
}

/// An `ar` archive, the outer format of a Debian package.
pub(super) fn ar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        archive.extend_from_slice(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 100_644).as_bytes());
        archive.extend_from_slice(content);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// Bytes of all files under `directory`.
pub(super) fn size(directory: &Path) -> Result<u64> {
    let mut sum = 0_u64;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let bytes = if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// Sets mode 755.
pub(super) fn make_executable(file: &Path) -> Result<()> {
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ar_members_are_aligned_to_even_offsets() {
        let archive = ar(&[("a", b"x".to_vec()), ("b", b"yz".to_vec())]);
        let text = String::from_utf8(archive).unwrap();
        let first = "a               0           0     0     100644  1         `\nx\n";
        let second = "b               0           0     0     100644  2         `\nyz";
        assert_eq!(text, format!("!<arch>\n{first}{second}"));
    }
}
