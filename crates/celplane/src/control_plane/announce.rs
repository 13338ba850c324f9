//! Messages of a control plane when it serves and when it is ready: addresses, and commands to type next.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use controlplane::load::LoadResult;

use crate::connection::ConnectionArguments;
use crate::console::Process;
use crate::style::{ColorChoice, Style};

/// Addresses and paths.
pub(super) struct Announcement<'a> {
    pub(super) url: &'a str,
    pub(super) kubeconfig: &'a Path,
    pub(super) data: &'a str,
    /// Enabled features by component, in lines.
    pub(super) gates: &'a str,
    pub(super) is_background: bool,
    /// Whether objects outlive the process.
    pub(super) is_kept: bool,
    /// Services of containers, if they run.
    pub(super) services: Option<&'a str>,
}

/// Prints an optional message: a closed standard output is not a failure.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Announcement<'_> {
    /// Requests are answered.
    pub(super) fn serving(&self, took: Duration) {
        say(&format!("The API is served at {} after {} ms.\n{}", self.url, took.as_millis(), self.gates));
    }

    /// Prints how to connect to a server without other components.
    pub(super) fn alone(&self) {
        say(&format!("Use it with: kubectl --kubeconfig {} get namespaces\n", self.kubeconfig.display()));
    }

    /// Prints that everything works, and commands to type next.
    pub(super) fn ready(&self, nodes: usize, took: Duration) {
        let style = Style::of_stdout(ColorChoice::Auto);
        let kubeconfig = self.kubeconfig.display();
        let ready = match nodes {
            0 => format!("Ready after {} ms, without nodes.", took.as_millis()),
            1 => format!("1 node is ready after {} ms.", took.as_millis()),
            nodes => format!("{nodes} nodes are ready after {} ms.", took.as_millis()),
        };
        let end = match (self.is_background, self.is_kept) {
            (true, _) => "",
            (false, true) => "\nPress Ctrl-C to stop. Restart with the same data directory to resume.\n",
            (false, false) => "\nPress Ctrl-C to stop. All objects are in memory and will be lost.\n",
        };
        let services = self.services.map_or_else(String::new, |it| format!("  services    {it}\n"));
        say(&format!(
            "{}\n\n  kubeconfig  {kubeconfig}\n  data        {}\n{services}\n{}\n  export KUBECONFIG={kubeconfig}\n  kubectl get nodes\n  kubectl create deployment web --image=nginx --replicas=3\n  kubectl get pods -o wide\n{end}",
            style.good(ready),
            self.data,
            style.bold(if self.is_background { "Next:" } else { "Next, in another shell:" }),
        ));
    }
}

/// Binds a console for the cluster and prints its URL.
pub(super) async fn console(port: u16, kubeconfig: &Path) -> anyhow::Result<::console::Console> {
    let connection = ConnectionArguments::of_file(kubeconfig.to_owned());
    let cluster = connection.console_cluster().await?;
    let process = Process::new(connection.flags())?;
    let first = AtomicBool::new(true);
    let on_url = move |url: &str| {
        let label = if first.swap(false, Ordering::Relaxed) { "Console" } else { "Console, for another window" };
        say(&format!("\n{label}: {url}\n"));
    };
    Ok(crate::console::bind(port, cluster, process, on_url).await?)
}

/// Prints what was loaded. From the background only standard output is shown; standard error is its log.
pub(super) fn loaded(loaded: &LoadResult, is_background: bool) {
    let text = loaded.text("Loaded");
    if is_background {
        say(&text);
    } else {
        // An optional message: a closed standard error is not a failure.
        let _ = write!(std::io::stderr(), "{text}");
    }
}

/// A progress line; nothing if the output is not a terminal.
pub(super) struct Progress {
    is_shown: bool,
    has_line: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), has_line: false }
    }

    pub(super) fn show(&mut self, text: &str) {
        if self.is_shown {
            self.has_line = true;
            let _ = write!(std::io::stderr(), "\r\u{1b}[2m{text}\u{1b}[0m\u{1b}[K");
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
