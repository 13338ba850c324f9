//! Volumes of pods on this machine: directories below the agent's root, or paths of the machine.
//!
//! Secrets and tokens are in memory (tmpfs). Files of ConfigMaps, Secrets, tokens and the downward API are replaced as a
//! whole, by a link that changes at once. Follows `pkg/volume` of Kubernetes in layout, modes and messages.

mod files;
mod payload;
mod sub_path;

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use api::Quantity;
use api::core::v1::Pod;
use api::json::Value;
use api::time::Timestamp;
use cri::messages as m;

pub(super) use self::files::unmount_below;
use self::payload::Payload;
use super::environment::{Facts, Variables};
use super::sources::Sources;

/// The volumes of a pod that are in place.
#[derive(Debug, Default)]
pub(super) struct MountedVolumes {
    paths: HashMap<String, PathBuf>,
    payloads: HashMap<String, Payload>,
    /// Images that are volumes, by the names of the volumes.
    pub(super) images: HashMap<String, m::ImageSpec>,
}

/// Inputs for mounting.
pub(super) struct Mounting<'m> {
    pub(super) sources: &'m Sources,
    pub(super) pod: &'m Pod,
    pub(super) manifest: &'m Value,
    pub(super) facts: &'m Facts,
    /// The pod's own directory.
    pub(super) directory: PathBuf,
    /// Whether file systems can be mounted; only tests do without.
    pub(super) can_mount: bool,
    pub(super) now: Timestamp,
}

/// A volume that cannot be mounted: its name, and the reason.
#[derive(Debug)]
pub(super) struct MountFailure {
    pub(super) volume: String,
    pub(super) why: String,
}

impl MountFailure {
    /// The message of the event `FailedMount`.
    pub(super) fn message(&self) -> String {
        format!("MountVolume.SetUp failed for volume \"{}\" : {}", self.volume, self.why)
    }
}

impl Mounting<'_> {
    /// Mounts all volumes, and renews those whose sources changed.
    pub(super) async fn mount_all(&self, mounted: &mut MountedVolumes) -> Result<(), MountFailure> {
        for volume in self.manifest.list_at(&["spec", "volumes"]) {
            let name = volume.text("name").to_owned();
            if volume.get("image").is_some() {
                // The runtime mounts images when it creates containers.
                continue;
            }
            match self.mount(volume, &name, mounted).await {
                Ok(path) => mounted.paths.insert(name, path),
                Err(why) => return Err(MountFailure { volume: name, why }),
            };
        }
        Ok(())
    }

    async fn mount(&self, volume: &Value, name: &str, mounted: &mut MountedVolumes) -> Result<PathBuf, String> {
        if let Some(source) = volume.get("hostPath") {
            return host_path(Path::new(source.text("path")), source.text("type"));
        }
        if let Some(source) = volume.get("emptyDir") {
            return self.empty_dir(source, name, mounted);
        }
        if let Some(source) = volume.get("persistentVolumeClaim") {
            return self.claimed(source.text("claimName")).await;
        }
        if volume.get("ephemeral").is_some() {
            return self.claimed(&format!("{}-{name}", self.pod.metadata.name)).await;
        }
        let Some((plugin, in_memory)) = payload::plugin(volume) else {
            return Err("volumes of this type are not supported by this node agent".to_owned());
        };
        let known = mounted.payloads.get(name);
        let payload = payload::collect(self, volume, known).await?;
        let path = self.directory.join("volumes").join(plugin).join(name);
        if known.is_none() {
            create(&path, 0o777).map_err(|error| error.to_string())?;
            if in_memory && self.can_mount {
                files::mount_memory(&path, Some(self.memory())).map_err(|error| format!("mount failed: {error}"))?;
            }
        }
        if known.is_none_or(|known| known.files != payload.files) {
            let group = self.manifest.i64_at(&["spec", "securityContext", "fsGroup"]);
            files::replace(&path, &payload.files, id(group), self.now)
                .map_err(|error| format!("failed to write files: {error}"))?;
        }
        mounted.payloads.insert(name.to_owned(), payload);
        Ok(path)
    }

    fn empty_dir(&self, source: &Value, name: &str, mounted: &MountedVolumes) -> Result<PathBuf, String> {
        let path = self.directory.join("volumes/kubernetes.io~empty-dir").join(name);
        if mounted.paths.contains_key(name) {
            return Ok(path);
        }
        create(&path, 0o777).map_err(|error| error.to_string())?;
        if source.text("medium") == "Memory" && self.can_mount {
            let limit = source.str_at(&["sizeLimit"]).and_then(|it| Quantity::parse(it).ok()).map(|it| it.value());
            let limit = limit.filter(|limit| *limit > 0).unwrap_or_else(|| self.memory());
            files::mount_memory(&path, Some(limit)).map_err(|error| format!("mount failed: {error}"))?;
            let shared = std::fs::Permissions::from_mode(0o1777);
            std::fs::set_permissions(&path, shared).map_err(|error| error.to_string())?;
        }
        if let Some(group) = id(self.manifest.i64_at(&["spec", "securityContext", "fsGroup"])) {
            chown(&path, None, Some(group)).map_err(|error| error.to_string())?;
            let mode = std::fs::metadata(&path).map_or(0o777, |it| it.permissions().mode()) | 0o2000;
            let group_owned = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, group_owned).map_err(|error| error.to_string())?;
        }
        Ok(path)
    }

    /// The most memory that files of the pod can take: its limit, or all of the node's.
    fn memory(&self) -> i64 {
        let of_pod = matching::resources::limits(&self.pod.spec, matching::resources::Options::default());
        let limits = |it: &api::core::v1::Container| it.resources.limits.get("memory").is_some();
        let is_limited = self.pod.spec.resources.as_ref().is_some_and(|it| it.limits.get("memory").is_some())
            || self.pod.spec.containers.iter().all(limits);
        let limit = of_pod.get("memory").map(|it| it.value()).filter(|_| is_limited);
        limit.map_or(self.facts.memory, |limit| limit.min(self.facts.memory))
    }

    /// Returns the path of a claim's volume, which must be on this machine.
    async fn claimed(&self, claim: &str) -> Result<PathBuf, String> {
        let volume = self.sources.volume_of_claim(&self.pod.metadata.namespace, claim).await;
        let volume = volume.map_err(|error| error.to_string())?;
        if let Some(path) = volume.str_at(&["spec", "local", "path"]) {
            return match std::fs::metadata(path) {
                Ok(_) => Ok(PathBuf::from(path)),
                Err(_) => Err(format!("path \"{path}\" does not exist")),
            };
        }
        match volume.at(&["spec", "hostPath"]) {
            Some(source) => host_path(Path::new(source.text("path")), source.text("type")),
            None => Err("only local and hostPath PersistentVolumes are supported by this node agent".to_owned()),
        }
    }
}

impl MountedVolumes {
    /// Reads a file of a volume, without leaving the volume by links.
    pub(super) fn read(&self, volume: &str, path: &str, bytes_max: u64) -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let root = self.path(volume).ok_or(std::io::ErrorKind::NotFound)?;
        let mut bytes = Vec::new();
        sub_path::open(root, Path::new(path))?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The directory of a volume that is in place.
    pub(super) fn path(&self, volume: &str) -> Option<&Path> {
        self.paths.get(volume).map(PathBuf::as_path)
    }

    /// Latest time for the renewal of tokens.
    pub(super) fn renewal(&self) -> Option<Timestamp> {
        self.payloads.values().filter_map(|payload| payload.renewal).min()
    }

    /// Whether any volume has a source that can change.
    pub(super) fn follows_sources(&self) -> bool {
        !self.payloads.is_empty()
    }

    /// The mounts of a container.
    ///
    /// # Errors
    /// The message of `CreateContainerConfigError`.
    pub(super) fn of_container(
        &self,
        container: &Value,
        variables: &Variables,
        directory: &Path,
        can_mount: bool,
    ) -> Result<Vec<m::Mount>, String> {
        let mut mounts = Vec::new();
        for mount in container.list("volumeMounts") {
            let name = mount.text("name");
            let path = mount.text("mountPath");
            let container_path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            if let Some(image) = self.images.get(name) {
                let (image, sub_path) = (Some(image.clone()), mount.text("subPath").to_owned());
                mounts.push(m::Mount {
                    container_path,
                    readonly: true,
                    image,
                    image_sub_path: sub_path,
                    ..m::Mount::default()
                });
                continue;
            }
            let volume = self.paths.get(name).ok_or_else(|| format!("cannot find volume \"{name}\" to mount"))?;
            let expression = mount.text("subPathExpr");
            let sub = match expression {
                "" => mount.text("subPath").to_owned(),
                _ => variables.expand_all(expression)?,
            };
            let host = if sub.is_empty() {
                volume.clone()
            } else {
                let number = mounts.len().to_string();
                let place = directory.join("volume-subpaths").join(name).join(container.text("name")).join(number);
                sub_path::prepare(volume, &sub, &place, can_mount)?
            };
            let is_payload = self.payloads.contains_key(name);
            let propagation = match mount.text("mountPropagation") {
                "HostToContainer" => m::MountPropagation::HostToContainer,
                "Bidirectional" => m::MountPropagation::Bidirectional,
                _ => m::MountPropagation::Private,
            };
            mounts.push(m::Mount {
                container_path,
                host_path: host.display().to_string(),
                readonly: mount.flag("readOnly") || is_payload,
                propagation: propagation.into(),
                ..m::Mount::default()
            });
        }
        Ok(mounts)
    }
}

pub(super) fn id(number: Option<i64>) -> Option<u32> {
    number.and_then(|it| u32::try_from(it).ok())
}

/// Creates a directory with exactly this mode; those above it are for root alone.
pub(super) fn create(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Checks a path of the host, and creates it if its type requires that.
fn host_path(path: &Path, kind: &str) -> Result<PathBuf, String> {
    let shown = path.display();
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("hostPath {shown} must not contain '..'"));
    }
    let failed = |error: std::io::Error| error.to_string();
    let found = std::fs::metadata(path).ok();
    match (kind, &found) {
        ("DirectoryOrCreate", None) => {
            create(path, 0o755).map_err(failed)?;
            return Ok(path.to_owned());
        }
        ("FileOrCreate", None) => {
            std::fs::write(path, "").map_err(failed)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).map_err(failed)?;
            return Ok(path.to_owned());
        }
        ("", _) => return Ok(path.to_owned()),
        _ => {}
    }
    let wanted = match kind {
        "Directory" | "DirectoryOrCreate" => "directory",
        "File" | "FileOrCreate" => "file",
        "Socket" => "socket file",
        "CharDevice" => "character device",
        _ => "block device",
    };
    let Some(found) = found else {
        return Err(format!(
            "hostPath type check failed, {shown} is not a {wanted}, unable to determine its type: path \"{shown}\" does not exist"
        ));
    };
    let actual = found.file_type();
    let (name, fits) = match () {
        () if actual.is_dir() => ("Directory", wanted == "directory"),
        () if actual.is_socket() => ("Socket", wanted == "socket file"),
        () if actual.is_char_device() => ("CharDevice", wanted == "character device"),
        () if actual.is_block_device() => ("BlockDevice", wanted == "block device"),
        () => ("File", wanted == "file"),
    };
    if fits {
        return Ok(path.to_owned());
    }
    Err(format!("hostPath type check failed: {shown} is not a {wanted}, it's a {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_checked_by_type() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let missing = directory.path().join("no");
        assert!(host_path(&file, "File").is_ok() && host_path(&missing, "").is_ok());
        let why = host_path(&file, "Socket").unwrap_err();
        assert_eq!(why, format!("hostPath type check failed: {0} is not a socket file, it's a File", file.display()));
        let why = host_path(&missing, "Directory").unwrap_err();
        assert_eq!(
            why,
            format!(
                "hostPath type check failed, {0} is not a directory, unable to determine its type: path \"{0}\" does not exist",
                missing.display()
            )
        );
        assert!(host_path(&missing, "DirectoryOrCreate").is_ok() && missing.is_dir());
        assert!(host_path(Path::new("/tmp/../etc"), "").is_err());
    }
}
