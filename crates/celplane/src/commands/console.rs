//! `celplane console`: the browser console for any cluster.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::connection::ConnectionArguments;
use crate::console::{self, Process};
use crate::output::{complain_line, print_line};

/// Serve the console for the cluster of a kubeconfig on a loopback port, with your own credentials
///
/// The console only reads. Open the printed URL in a browser: it holds a code that is valid once.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: ConnectionArguments,

    /// The port to listen on, on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,

    /// Open the URL in a browser
    #[arg(long)]
    open: bool,
}

impl Arguments {
    /// Serves until a signal is received.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async move {
            let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
            let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            let cluster = self.connection.console_cluster().await?;
            let server = cluster.server.clone();
            let process = Process::new(self.connection.flags())?;
            let (opens, first) = (self.open, std::sync::atomic::AtomicBool::new(true));
            let on_url = move |url: &str| {
                let is_first = first.swap(false, std::sync::atomic::Ordering::Relaxed);
                let label = if is_first { "Console:" } else { "For another window:" };
                let _ = print_line!("{label} {url}");
                if is_first && opens && let Err(error) = console::open_browser(url) {
                    complain_line!("warning: no browser was opened: {error:#}");
                }
            };
            let console = console::bind(self.port, cluster, process, on_url).await;
            let console = console.with_context(|| format!("cannot listen on port {}", self.port))?;
            print_line!("It shows {server} and only reads. Press Ctrl-C to stop.")?;
            tokio::select! {
                () = console.serve() => {}
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
