//! Parts of volumes as mounts. A container can write to its volume, so a path in it may become a link to
//! anywhere between a check and the mount: the part is opened without leaving the volume, and the opened file
//! is mounted.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Returns a path for `sub` in `volume`, which is created as a directory if it is missing.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub(super) fn prepare(volume: &Path, sub: &str, place: &Path, can_mount: bool) -> Result<PathBuf, String> {
    let path = Path::new(sub);
    if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("subPath \"{sub}\" must not contain '..' or be absolute"));
    }
    let failed = |error: io::Error| format!("failed to prepare subPath for volumeMount: {error}");
    let opened = open_or_create(volume, path).map_err(failed)?;
    if !can_mount {
        return Ok(volume.join(path));
    }
    bind(&opened, place).map_err(failed)?;
    Ok(place.to_owned())
}

/// Opens a regular file of a volume for reading.
pub(super) fn open(volume: &Path, path: &Path) -> io::Result<std::fs::File> {
    let root = rustix::fs::openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A pipe would block the agent.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::BENEATH)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

fn open_or_create(volume: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = rustix::fs::openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let beneath =
        |flags| rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH);
    match beneath(OFlags::PATH) {
        Err(rustix::io::Errno::NOENT) => {}
        found => return Ok(found?),
    }
    // Kubernetes: directories have the permissions of the volume, with its sticky bit, and its group if that is set for all files.
    let mode = Mode::from_raw_mode(std::fs::metadata(volume)?.permissions().mode() & 0o7777);
    let mut current = root.try_clone()?;
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::mkdirat(&current, part.as_os_str(), mode) {
            Ok(()) => {
                // The mode of a new directory depends on the umask.
                let flags = directory | OFlags::RDONLY | OFlags::NOFOLLOW;
                let made = rustix::fs::openat(&current, part.as_os_str(), flags, Mode::empty())?;
                rustix::fs::fchmod(&made, mode)?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = directory | OFlags::PATH;
        current = rustix::fs::openat2(&current, part.as_os_str(), flags, Mode::empty(), ResolveFlags::BENEATH)?;
    }
    Ok(beneath(OFlags::PATH)?)
}

fn bind(opened: &OwnedFd, place: &Path) -> io::Result<()> {
    if super::files::mounts_below(place)?.iter().any(|known| known == place) {
        return Ok(());
    }
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    if std::fs::metadata(&source)?.is_dir() {
        std::fs::create_dir_all(place)?;
    } else {
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent)?;
        }
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o640).open(place)?;
    }
    rustix::mount::mount_bind(source.as_str(), place)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_created_and_stay_in_the_volume() {
        let volume = tempfile::tempdir().unwrap();
        let made = prepare(volume.path(), "a/b", Path::new("/nonexistent"), false).unwrap();
        assert!(made.is_dir() && made == volume.path().join("a/b"));
        std::fs::set_permissions(volume.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let open = prepare(volume.path(), "open/deep", Path::new("/nonexistent"), false).unwrap();
        for path in [open.as_path(), open.parent().unwrap()] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o1777);
        }
        std::os::unix::fs::symlink("/etc", volume.path().join("out")).unwrap();
        std::os::unix::fs::symlink("a", volume.path().join("in")).unwrap();
        assert!(prepare(volume.path(), "in/b", Path::new("/nonexistent"), false).is_ok());
        for bad in ["../x", "/etc", "out", "out/passwd", "out/new", "a/../../x"] {
            assert!(prepare(volume.path(), bad, Path::new("/nonexistent"), false).is_err(), "{bad}");
        }
    }
}
