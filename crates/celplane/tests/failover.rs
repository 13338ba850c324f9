//! Two schedulers and two controller managers on one server: the leaders are killed, paused, and cut off under load, each
//! alone and both at once.
//!
//! No acknowledged write is lost, no pod is bound or created twice, the next leader waits for the lease and not
//! longer, only the leader acts, and an instance that lost the lease exits.

mod contender;
mod servers;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use contender::{KINDS, Process, acts, holder, kubeconfig, lease};
use rustix::process::Signal;
use serde_json::Value;
use wire::Wire;

use crate::cluster::{Cluster, is_installed};

const LIMIT: Duration = Duration::from_secs(90);
const DAY_SECONDS: f64 = 86_400.0;
/// Lease duration, retry period, and a margin for a busy machine.
const TAKEN_OVER_SECONDS: f64 = 15.0 + 2.0 + 30.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    Pause,
    CutOff,
}

/// Seconds of the day, fractions included.
fn seconds(lease: &Value, field: &str) -> f64 {
    let time = lease["spec"][field].as_str().unwrap();
    let clock = time.split_once('T').unwrap().1.trim_end_matches('Z');
    clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// The leaders of some kinds fail while a Deployment grows: 0 is the scheduler, 1 are the controllers.
#[track_caller]
fn others_take_over(fault: Fault, failing: &[usize]) {
    if Cluster::is_missing() {
        return;
    }
    let cluster = contender::server();
    let own = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let port = own.split("https://127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap();
    let wire = Wire::to(&format!("127.0.0.1:{port}"));
    let through_wire = wire.port.to_string();
    let _nodes = Process::start(&["kubelet", "--nodes", "3"], &cluster.kubeconfig());
    let start = |number: usize, kind: usize, port: &str| {
        let (role, _) = KINDS[kind];
        Process::start(&[role], &kubeconfig(&cluster, &format!("{role}-{number}"), port))
    };
    let mut leaders = [0, 1].map(|kind| start(1, kind, if failing.contains(&kind) { &through_wire } else { port }));
    let started = Instant::now();
    let mut before = KINDS.map(|(_, name)| {
        loop {
            if let Some(lease) = lease(&cluster, name) {
                break lease;
            }
            assert!(started.elapsed() < LIMIT, "nobody leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let _followers = [0, 1].map(|kind| start(2, kind, port));
    while !cluster.run(&["get", "serviceaccount", "default"], "").status.success() {
        assert!(started.elapsed() < LIMIT, "the controllers do not work");
    }
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=5"], "");
    let mut replicas = 5;
    let mut grow = || {
        replicas += 2;
        // Acknowledged when kubectl succeeds.
        cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={replicas}")], "");
        replicas
    };
    (0..3).for_each(|_| {
        grow();
    });

    match fault {
        Fault::Kill => failing.iter().for_each(|kind| leaders[*kind].signal(Signal::KILL)),
        Fault::Pause => failing.iter().for_each(|kind| leaders[*kind].signal(Signal::STOP)),
        Fault::CutOff => wire.cut(),
    }
    let (failed, clock) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64());
    // The load continues while there is no leader.
    let mut after: [Option<Value>; 2] = [None, None];
    while failing.iter().any(|kind| after[*kind].is_none()) {
        grow();
        for kind in failing.iter().copied().filter(|kind| after[*kind].is_none()).collect::<Vec<_>>() {
            match lease(&cluster, KINDS[kind].1) {
                Some(lease) if holder(&lease) == holder(&before[kind]) => before[kind] = lease,
                lease => after[kind] = lease,
            }
        }
        assert!(failed.elapsed() < LIMIT, "nobody takes over");
        std::thread::sleep(Duration::from_millis(200));
    }
    if fault == Fault::Pause {
        failing.iter().for_each(|kind| leaders[*kind].signal(Signal::CONT));
    }
    if fault != Fault::Kill {
        // An instance that lost the lease exits, as Kubernetes' components do.
        failing.iter().for_each(|kind| assert_eq!(leaders[*kind].ends(), Some(1)));
    }

    let wanted = grow();
    let running = |text: &str| text.lines().filter(|line| line.contains(" Running ")).count();
    let started = Instant::now();
    loop {
        let pods = cluster.kubectl(&["get", "pods", "-l", "app=web"], "");
        if running(&pods) == wanted && pods.lines().count() == wanted + 1 {
            break;
        }
        assert!(started.elapsed() < LIMIT, "{wanted} are wanted: {pods}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for kind in failing {
        let (before, after) = (&before[*kind], after[*kind].as_ref().unwrap());
        let took = (seconds(after, "acquireTime") - clock).rem_euclid(DAY_SECONDS);
        eprintln!("{fault:?} {failing:?}: {} has another leader after {took:.1} s", KINDS[*kind].1);
        assert!(took < TAKEN_OVER_SECONDS, "taken over after {took} s");
        // The old lease ran out before the new one began: never two at a time.
        let gap = (seconds(after, "acquireTime") - seconds(before, "renewTime")).rem_euclid(DAY_SECONDS);
        assert!(gap >= 15.0, "taken over {gap} s after the last renewal");
        let transitions = |lease: &Value| lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        assert_eq!(transitions(after), transitions(before) + 1);
        // Neither does the old one act afterwards, nor did the new one before.
        let acquired = after["spec"]["acquireTime"].as_str().unwrap();
        let (old, new) = (KINDS[*kind].0.to_owned() + "-1", KINDS[*kind].0.to_owned() + "-2");
        let (old, new) = (acts(&cluster, &old), acts(&cluster, &new));
        assert!(!old.is_empty() && !new.is_empty(), "both have acted");
        let late: Vec<_> = old.iter().filter(|(time, _)| time.as_str() > acquired).collect();
        assert!(late.is_empty(), "another led since {acquired}: {late:?}");
        let early: Vec<_> = new.iter().filter(|(time, _)| time.as_str() < acquired).collect();
        assert!(early.is_empty(), "it leads only since {acquired}: {early:?}");
    }
    bound_once(&cluster, wanted);
}

/// No pod was bound or made twice.
#[track_caller]
fn bound_once(cluster: &Cluster, wanted: usize) {
    let events = cluster.kubectl(&["get", "events", "--field-selector", "reason=Scheduled", "-o", "json"], "");
    let events: Value = serde_json::from_str(&events).unwrap();
    let mut bound: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|it| it["involvedObject"]["name"].as_str().unwrap()).collect();
    bound.sort_unstable();
    let all = bound.len();
    bound.dedup();
    assert_eq!(bound.len(), all, "a pod was bound twice");
    // No more pods were created than wanted: none was created twice and deleted. The event of a leader's last
    // binding before its end may be missing.
    assert!(all <= wanted, "{all} pods were bound, {wanted} were wanted");
    // Each pod is bound by one scheduler. That one may repeat a request whose answer was cut off; the server rejects the
    // repetition, whatever the audit log has for the first one.
    let mut binder: BTreeMap<String, &str> = BTreeMap::new();
    let mut all: Vec<(String, &str, String)> = ["scheduler-1", "scheduler-2"]
        .into_iter()
        .flat_map(|user| acts(cluster, user).into_iter().map(move |(time, act)| (time, user, act)))
        .filter(|(_, _, act)| act.contains("/binding"))
        .collect();
    all.sort();
    for (time, user, act) in all.iter().filter(|(_, _, act)| act.ends_with(" answered")) {
        let pod = act.split("/pods/").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
        let first = *binder.entry(pod).or_insert(user);
        assert_eq!(first, *user, "{time} {act}: another scheduler bound it before");
    }
    assert!(binder.len() <= wanted, "{} pods were bound, {wanted} were wanted", binder.len());
    assert!(all.len() >= wanted, "{} bindings of {wanted} pods", all.len());
}

#[test]
fn a_scheduler_that_is_killed_is_replaced() {
    others_take_over(Fault::Kill, &[0]);
}

#[test]
fn a_scheduler_that_is_paused_is_replaced_and_ends() {
    others_take_over(Fault::Pause, &[0]);
}

#[test]
fn a_scheduler_that_is_cut_off_is_replaced_and_ends() {
    others_take_over(Fault::CutOff, &[0]);
}

#[test]
fn controllers_that_are_killed_are_replaced() {
    others_take_over(Fault::Kill, &[1]);
}

#[test]
fn controllers_that_are_paused_are_replaced_and_end() {
    others_take_over(Fault::Pause, &[1]);
}

#[test]
fn controllers_that_are_cut_off_are_replaced_and_end() {
    others_take_over(Fault::CutOff, &[1]);
}

#[test]
fn leaders_of_both_kinds_that_are_killed_are_replaced() {
    others_take_over(Fault::Kill, &[0, 1]);
}

#[test]
fn leaders_of_both_kinds_that_are_paused_are_replaced_and_end() {
    others_take_over(Fault::Pause, &[0, 1]);
}

#[test]
fn leaders_of_both_kinds_that_are_cut_off_are_replaced_and_end() {
    others_take_over(Fault::CutOff, &[0, 1]);
}

/// All threads of a leader are blocked but the watchdog, and so is its log: the process ends all the same.
#[test]
fn a_scheduler_that_is_blocked_is_ended_by_the_watchdog() {
    if Cluster::is_missing() || !is_installed("python3", &["-c", "import ctypes, os; os.waitstatus_to_exitcode"]) {
        return;
    }
    let cluster = contender::server();
    let configuration = cluster.directory.path().join("scheduler.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                leaderElection: {leaderElect: true, leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 1s}\n";
    std::fs::write(&configuration, text).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failover/blocked.py");
    let output = Command::new("python3")
        .arg(program)
        .args([env!("CARGO_BIN_EXE_celplane"), "scheduler", "--secure-port", "0", "--config"])
        .arg(configuration)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{said}");
    assert!(
        !holder(&lease(&cluster, KINDS[0].1).unwrap()).is_empty(),
        "it was killed before it could release the lease"
    );
}
