//! One scenario: what is done, and whether its outcome is the recorded one.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Stage;
use super::compare::{differences, expected_status, masked_text, ordered, phases};
use super::watched::ObservedState;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Time that a known gap is given after its steps.
const GAP_PATIENCE: Duration = Duration::from_secs(15);

pub(super) struct Case {
    pub(super) id: String,
    namespace: String,
    data: Value,
    is_gap: bool,
}

/// Whether phases are the expected ones up to the end of the recording. Whether a short phase is seen depends on the load.
fn in_order(own: &[String], expected: &[&str]) -> bool {
    let is_part = |part: &[String]| {
        let mut rest = expected.iter();
        part.iter().all(|it| rest.any(|other| other == it))
    };
    let ends_alike = |part: &[String]| {
        part.first().map(String::as_str) == expected.first().copied()
            && part.last().map(String::as_str) == expected.last().copied()
    };
    (1..=own.len()).any(|end| ends_alike(&own[..end]) && is_part(&own[..end]))
}

fn resource(object: &Value) -> String {
    format!("{}s", object["kind"].as_str().unwrap().to_lowercase())
}

impl Case {
    pub(super) fn new(data: Value, is_gap: bool) -> Self {
        let id = data["id"].as_str().unwrap().to_owned();
        // Static pods are of the default namespace.
        let namespace = if id.starts_with("static/") { "default".to_owned() } else { id.replace('/', "-") };
        Self { namespace, id, data, is_gap }
    }

    fn list(&self, field: &str) -> Vec<Value> {
        self.data[field].as_array().cloned().unwrap_or_default()
    }

    /// Replays the scenario and returns the differences.
    pub(super) async fn replay(&self, stage: &Stage) -> Vec<String> {
        if self.namespace != "default" {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (self.namespace)}});
            self.send(stage, Method::POST, "/api/v1/namespaces".to_owned(), JSON, &namespace).await;
        }
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", self.namespace);
        while stage.client.get_as(&account, JSON).await.is_err() && Instant::now() < stage.deadline {
            tokio::task::yield_now().await;
        }
        for object in self.list("setup") {
            self.create(stage, &object).await;
        }
        let pods = self.list("pods");
        for (index, pod) in pods.iter().enumerate() {
            // A pod that names its node passes the scheduler by: the agent has those before it, as it had in the recording.
            if pod["spec"].get("nodeName").is_some() {
                self.until_admitted(stage, &pods[..index]).await;
            }
            self.create(stage, pod).await;
        }
        for step in self.list("steps") {
            self.take(stage, &step).await;
        }
        let deadline = if self.is_gap { stage.deadline.min(Instant::now() + GAP_PATIENCE) } else { stage.deadline };
        let directory = stage.directory.display().to_string();
        stage.watched.until(deadline, |seen| self.compare(seen, &directory).is_empty()).await;
        let found = stage.watched.read(|seen| self.compare(seen, &directory));
        self.clean(stage).await;
        found
    }

    /// Waits until the agent has observed the pods that were running in the recording.
    async fn until_admitted(&self, stage: &Stage, pods: &[Value]) {
        let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: Vec<&str> = names.filter(|name| self.data["last"][name][0]["nodeName"].is_string()).collect();
        let are_admitted = |seen: &ObservedState| names.iter().all(|name| seen.is_admitted(&self.namespace, name));
        stage.watched.until(stage.deadline, are_admitted).await;
    }

    async fn send(&self, stage: &Stage, method: Method, path: String, kind: &str, body: &Value) {
        let outcome = stage.client.send(method, &path, kind, body.to_string()).await;
        if let Err(error) = outcome {
            eprintln!("{}: {path}: {error}", self.id);
        }
    }

    fn path(&self, resource: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}/{name}", self.namespace)
    }

    async fn create(&self, stage: &Stage, object: &Value) {
        let text = object.to_string().replace("<ns>", &self.namespace);
        let text = text.replace("\"/mnt", &format!("\"{}/mnt", stage.directory.display()));
        let object = serde_json::from_str(&text).unwrap();
        let path = format!("/api/v1/namespaces/{}/{}", self.namespace, resource(&object));
        self.send(stage, Method::POST, path, JSON, &object).await;
    }

    async fn take(&self, stage: &Stage, step: &Value) {
        let words = &step["do"];
        let (verb, argument) = (words[0].as_str().unwrap(), &words[1]);
        let pod = |at: usize| words[at].as_str().unwrap_or("p").to_owned();
        match verb {
            "wait" if step["met"] == false => {}
            "wait" => {
                let (mut name, condition) = (pod(2), argument.as_str().unwrap());
                let pods = self.data["last"].as_object().unwrap();
                if !pods.contains_key(&name) {
                    name = pods.keys().next().unwrap().clone();
                }
                let deadline = stage.deadline;
                if !stage.watched.until(deadline, |seen| seen.holds(&self.namespace, &name, condition)).await {
                    eprintln!("{}: {condition} did not come", self.id);
                }
            }
            "delete" => {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": argument});
                let name = pod(2);
                self.send(stage, Method::DELETE, self.path("pods", &name), JSON, &options).await;
                stage.watched.until(stage.deadline, |seen| seen.is_deleting(&self.namespace, &name)).await;
            }
            "patch" => {
                let part = words[2].as_str().filter(|it| !it.is_empty()).map(|it| format!("/{it}")).unwrap_or_default();
                let path = self.path("pods", &pod(3)) + &part;
                self.send(stage, Method::PATCH, path, STRATEGIC, argument).await;
            }
            "put" => {
                let name = argument["metadata"]["name"].as_str().unwrap();
                self.send(stage, Method::PATCH, self.path(&resource(argument), name), MERGE, argument).await;
            }
            "create" => self.create(stage, argument).await,
            "label" => self.patch_node(stage, &json!({"metadata": {"labels": argument}})).await,
            "taint" => self.patch_node(stage, &json!({"spec": {"taints": argument}})).await,
            "exec" if argument == "c" && words[2].as_str().unwrap().starts_with("kill") => {
                stage.runtime.end_processes(&self.namespace, "p", 0);
            }
            "exec" => stage.runtime.break_page(&self.namespace, "p"),
            "POST pods/p/eviction" => {
                let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
                self.send(stage, Method::POST, self.path("pods", "p/eviction"), JSON, &eviction).await;
            }
            "manifest" => {
                let file = stage.directory.join("static").join(argument.as_str().unwrap());
                match &words[2] {
                    Value::Null => std::fs::remove_file(file).unwrap(),
                    manifest => std::fs::write(file, manifest.to_string()).unwrap(),
                }
            }
            _ if verb.starts_with("kill -9 the sandbox") => stage.runtime.end_sandbox(&self.namespace, "p"),
            // Time passes by itself: what is recorded after it is waited for. The agent must have seen the last change.
            "sleep" => {
                stage.watched.until(stage.deadline, |seen| seen.is_acknowledged(&self.namespace, "p")).await;
            }
            _ => {}
        }
    }

    async fn patch_node(&self, stage: &Stage, patch: &Value) {
        self.send(stage, Method::PATCH, "/api/v1/nodes/node-1".to_owned(), MERGE, patch).await;
    }

    /// The differences between the recorded outcome and the present one.
    fn compare(&self, seen: &ObservedState, directory: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (pod, recorded) in self.data["last"].as_object().unwrap() {
            let Some(history) = seen.pods.get(&(self.namespace.clone(), pod.clone())) else {
                found.push(format!("{pod} was not seen"));
                continue;
            };
            let statuses = recorded.as_array().unwrap().iter().map(expected_status);
            let mut best: Option<Vec<String>> = None;
            for expected in statuses {
                for actual in history.statuses.iter().rev() {
                    let mut differing = Vec::new();
                    let actual: Value =
                        serde_json::from_str(&actual.to_string().replace(&format!("{directory}/mnt"), "/mnt")).unwrap();
                    differences(&expected, &actual, pod, &mut differing);
                    if best.as_ref().is_none_or(|best| differing.len() < best.len()) {
                        best = Some(differing);
                    }
                }
            }
            found.extend(best.into_iter().flatten());
            let own = phases(&history.statuses, history.is_deleted);
            let recorded = self.data["phases"][pod].as_array().unwrap();
            let fits = |it: &Value| {
                let expected: Vec<&str> = it.as_array().unwrap().iter().filter_map(Value::as_str).collect();
                in_order(&own, &expected)
            };
            if !recorded.iter().any(fits) {
                found.push(format!("{pod}: expected phases {recorded:?}, got {own:?}"));
            }
        }
        found.extend(self.compare_events(seen, directory));
        found
    }

    fn compare_events(&self, seen: &ObservedState, directory: &str) -> Vec<String> {
        let events = seen.events.get(&self.namespace).map(Vec::as_slice).unwrap_or_default();
        let own = events.iter().filter(|it| it["source"]["component"] == "kubelet").filter_map(|it| {
            let object = &it["involvedObject"];
            let name = object["name"].as_str()?;
            self.data["last"].get(name)?;
            let mut about = format!("{}/{name}", object["kind"].as_str()?);
            if let Some(path) = object["fieldPath"].as_str() {
                about.push_str(&format!(" {path}"));
            }
            let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
            let message = masked_text(&text("message"), &self.namespace, directory);
            Some([text("type"), text("reason"), about, message])
        });
        let own = ordered(own);
        let recorded = self.list("events");
        let expected = recorded.iter().map(|list| {
            let of = |it: &Value| {
                let text = |at: usize| it[at].as_str().unwrap().to_owned();
                [text(0), text(1), text(2), masked_text(&text(3), &self.namespace, directory)]
            };
            ordered(list.as_array().unwrap().iter().map(of))
        });
        let expected: Vec<Vec<[String; 4]>> = expected.collect();
        // Events after the end of the recording do not count.
        let fits = |list: &Vec<[String; 4]>| {
            let mut rest = own.iter();
            list.iter().all(|event| rest.any(|it| it == event)) && self.extra(list, &own).is_empty()
        };
        if expected.iter().any(fits) || expected.is_empty() && own.is_empty() {
            return Vec::new();
        }
        let first = expected.first().cloned().unwrap_or_default();
        let mut found: Vec<String> = Vec::new();
        found.extend(first.iter().filter(|it| !own.contains(it)).map(|it| format!("missing event {it:?}")));
        found.extend(self.extra(&first, &own).iter().map(|it| format!("extra event {it:?}")));
        if found.is_empty() {
            found.push(format!("order of events: {:?}", own.iter().map(|it| &it[1..3]).collect::<Vec<_>>()));
        }
        found
    }

    /// Events before the last recorded one that are not recorded.
    fn extra(&self, expected: &[[String; 4]], own: &[[String; 4]]) -> Vec<[String; 4]> {
        let end = own.iter().rposition(|it| expected.contains(it)).map_or(0, |at| at + 1);
        own[..end].iter().filter(|it| !expected.contains(it)).cloned().collect()
    }

    /// Deletes the pods that are left, so that others have room.
    async fn clean(&self, stage: &Stage) {
        let left: Vec<String> = stage.watched.read(|seen| {
            let own = seen.pods.iter().filter(|((namespace, _), it)| *namespace == self.namespace && !it.is_deleted);
            own.map(|((_, name), _)| name.clone()).collect()
        });
        for name in left {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
            let none = json!({"metadata": {"finalizers": null}});
            self.send(stage, Method::PATCH, self.path("pods", &name), MERGE, &none).await;
            self.send(stage, Method::DELETE, self.path("pods", &name), JSON, &options).await;
        }
    }
}
