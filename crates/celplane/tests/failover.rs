//! Two schedulers and two controller managers on one server: the leaders are killed, paused, and cut off under load.
//!
//! Nothing that was acknowledged is lost, no pod is bound or made twice, the next leader waits for the lease and not longer,
//! and whoever lost it ends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;

const LIMIT: Duration = Duration::from_secs(90);
const LEASES: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];

/// A role in a process of its own, ended when dropped.
struct Role(Child);

impl Role {
    fn start(role: &[&str], kubeconfig: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(role).args(["--healthz-port", "0", "--kubeconfig"]).arg(kubeconfig);
        Role(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it has ended by itself, and says how.
    #[track_caller]
    fn ends(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < LIMIT, "it has not ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A way to the server that can be cut.
struct Wire {
    port: u16,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (cut, streams) = (is_cut.clone(), open.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                let far = TcpStream::connect(&server).unwrap();
                for (mut from, mut to) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far.try_clone().unwrap(), near.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let mut buffer = vec![0; 1 << 16];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                streams.lock().unwrap().extend([near, far]);
            }
        });
        Wire { port, is_cut, open }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lease(cluster: &Cluster, name: &str) -> Option<Value> {
    let output = cluster.run(&["get", "lease", name, "-n", "kube-system", "-o", "json"], "");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Seconds of the day, fractions included.
fn seconds(lease: &Value, field: &str) -> f64 {
    let time = lease["spec"][field].as_str().unwrap();
    let clock = time.split_once('T').unwrap().1.trim_end_matches('Z');
    clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    Pause,
    CutOff,
}

/// The leaders of both kinds fail while a Deployment grows.
#[track_caller]
fn others_take_over(fault: Fault) {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::start().unwrap();
    let own = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let server = own.split("https://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let wire = Wire::to(server.clone());
    let through_wire: PathBuf = cluster.directory.path().join("wire.kubeconfig");
    std::fs::write(&through_wire, own.replace(&server, &format!("127.0.0.1:{}", wire.port))).unwrap();
    let admin = cluster.kubeconfig();
    let _nodes = Role::start(&["kubelet", "--nodes", "3"], &admin);
    let roles = [&["scheduler"][..], &["controller-manager"]];
    let mut leaders = roles.map(|role| Role::start(role, &through_wire));
    let started = Instant::now();
    let before = LEASES.map(|name| {
        loop {
            if let Some(lease) = lease(&cluster, name).filter(|lease| !holder(lease).is_empty()) {
                break lease;
            }
            assert!(started.elapsed() < LIMIT, "nobody leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let _followers = roles.map(|role| Role::start(role, &admin));
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
        Fault::Kill => leaders.iter().for_each(|leader| leader.signal(rustix::process::Signal::KILL)),
        Fault::Pause => leaders.iter().for_each(|leader| leader.signal(rustix::process::Signal::STOP)),
        Fault::CutOff => wire.cut(),
    }
    let failed = Instant::now();
    // The load goes on while nobody leads.
    let mut after: [Option<Value>; 2] = [None, None];
    while after.iter().any(Option::is_none) {
        grow();
        for ((name, before), after) in LEASES.iter().zip(&before).zip(&mut after) {
            let now = lease(&cluster, name).filter(|now| !holder(now).is_empty() && holder(now) != holder(before));
            if after.is_none() && now.is_some() {
                eprintln!("{fault:?}: {name} has another leader after {:.1} s", failed.elapsed().as_secs_f64());
                *after = now;
            }
        }
        assert!(failed.elapsed() < LIMIT, "nobody takes over");
        std::thread::sleep(Duration::from_millis(200));
    }
    for (after, before) in after.iter().flatten().zip(&before) {
        // The old lease ran out before the new one began: never two at a time.
        let gap = seconds(after, "acquireTime") - seconds(before, "renewTime");
        assert!(!(0.0..15.0).contains(&gap), "taken over {gap} s after the lease was seen");
        assert_eq!(
            after["spec"]["leaseTransitions"].as_i64().unwrap_or(0),
            before["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1
        );
    }
    if fault == Fault::Pause {
        leaders.iter().for_each(|leader| leader.signal(rustix::process::Signal::CONT));
    }
    if fault != Fault::Kill {
        // Who lost the lease ends, as Kubernetes' components do.
        leaders.iter_mut().for_each(|leader| assert_eq!(leader.ends(), Some(1)));
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
    let events = cluster.kubectl(&["get", "events", "--field-selector", "reason=Scheduled", "-o", "json"], "");
    let events: Value = serde_json::from_str(&events).unwrap();
    let mut bound: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|it| it["involvedObject"]["name"].as_str().unwrap()).collect();
    bound.sort_unstable();
    let all = bound.len();
    bound.dedup();
    assert_eq!(bound.len(), all, "a pod was bound twice");
    // No more pods were made than were wanted: none was made twice and taken back. Of the last that a leader bound before it
    // was gone, the event may be missing.
    assert!(all <= wanted, "{all} pods were bound, {wanted} were wanted");
}

#[test]
fn leaders_that_are_killed_are_replaced() {
    others_take_over(Fault::Kill);
}

#[test]
fn leaders_that_are_paused_are_replaced_and_end() {
    others_take_over(Fault::Pause);
}

#[test]
fn leaders_that_are_cut_off_are_replaced_and_end() {
    others_take_over(Fault::CutOff);
}
