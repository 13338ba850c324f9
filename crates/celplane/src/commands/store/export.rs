//! `celplane store export`: the objects as text, one a line, for people and other programs.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use api::json::{self, Value};
use store::backup::Reader;

use super::{Place, backup};

/// Print all objects, including Secrets, as JSON, one per line with key and revision; works with and without a
/// running server
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Kubeconfig of a running server; defaults to `admin.kubeconfig` in the data directory
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Backup to print instead of the store
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    backup: Option<PathBuf>,
    /// Print only keys with this prefix, such as /registry/core/pods/
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match &self.backup {
            Some(path) => self.print(File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?)?,
            None => {
                // On the way through a file, so that what is printed is whole.
                let beside = Some(self.place.data_dir.clone()).filter(|directory| directory.is_dir());
                let name = format!("celplane-export-{}.part", std::process::id());
                let path = beside.unwrap_or_else(std::env::temp_dir).join(name);
                let written = backup::write(&self.place, self.kubeconfig.as_deref(), &path);
                let file = written.and_then(|()| Ok(File::open(&path)?));
                let _ = std::fs::remove_file(&path);
                self.print(file?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, file: File) -> anyhow::Result<()> {
        let mut out = BufWriter::new(crate::output::stdout());
        for entry in Reader::new(BufReader::new(file)).context("cannot read the backup")? {
            let entry = entry.context("cannot read the backup")?;
            if !entry.key.starts_with(&self.prefix) {
                continue;
            }
            // What servers keep for themselves is text.
            let value = cache::stored::document(&entry.value)
                .unwrap_or_else(|| Value::from(String::from_utf8_lossy(&entry.value).into_owned()));
            let revision = i64::try_from(entry.revision).unwrap_or(i64::MAX);
            let line = api::json!({"key": (&*entry.key), "revision": revision, "value": value});
            writeln!(out, "{}", json::to_string(&line))?;
        }
        Ok(out.flush()?)
    }
}
