//! Python with packages from the package index, each set in a virtual environment of its own.

use crate::command::{output, program};
use anyhow::{Context, Result};
use std::path::Path;

/// The packages, pinned; what they need is chosen by pip.
const KUBERNETES: &[&str] = &["kubernetes==37.0.2"];
/// Packages that run the tests of `python/` and build its wheel.
const PYTEST: &[&str] = &["pytest==8.4.2", "setuptools==80.9.0"];

/// Makes `python-kubernetes`.
pub(super) fn kubernetes(to: &Path) -> Result<()> {
    environment(to, "python-kubernetes", KUBERNETES)
}

/// Makes `python-pytest`.
pub(super) fn pytest(to: &Path) -> Result<()> {
    environment(to, "python-pytest", PYTEST)
}

/// Makes the environment beside the folder of programs, and a script at `to` that runs its Python.
fn environment(to: &Path, name: &str, packages: &[&str]) -> Result<()> {
    let tools = to.parent().and_then(Path::parent).context("the folder of tools has no parent")?;
    let environment = tools.join(name);
    // A broken attempt is not continued.
    let _ = std::fs::remove_dir_all(&environment);
    output(program("python3", ["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin").join("python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    output(program(&python.to_string_lossy(), pip).args(packages))?;
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display());
    std::fs::write(to, script).with_context(|| format!("cannot write {}", to.display()))
}
