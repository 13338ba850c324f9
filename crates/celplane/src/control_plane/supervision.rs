//! Flags for programs that start a control plane, wait for it, and take it down when they end.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Flags for a control plane that another program starts and stops.
#[derive(clap::Args)]
pub(super) struct Supervision {
    /// File to which a JSON document with `server` and `kubeconfig` is written when all components are ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Stop when standard input closes, for example because the starting program has exited
    #[arg(long)]
    stop_with_stdin: bool,
}

impl Supervision {
    /// Writes the ready file, whole or not at all.
    pub(super) fn ready(&self, url: &str, kubeconfig: &Path) -> Result<()> {
        let Some(path) = &self.ready_file else { return Ok(()) };
        let kubeconfig = std::path::absolute(kubeconfig)?;
        let document = api::json!({"server": url, "kubeconfig": (kubeconfig.display().to_string())});
        let name = || format!("cannot write `{}`", path.display());
        let mut part = path.clone().into_os_string();
        part.push(".part");
        std::fs::write(&part, api::json::to_string(&document)).with_context(name)?;
        std::fs::rename(&part, path).with_context(name)
    }

    /// Returns when standard input has closed; never without the flag.
    pub(super) async fn stdin_closed(&self) {
        if !self.stop_with_stdin {
            return std::future::pending().await;
        }
        let (closed, waiting) = tokio::sync::oneshot::channel();
        // A separate thread: a blocked read would keep the runtime from ending.
        std::thread::spawn(move || {
            let mut buffer = [0; 256];
            let mut input = std::io::stdin().lock();
            while input.read(&mut buffer).is_ok_and(|count| count > 0) {}
            let _ = closed.send(());
        });
        let _ = waiting.await;
    }
}
