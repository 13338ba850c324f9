//! `cargo xtask dist`: release packages in `target/dist/`.
//!
//! | file | content |
//! |---|---|
//! | `celplane` | static program that runs in an empty root directory |
//! | `celplane-VERSION-ARCH-linux.tar.gz` | the program, systemd units, license texts |
//! | `celplane_VERSION_ARCH.deb` | Debian package of the same |
//! | `Dockerfile`, `data/` | build context of an image from scratch |
//! | `sbom.cdx.json` | CycloneDX list of every crate in the program |
//! | `THIRD-PARTY-LICENSES.txt` | license texts of those crates |
//! | `SHA256SUMS` | checksums of all files above |
//!
//! Archives have fixed owners, order and times, so that the same program gives the same bytes.

mod archive;
mod dependencies;
mod licenses;
mod sbom;

use crate::command::{self, cargo, program, root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str = "build release packages in target/dist [--binary FILE: package this one]";

/// One Linux platform that packages are built for.
struct Platform {
    /// Name in file names.
    name: &'static str,
    /// Debian's name.
    debian: &'static str,
    musl: &'static str,
    gnu: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform { name: "x86_64", debian: "amd64", musl: "x86_64-unknown-linux-musl", gnu: "x86_64-unknown-linux-gnu" },
    Platform { name: "aarch64", debian: "arm64", musl: "aarch64-unknown-linux-musl", gnu: "aarch64-unknown-linux-gnu" },
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let given = match arguments {
        [] => None,
        [flag, file] if flag == "--binary" => Some(PathBuf::from(file)),
        _ => bail!("unexpected arguments, expected nothing or --binary FILE"),
    };
    let Some(platform) = PLATFORMS.iter().find(|platform| platform.name == std::env::consts::ARCH) else {
        bail!("packages can be built on {} only", PLATFORMS.map(|platform| platform.name).join(" and "));
    };
    let binary = match given {
        Some(file) => file,
        None => build(platform)?,
    };
    let packages = Packages::create(platform, &binary)?;
    packages.tarball()?;
    packages.debian()?;
    packages.checksums()?;
    eprintln!("packages are in {}", packages.directory.display());
    Ok(())
}

/// Builds the program without dynamic libraries: with musl where that target is installed, otherwise with a
/// static glibc, which resolves names through `/etc/hosts` and DNS without loading modules.
fn build(platform: &Platform) -> Result<PathBuf> {
    let libraries = command::output(program("rustc", ["--print", "sysroot"]).current_dir(root()))?;
    let has_musl = Path::new(libraries.trim()).join("lib/rustlib").join(platform.musl).is_dir();
    let target = if has_musl { platform.musl } else { platform.gnu };
    let mut build = cargo(["build", "--release", "--locked", "--package", "celplane", "--target", target]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static");
    command::run(&mut build)?;
    Ok(target_directory().join(target).join("release/celplane"))
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The directory of packages that is being filled.
struct Packages {
    directory: PathBuf,
    platform: &'static str,
    architecture: &'static str,
    version: String,
}

impl Packages {
    fn create(platform: &'static Platform, binary: &Path) -> Result<Self> {
        let directory = target_directory().join("dist");
        if directory.exists() {
            fs::remove_dir_all(&directory).context("cannot remove the packages of an earlier run")?;
        }
        fs::create_dir_all(directory.join("data"))?;
        let dependencies = dependencies::read()?;
        fs::copy(binary, directory.join("celplane")).with_context(|| format!("cannot copy {}", binary.display()))?;
        fs::copy(root().join("packaging/Dockerfile"), directory.join("Dockerfile"))?;
        fs::write(directory.join("sbom.cdx.json"), sbom::render(&dependencies)?)?;
        fs::write(directory.join("THIRD-PARTY-LICENSES.txt"), licenses::render(&dependencies)?)?;
        Ok(Self { directory, platform: platform.name, architecture: platform.debian, version: dependencies.version })
    }

    /// Lays out the installed files under `to`.
    fn install(&self, to: &Path) -> Result<()> {
        let documents = to.join("usr/share/doc/celplane");
        let units = to.join("usr/lib/systemd/system");
        let manuals = to.join("usr/share/man/man1");
        for directory in [&to.join("usr/bin"), &documents, &units, &manuals, &to.join("etc/celplane")] {
            fs::create_dir_all(directory)?;
        }
        fs::copy(self.directory.join("celplane"), to.join("usr/bin/celplane"))?;
        for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
            fs::copy(root().join(file), documents.join(file))?;
        }
        for file in ["THIRD-PARTY-LICENSES.txt", "sbom.cdx.json"] {
            fs::copy(self.directory.join(file), documents.join(file))?;
        }
        for unit in fs::read_dir(root().join("packaging/systemd"))? {
            let unit = unit?;
            fs::copy(unit.path(), units.join(unit.file_name()))?;
        }
        let manual = command::output(&mut program(&self.directory.join("celplane").to_string_lossy(), ["man"]))?;
        fs::write(manuals.join("celplane.1"), manual)?;
        Ok(())
    }

    fn tarball(&self) -> Result<()> {
        let name = format!("celplane-{}-{}-linux", self.version, self.platform);
        let staging = self.directory.join(&name);
        self.install(&staging)?;
        archive::tar_gz(&self.directory, &name, &self.directory.join(format!("{name}.tar.gz")))?;
        Ok(fs::remove_dir_all(staging)?)
    }

    fn debian(&self) -> Result<()> {
        let staging = self.directory.join("debian");
        let (data, control) = (staging.join("data"), staging.join("control"));
        self.install(&data)?;
        fs::create_dir_all(&control)?;
        let sources = root().join("packaging/debian");
        let kilobytes = archive::size(&data)?.div_ceil(1024);
        let text = fs::read_to_string(sources.join("control"))?
            .replace("@VERSION@", &self.version)
            .replace("@ARCHITECTURE@", self.architecture)
            .replace("@SIZE@", &kilobytes.to_string());
        fs::write(control.join("control"), text)?;
        for script in ["postinst", "prerm"] {
            fs::copy(sources.join(script), control.join(script))?;
            archive::make_executable(&control.join(script))?;
        }
        archive::tar_gz(&control, ".", &staging.join("control.tar.gz"))?;
        archive::tar_gz(&data, ".", &staging.join("data.tar.gz"))?;
        let members = [
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", fs::read(staging.join("control.tar.gz"))?),
            ("data.tar.gz", fs::read(staging.join("data.tar.gz"))?),
        ];
        let package = self.directory.join(format!("celplane_{}_{}.deb", self.version, self.architecture));
        fs::write(package, archive::ar(&members))?;
        Ok(fs::remove_dir_all(staging)?)
    }

    fn checksums(&self) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name());
            }
        }
        names.sort();
        let sums = command::output(program("sha256sum", &names).current_dir(&self.directory))?;
        Ok(fs::write(self.directory.join("SHA256SUMS"), sums)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_files_start_commands_that_exist() {
        let mut count = 0;
        for unit in fs::read_dir(root().join("packaging/systemd")).unwrap() {
            let text = fs::read_to_string(unit.unwrap().path()).unwrap();
            let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/celplane ")).unwrap();
            let role = start.split(' ').next().unwrap();
            assert!(["up", "apiserver", "controller-manager", "scheduler", "kubelet"].contains(&role), "{start}");
            count += 1;
        }
        assert_eq!(count, 5);
    }

    #[test]
    fn unknown_arguments_are_rejected() {
        assert!(run(&["--fast".to_owned()]).is_err());
    }
}
