//! `celplane apiserver` is killed repeatedly while clients write and watch: no acknowledged write is lost,
//! revisions never decrease, watchers resume where they were, and the observations of all clients are
//! linearizable.
//!
//! `CELPLANE_CRASH_ROUNDS` sets the number of kills; without it the test takes a few seconds.

#[path = "../../apiserver/tests/hostile/client.rs"]
mod client;
mod history;
mod process;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Endpoint};
use process::Server;
use serde_json::{Value, json};

const WRITERS: usize = 6;
const WATCHERS: usize = 3;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Number of kills.
pub(crate) fn rounds(default: u64) -> u64 {
    std::env::var("CELPLANE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// State of a writer's object.
#[derive(Debug, Clone, Default)]
struct Counter {
    /// Acknowledged count.
    acknowledged: u64,
    /// Whether one more step was requested without an answer.
    unsure: bool,
}

/// State of a watcher.
#[derive(Debug, Clone, Default)]
struct ObservedState {
    revision: u64,
    counts: BTreeMap<String, u64>,
    events: u64,
}

#[test]
fn nothing_acknowledged_is_lost_and_watchers_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut counters = vec![Counter::default(); WRITERS];
    let mut watchers = vec![ObservedState::default(); WATCHERS];
    let mut highest = 0;
    let rounds = rounds(6);
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut server = Server::start(directory.path());
        let endpoint = server.endpoint();
        let found = list(&mut endpoint.connect());
        assert!(found.revision >= highest, "round {round}: at {} after {highest}", found.revision);
        for (number, counter) in counters.iter_mut().enumerate() {
            let count = found.counts.get(&name(number)).copied().unwrap_or(0);
            let may_be_one_more = counter.unsure && count == counter.acknowledged + 1;
            assert!(
                count == counter.acknowledged || may_be_one_more,
                "round {round}: {} is at {count} after {counter:?}",
                name(number)
            );
            *counter = Counter { acknowledged: count, unsure: false };
        }
        if round == 0 {
            watchers = vec![found.clone(); WATCHERS];
        }
        let stop = AtomicBool::new(false);
        let newest = AtomicU64::new(found.revision);
        std::thread::scope(|scope| {
            for seen in &mut watchers {
                scope.spawn(|| watch(&endpoint, seen, &stop));
            }
            for (number, counter) in counters.iter_mut().enumerate() {
                let (endpoint, newest, stop) = (&endpoint, &newest, &stop);
                scope.spawn(move || count(endpoint, number, counter, newest, stop));
            }
            // Not at the same moment of a commit in each round.
            std::thread::sleep(Duration::from_millis(300 + round * 37 % 200));
            stop.store(true, Ordering::SeqCst);
            server.kill();
        });
        highest = newest.load(Ordering::SeqCst);
        acknowledged = counters.iter().map(|counter| counter.acknowledged).sum();
    }
    // In the end every watcher has seen every step once.
    let server = Server::start(directory.path());
    let endpoint = server.endpoint();
    let found = list(&mut endpoint.connect());
    for seen in &mut watchers {
        catch_up(&endpoint, seen, &found);
        assert_eq!(seen.counts, found.counts);
    }
    assert!(acknowledged >= rounds * 5, "only {acknowledged} writes in {rounds} rounds");
    println!("{acknowledged} writes, killed {rounds} times, {} events per watcher", watchers[0].events);
}

fn name(number: usize) -> String {
    format!("counter-{number}")
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is not a number"))
}

fn list(client: &mut Client) -> ObservedState {
    let answer = client.request("GET", &format!("{CONFIG_MAPS}?labelSelector=test=counter"), &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let items = list["items"].as_array().unwrap();
    let counts = items
        .iter()
        .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), number(&item["data"]["count"])));
    ObservedState { revision: number(&list["metadata"]["resourceVersion"]), counts: counts.collect(), events: 0 }
}

/// Increments until the server has ended.
fn count(endpoint: &Endpoint, of: usize, counter: &mut Counter, newest: &AtomicU64, stop: &AtomicBool) {
    let Ok(mut client) = endpoint.try_connect() else { return };
    let path = format!("{CONFIG_MAPS}/{}", name(of));
    let mut version = match client.request("GET", &path, &[], b"") {
        Ok(answer) if answer.status == 200 => {
            let object: Value = serde_json::from_slice(&answer.body).unwrap();
            Some(number(&object["metadata"]["resourceVersion"]))
        }
        _ => None,
    };
    while !stop.load(Ordering::SeqCst) || !counter.unsure {
        let next = counter.acknowledged + 1;
        let mut object = json!({
            "metadata": {"name": name(of), "labels": {"test": "counter"}},
            "data": {"count": next.to_string(), "filling": "x".repeat(500)}
        });
        let (method, path) = match version {
            Some(version) => {
                object["metadata"]["resourceVersion"] = version.to_string().into();
                ("PUT", path.as_str())
            }
            None => ("POST", CONFIG_MAPS),
        };
        counter.unsure = true;
        let Ok(answer) = client.request(method, path, &[], object.to_string().as_bytes()) else { return };
        assert!(matches!(answer.status, 200 | 201), "{method}: {} {}", answer.status, answer.text());
        let object: Value = serde_json::from_slice(&answer.body).unwrap();
        let revision = number(&object["metadata"]["resourceVersion"]);
        assert!(version.is_none_or(|version| revision > version), "{revision} after {version:?}");
        version = Some(revision);
        newest.fetch_max(revision, Ordering::SeqCst);
        *counter = Counter { acknowledged: next, unsure: false };
    }
}

/// Follows all counters from the watcher's position until the server has ended.
fn watch(endpoint: &Endpoint, seen: &mut ObservedState, stop: &AtomicBool) {
    // The end of the connection is expected after the stop.
    let ended = follow(endpoint, seen, |_| false);
    assert!(stop.load(Ordering::SeqCst), "a watch ended by itself: {ended:?}");
}

/// Follows all counters until they are where they are known to be.
fn catch_up(endpoint: &Endpoint, seen: &mut ObservedState, found: &ObservedState) {
    if seen.counts != found.counts {
        follow(endpoint, seen, |seen| seen.counts == found.counts).unwrap();
    }
}

fn follow(
    endpoint: &Endpoint,
    seen: &mut ObservedState,
    mut is_enough: impl FnMut(&ObservedState) -> bool,
) -> io::Result<()> {
    let mut client = endpoint.try_connect()?;
    let query = format!("watch=1&labelSelector=test=counter&resourceVersion={}", seen.revision);
    client.send(format!("GET {CONFIG_MAPS}?{query} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
    let (status, head) = client.head()?;
    assert_eq!(status, 200, "{head}");
    let mut text = Vec::new();
    while let Some(chunk) = client.chunk()? {
        text.extend(chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            assert_ne!(event["type"], "ERROR", "{event}");
            let object = &event["object"];
            let revision = number(&object["metadata"]["resourceVersion"]);
            assert!(revision > seen.revision, "{revision} came after {}", seen.revision);
            let (name, count) = (object["metadata"]["name"].as_str().unwrap(), number(&object["data"]["count"]));
            let before = seen.counts.insert(name.to_owned(), count).unwrap_or(0);
            assert_eq!(count, before + 1, "{name} at revision {revision}");
            seen.revision = revision;
            seen.events += 1;
        }
        if is_enough(seen) {
            return Ok(());
        }
    }
    Ok(())
}
