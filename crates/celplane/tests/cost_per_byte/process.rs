//! Processes whose cost is measured: a control plane, and commands that end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use client::Client;
use http::Method;

use super::generators::{Input, Kind};
use crate::cluster::{Cluster, program};

/// Cost of an input.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Processor time of the whole process until it is quiet again.
    pub(super) time: Duration,
    /// Bytes by which its memory grew at its peak.
    pub(super) memory: u64,
    /// Bytes of the answer.
    pub(super) out: u64,
}

impl Cost {
    /// One number to climb by: a MiB of memory counts as a millisecond.
    pub(super) fn weight(&self) -> u128 {
        self.time.as_micros() + u128::from(self.memory / 1024) + u128::from(self.out / 1024)
    }
}

/// A control plane with two nodes, tainted so that tolerations are evaluated.
pub(super) struct Server {
    cluster: Cluster,
    client: Client,
    count: usize,
}

/// The control plane counts as quiet when it uses less than this in a [`LOOK`].
const QUIET: Duration = Duration::from_millis(3);
const LOOK: Duration = Duration::from_millis(25);
/// Bytes of address space of a command: it ends when it takes more, instead of the machine.
const ADDRESS_SPACE: u64 = 4 << 30;
/// No input keeps it busy for longer.
const HELD_MAX: Duration = Duration::from_secs(60);

impl Server {
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cluster = Cluster::up(directory, &["--nodes", "2"]);
        let client = Client::from_kubeconfig(&cluster.kubeconfig(), None, "cost").await.unwrap();
        let mut server = Self { cluster, client, count: 0 };
        server.settle().await;
        server
    }

    /// Sends what a kind needs to be there.
    pub(super) async fn prepare(&mut self, kind: &Kind) {
        for (path, body) in (kind.prepare)() {
            // What another kind has made already is there.
            let _ = self.client.send(Method::POST, path, "application/json", body).await;
        }
        self.settle().await;
    }

    /// Measures an input. Objects that it creates are deleted afterwards, which does not count.
    pub(super) async fn cost(&mut self, input: &Input) -> Cost {
        self.count += 1;
        let (path, body) =
            (input.path.replace("{n}", &self.count.to_string()), input.body.replace("{n}", &self.count.to_string()));
        self.settle().await;
        let before = (self.processor_time(), self.reset_peak());
        let answer = match input.method {
            Method::GET => self.client.get_as(&path, input.content_type).await,
            _ => self.client.send(input.method.clone(), &path, input.content_type, body).await,
        };
        let out = match &answer {
            Ok(bytes) => bytes.len(),
            Err(error) => error.to_string().len(),
        };
        self.settle().await;
        let time = self.processor_time().saturating_sub(before.0);
        let memory = self.peak().saturating_sub(before.1);
        if input.method == Method::POST && answer.is_ok() && !input.created.is_empty() {
            let created = input.created.replace("{n}", &self.count.to_string());
            let body = r#"{"gracePeriodSeconds":0}"#.to_owned();
            let _ = self.client.send(Method::DELETE, &created, "application/json", body).await;
        }
        Cost { time, memory, out: out as u64 }
    }

    /// Whether it still answers.
    pub(super) async fn is_well(&self) -> bool {
        self.client.send(Method::GET, "/readyz", "application/json", String::new()).await.is_ok()
    }

    /// Waits until nothing happens any more.
    pub(super) async fn settle(&mut self) {
        let until = Instant::now() + HELD_MAX;
        let mut last = self.processor_time();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.processor_time();
            if now.saturating_sub(last) < QUIET {
                return;
            }
            assert!(Instant::now() < until, "the control plane is busy without end");
            last = now;
        }
    }

    /// Nanoseconds, which `/proc/PID/stat` does not have: the sum of all threads.
    fn processor_time(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.cluster.process.id())).unwrap();
        let nanos = tasks.flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    fn status(&self, field: &str) -> u64 {
        status_field(&self.cluster.process.id().to_string(), field)
    }

    /// Forgets the peak; the memory now.
    fn reset_peak(&self) -> u64 {
        fs::write(format!("/proc/{}/clear_refs", self.cluster.process.id()), "5").unwrap();
        self.status("VmRSS:")
    }

    fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }
}

/// Cost of a command that reads a file, within [`ADDRESS_SPACE`].
pub(super) fn offline_cost(kind: &Kind, file: &Path) -> Cost {
    let arguments =
        kind.command.iter().map(|argument| if *argument == "{file}" { file.to_str().unwrap() } else { argument });
    let script =
        format!("ulimit -v {}; \"$@\" > \"$OUT\" 2>&1 & echo $!; wait $!; echo $?; times", ADDRESS_SPACE / 1024);
    let output = file.with_extension("out");
    let mut shell = Command::new("sh")
        .env("OUT", &output)
        .args(["-c", &script, "sh", &program()])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let process = lines.next().unwrap().unwrap();
    let (rest, ended) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || rest.send(lines.map(Result::unwrap).collect::<Vec<String>>()));
    // The peak only grows, and cannot be read after the process has ended: the last sample before that counts.
    let mut memory = 0;
    let lines = loop {
        memory = memory.max(status_field(&process, "VmHWM:"));
        match ended.recv_timeout(Duration::from_millis(1)) {
            Ok(lines) => break lines,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the shell's output was not read"),
        }
    };
    reader.join().unwrap().unwrap();
    shell.wait().unwrap();
    let code: i32 = lines.first().unwrap().parse().unwrap();
    assert!((0..=2).contains(&code), "{}: exit code {code}: {}", kind.name, tail(&output));
    // The last line has the times of children, as `0m0.010s 0m0.000s`.
    let times = lines.last().unwrap().split(' ').map(seconds).sum::<f64>();
    let out = fs::metadata(&output).map_or(0, |file| file.len());
    Cost { time: Duration::from_secs_f64(times), memory, out }
}

/// A number of bytes in the status of a process; 0 if it has ended.
fn status_field(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or_default() * 1024
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().rev().take(5).collect::<Vec<_>>().join("\n")
}

fn seconds(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap_or(("0", "0"));
    minutes.parse::<f64>().unwrap_or_default() * 60.0 + seconds.parse::<f64>().unwrap_or_default()
}
