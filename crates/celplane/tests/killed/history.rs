//! Concurrent reads and writes of a few objects through the API, with and without a crash in between: is there an order
//! that explains what everybody saw?

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use store::Guard;
use store::conformance::{Operation, TimedOperation, find_violation};

use super::client::{Client, Endpoint};
use super::process::Server;
use super::{CONFIG_MAPS, number, rounds};

const CLIENTS: u64 = 6;
const KEYS: usize = 3;

/// Operations on each object, by all clients.
type History = Arc<Mutex<Vec<Vec<TimedOperation>>>>;

#[test]
fn client_observations_are_linearizable() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let history: History = Arc::new(Mutex::new(vec![Vec::new(); KEYS]));
    let clock = AtomicU64::new(0);
    run(&server.endpoint(), &history, &clock, 1, 40, || ());
    for round in 0..rounds(3) {
        // The number of steps is more than can be done until then.
        run(&server.endpoint(), &history, &clock, 100 + round, 1000, || {
            std::thread::sleep(Duration::from_millis(40 + round * 13 % 50));
            server.kill();
        });
        server = Server::start(directory.path());
    }
    run(&server.endpoint(), &history, &clock, 2, 20, || ());
    let histories = std::mem::take(&mut *history.lock().unwrap());
    for history in histories {
        let written = history.iter().filter(|timed| matches!(timed.operation, Operation::Written { .. })).count();
        let unknown = history.iter().filter(|timed| matches!(timed.operation, Operation::Unknown { .. })).count();
        println!("{} operations, {written} writes, {unknown} without an answer or of unknown revision", history.len());
        assert!(written > 5, "{written}");
        if let Some(violation) = find_violation(history) {
            panic!("{violation}");
        }
    }
}

/// Lets all clients work during `meanwhile`, until they have done their steps or the server has ended.
fn run(endpoint: &Endpoint, history: &History, clock: &AtomicU64, seed: u64, steps: u64, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || work(endpoint, history, clock, seed * CLIENTS + client + 1, steps));
        }
        meanwhile();
    });
}

fn work(endpoint: &Endpoint, history: &History, clock: &AtomicU64, seed: u64, steps: u64) {
    let Ok(mut client) = endpoint.try_connect() else { return };
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut known: Vec<Option<u64>> = vec![None; KEYS];
    for _ in 0..steps {
        let key = usize::try_from(random(u64::try_from(KEYS).unwrap())).unwrap();
        let choice = random(10);
        let asked = clock.fetch_add(1, Ordering::SeqCst);
        let (operation, is_alive) = step(&mut client, key, &mut known[key], choice);
        let answered = clock.fetch_add(1, Ordering::SeqCst);
        if let Some(operation) = operation {
            history.lock().unwrap()[key].push(TimedOperation { asked, answered, operation });
        }
        if !is_alive {
            return;
        }
    }
}

/// Does one thing to an object; what that was and whether the server is still there.
fn step(client: &mut Client, key: usize, known: &mut Option<u64>, choice: u64) -> (Option<Operation>, bool) {
    let (name, path) = (format!("key-{key}"), format!("{CONFIG_MAPS}/key-{key}"));
    let revision = |body: &[u8]| {
        let object: Value = serde_json::from_slice(body).unwrap();
        number(&object["metadata"]["resourceVersion"])
    };
    let guard = known.map_or(Guard::Absent, Guard::Unchanged);
    match (choice, *known) {
        (0..=3, _) => {
            let Ok(answer) = client.request("GET", &path, &[], b"") else { return (None, false) };
            assert!(matches!(answer.status, 200 | 404), "{}", answer.text());
            *known = (answer.status == 200).then(|| revision(&answer.body));
            (Some(Operation::Read(*known)), true)
        }
        (4, Some(version)) => {
            let options = json!({"preconditions": {"resourceVersion": version.to_string()}}).to_string();
            let answer = client.request("DELETE", &path, &[], options.as_bytes());
            *known = None;
            // The response to a deletion does not contain its revision, so it counts as unknown.
            let unknown = Some(Operation::Unknown { guard, deletes: true });
            match answer.map(|answer| answer.status) {
                Ok(200) => (unknown, true),
                Ok(404 | 409) => (Some(Operation::Conflicted(guard)), true),
                Ok(other) => panic!("a deletion was answered {other}"),
                Err(_) => (unknown, false),
            }
        }
        _ => {
            let mut object = json!({"metadata": {"name": name}, "data": {"random": choice.to_string()}});
            let (method, path) = match *known {
                Some(version) => {
                    object["metadata"]["resourceVersion"] = version.to_string().into();
                    // Another text each time: an unchanged write creates no revision.
                    object["data"]["since"] = version.to_string().into();
                    ("PUT", path.as_str())
                }
                None => ("POST", CONFIG_MAPS),
            };
            let Ok(answer) = client.request(method, path, &[], object.to_string().as_bytes()) else {
                return (Some(Operation::Unknown { guard, deletes: false }), false);
            };
            match answer.status {
                200 | 201 => {
                    let revision = revision(&answer.body);
                    *known = Some(revision);
                    (Some(Operation::Written { guard, revision, deletes: false }), true)
                }
                404 | 409 => {
                    *known = None;
                    (Some(Operation::Conflicted(guard)), true)
                }
                other => panic!("{method} was answered {other}: {}", answer.text()),
            }
        }
    }
}
