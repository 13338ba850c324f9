//! `celplane envtest-assets`: a directory that envtest takes for `KUBEBUILDER_ASSETS`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

/// Create a directory with `kube-apiserver` and `etcd` for controller-runtime's envtest
///
/// Both are links to this program; `kubectl` is a link to the one on the path, if there is one. Set
/// KUBEBUILDER_ASSETS to the directory. CELPLANE_ENVTEST_CONTROLLERS=all|none|LIST adds controllers and the
/// scheduler, which envtest lacks.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory to fill; created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let directory = &self.directory;
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
        for name in ["kube-apiserver", "etcd"] {
            link(&program, &directory.join(name))?;
        }
        let mut out = std::io::stdout();
        match on_path("kubectl", directory) {
            Some(kubectl) => link(&kubectl, &directory.join("kubectl"))?,
            None => writeln!(std::io::stderr(), "kubectl is not on the path: no link was created for it")?,
        }
        let absolute = std::path::absolute(directory)?;
        writeln!(out, "export KUBEBUILDER_ASSETS={}", absolute.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Links a name to a program. Replaces links, never files.
fn link(program: &Path, name: &Path) -> Result<()> {
    match std::fs::symlink_metadata(name) {
        Ok(found) if found.is_symlink() => std::fs::remove_file(name)?,
        Ok(_) => bail!("`{}` exists and is not a link: choose another directory", name.display()),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, name).with_context(|| format!("cannot create `{}`", name.display()))
}

/// The program of that name in `PATH`, outside the directory itself.
fn on_path(name: &str, directory: &Path) -> Option<PathBuf> {
    let own = directory.canonicalize().ok();
    let paths = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&paths).filter(|folder| folder.canonicalize().ok() != own);
    folders.find_map(|folder| folder.join(name).canonicalize().ok().filter(|file| file.is_file()))
}
