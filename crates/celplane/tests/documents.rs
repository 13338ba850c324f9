//! The output in `README.md` and `docs/` matches the program's.
//!
//! A line in a code block that begins with `$` is a command, and what follows up to the next one is its output.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const LIMIT: Duration = Duration::from_secs(60);

/// A command and its output, as a document has them.
struct ShownCommand {
    command: String,
    output: String,
}

/// The commands of a document, block by block.
fn shown(file: &Path) -> Vec<Vec<ShownCommand>> {
    let text = std::fs::read_to_string(file).unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap_or_default().1);
    blocks
        .map(|block| {
            let mut commands: Vec<ShownCommand> = Vec::new();
            let mut is_input = false;
            for line in block.lines() {
                if let Some(command) = line.strip_prefix("$ ") {
                    commands.push(ShownCommand { command: format!("{command}\n"), output: String::new() });
                    is_input = command.ends_with("<<END");
                } else if let Some(last) = commands.last_mut() {
                    let part = if is_input { &mut last.command } else { &mut last.output };
                    part.push_str(&format!("{line}\n"));
                    is_input &= line != "END";
                }
            }
            commands
        })
        .collect()
}

fn documents() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    files.push(Path::new(ROOT).join("README.md"));
    files.sort();
    files
}

/// Runs a command as a shell would, with `celplane` on the path.
fn shell(command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_celplane")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(ROOT).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", program.display()));
    shell
}

#[test]
fn offline_commands_print_the_documented_output() {
    let mut count = 0;
    for file in documents() {
        for ShownCommand { command, output } in shown(&file).into_iter().flatten() {
            if !command.starts_with("celplane ") || command.starts_with("celplane up") {
                continue;
            }
            let printed = shell(&format!("exec 2>&1\n{command}")).output().unwrap();
            let printed = without_times(&String::from_utf8_lossy(&printed.stdout));
            assert_eq!(printed.trim_end(), without_times(&output).trim_end(), "{}: {command}", file.display());
            count += 1;
        }
    }
    assert!(count > 8, "{count} commands were found");
}

/// Lines that end in a time, without it.
fn without_times(text: &str) -> String {
    let shows_time = |line: &str| line.ends_with(" ms.") || line.contains(" passed in ");
    let digit = |it: char| if it.is_ascii_digit() { '#' } else { it };
    let line = |line: &str| if shows_time(line) { line.chars().map(digit).collect() } else { line.to_owned() };
    text.lines().map(|it| line(it).replace("##", "#").replace("##", "#") + "\n").collect()
}

/// Removes parts that differ between runs: times, addresses, paths, the ends of generated names, and the
/// placement of equal pods.
fn masked(text: &str) -> Vec<Vec<String>> {
    let is_age = |word: &str| word.ends_with('s') && word.starts_with(|it: char| it.is_ascii_digit());
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let is_web = line.starts_with("web-");
            let mask = |word: &str| match word {
                word if is_web && word.starts_with("web-") => word.rsplit_once('-').unwrap().0.to_owned(),
                word if is_web && word.starts_with("node-") => "NODE".to_owned(),
                word if word.starts_with("10.128.") => "ADDRESS".to_owned(),
                word if word.contains("127.0.0.1:") => "URL".to_owned(),
                word if word.contains("/celplane") => "PATH".to_owned(),
                word if is_age(word) => "AGE".to_owned(),
                word if word.parse::<u64>().is_ok_and(|number| number > 3) => "NUMBER".to_owned(),
                word => word.to_owned(),
            };
            line.split_whitespace().map(mask).collect()
        })
        .collect()
}

/// A process, ended when dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn readme_quick_start_matches_the_output() {
    if Cluster::is_missing() {
        return;
    }
    let blocks = shown(&Path::new(ROOT).join("README.md"));
    let with = |start: &str| blocks.iter().find(|block| block.iter().any(|it| it.command.starts_with(start))).unwrap();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("celplane");
    let expected = &with("celplane up")[0].output;
    let mut command = shell("exec celplane up --port 0");
    let mut up = ChildGuard(command.env("XDG_DATA_HOME", home.path()).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(up.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<String> = lines.take(expected.lines().count()).collect();
    assert_eq!(masked(&printed.join("\n")), masked(expected));
    for ShownCommand { command, output } in with("kubectl create deployment") {
        let started = Instant::now();
        loop {
            let mut kubectl = shell(command);
            kubectl.env("KUBECONFIG", data.join("admin.kubeconfig")).env("KUBECACHEDIR", home.path());
            let printed = String::from_utf8(kubectl.output().unwrap().stdout).unwrap();
            if masked(&printed) == masked(output) {
                break;
            }
            // Only what looks may be tried again.
            let looks = command.starts_with("kubectl get") || command.starts_with("kubectl describe");
            assert!(looks && started.elapsed() < LIMIT, "{command}{printed}\nshould be\n{output}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
