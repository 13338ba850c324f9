//! What a control plane says when it serves and when it is ready: where it is, and what to type next.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::style::{Style, When};

/// Where things are.
pub(super) struct Announcement<'a> {
    pub(super) url: &'a str,
    pub(super) kubeconfig: &'a Path,
    pub(super) data: &'a str,
    pub(super) is_background: bool,
}

/// Nobody needs to read this: a closed standard output is not a failure.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Announcement<'_> {
    /// Requests are answered.
    pub(super) fn serving(&self, took: Duration) {
        say(&format!("The API is served at {} after {} ms.\n", self.url, took.as_millis()));
    }

    /// How to talk to a server that runs alone.
    pub(super) fn alone(&self) {
        say(&format!("Use it with: kubectl --kubeconfig {} get namespaces\n", self.kubeconfig.display()));
    }

    /// Everything works: what can be typed now.
    pub(super) fn ready(&self, nodes: usize, took: Duration) {
        let style = Style::of_stdout(When::Auto);
        let kubeconfig = self.kubeconfig.display();
        let ready = match nodes {
            0 => format!("Ready after {} ms, without nodes.", took.as_millis()),
            1 => format!("1 node is ready after {} ms.", took.as_millis()),
            nodes => format!("{nodes} nodes are ready after {} ms.", took.as_millis()),
        };
        let end = match self.is_background {
            true => String::new(),
            false => "\nCtrl-C ends it; with the same data directory it goes on where it was.\n".to_owned(),
        };
        say(&format!(
            "{}\n\n  kubeconfig  {kubeconfig}\n  data        {}\n\n{}\n  export KUBECONFIG={kubeconfig}\n  kubectl get nodes\n  kubectl create deployment web --image=nginx --replicas=3\n  kubectl get pods -o wide\n{end}",
            style.good(ready),
            self.data,
            style.bold(if self.is_background { "Next:" } else { "Next, in another shell:" }),
        ));
    }
}

/// A line that changes while people wait; nothing where nobody watches.
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
