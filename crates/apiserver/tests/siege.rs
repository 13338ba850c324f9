//! All attacks at once, in parallel to ordinary work: well-behaved clients are unaffected.
//!
//! Attacks and quiet alternate. A few seconds by default; `CELPLANE_SIEGE_SECONDS` makes it longer: then each
//! attack has a separate window before all of them run together, a table shows the latencies of ordinary
//! requests and health checks, and times and memory are compared, which would be unreliable on a busy machine.
//! `CELPLANE_BIN` names a program to attack instead of a server in this process.

mod attacks;
mod table;
mod unread;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::features::Features;
use apiserver::Options;
use apiserver::identity::User;
use apiserver::serving::certificates::Bundle;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use self::attacks::ATTACKS;
use self::table::{Samples, p99};
use crate::network::{Connection, Network, Place, addresses};

const MAPS: &str = "/api/v1/namespaces/big/configmaps";
const JANE: (&str, &str) = ("authorization", "Bearer jane");
/// More silent connections than a server lets one address have.
const SILENT: usize = 8000;
const ALL: u32 = (1 << ATTACKS.len()) - 1;

/// Health never takes longer.
const HEALTH_MAX: Duration = Duration::from_secs(2);
/// Under attack the server takes at most this many KiB more than before,
const MORE_MEMORY_MAX: u64 = 600 << 10;
/// and after it this many.
const MEMORY_KEPT_MAX: u64 = 150 << 10;

/// State of the siege.
struct Siege {
    place: Arc<Place>,
    /// The attacks that are under way, a bit for each.
    attacks: AtomicU32,
    over: AtomicBool,
    attacked: Vec<AtomicUsize>,
    /// Rejections with a `Retry-After`.
    refused: AtomicUsize,
    /// Number of silent connections that an attacker holds.
    silent: usize,
}

/// The server, in this process or as a separate one.
enum BesiegedServer {
    Here(Network),
    There(Child, #[expect(dead_code, reason = "removed with it")] tempfile::TempDir),
}

impl Drop for BesiegedServer {
    fn drop(&mut self) {
        if let BesiegedServer::There(child, _) = self {
            // It may already have exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl BesiegedServer {
    async fn here() -> (Self, Arc<Place>) {
        let users = ["jane", "mallory", "nobody"].map(|name| (name.to_owned(), User::authenticated(name, &[])));
        // For columns with expressions.
        let features = Features::all_proposals();
        let options =
            Options { features, tokens: users.into(), connections_max: 300, ..Options::without_controllers() };
        let network = Network::start_with(store::Options::default(), options).await;
        network.server.set_kubelets(Arc::new(unread::Agent));
        let place = network.place.clone();
        (Self::Here(network), place)
    }

    async fn there(program: &Path) -> (Self, Arc<Place>) {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let tokens = directory.path().join("tokens.csv");
        std::fs::write(&tokens, "jane,jane,1\nmallory,mallory,2\nnobody,nobody,3\n").unwrap();
        let bundle = Bundle::load_or_create(&data.join("pki"), &addresses()).unwrap();
        let child = Command::new(program)
            // A node has the log that is followed.
            .args(["up", "--nodes=1", "--port=0", "--data-dir"])
            .arg(&data)
            .arg("--token-auth-file")
            .arg(&tokens)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let besieged = Self::There(child, directory);
        let address = async {
            loop {
                let text = std::fs::read_to_string(data.join("admin.kubeconfig")).unwrap_or_default();
                let url = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
                let address = url.and_then(|url| url.trim_matches('"').strip_prefix("https://")?.parse().ok());
                if let Some(address) = address {
                    let address: SocketAddr = address;
                    if tokio::net::TcpStream::connect(address).await.is_ok() {
                        return address;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let address = tokio::time::timeout(Duration::from_secs(60), address).await.unwrap();
        (besieged, Arc::new(Place::new(bundle, address)))
    }

    fn kibibytes(&self) -> u64 {
        let process = match self {
            BesiegedServer::Here(_) => "self".to_owned(),
            BesiegedServer::There(child, _) => child.id().to_string(),
        };
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches("kB").trim().parse().unwrap_or_default()
    }
}

impl Siege {
    /// Requests of a well-behaved client; all of them succeed, at the second attempt if the server requests a
    /// retry.
    async fn ordinary(&self, name: &str, headers: &[(&str, &str)], mut connection: Connection) -> Samples {
        let maps = "/api/v1/namespaces/default/configmaps";
        let (mut round, mut samples) = (0, Samples::default());
        while !self.over.load(Ordering::Relaxed) {
            let object = format!("{name}-{round}");
            let body = json!({"metadata": {"name": object}, "data": {"k": "v"}});
            let one = format!("{maps}/{object}");
            for (method, path, body, code) in [
                ("POST", maps, &body, 201),
                ("GET", &one, &Value::Null, 200),
                ("GET", "/api/v1/namespaces?limit=5", &Value::Null, 200),
                ("PUT", &one, &body, 200),
                ("DELETE", &one, &Value::Null, 200),
            ] {
                let (during, started) = (self.attacks.load(Ordering::Relaxed), Instant::now());
                let mut answer = connection.send(method, path, headers, body).await;
                if answer.status() == 429 {
                    assert!(answer.headers().contains_key("retry-after"));
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    answer = connection.send(method, path, headers, body).await;
                }
                let status = answer.status().as_u16();
                let text = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(status, code, "{name} {method} {path}: {}", String::from_utf8_lossy(&text));
                samples.add(during, started.elapsed());
            }
            round += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        samples
    }

    /// Latencies of health checks.
    async fn health(&self) -> Samples {
        let mut samples = Samples::default();
        let mut connection = self.place.connect().await;
        let mut round = 0_usize;
        while !self.over.load(Ordering::Relaxed) {
            round += 1;
            if round.is_multiple_of(100) {
                // A new connection is accepted, too.
                connection = self.place.connect().await;
            }
            for path in ["/livez", "/readyz"] {
                let (during, started) = (self.attacks.load(Ordering::Relaxed), Instant::now());
                let answer = connection.send("GET", path, &[], &Value::Null).await;
                assert_eq!(answer.status(), 200);
                answer.into_body().collect().await.unwrap();
                samples.add(during, started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        samples
    }
}

/// Prepares the siege: many objects, three users, and roles that aggregate each other.
async fn prepare(place: &Place, objects: usize) {
    let mut admin = place.connect().await;
    let make = async |admin: &mut Connection, path: &str, body: Value| {
        let (status, answer) = admin.ask("POST", path, &body).await;
        assert_eq!(status, 201, "{answer}");
    };
    make(&mut admin, "/api/v1/namespaces", json!({"metadata": {"name": "big"}})).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let [logs, things] = unread::rules();
    let maps = json!({"apiGroups": [""], "resources": ["configmaps", "namespaces", "events"], "verbs": ["*"]});
    let rules = json!([maps, logs, things]);
    make(&mut admin, roles, json!({"metadata": {"name": "maps"}, "rules": rules})).await;
    let user = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let subjects = json!([user("jane"), user("mallory")]);
    make(&mut admin, bindings, json!({"metadata": {"name": "maps"}, "roleRef": role("maps"), "subjects": subjects}))
        .await;
    for number in 0..12 {
        let selector = json!({"matchLabels": {"circle": "true"}});
        let name = format!("circle-{number}");
        let role = json!({"metadata": {"name": name, "labels": {"circle": "true"}},
            "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []});
        make(&mut admin, roles, role).await;
    }
    unread::prepare(&mut admin).await;
    let numbers: Vec<usize> = (0..objects).collect();
    for some in numbers.chunks(100) {
        let made = some.iter().map(|number| {
            let label = (number % 100).to_string();
            let metadata = json!({"name": format!("m-{number}"), "labels": {"a": label}});
            let mut admin = admin.clone();
            async move {
                let body = json!({"metadata": metadata, "data": {"k": "v".repeat(800)}});
                let (status, answer) = admin.ask("POST", MAPS, &body).await;
                assert_eq!(status, 201, "{answer}");
            }
        });
        futures::future::join_all(made).await;
    }
}

/// The attacks of each window: quiet and attacks in turn. If there is time, each attack runs alone first.
fn windows(count: usize) -> Vec<u32> {
    let singles = if count >= ATTACKS.len() * 3 { ATTACKS.len() } else { 0 };
    let attacks = (0..singles).map(|kind| 1 << kind).chain(std::iter::repeat(ALL));
    attacks.flat_map(|attack| [0, attack]).take(count).collect()
}

/// A separate runtime, so that measurements do not wait behind attackers. All threads have the same priority:
/// attackers take as much of the machine as they can get.
fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

/// Attackers hold many connections, and a program that is started has the same limit.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the limit that there is, they hold fewer.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[test]
fn well_behaved_client_is_unaffected() {
    let seconds: Option<u64> = std::env::var("CELPLANE_SIEGE_SECONDS").ok().and_then(|it| it.parse().ok());
    let program = std::env::var_os("CELPLANE_BIN");
    raise_file_limit();
    let (servers, clients, watchers, foreign) = (runtime(3), runtime(1), runtime(1), runtime(2));
    let (besieged, place) = match &program {
        Some(program) => clients.block_on(BesiegedServer::there(Path::new(program))),
        None => servers.block_on(BesiegedServer::here()),
    };
    let siege = Arc::new(Siege {
        place,
        attacks: AtomicU32::new(0),
        over: AtomicBool::new(false),
        attacked: ATTACKS.iter().map(|_| AtomicUsize::new(0)).collect(),
        refused: AtomicUsize::new(0),
        silent: if program.is_some() { SILENT / 2 } else { 100 },
    });
    let objects = if seconds.is_some() { 20_000 } else { 1000 };
    let window = Duration::from_millis(if seconds.is_some() { 5000 } else { 700 });
    let count = seconds.map_or(4, |seconds| seconds.div_ceil(window.as_secs().max(1)).next_multiple_of(2));
    let windows = windows(usize::try_from(count).unwrap());
    clients.block_on(prepare(&siege.place, objects));
    let before = besieged.kibibytes();
    let mut work = Vec::new();
    for number in 0..2 {
        for (name, headers) in [("admin", vec![]), ("jane", vec![JANE])] {
            let (siege, name) = (siege.clone(), format!("{name}-{number}"));
            work.push(clients.spawn(async move {
                let connection = siege.place.connect_as(headers.is_empty()).await;
                siege.ordinary(&name, &headers, connection).await
            }));
        }
    }
    let health = watchers.spawn({
        let siege = siege.clone();
        async move { siege.health().await }
    });
    let attackers: Vec<_> = attacks::start(&siege, &foreign);
    let (mut peaks, mut steps) = (table::Peaks::default(), table::Steps::new());
    let counts = || siege.attacked.iter().map(|it| it.load(Ordering::Relaxed)).collect::<Vec<usize>>();
    for mask in &windows {
        let before = counts();
        siege.attacks.store(*mask, Ordering::Relaxed);
        let until = Instant::now() + window;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            peaks.add(*mask, besieged.kibibytes());
        }
        let taken = steps.entry(*mask).or_insert_with(|| vec![0; ATTACKS.len()]);
        for (taken, (before, after)) in taken.iter_mut().zip(before.into_iter().zip(counts())) {
            *taken += after - before;
        }
    }
    // A busy machine may need more time for the first steps.
    let until = Instant::now() + Duration::from_secs(60);
    let has_begun = || siege.attacked.iter().all(|steps| steps.load(Ordering::Relaxed) > 0);
    while !has_begun() && Instant::now() < until {
        siege.attacks.store(ALL, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
    siege.attacks.store(0, Ordering::Relaxed);
    siege.over.store(true, Ordering::Relaxed);
    let (mut ordinary, mut health) = clients.block_on(async {
        for attacker in attackers {
            attacker.await.unwrap();
        }
        let mut ordinary = Samples::default();
        for worker in work {
            ordinary.merge(worker.await.unwrap());
        }
        (ordinary, health.await.unwrap())
    });
    let attacked = counts();
    if seconds.is_some() {
        // What was closed is given back.
        std::thread::sleep(Duration::from_secs(35));
    }
    let after = besieged.kibibytes();
    println!("{}", table::of(&windows, &attacked, &steps, &mut ordinary, &mut health, &peaks));
    println!("{} ordinary requests were told to come again, and did", siege.refused.load(Ordering::Relaxed));
    let highest = peaks.highest();
    println!("memory before {} MiB, at most {} MiB, after {} MiB", before >> 10, highest >> 10, after >> 10);
    assert!(ordinary.len() > 20, "{}", ordinary.len());
    assert!(attacked.iter().all(|count| *count > 0), "{attacked:?}");
    if seconds.is_some() {
        let (quiet, under_attack) = (p99(health.of(0)), p99(health.of(ALL)));
        assert!(under_attack <= quiet * 5, "{quiet:?} {under_attack:?}");
        assert!(health.longest() < HEALTH_MAX, "{:?}", health.longest());
        assert!(highest.saturating_sub(before) < MORE_MEMORY_MAX, "{before} {highest}");
        assert!(after.saturating_sub(before) < MEMORY_KEPT_MAX, "{before} {after}");
    }
    drop(siege);
    if let BesiegedServer::Here(network) = &besieged {
        servers.block_on(network.end());
    }
    servers.shutdown_background();
}
