//! Everything at once that keeps a server from serving, beside ordinary work: nobody who behaves notices.
//!
//! Attacks and quiet alternate. A few seconds by default; `CELPLANE_SIEGE_SECONDS` makes it longer, and then times and
//! memory are compared as well, which a busy machine would make a matter of luck.

use crate::network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apiserver::Options;
use apiserver::identity::User;
use http_body_util::BodyExt as _;
use network::{Connection, Network};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const MAPS: &str = "/api/v1/namespaces/big/configmaps";
const JANE: (&str, &str) = ("authorization", "Bearer jane");
const MALLORY: (&str, &str) = ("authorization", "Bearer mallory");
const NOBODY: (&str, &str) = ("authorization", "Bearer nobody");

/// What goes on.
struct Siege {
    network: Network,
    attacks: AtomicBool,
    over: AtomicBool,
    attacked: [AtomicUsize; 6],
}

fn kibibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().unwrap_or_default()
}

impl Siege {
    /// Waits for an attack; false if there is none any more.
    async fn attack(&self) -> bool {
        while !self.attacks.load(Ordering::Relaxed) {
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        !self.over.load(Ordering::Relaxed)
    }

    /// Counts a step of an attack; false if it is over.
    fn goes_on(&self, kind: usize) -> bool {
        self.attacked[kind].fetch_add(1, Ordering::Relaxed);
        self.attacks.load(Ordering::Relaxed)
    }

    /// Connections that say nothing, before and after the handshake.
    async fn silent(&self) {
        while self.attack().await {
            let mut held = Vec::new();
            for _ in 0..100 {
                held.extend(tokio::net::TcpStream::connect(self.network.address()).await);
                self.goes_on(0);
            }
            let tls = self.network.stream_with(None).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop((held, tls));
        }
    }

    /// Bodies that do not come, of somebody with rights and of somebody without.
    async fn slow_bodies(&self) {
        while self.attack().await {
            let mut held = Vec::new();
            for (_, token) in [MALLORY, NOBODY] {
                // The server speaks HTTP/1.1 to those who do not ask for more.
                let Ok(mut stream) = self.network.stream_with(None).await else { continue };
                let head = format!(
                    "POST {MAPS} HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Length: 100\r\n\r\n{{"
                );
                if stream.write_all(head.as_bytes()).await.is_ok() {
                    held.push(stream);
                    self.goes_on(1);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lists of everything, in the forms that take most work.
    async fn lists(&self) {
        let forms = [
            ("", "application/yaml"),
            ("?labelSelector=a%3D1", "application/json"),
            ("", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            ("", "application/json"),
        ];
        while self.attack().await {
            let Some(mut connection) = self.network.try_connect().await else { continue };
            for (query, accept) in forms {
                let headers = [MALLORY, ("accept", accept), ("accept-encoding", "gzip")];
                let answer = connection.try_send("GET", &format!("{MAPS}{query}"), &headers, &Value::Null).await;
                let Ok(answer) = answer else { break };
                // Half of them are not read to the end.
                let mut body = answer.into_body();
                let mut frames = 0;
                while frames < 20 && matches!(body.frame().await, Some(Ok(_))) {
                    frames += 1;
                }
                if !self.goes_on(2) {
                    break;
                }
            }
        }
    }

    /// Watches of everything that nobody reads.
    async fn watches(&self) {
        while self.attack().await {
            let Some(mut connection) = self.network.try_connect().await else { continue };
            let mut held = Vec::new();
            for _ in 0..50 {
                let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true");
                match connection.try_send("GET", &path, &[MALLORY], &Value::Null).await {
                    Ok(answer) => held.push(answer.into_body()),
                    Err(_) => break,
                }
                if !self.goes_on(3) {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// As many requests as possible.
    async fn flood(&self) {
        while self.attack().await {
            let Some(mut connection) = self.network.try_connect().await else { continue };
            for number in 0..200 {
                let path = format!("{MAPS}/m-{number}");
                let who = if number % 2 == 0 { MALLORY } else { NOBODY };
                let Ok(answer) = connection.try_send("GET", &path, &[who], &Value::Null).await else { break };
                let _ = answer.into_body().collect().await;
                if !self.goes_on(4) {
                    break;
                }
            }
        }
    }

    /// Roles that are made of each other change.
    async fn roles(&self) {
        let mut connection = self.network.connect().await;
        let mut round = 0;
        while self.attack().await {
            round += 1;
            let body = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/circle-0";
            let headers = [("content-type", "application/merge-patch+json")];
            let answer = connection.send("PATCH", path, &headers, &body).await;
            assert_eq!(answer.status(), 200);
            self.goes_on(5);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What somebody does who behaves; all of it succeeds, at the second attempt if the server says when.
    async fn ordinary(&self, name: &str, headers: &[(&str, &str)], mut connection: Connection) -> usize {
        let maps = "/api/v1/namespaces/default/configmaps";
        let (mut round, mut requests) = (0, 0);
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
                let mut answer = connection.send(method, path, headers, body).await;
                if answer.status() == 429 {
                    assert!(answer.headers().contains_key("retry-after"));
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    answer = connection.send(method, path, headers, body).await;
                }
                let status = answer.status().as_u16();
                let text = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(status, code, "{name} {method} {path}: {}", String::from_utf8_lossy(&text));
                requests += 1;
            }
            round += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        requests
    }

    /// How long health took to answer, in quiet and under attack.
    async fn health(&self) -> [Vec<Duration>; 2] {
        let mut times = [Vec::new(), Vec::new()];
        let mut connection = self.network.connect().await;
        while !self.over.load(Ordering::Relaxed) {
            for path in ["/livez", "/readyz"] {
                let under_attack = self.attacks.load(Ordering::Relaxed);
                let started = Instant::now();
                let answer = connection.send("GET", path, &[], &Value::Null).await;
                assert_eq!(answer.status(), 200);
                answer.into_body().collect().await.unwrap();
                times[usize::from(under_attack)].push(started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times
    }
}

/// What the siege needs: many objects, three users, and roles that are made of each other.
async fn prepare(network: &Network, objects: usize) {
    let mut admin = network.connect().await;
    let make = async |admin: &mut Connection, path: &str, body: Value| {
        let (status, answer) = admin.ask("POST", path, &body).await;
        assert_eq!(status, 201, "{answer}");
    };
    make(&mut admin, "/api/v1/namespaces", json!({"metadata": {"name": "big"}})).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["*"]}]);
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

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
}

#[test]
fn who_behaves_does_not_notice() {
    let seconds: Option<u64> = std::env::var("CELPLANE_SIEGE_SECONDS").ok().and_then(|it| it.parse().ok());
    let runtime =
        |threads| tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
    let (servers, clients) = (runtime(3), runtime(2));
    let users = ["jane", "mallory", "nobody"].map(|name| (name.to_owned(), User::authenticated(name, &[])));
    let options = Options { tokens: users.into(), connections_max: 300, ..Options::default() };
    let network = servers.block_on(Network::start_with(store::Options::default(), options));
    let siege =
        Siege { network, attacks: AtomicBool::new(false), over: AtomicBool::new(false), attacked: Default::default() };
    let siege = Arc::new(siege);
    let objects = if seconds.is_some() { 20_000 } else { 1000 };
    let window = Duration::from_millis(if seconds.is_some() { 5000 } else { 700 });
    let windows = seconds.map_or(4, |seconds| seconds.div_ceil(window.as_secs().max(1)).next_multiple_of(2));
    let (before, highest, after, times) = clients.block_on(async {
        prepare(&siege.network, objects).await;
        let before = kibibytes();
        let mut work = Vec::new();
        for number in 0..2 {
            for (name, headers) in [("admin", vec![]), ("jane", vec![JANE])] {
                let (siege, name) = (siege.clone(), format!("{name}-{number}"));
                let connection = siege.network.connect_as(headers.is_empty()).await;
                work.push(tokio::spawn(async move { siege.ordinary(&name, &headers, connection).await }));
            }
        }
        let health = tokio::spawn({
            let siege = siege.clone();
            async move { siege.health().await }
        });
        let mut attackers = Vec::new();
        macro_rules! attack {
            ($count:literal $name:ident) => {
                for _ in 0..$count {
                    let siege = siege.clone();
                    attackers.push(tokio::spawn(async move { siege.$name().await }));
                }
            };
        }
        attack!(2 silent);
        attack!(4 slow_bodies);
        attack!(8 lists);
        attack!(2 watches);
        attack!(4 flood);
        attack!(1 roles);
        let mut highest = 0;
        for number in 0..windows {
            siege.attacks.store(number % 2 == 1, Ordering::Relaxed);
            let until = Instant::now() + window;
            while Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(50)).await;
                highest = highest.max(kibibytes());
            }
        }
        siege.attacks.store(false, Ordering::Relaxed);
        siege.over.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.await.unwrap();
        }
        let mut requests = 0;
        for worker in work {
            requests += worker.await.unwrap();
        }
        let times = health.await.unwrap();
        let attacked: Vec<usize> = siege.attacked.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        println!("{requests} ordinary requests; silent, bodies, lists, watches, requests, roles: {attacked:?}");
        assert!(requests > 20 && attacked.iter().all(|count| *count > 0), "{requests} {attacked:?}");
        // What was closed is given back.
        if seconds.is_some() {
            tokio::time::sleep(Duration::from_secs(35)).await;
        }
        (before, highest, kibibytes(), times)
    });
    let [mut quiet, mut attacked] = times;
    let (quiet, attacked) = (p99(&mut quiet), p99(&mut attacked));
    println!("health p99 quiet {quiet:?}, under attack {attacked:?}");
    println!("memory before {before} KiB, at most {highest} KiB, after {after} KiB");
    if seconds.is_some() {
        assert!(attacked <= quiet * 5, "{quiet:?} {attacked:?}");
        assert!(highest - before < 600 << 10, "{before} {highest}");
        assert!(after.saturating_sub(before) < 150 << 10, "{before} {after}");
    }
    let siege = Arc::into_inner(siege).unwrap();
    servers.block_on(siege.network.stop());
}
