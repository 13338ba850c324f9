//! A control plane in a child process, which ends when its standard input closes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{End, Error, RunningPlane};

/// Time for a start; a loaded machine may be slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the ready file is looked for.
const POLL: Duration = Duration::from_millis(2);
/// Bytes of the log that an error repeats.
const LOG_BYTES_MAX: usize = 4096;

/// A child process.
#[derive(Debug)]
pub(crate) struct Child(std::process::Child);

impl Child {
    /// Closes its standard input and waits for it to end.
    pub(crate) fn end(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Starts the program; returns when the control plane is ready.
pub(crate) fn start(program: &Path, data: &Path, nodes: usize, gates: &str) -> Result<RunningPlane, Error> {
    std::fs::create_dir_all(data)?;
    let (ready, log) = (data.join("ready.json"), data.join("celplane.log"));
    let output = File::create(&log)?;
    let mut child = Command::new(program)
        .args(["up", "--ephemeral", "--port=0", "--stop-with-stdin"])
        .arg(format!("--nodes={nodes}"))
        .arg(format!("--feature-gates={gates}"))
        .arg("--data-dir")
        .arg(data)
        .arg("--ready-file")
        .arg(&ready)
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let started = Instant::now();
    while !ready.exists() {
        let is_over = started.elapsed() > START_TIMEOUT;
        if is_over {
            child.kill()?;
        }
        if let Some(status) = if is_over { Some(child.wait()?) } else { child.try_wait()? } {
            return Err(Error::Start(format!("{status}: {}", last_lines(&log))));
        }
        std::thread::sleep(POLL);
    }
    let document = api::json::parse(&std::fs::read(&ready)?);
    let url = document.ok().and_then(|document| Some(document.str_at(&["server"])?.to_owned()));
    match url {
        Some(url) => Ok(RunningPlane { url, end: End::Child(Child(child)) }),
        None => {
            Child(child).end();
            Err(Error::Start("its ready file names no server".to_owned()))
        }
    }
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let start = text.ceil_char_boundary(text.len().saturating_sub(LOG_BYTES_MAX));
    text.get(start..).unwrap_or_default().trim().to_owned()
}
