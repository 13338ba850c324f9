//! Two API servers on one etcd: one of them is killed, paused, or cut off from etcd while clients write through both.
//!
//! The other one continues unaffected, no write that either acknowledged is lost, and the restarted one shows
//! everything.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::wire::Wire;
use super::{Fault, LIMIT};
use crate::cluster::Cluster;
use crate::etcd::etcd_server;

/// Minimum time for which the other one works alone.
const ALONE: Duration = Duration::from_secs(5);

/// Writes ConfigMaps through a server until it is stopped, and records the acknowledged ones. Returns the
/// longest wait, and the number of failures.
fn write(cluster: &Cluster, name: &str, stop: &AtomicBool, acknowledged: &Mutex<Vec<String>>) -> (Duration, usize) {
    let (mut longest, mut failed) = (Duration::ZERO, 0);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let object = format!("{name}-{number}");
        let asked = Instant::now();
        let mut kubectl = cluster.command(&["create", "configmap", &object, "--request-timeout=10s"]);
        if kubectl.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success() {
            acknowledged.lock().unwrap().push(object);
            longest = longest.max(asked.elapsed());
        } else {
            failed += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    (longest, failed)
}

#[track_caller]
fn until_ready(cluster: &Cluster, is_ready: bool) {
    let started = Instant::now();
    while cluster.run(&["get", "--raw", "/readyz", "--request-timeout=2s"], "").status.success() != is_ready {
        assert!(started.elapsed() < LIMIT, "ready is not {is_ready}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn the_other_goes_on(fault: Fault) {
    if Cluster::is_missing() || etcd_server::is_missing("the_other_goes_on") {
        return;
    }
    let etcd = etcd_server::Server::start(1, None);
    let endpoint = etcd.endpoints().join(",");
    let wire = Wire::to(endpoint.trim_start_matches("http://"));
    let files = tempfile::tempdir().unwrap();
    let signing = format!("--service-account-signing-key-file={}", files.path().join("sa.key").display());
    let through_wire = format!("--etcd-servers=http://127.0.0.1:{}", wire.port);
    let start = |directory, servers: &str| Cluster::start_with(directory, &[servers, &signing]);
    let failing = start(tempfile::tempdir().unwrap(), &through_wire);
    let other = start(tempfile::tempdir().unwrap(), &format!("--etcd-servers={endpoint}"));
    let stop = AtomicBool::new(false);
    let acknowledged: [Mutex<Vec<String>>; 2] = Default::default();
    let count = |server: usize| acknowledged[server].lock().unwrap().len();
    let (longest, failed) = std::thread::scope(|scope| {
        let _writing = scope.spawn(|| write(&failing, "failing", &stop, &acknowledged[0]));
        let steady = scope.spawn(|| write(&other, "steady", &stop, &acknowledged[1]));
        let started = Instant::now();
        while count(0) < 3 || count(1) < 3 {
            assert!(started.elapsed() < LIMIT, "nothing is written");
            std::thread::sleep(Duration::from_millis(20));
        }
        let process = Pid::from_child(&failing.process);
        match fault {
            Fault::Kill => kill_process(process, Signal::KILL).unwrap(),
            Fault::Pause => kill_process(process, Signal::STOP).unwrap(),
            Fault::CutOff => {
                wire.cut();
                until_ready(&failing, false);
            }
        }
        let (before, began) = (count(1), Instant::now());
        while began.elapsed() < ALONE || count(1) < before + 5 {
            assert!(began.elapsed() < LIMIT, "the other writes nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
        until_ready(&other, true);
        match fault {
            Fault::Kill => {}
            Fault::Pause => kill_process(process, Signal::CONT).unwrap(),
            Fault::CutOff => wire.mend(),
        }
        if fault != Fault::Kill {
            until_ready(&failing, true);
            let before = count(0);
            while count(0) < before + 2 {
                assert!(started.elapsed() < LIMIT, "the one that is back writes nothing");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        stop.store(true, Ordering::Relaxed);
        steady.join().unwrap()
    });
    eprintln!(
        "{fault:?} of an API server: {} and {} writes acknowledged, the other's slowest took {:.2} s",
        count(0),
        count(1),
        longest.as_secs_f64()
    );
    assert_eq!(failed, 0, "every write through the other is acknowledged");
    let failing = match fault {
        // One that was killed is started again.
        Fault::Kill => {
            let mut failing = failing;
            failing.process.wait().unwrap();
            let directory = std::mem::replace(&mut failing.directory, tempfile::tempdir().unwrap());
            start(directory, &through_wire)
        }
        _ => failing,
    };
    for server in [&failing, &other] {
        let listed = server.kubectl(&["get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"], "");
        let listed: Vec<&str> = listed.split_whitespace().collect();
        for object in acknowledged.iter().flat_map(|it| it.lock().unwrap().clone()) {
            assert!(listed.contains(&object.as_str()), "{object} was acknowledged");
        }
    }
}

#[test]
fn an_api_server_that_is_killed_takes_nothing_with_it() {
    the_other_goes_on(Fault::Kill);
}

#[test]
fn an_api_server_that_is_paused_goes_on_where_it_was() {
    the_other_goes_on(Fault::Pause);
}

#[test]
fn an_api_server_that_is_cut_off_from_etcd_says_so_and_comes_back() {
    the_other_goes_on(Fault::CutOff);
}
