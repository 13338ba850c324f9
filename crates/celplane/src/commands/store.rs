//! `celplane store`: the file of the embedded store, beside the server that uses it.

use std::path::PathBuf;
use std::process::ExitCode;

use controlplane::data_directory;
use controlplane::settings::STORE_FILE;

/// Check, back up, restore, export, compact or salvage the embedded store
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.command.run()
    }
}

super::subcommands! {
    Backup => backup,
    Check => check,
    Compact => compact,
    Export => export,
    Restore => restore,
    Salvage => salvage,
}

/// Directory of a server's certificates.
const PKI: &str = "pki";
/// Advice for the data directory of a server without a store of its own.
const ETCD_ADVICE: &str = ": the last server on this directory kept its objects elsewhere. Those of a server with \
                           --etcd-servers are in etcd; back them up with `etcdctl snapshot save FILE`";

/// Location of the store.
#[derive(clap::Args)]
struct Place {
    /// Data directory of the server; defaults to that of `celplane up`
    #[arg(long, value_name = "DIRECTORY", default_value_os_t = data_directory::default_path(), hide_default_value = true)]
    data_dir: PathBuf,
}

impl Place {
    /// The store's file, unless a newer version has written it.
    fn file(&self) -> anyhow::Result<PathBuf> {
        data_directory::refuse_newer(&self.data_dir)?;
        Ok(self.data_dir.join(STORE_FILE))
    }

    /// As [`Self::file`], where one must be there.
    fn existing_file(&self) -> anyhow::Result<PathBuf> {
        let path = self.file()?;
        if !path.try_exists()? {
            let mut text = format!("there is no file `{}`", path.display());
            // A server on etcd has only its certificates here.
            if self.data_dir.join(PKI).is_dir() {
                text.push_str(ETCD_ADVICE);
            }
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, text).into());
        }
        Ok(path)
    }
}

/// Adds advice to an error.
fn explain(error: store::Error, doing: &str) -> anyhow::Error {
    let advice = match &error {
        store::Error::Locked { .. } => {
            Some("stop the server first; only `celplane store backup` and `export` work while it runs")
        }
        _ => None,
    };
    let error = anyhow::Error::new(error);
    match advice {
        Some(advice) => error.context(format!("cannot {doing}: {advice}")),
        None => error.context(format!("cannot {doing}")),
    }
}
