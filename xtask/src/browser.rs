//! What the tests of the console need: a browser, and axe-core, which is fetched from npm and not part of the project.
//!
//! `cargo xtask screenshots` takes the pictures of `docs/images/console` with the same tests.

use crate::command::{cargo, output, program, root, run as run_command};
use crate::reject_unknown_flags;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "take the pictures of the console in docs/images/console";

/// The version of axe-core.
const AXE: &str = "axe-core@4.10.3";

/// The file of axe-core, fetched on the first use; the reason if it cannot be had.
pub(crate) fn axe() -> Result<PathBuf> {
    let folder = root().join(".tools").join("axe");
    let file = folder.join("package").join("axe.min.js");
    if file.exists() {
        return Ok(file);
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    output(program("npm", ["pack", AXE, "--silent", "--pack-destination"]).arg(&folder))?;
    let archive = folder.join(format!("{}.tgz", AXE.replace('@', "-")));
    output(program("tar", ["-xzf"]).arg(&archive).arg("-C").arg(&folder).arg("package/axe.min.js"))?;
    Ok(file)
}

/// Whether the browser and its driver are installed.
pub(crate) fn is_installed() -> bool {
    ["chromium", "chromedriver"]
        .iter()
        .all(|name| program(name, ["--version"]).output().is_ok_and(|output| output.status.success()))
}

/// The tests of the console that are skipped, and what they need.
pub(crate) fn skipped(axe: &Result<PathBuf>) -> Option<String> {
    match axe {
        _ if !is_installed() => Some("tests of the console (install chromium and chromium-driver)".to_owned()),
        Ok(_) => None,
        Err(error) => Some(format!("the accessibility test of the console (needs axe-core from npm: {error:#})")),
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &[])?;
    if !is_installed() {
        bail!("install the packages `chromium` and `chromium-driver`");
    }
    let folder = root().join("docs").join("images").join("console");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = cargo(["test", "--package", "celplane", "--test", "integration", "console::screenshots"]);
    run_command(command.env("CELPLANE_SCREENSHOTS", &folder).env("CELPLANE_REQUIRE_BROWSER", "1"))
}
