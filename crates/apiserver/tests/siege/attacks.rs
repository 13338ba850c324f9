//! The attacks, of users with few rights or none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::{MAPS, Siege};

pub(super) const MALLORY: (&str, &str) = ("authorization", "Bearer mallory");
pub(super) const NOBODY: (&str, &str) = ("authorization", "Bearer nobody");

/// A kind of attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// Number of concurrent attackers.
    attackers: usize,
    run: fn(Arc<Siege>, usize) -> BoxFuture<'static, ()>,
}

macro_rules! attack {
    ($name:literal $attackers:literal $run:ident) => {
        Attack {
            name: $name,
            attackers: $attackers,
            run: |siege, kind| Box::pin(async move { siege.$run(kind).await }),
        }
    };
}

pub(super) const ATTACKS: [Attack; 17] = [
    attack!("silent connections" 2 silent),
    attack!("slow bodies" 4 slow_bodies),
    attack!("long lists" 8 lists),
    attack!("lists of the past" 4 past_lists),
    attack!("unread watches" 2 watches),
    attack!("watches from the start" 4 watch_starts),
    attack!("many requests" 4 flood),
    attack!("many handshakes" 4 handshakes),
    attack!("long bodies" 4 long_bodies),
    attack!("roles made of roles" 1 roles),
    attack!("many events" 4 events),
    attack!("collections deleted" 2 collections),
    attack!("closed windows" 2 closed_windows),
    attack!("followed logs" 2 followers),
    attack!("YAML aliases" 2 aliases),
    attack!("wide columns" 2 wide_columns),
    attack!("costly columns" 4 costly_columns),
];

/// Starts all attackers; each waits for its turns.
pub(super) fn start(siege: &Arc<Siege>, runtime: &Runtime) -> Vec<JoinHandle<()>> {
    let all = ATTACKS.iter().enumerate();
    let all = all.flat_map(|(kind, attack)| (0..attack.attackers).map(move |_| (attack.run)(siege.clone(), kind)));
    all.map(|attacker| runtime.spawn(attacker)).collect()
}

impl Siege {
    fn is_on(&self, kind: usize) -> bool {
        self.attacks.load(Ordering::Relaxed) & 1 << kind != 0
    }

    /// Waits for an attack; false if there is none any more.
    pub(super) async fn attack(&self, kind: usize) -> bool {
        while !self.is_on(kind) {
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        !self.over.load(Ordering::Relaxed)
    }

    /// Counts a step of an attack; false if it is over.
    pub(super) fn goes_on(&self, kind: usize) -> bool {
        self.attacked[kind].fetch_add(1, Ordering::Relaxed);
        self.is_on(kind)
    }

    /// Silent connections, before and after the handshake.
    async fn silent(&self, kind: usize) {
        while self.attack(kind).await {
            let mut held = VecDeque::new();
            while self.goes_on(kind) {
                for _ in 0..100 {
                    held.extend(tokio::net::TcpStream::connect(self.place.address()).await);
                }
                let excess = held.len().saturating_sub(self.silent);
                drop(held.drain(..excess));
                let tls = self.place.stream_with(None).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(tls);
            }
        }
    }

    /// Bodies that never arrive, from a user with permissions and from one without.
    async fn slow_bodies(&self, kind: usize) {
        while self.attack(kind).await {
            let mut held = Vec::new();
            for (_, token) in [MALLORY, NOBODY] {
                // The server uses HTTP/1.1 for clients that do not negotiate more.
                let Ok(mut stream) = self.place.stream_with(None).await else { continue };
                let head = format!(
                    "POST {MAPS} HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Length: 100\r\n\r\n{{"
                );
                if stream.write_all(head.as_bytes()).await.is_ok() {
                    held.push(stream);
                    self.goes_on(kind);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a request and reads the beginning of the response.
    async fn look(&self, kind: usize, forms: &[(&str, &str)]) {
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            for (query, accept) in forms {
                let headers = [MALLORY, ("accept", accept), ("accept-encoding", "gzip")];
                let answer = connection.try_send("GET", &format!("{MAPS}{query}"), &headers, &Value::Null).await;
                let Ok(answer) = answer else { break };
                // Most of them are not read to the end.
                let mut body = answer.into_body();
                let mut frames = 0;
                while frames < 20 && matches!(body.frame().await, Some(Ok(_))) {
                    frames += 1;
                }
                if !self.goes_on(kind) {
                    break;
                }
            }
        }
    }

    /// Lists of everything, in the forms that take most work.
    async fn lists(&self, kind: usize) {
        let forms = [
            ("", "application/yaml"),
            ("?labelSelector=a%3D1", "application/json"),
            ("", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            ("?pretty=true", "application/json"),
            ("?limit=19999", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            ("", "application/vnd.kubernetes.protobuf"),
            ("", "application/json"),
        ];
        self.look(kind, &forms).await;
    }

    /// Lists that the cache does not have.
    async fn past_lists(&self, kind: usize) {
        let mut admin = self.place.connect().await;
        let (_, list) = admin.ask("GET", &format!("{MAPS}?limit=1"), &Value::Null).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let all = format!("?resourceVersion={version}&resourceVersionMatch=Exact");
        let few = format!("{all}&limit=1&labelSelector=a%3Dnothing");
        self.look(kind, &[(&all, "application/json"), (&few, "application/json")]).await;
    }

    /// Watches of everything without reading.
    async fn watches(&self, kind: usize) {
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            let mut held = Vec::new();
            for _ in 0..50 {
                let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true");
                match connection.try_send("GET", &path, &[MALLORY], &Value::Null).await {
                    Ok(answer) => held.push(answer.into_body()),
                    Err(_) => break,
                }
                if !self.goes_on(kind) {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Watches that begin with all there is, of which nothing is selected.
    async fn watch_starts(&self, kind: usize) {
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            for _ in 0..20 {
                let path = format!("{MAPS}?watch=1&labelSelector=a%3Dnothing&timeoutSeconds=1");
                let headers = [MALLORY, ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
                let Ok(answer) = connection.try_send("GET", &path, &headers, &Value::Null).await else { break };
                drop(answer);
                if !self.goes_on(kind) {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// As many requests as possible.
    async fn flood(&self, kind: usize) {
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            for number in 0..200 {
                let path = format!("{MAPS}/m-{number}");
                let who = if number % 2 == 0 { MALLORY } else { NOBODY };
                let Ok(answer) = connection.try_send("GET", &path, &[who], &Value::Null).await else { break };
                let _ = answer.into_body().collect().await;
                if !self.goes_on(kind) {
                    break;
                }
            }
        }
    }

    /// As many handshakes as possible.
    async fn handshakes(&self, kind: usize) {
        while self.attack(kind).await {
            let _ = self.place.stream_with(None).await;
            self.goes_on(kind);
        }
    }

    /// Bodies of the greatest length, in which the last field is wrong.
    async fn long_bodies(&self, kind: usize) {
        let data: serde_json::Map<String, Value> =
            (0..40_000).map(|number| (format!("key-{number}"), json!("v".repeat(20)))).collect();
        let body = json!({"metadata": {"name": "long"}, "data": data, "immutable": "no"});
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            let headers = [MALLORY, ("content-type", "application/json")];
            let Ok(answer) = connection.try_send("POST", MAPS, &headers, &body).await else { continue };
            let _ = answer.into_body().collect().await;
            self.goes_on(kind);
        }
    }

    /// Changes roles that aggregate each other.
    async fn roles(&self, kind: usize) {
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/circle-0";
        let headers = [("content-type", "application/merge-patch+json")];
        let mut round = 0;
        while self.attack(kind).await {
            // Between its turns a connection is idle long enough for the server to close it.
            // The oldest silent connection of an address gives way, also one that is just being opened.
            let Some(mut connection) = self.place.try_connect_as(true).await else { continue };
            loop {
                round += 1;
                let body = json!({"metadata": {"annotations": {"round": round.to_string()}}});
                let Ok(answer) = connection.try_send("PATCH", path, &headers, &body).await else { break };
                assert_eq!(answer.status(), 200);
                if !self.goes_on(kind) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// As many events as the server accepts.
    async fn events(&self, kind: usize) {
        let path = "/api/v1/namespaces/big/events";
        let about = json!({"kind": "ConfigMap", "namespace": "big", "name": "m-0"});
        let body = json!({"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": "Siege",
            "type": "Normal", "message": "m".repeat(500)});
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            for _ in 0..50 {
                let headers = [MALLORY, ("content-type", "application/json")];
                let Ok(answer) = connection.try_send("POST", path, &headers, &body).await else { break };
                let _ = answer.into_body().collect().await;
                if !self.goes_on(kind) {
                    break;
                }
            }
        }
    }

    /// Creates some objects, lists them among all others, and deletes them together.
    async fn collections(&self, kind: usize) {
        let doomed = format!("{MAPS}?labelSelector=doomed%3Dyes");
        let body = json!({"metadata": {"generateName": "doomed-", "labels": {"doomed": "yes"}}});
        while self.attack(kind).await {
            let Some(mut connection) = self.place.try_connect().await else { continue };
            let requests = (0..20).map(|_| ("POST", MAPS, &body)).chain([("DELETE", doomed.as_str(), &Value::Null)]);
            for (method, path, body) in requests {
                let headers = [MALLORY, ("content-type", "application/json")];
                let Ok(answer) = connection.try_send(method, path, &headers, body).await else { break };
                let _ = answer.into_body().collect().await;
                self.goes_on(kind);
            }
        }
    }
}
