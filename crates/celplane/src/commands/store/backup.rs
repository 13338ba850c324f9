//! `celplane store backup`: all objects as of one revision, in a file, while the server runs or not.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use client::Client;
use store::backup::Reader;
use store::{EmbeddedStore, backup};

use super::{Place, explain};
use crate::output::print_line;

/// The server's path for this.
const PATH: &str = "/store/backup";

/// Write all objects, including Secrets, to a file; works with and without a running server
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Kubeconfig of a running server; defaults to `admin.kubeconfig` in the data directory
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// File to write; must not exist
    #[arg(value_name = "FILE")]
    backup: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let ((), revision, count) =
            create(&self.backup, |unfinished| write(&self.place, self.kubeconfig.as_deref(), unfinished))?;
        print_line!("Wrote {count} objects as of revision {revision} to {}", self.backup.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Creates a backup under a name that no file has: the result of `write`, the revision, and the number of objects.
///
/// It appears under that name when it is complete.
pub(super) fn create<T>(path: &Path, write: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<(T, u64, u64)> {
    if path.try_exists()? {
        return Err(anyhow!("`{}` exists already", path.display()));
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let written = write(&unfinished).and_then(|result| {
        // A truncated file is not accepted as a backup.
        let (revision, count) = verify(&unfinished)?;
        std::fs::rename(&unfinished, path)?;
        Ok((result, revision, count))
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Reads a backup to its end: the revision, and the number of objects.
pub(super) fn verify(path: &Path) -> anyhow::Result<(u64, u64)> {
    let file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let read = || -> Result<(u64, u64), store::Error> {
        let mut reader = Reader::new(BufReader::new(file))?;
        let count = reader.try_fold(0_u64, |count, entry| entry.map(|_| count.saturating_add(1)))?;
        Ok((reader.revision(), count))
    };
    read().with_context(|| format!("cannot use `{}`", path.display()))
}

/// Writes a backup, from the file, or from the server that uses it.
pub(super) fn write(place: &Place, kubeconfig: Option<&Path>, to: &Path) -> anyhow::Result<()> {
    let store = if kubeconfig.is_none() { Some(place.existing_file()?) } else { None };
    let mut file = create_private(to).with_context(|| format!("cannot write `{}`", to.display()))?;
    let from_server = |kubeconfig: &Path, file: &mut File| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::from_kubeconfig(kubeconfig, None, "celplane").await;
            let client = client
                .map_err(anyhow::Error::from_boxed)
                .with_context(|| format!("cannot use `{}`", kubeconfig.display()))?;
            let downloaded = client.download(PATH, |piece| file.write_all(piece)).await;
            downloaded.context("the server did not return a backup")
        })
    };
    match (store, kubeconfig) {
        (None, None) => {}
        (None, Some(kubeconfig)) => from_server(kubeconfig, &mut file)?,
        (Some(store), _) => match EmbeddedStore::snapshot_of(store) {
            Err(store::Error::Locked { .. }) => from_server(&place.data_dir.join("admin.kubeconfig"), &mut file)?,
            snapshot => from_file(snapshot.map_err(|error| explain(error, "read the store"))?, &mut file)?,
        },
    }
    file.sync_all().with_context(|| format!("cannot write `{}`", to.display()))
}

/// A new file that only its owner can read. What an earlier attempt left is replaced, never written through: where others can
/// write they may have put it there.
pub(super) fn create_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn from_file(snapshot: store::Snapshot, file: &mut File) -> anyhow::Result<()> {
    let mut piece = Vec::new();
    backup::begin(snapshot.revision(), &mut piece);
    let mut count = 0_u64;
    for entry in snapshot {
        backup::add(&entry.map_err(|error| explain(error, "read the store"))?, &mut piece);
        count = count.saturating_add(1);
        if piece.len() > 1 << 20 {
            file.write_all(&piece)?;
            piece.clear();
        }
    }
    backup::end(count, &mut piece);
    Ok(file.write_all(&piece)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn existing_files_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let (path, theirs) = (directory.path().join("backup.part"), directory.path().join("theirs"));
        std::fs::write(&theirs, "").unwrap();
        symlink(&theirs, &path).unwrap();
        create_private(&path).unwrap().write_all(b"secret").unwrap();
        assert_eq!(std::fs::read(&theirs).unwrap(), b"");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        create_private(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
