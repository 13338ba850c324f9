//! Watchers that do not read their events.

use std::time::Duration;

use apiserver::Options;

use super::running::{RunningServer, eventually, open_files, resident_kilobytes};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Size of one object in bytes.
const LENGTH: usize = 100_000;

/// Size of the server's history.
const HISTORY: usize = 16 << 20;

fn put(client: &mut super::client::Client, round: usize) {
    let data = "x".repeat(LENGTH);
    let object = format!(r#"{{"metadata":{{"name":"big"}},"data":{{"round":"{round}","filling":"{data}"}}}}"#);
    let (method, path) =
        if round == 0 { ("POST", CONFIG_MAPS.to_owned()) } else { ("PUT", format!("{CONFIG_MAPS}/big")) };
    let answer = client.request(method, &path, &[], object.as_bytes()).unwrap();
    assert!(answer.status < 300, "{} {}", answer.status, answer.text());
}

#[test]
fn a_watcher_that_does_not_read_is_cut_off_in_bounded_memory() {
    // A watch that lost its place ends; where what was sent fits into the buffers of the system, its connection is idle.
    let (write_timeout, head_timeout) = (Duration::from_millis(500), Duration::from_secs(4));
    let options = Options {
        write_timeout,
        head_timeout,
        idle_timeout: head_timeout,
        watch_history_bytes_max: HISTORY,
        ..Options::without_controllers()
    };
    let running = RunningServer::start(options);
    let mut writer = running.endpoint.connect();
    put(&mut writer, 0);
    let files = open_files();
    let watch = format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut watchers: Vec<_> = (0..20)
        .map(|_| {
            let mut client = running.endpoint.connect();
            client.send(watch.as_bytes()).unwrap();
            assert_eq!(client.head().unwrap().0, 200);
            client
        })
        .collect();
    // Twice as much as the history holds.
    for round in 1..200 {
        put(&mut writer, round);
    }
    let kilobytes = resident_kilobytes();
    for round in 200..600 {
        put(&mut writer, round);
    }
    // 40 MB went by; 20 watchers hold no more than a few batches each.
    let now = resident_kilobytes();
    assert!(now < kilobytes + (60 << 10), "{kilobytes} → {now}");
    // The server has closed its side of all of them, though they read nothing.
    eventually("watchers are cut off", || open_files() <= files + watchers.len() + 2);
    for watcher in &mut watchers {
        assert!(watcher.is_closed());
    }
    running.check_alive();
}

#[test]
fn outdated_watcher_receives_expired_error() {
    let running = RunningServer::start(Options { watch_history_bytes_max: HISTORY, ..Options::without_controllers() });
    let mut writer = running.endpoint.connect();
    for round in 0..400 {
        put(&mut writer, round);
    }
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=1&timeoutSeconds=5");
    let answer = running.ask("GET", &path, "", b"");
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("\"code\":410"), "{}", answer.text());
}
