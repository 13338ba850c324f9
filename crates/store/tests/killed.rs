//! A process that writes is killed again and again: nothing acknowledged is lost and revisions never go back.
//!
//! This test is its own child process, hence no test harness.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use celplane_store::{EmbeddedStore, Error, ListOptions, Options, Outcome, Store, Write};

const DIRECTORY: &str = "STORE_KILLED_DIRECTORY";
const WRITERS: usize = 8;
const ROUNDS: u32 = 10;

/// Test runners first request the list of tests, and then a test by its name.
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_asked = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if is_asked("--list") {
        if !is_asked("--ignored") {
            println!("nothing_acknowledged_is_lost: test");
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    match std::env::var_os(DIRECTORY) {
        Some(directory) => runtime.block_on(write_until_killed(Path::new(&directory))),
        None => runtime.block_on(nothing_acknowledged_is_lost()),
    }
}

fn open(directory: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(directory.join("store"), Options::default())
}

/// Counts one key per writer up and reports each step once it is acknowledged.
async fn write_until_killed(directory: &Path) {
    let store = Arc::new(open(directory).unwrap());
    println!("ready");
    for writer in 0..WRITERS {
        let store = store.clone();
        tokio::spawn(async move {
            let key = format!("/{writer}");
            let mut entry = store.get(&key, 0).await.unwrap().entry;
            loop {
                let count = entry.as_ref().map_or(0, |entry| count(&entry.value)) + 1;
                let value = format!("{count} {}", "x".repeat(2000));
                let write = match &entry {
                    Some(entry) => Write::update(&*key, entry.revision, value),
                    None => Write::create(&*key, value),
                };
                let Ok(Outcome::Done { revision }) = store.write(write).await else { std::process::exit(1) };
                // One line, one write.
                println!("{writer} {count} {revision}");
                entry = store.get(&key, revision).await.unwrap().entry;
            }
        });
    }
    std::future::pending().await
}

fn count(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).split(' ').next().unwrap().parse().unwrap()
}

async fn nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut highest = 0;
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert!(matches!(open(directory.path()), Err(Error::Locked { .. })), "two processes share a file");
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        // Not the same moment in each round.
        let until = Instant::now() + Duration::from_millis(20 + u64::from(round) * 23 % 140);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in reader.join().unwrap() {
            let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
            // The last line may be cut off.
            let [writer, count, revision] = numbers[..] else {
                continue;
            };
            counts.insert(writer, count);
            highest = highest.max(revision);
            acknowledged += 1;
        }
        let store = open(directory.path()).unwrap();
        let page = store.list("/", ListOptions::default()).await.unwrap();
        assert!(page.revision >= highest, "round {round}: at {} after {highest}", page.revision);
        let found: HashMap<u64, u64> =
            page.entries.iter().map(|entry| (entry.key[1..].parse().unwrap(), count(&entry.value))).collect();
        for (writer, count) in &counts {
            let found = found.get(writer).copied().unwrap_or(0);
            assert!(found == *count || found == count + 1, "round {round}: writer {writer} at {found} after {count}");
        }
        // One revision per write: as many as the counters, without duplicates.
        assert_eq!(page.revision, 1 + found.values().sum::<u64>(), "round {round}");
        highest = page.revision;
        store.close().await.unwrap();
    }
    assert!(acknowledged > 100, "only {acknowledged} writes");
    println!("nothing_acknowledged_is_lost ... ok ({acknowledged} writes, killed {ROUNDS} times)");
}
