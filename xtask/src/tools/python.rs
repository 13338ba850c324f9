//! Python with the package `kubernetes`, in a virtual environment of its own.

use crate::command::{output, program};
use anyhow::{Context, Result};
use std::path::Path;

/// The package, pinned; what it needs is chosen by pip.
const PINNED: &str = "kubernetes==37.0.2";

/// Makes the environment beside the folder of programs, and a script at `to` that runs its Python.
pub(super) fn kubernetes(to: &Path) -> Result<()> {
    let tools = to.parent().and_then(Path::parent).context("the folder of tools has no parent")?;
    let environment = tools.join("python-kubernetes");
    // A broken attempt is not continued.
    let _ = std::fs::remove_dir_all(&environment);
    output(program("python3", ["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin").join("python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PINNED];
    output(&mut program(&python.to_string_lossy(), pip))?;
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display());
    std::fs::write(to, script).with_context(|| format!("cannot write {}", to.display()))
}
