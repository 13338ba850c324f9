//! One program out of a Debian package, without installing the package.

use crate::command::{output, program};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Downloads `package` with apt and copies the file at `inside` to `to`.
///
/// Where apt knows no such package, its lists are updated (which needs root) and it is asked again.
pub(super) fn extract(package: &str, inside: &str, to: &Path) -> Result<()> {
    let folder = to.with_extension("debian");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let result = download(package, &folder).and_then(|archive| {
        output(program("dpkg-deb", ["--extract"]).arg(&archive).arg(&folder))?;
        std::fs::copy(folder.join(inside), to).with_context(|| format!("no `{inside}` in `{package}`"))?;
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn download(package: &str, folder: &Path) -> Result<PathBuf> {
    let ask = || output(program("apt-get", ["download", "--quiet", package]).current_dir(folder));
    if let Err(refusal) = ask() {
        // Without root the lists stay as they are, and the first answer is the one to show.
        if output(&mut program("apt-get", ["update", "--quiet"])).is_err() {
            return Err(refusal);
        }
        ask()?;
    }
    std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get downloaded nothing for `{package}`"))
}
