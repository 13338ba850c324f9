//! Files of a volume, replaced as a whole; file systems in memory; and their end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use api::time::Timestamp;
use rustix::mount::{MountFlags, UnmountFlags};

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    pub(super) owner: Option<u32>,
}

/// Files by their path in the volume.
pub(super) type Entries = BTreeMap<String, Entry>;

/// Replaces the files of a volume by `entries`. Readers see either all old files or all new ones.
pub(super) fn replace(volume: &Path, entries: &Entries, group: Option<u32>, now: Timestamp) -> io::Result<()> {
    let stamp = stamp(now);
    let fresh = volume.join(&stamp);
    std::fs::create_dir_all(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))?;
    for (path, entry) in entries {
        let path = fresh.join(relative(path)?);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, &entry.bytes)?;
        let mode = if group.is_some() { entry.mode | 0o440 } else { entry.mode };
        // The mode is set after the owner: a change of owner clears bits.
        if entry.owner.is_some() || group.is_some() {
            chown(&path, entry.owner, group)?;
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    if let Some(group) = group {
        chown(&fresh, None, Some(group))?;
    }
    let data = volume.join("..data");
    let old = std::fs::read_link(&data).ok();
    let link = volume.join("..data_tmp");
    let _ = std::fs::remove_file(&link);
    symlink(&stamp, &link)?;
    std::fs::rename(&link, &data)?;
    let top = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = entries.keys().map(top).collect();
    for name in &names {
        let shown = volume.join(name);
        if !shown.is_symlink() {
            symlink(Path::new("..data").join(name), &shown)?;
            if let Some(owner) = entries.get(name).and_then(|entry| entry.owner) {
                std::os::unix::fs::lchown(&shown, Some(owner), None)?;
            }
        }
    }
    for found in std::fs::read_dir(volume)?.flatten() {
        let name = found.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !names.contains(&name) {
            std::fs::remove_file(found.path())?;
        }
    }
    if let Some(old) = old.filter(|old| old.as_os_str() != stamp.as_str()) {
        let _ = std::fs::remove_dir_all(volume.join(old));
    }
    Ok(())
}

/// The directory of one version of the files: `..2026_01_31_23_59_59.123456789`.
fn stamp(now: Timestamp) -> String {
    let date = Timestamp { nanos: 0, ..now }.to_string();
    let digits: String =
        date.trim_end_matches('Z').chars().map(|it| if "-:T".contains(it) { '_' } else { it }).collect();
    format!("..{digits}.{:09}", now.nanos)
}

/// A path that stays in its volume.
fn relative(path: &str) -> io::Result<&Path> {
    let path = Path::new(path);
    let stays = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if stays { Ok(path) } else { Err(io::Error::other(format!("invalid path {}", path.display()))) }
}

/// Mounts a file system in memory, unless one exists.
pub(super) fn mount_memory(path: &Path, limit: Option<i64>) -> io::Result<()> {
    if mounts_below(path)?.iter().any(|known| known == path) {
        return Ok(());
    }
    let mut options = "mode=1777".to_owned();
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        options.push_str(&format!(",size={limit}"));
    }
    let mount = |options: &str| -> io::Result<()> {
        let options = CString::new(options)?;
        Ok(rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str())?)
    };
    // Secrets must not be swapped out; kernels before 6.3 do not have the option.
    mount(&format!("{options},noswap")).or_else(|_| mount(&options))
}

/// The mount points at or below a path, as the kernel lists them.
pub(super) fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(path)).collect())
}

/// A path of mountinfo, in which blanks are octal.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Unmounts everything at or below a path; whether nothing is left there.
pub(crate) fn unmount_below(path: &Path) -> io::Result<bool> {
    for point in mounts_below(path)?.iter().rev() {
        rustix::mount::unmount(point, UnmountFlags::DETACH)?;
    }
    Ok(mounts_below(path)?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(&str, &str)]) -> Entries {
        let entry = |text: &str| Entry { bytes: text.as_bytes().to_vec(), mode: 0o640, owner: None };
        list.iter().map(|(path, text)| ((*path).to_owned(), entry(text))).collect()
    }

    #[test]
    fn files_are_replaced_as_a_whole() {
        let volume = tempfile::tempdir().unwrap();
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        replace(volume.path(), &entries(&[("a", "1"), ("d/b", "2")]), None, at(1)).unwrap();
        let read = |path: &str| std::fs::read_to_string(volume.path().join(path)).ok();
        assert_eq!((read("a").as_deref(), read("d/b").as_deref()), (Some("1"), Some("2")));
        let mode = std::fs::metadata(volume.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        replace(volume.path(), &entries(&[("a", "3")]), None, at(2)).unwrap();
        assert_eq!((read("a").as_deref(), read("d/b")), (Some("3"), None));
        let left = std::fs::read_dir(volume.path()).unwrap().count();
        assert_eq!(left, 3, "the link, the directory and the file's link");
    }

    #[test]
    fn paths_that_leave_the_volume_are_rejected() {
        let volume = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x"] {
            let outcome = replace(volume.path(), &entries(&[(path, "1")]), None, Timestamp { seconds: 1, nanos: 0 });
            assert!(outcome.is_err(), "{path}");
        }
    }
}
