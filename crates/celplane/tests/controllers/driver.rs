//! Plays the steps of a scenario, and gathers what they leave behind.

use std::time::{Duration, Instant};

use client::Client;
use http::Method;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::compare;
use super::mask::Mask;

/// Quiet time that a request waits for.
const QUIET: Duration = Duration::from_millis(400);
/// But no longer than this.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Quiet time at the end.
const FINAL_QUIET: Duration = Duration::from_millis(2000);
const LAST_MOMENT: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The kinds that are read at the end.
const KINDS: &[&str] = &[
    "/api/v1|configmaps",
    "/api/v1|endpoints",
    "/api/v1|persistentvolumeclaims",
    "/api/v1|pods",
    "/api/v1|replicationcontrollers",
    "/api/v1|resourcequotas",
    "/api/v1|secrets",
    "/api/v1|serviceaccounts",
    "/api/v1|services",
    "/apis/apps/v1|controllerrevisions",
    "/apis/apps/v1|daemonsets",
    "/apis/apps/v1|deployments",
    "/apis/apps/v1|replicasets",
    "/apis/apps/v1|statefulsets",
    "/apis/autoscaling/v2|horizontalpodautoscalers",
    "/apis/batch/v1|cronjobs",
    "/apis/batch/v1|jobs",
    "/apis/discovery.k8s.io/v1|endpointslices",
    "/apis/policy/v1|poddisruptionbudgets",
    "/apis/resource.k8s.io/v1|resourceclaims",
    "/apis/resource.k8s.io/v1|resourceclaimtemplates",
];

/// Kinds without namespace, of which those with the scenario's name are read.
const CLUSTER_KINDS: &[&str] = &[
    "/api/v1|namespaces",
    "/api/v1|nodes",
    "/api/v1|persistentvolumes",
    "/apis/admissionregistration.k8s.io/v1|validatingadmissionpolicies",
    "/apis/certificates.k8s.io/v1|certificatesigningrequests",
    "/apis/rbac.authorization.k8s.io/v1|clusterroles",
    "/apis/storage.k8s.io/v1|volumeattributesclasses",
];

struct Player<'a> {
    cluster: &'a Cluster,
    client: Client,
    namespace: String,
    /// The start of the scenario: without a namespace, or with its creation.
    mode: String,
    /// Start of the record.
    from: usize,
}

/// Plays a scenario; the differences, none if it agrees.
pub(crate) async fn play(cluster: &Cluster, scenario: &Value) -> Vec<String> {
    // No scenario's name is part of another's.
    let namespace = format!("{}-q", scenario["id"].as_str().unwrap());
    let mode = scenario["namespace"].as_str().unwrap_or_default().to_owned();
    let from = cluster.log.len();
    let mut player = Player { cluster, client: cluster.client("admin"), namespace, mode, from };
    player.prepare().await;
    let mut codes = Vec::new();
    for step in scenario["steps"].as_array().unwrap() {
        if let Err(problem) = player.step(step, &mut codes).await {
            return vec![problem];
        }
    }
    // What is due when the last wait ends is still done.
    tokio::time::sleep(LAST_MOMENT).await;
    player.quiet(FINAL_QUIET).await;
    let mut differences = Vec::new();
    if json!(codes) != scenario["responses"] {
        differences.push(format!("responses {codes:?} instead of {}", scenario["responses"]));
    }
    let (objects, events, writes) = player.outcome().await;
    differences.extend(compare::objects(&scenario["expect"], &objects));
    differences.extend(compare::events(&scenario["expect"], &events));
    differences.extend(compare::writes(&scenario["expect"], &writes));
    if !differences.is_empty() && std::env::var_os("CELPLANE_SHOW_WRITES").is_some() {
        for (write, seen) in cluster.log.of(&player.namespace, player.from).iter().zip(&writes) {
            eprintln!(
                "{} {} {} {} {}: {}",
                seen["controller"],
                seen["verb"],
                seen["resource"],
                seen["subresource"],
                seen["name"],
                write.answer["status"]
            );
        }
    }
    differences
}

impl Player<'_> {
    /// Makes the namespace and waits for what every namespace has.
    async fn prepare(&mut self) {
        if self.mode == "none" {
            return;
        }
        self.send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": self.namespace}})).await;
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{}/{path}", self.namespace);
            while self.get(&path).await.is_none() {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        if self.mode.is_empty() {
            // What is visible may not be in the log yet.
            self.quiet(QUIET).await;
            self.from = self.cluster.log.len();
        }
    }

    async fn send(&self, verb: &str, path: &str, body: &Value) -> (u16, Value) {
        self.send_as(verb, path, "application/json", body).await
    }

    async fn send_as(&self, verb: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let method = Method::from_bytes(verb.as_bytes()).unwrap();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        match self.client.send(method, path, content_type, text).await {
            Ok(answer) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                (if verb == "POST" { 201 } else { 200 }, answer)
            }
            Err(error) => (error.code(), json!({"message": error.to_string()})),
        }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, answer) = self.send("GET", path, &Value::Null).await;
        (code == 200).then_some(answer)
    }

    async fn quiet(&self, long: Duration) {
        let start = Instant::now();
        while self.cluster.log.quiet_for(&self.namespace) < long && start.elapsed() < QUIET_MAX {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A text of a step with its placeholders filled in.
    async fn fill(&self, text: &str) -> String {
        // Each scenario has its own pool of nodes.
        let mut text = text.replace("{ns}", &self.namespace);
        for pool in ["p", "q"] {
            let (from, to) = (format!(r#""sim/pool":"{pool}""#), format!(r#""sim/pool":"{pool}-{}""#, self.namespace));
            text = text.replace(&from, &to);
        }
        let writes = self.cluster.log.of(&self.namespace, self.from);
        let is_new = |write: &&super::record::Write| write.verb == "create" && write.code == 201;
        let pods =
            writes.iter().filter(is_new).filter(|write| write.resource == "pods" && write.subresource.is_empty());
        for (number, pod) in pods.enumerate().collect::<Vec<_>>().into_iter().rev() {
            text = text.replace(&format!("{{pod{}}}", number + 1), &pod.name);
        }
        while let Some((before, rest)) = text.split_once("{uid:") {
            let (which, after) = rest.split_once('}').unwrap();
            let (resource, name) = which.split_once('/').unwrap();
            let kind = KINDS.iter().find(|kind| kind.ends_with(&format!("|{resource}"))).unwrap();
            let mut uid = None;
            for namespace in [self.namespace.as_str(), "default"] {
                let path = format!("{}/namespaces/{namespace}/{resource}/{name}", kind.split('|').next().unwrap());
                let found = self.get(&path).await.map(|object| object["metadata"]["uid"].as_str().unwrap().to_owned());
                uid = uid.or(found);
            }
            text = format!("{before}{}{after}", uid.unwrap_or_default());
        }
        text
    }

    async fn step(&self, step: &Value, codes: &mut Vec<u16>) -> Result<(), String> {
        if let Some(request) = step.get("request") {
            if request["immediate"] != true {
                self.quiet(QUIET).await;
            }
            let path = self.fill(request["path"].as_str().unwrap()).await;
            let body = self.fill(&request["body"].to_string()).await;
            let content_type = request["contentType"].as_str().unwrap_or("application/json");
            let body = serde_json::from_str(&body).unwrap();
            let (code, answer) = self.send_as(request["verb"].as_str().unwrap(), &path, content_type, &body).await;
            if code >= 400 && request["code"].is_null() {
                return Err(format!("{} {path}: {code} {}", request["verb"], answer["message"]));
            }
            codes.push(code);
        } else if let Some(wait) = step.get("wait") {
            if let Some(seconds) = wait["seconds"].as_f64() {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                return Ok(());
            }
            let mut path = self.fill(wait["path"].as_str().unwrap()).await;
            let limit = wait["timeout"].as_f64().map_or(WAIT_MAX, |limit| Duration::from_secs_f64(limit + 20.0));
            let start = Instant::now();
            while !holds(wait, self.get(&path).await.as_ref()) {
                if start.elapsed() > limit {
                    let now = self.get(&path).await.map(|it| it["status"].to_string());
                    let pods =
                        self.get(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await.unwrap_or_default();
                    let pods = pods["items"].as_array().into_iter().flatten();
                    let pods: Vec<String> =
                        pods.map(|pod| format!("{} {}", pod["metadata"]["name"], pod["status"]["phase"])).collect();
                    return Err(format!("waited in vain for {wait}; last {now:?}; pods {pods:?}"));
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
                // A pod that is waited for may not have a name yet.
                path = self.fill(wait["path"].as_str().unwrap()).await;
            }
        } else if let Some(step) = step.get("kubelet") {
            let step = serde_json::from_str(&self.fill(&step.to_string()).await).unwrap();
            self.cluster.nodes.act(&self.cluster.kubelet, &step).await?;
        }
        Ok(())
    }

    /// The objects, events and writes of the namespace, masked.
    async fn outcome(&self) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let log = self.cluster.log.of(&self.namespace, self.from);
        let mask = Mask::new(&self.namespace, &log);
        let mut objects = Vec::new();
        let beside = format!("{}x", self.namespace);
        let own = if self.mode == "none" { beside.as_str() } else { self.namespace.as_str() };
        let mut kinds: Vec<(&str, &str)> = Vec::new();
        for kind in KINDS {
            kinds.push((kind, own));
        }
        for kind in CLUSTER_KINDS {
            kinds.push((kind, ""));
        }
        for (kind, namespace) in kinds {
            let (root, plural) = kind.split_once('|').unwrap();
            let path = if namespace.is_empty() { root.to_owned() } else { format!("{root}/namespaces/{namespace}") };
            let Some(list) = self.get(&format!("{path}/{plural}")).await else { continue };
            let list_kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
            for mut object in list["items"].as_array().cloned().unwrap_or_default() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if namespace.is_empty() && (!name.contains(&self.namespace) || name == self.namespace) {
                    continue;
                }
                object["kind"] = list_kind.as_str().into();
                object["apiVersion"] = list["apiVersion"].clone();
                objects.push(mask.object(object));
            }
        }
        let complete = !self.mode.is_empty();
        objects.retain(|object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            complete || !matches!((kind, name), ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt"))
        });
        let mut events = Vec::new();
        // Events about what has no namespace are in the default one.
        for namespace in [self.namespace.as_str(), "default"] {
            let list = self.get(&format!("/api/v1/namespaces/{namespace}/events")).await.unwrap_or_default();
            let mine = |event: &&Value| {
                let about = event["involvedObject"]["name"].as_str().unwrap_or_default();
                namespace != "default" || about.contains(&self.namespace)
            };
            events.extend(list["items"].as_array().into_iter().flatten().filter(mine).cloned());
        }
        let events = events.iter().map(|event| mask.event(event)).collect();
        let writes = log.iter().map(|write| mask.write(write)).collect();
        (objects, events, writes)
    }
}

/// Whether what is waited for has come.
fn holds(wait: &Value, object: Option<&Value>) -> bool {
    if wait["gone"] == true {
        return object.is_none();
    }
    let Some(object) = object else { return wait["absent"] == true };
    let field = wait["field"].as_str();
    let is_so = |object: &Value| {
        let found = field.map_or(Some(object), |field| at(object, field));
        match wait.get("eq") {
            Some(wanted) => found.unwrap_or(&Value::Null) == wanted || (found.is_none() && *wanted == 0),
            None if wait["exists"] == true => found.is_some_and(|it| !it.is_null()),
            None if wait["absent"] == true => found.is_none_or(Value::is_null),
            None => found.is_some(),
        }
    };
    match wait["count"].as_u64() {
        Some(count) => {
            let items = object["items"].as_array().cloned().unwrap_or_default();
            items.iter().filter(|item| field.is_none() || is_so(item)).count() as u64 == count
        }
        None => is_so(object),
    }
}

/// A field by its path: `status.conditions[type=Ready].status`, `items[0]`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = object;
    // Keys in brackets may hold dots.
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (selector, after) = inner.split_once(']')?;
            at = match selector.split_once('=') {
                Some((key, value)) => at.as_array()?.iter().find(|item| item[key].as_str() == Some(value))?,
                None => match selector.parse::<usize>() {
                    Ok(index) => at.get(index)?,
                    Err(_) => at.get(selector)?,
                },
            };
            rest = after.strip_prefix('.').unwrap_or(after);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        at = at.get(&rest[..end])?;
        rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
    }
    Some(at)
}
