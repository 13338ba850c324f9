//! The programs to compare: ours, and those of Kubernetes where they are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::control_plane::Contestant;

/// Found programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Our program.
    pub celplane: PathBuf,
    /// `kube-apiserver` and `etcd`; Kubernetes is left out unless both are found.
    pub kubernetes: Option<Kubernetes>,
}

/// Programs of Kubernetes.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    /// The API server.
    pub apiserver: PathBuf,
    /// Its store.
    pub etcd: PathBuf,
    /// The scheduler; without it, scheduling is measured for ours alone.
    pub scheduler: Option<PathBuf>,
}

impl Programs {
    /// Looks for Kubernetes' programs in directories, the first that has one wins.
    #[must_use]
    pub fn find(celplane: PathBuf, directories: &[PathBuf]) -> Self {
        let find = |name: &str| {
            let files = directories.iter().map(|directory| directory.join(name));
            files.into_iter().find(|file| is_program(file))
        };
        let kubernetes = find("kube-apiserver").zip(find("etcd")).map(|(apiserver, etcd)| Kubernetes {
            apiserver,
            etcd,
            scheduler: find("kube-scheduler"),
        });
        Self { celplane, kubernetes }
    }

    /// The control planes to compare, ours first.
    #[must_use]
    pub fn contestants(&self) -> Vec<Contestant> {
        let ours = Contestant::Celplane(self.celplane.clone());
        std::iter::once(ours).chain(self.kubernetes.clone().map(Contestant::Kubernetes)).collect()
    }

    /// A line per program: its name and version.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        let mut lines = vec![version(&self.celplane, "version")];
        if let Some(kubernetes) = &self.kubernetes {
            lines.push(version(&kubernetes.apiserver, "--version"));
            lines.push(version(&kubernetes.etcd, "--version"));
            lines.extend(kubernetes.scheduler.as_deref().map(|scheduler| version(scheduler, "--version")));
        }
        lines
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The program's name and the first line that it prints.
fn version(program: &Path, argument: &str) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    format!("{name}: {}", text.lines().next().unwrap_or("unknown version").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_needs_server_and_store() {
        use std::os::unix::fs::PermissionsExt as _;
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directories = [first.path().to_owned(), second.path().to_owned()];
        let find = || Programs::find("celplane".into(), &directories);
        let make = |directory: &Path, name: &str, mode: u32| {
            std::fs::write(directory.join(name), "").unwrap();
            std::fs::set_permissions(directory.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        make(second.path(), "kube-apiserver", 0o755);
        make(first.path(), "etcd", 0o644);
        assert!(find().kubernetes.is_none(), "a file that is not executable is no program");
        assert_eq!(find().contestants().len(), 1);
        make(second.path(), "etcd", 0o755);
        let kubernetes = find().kubernetes.unwrap();
        assert_eq!(kubernetes.etcd, second.path().join("etcd"));
        assert_eq!(kubernetes.scheduler, None);
        assert_eq!(find().contestants().len(), 2);
    }
}
