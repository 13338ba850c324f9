//! The data directory of a control plane: its location, its lock, and the version that wrote it.
//!
//! One process at a time holds the lock on it and writes its process ID into the file, so that others can
//! report it and `celplane down` can stop it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use api::json::{self, Value};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

const LOCK: &str = "celplane.lock";
const VERSION: &str = "version.json";
/// Version of the format of the data directory; increased when older programs cannot read it any more.
pub(crate) const FORMAT: i64 = 1;

/// A directory that this process has for itself, until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// Default location of the data: a directory of the user.
pub fn default_path() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    // Fallback for users without a home directory.
    data.map_or_else(|| PathBuf::from("celplane-data"), |data| data.join("celplane"))
}

/// The directory of the control planes with names.
pub fn named_root() -> PathBuf {
    default_path().with_file_name("celplane-clusters")
}

/// The directory of a control plane: the user's default one, or that of a name.
pub fn path_of(name: Option<&str>) -> PathBuf {
    name.map_or_else(default_path, |name| named_root().join(name))
}

/// Reads the name of a control plane, which becomes a part of paths and of a context.
pub fn parse_name(text: &str) -> Result<String> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || text.len() > 40 || !text.bytes().all(is_part) || text.starts_with('-') {
        bail!("a name has up to 40 lower-case letters, digits and hyphens");
    }
    Ok(text.to_owned())
}

/// Whether a control plane has kept data in a directory.
pub fn is_used(path: &Path) -> bool {
    path.join(VERSION).is_file()
}

/// The number of the process that uses a directory, if there is one.
pub fn holder(path: &Path) -> Result<Option<i32>> {
    let lock = match File::open(path.join(LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.join(LOCK).display())),
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => number_in(&lock).map(Some),
        Err(error) => Err(error).context("cannot query the lock"),
    }
}

fn number_in(mut lock: &File) -> Result<i32> {
    let mut text = String::new();
    lock.read_to_string(&mut text)?;
    text.trim().parse().context("the lock file does not name its owner")
}

impl DataDirectory {
    /// Locks a directory, which is created if it does not exist.
    pub fn take(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot create `{}`", path.display()))?;
        let file = path.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = opened.with_context(|| format!("cannot write `{}`", file.display()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(path, number_in(&lock).ok())),
            Err(error) => return Err(error).with_context(|| format!("cannot lock `{}`", file.display())),
        }
        refuse_newer(path)?;
        note_version(path)?;
        // On a full disk the owner of the lock cannot be recorded, but the stored data can still be read.
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()));
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Fails if [`DataDirectory::take`] would fail, without changing anything.
    pub fn look(path: &Path) -> Result<()> {
        // What is not there yet is made in the first directory above it that is.
        let there = path.ancestors().find(|it| it.exists()).unwrap_or(Path::new("."));
        if !there.is_dir() {
            bail!("`{}` is not a directory", there.display());
        }
        if let Some(process) = holder(path)? {
            return Err(in_use(path, Some(process)));
        }
        rustix::fs::access(there, rustix::fs::Access::WRITE_OK)
            .with_context(|| format!("cannot write to `{}`", there.display()))?;
        refuse_newer(path)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn in_use(path: &Path, process: Option<i32>) -> anyhow::Error {
    let process = process.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"));
    anyhow::anyhow!(
        "`{0}` is in use by {process}; stop it with `celplane down --data-dir {0}`, or choose another directory with --data-dir",
        path.display()
    )
}

/// Fails if a newer version has written a directory in a form that this one cannot read. Nothing is changed.
pub fn refuse_newer(path: &Path) -> Result<()> {
    let file = path.join(VERSION);
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        // Directories of the first versions have no such file; their format is the first.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", file.display())),
    };
    let said = json::parse(&bytes).with_context(|| format!("cannot read `{}`", file.display()))?;
    let Some(format) = said.get("format").and_then(Value::as_i64) else {
        bail!("`{}` does not name the format of the data", file.display());
    };
    if format > FORMAT {
        let by = said.str_at(&["version"]).unwrap_or("unknown");
        bail!(
            "`{}` was written by celplane {by} in format {format}; this is celplane {}, which reads up to format {FORMAT}: use that version, or another directory with --data-dir",
            path.display(),
            env!("CARGO_PKG_VERSION")
        );
    }
    Ok(())
}

/// Notes what this version writes.
fn note_version(path: &Path) -> Result<()> {
    let file = path.join(VERSION);
    let mine = json::to_pretty_string(&api::json!({"format": FORMAT, "version": (env!("CARGO_PKG_VERSION"))}), "  ");
    if std::fs::read_to_string(&file).is_ok_and(|said| said == mine) {
        return Ok(());
    }
    let unfinished = path.join("version.json.new");
    std::fs::write(&unfinished, mine)
        .and_then(|()| std::fs::rename(&unfinished, &file))
        .with_context(|| format!("cannot write `{}`", file.display()))
}
