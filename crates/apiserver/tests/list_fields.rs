//! Every list and map of every kind that can be created: sixteen times as many elements take about sixteen times as long.
//!
//! The fields are those of the OpenAPI document, so that a new one is measured without being named here. Each is filled with
//! elements that differ; bodies are sent as a dry run, which includes decoding, defaults, admission,
//! validation and encoding. Compared is the processor time of the process for [`SHORT`] and [`LONG`] bytes, with four times head
//! room; a field that exceeds it is measured again. `CELPLANE_COST_FULL=1` prints every field, and also tries equal elements and a
//! megabyte.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, admin};

/// Bytes of the short body,
const SHORT: usize = 2_000;
/// and of the long one.
const LONG: usize = 32_000;
/// Bytes of the longest one, in a measurement.
const LONGEST: usize = 1_000_000;
/// Time that may be spent beyond what the size explains.
const HEAD_ROOM: u32 = 4;
/// Shorter times are noise.
const NOISE: Duration = Duration::from_millis(2);
/// Number of measurements before a field counts as too slow.
const TRIALS: usize = 4;

/// A step to a field: a property, or an element of a list or map.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Property(String),
    Element,
    Entry,
}

/// A list or map.
struct Field {
    collection: String,
    kind: Value,
    root: Value,
    steps: Vec<Step>,
    schema: Value,
    /// The object whose status has the field; none for fields that a creation sets.
    object: Option<Value>,
}

impl Field {
    fn name(&self) -> String {
        let steps: String = self
            .steps
            .iter()
            .map(|step| match step {
                Step::Property(name) => format!(".{name}"),
                Step::Element => "[]".to_owned(),
                Step::Entry => "{}".to_owned(),
            })
            .collect();
        format!("{}{steps}", self.kind["kind"].as_str().unwrap())
    }
}

/// The OpenAPI document.
struct Document(Value);

impl Document {
    /// The schema that a reference names.
    fn resolve<'d>(&'d self, schema: &'d Value) -> &'d Value {
        match schema["$ref"].as_str() {
            Some(name) => &self.0["definitions"][name.trim_start_matches("#/definitions/")],
            None => schema,
        }
    }

    /// Collections in which objects can be created: path, kind and schema.
    fn collections(&self) -> Vec<(String, Value, Value)> {
        let mut all = Vec::new();
        for (path, operations) in self.0["paths"].as_object().unwrap() {
            let post = &operations["post"];
            let body = post["parameters"].as_array().into_iter().flatten().find(|it| it["in"] == "body");
            let is_collection = post["x-kubernetes-action"] == "post" && !path.contains("{name}");
            if let (true, Some(body)) = (is_collection, body) {
                let kind = post["x-kubernetes-group-version-kind"].clone();
                all.push((path.replace("{namespace}", "ns"), kind, body["schema"].clone()));
            }
        }
        all
    }

    /// Every list and map that a creation can set.
    fn fields(&self) -> Vec<Field> {
        let starts = self.collections().into_iter().map(|(collection, kind, schema)| {
            let (root, steps, object) = (schema.clone(), Vec::new(), None);
            Field { collection, kind, root, steps, schema, object }
        });
        self.fields_from(starts.collect())
    }

    /// Every list and map in the status of these objects, which are in these collections.
    fn status_fields(&self, objects: &[(&str, Value)]) -> Vec<Field> {
        let collections = self.collections();
        let starts = objects.iter().map(|(path, object)| {
            let (collection, kind, root) = collections.iter().find(|it| it.0 == *path).unwrap().clone();
            let schema = self.resolve(&root)["properties"]["status"].clone();
            let (steps, object) = (vec![Step::Property("status".to_owned())], Some(object.clone()));
            Field { collection, kind, root, steps, schema, object }
        });
        self.fields_from(starts.collect())
    }

    /// Lists and maps below these: each definition is visited once, on the shortest way from a kind.
    fn fields_from(&self, mut queue: VecDeque<Field>) -> Vec<Field> {
        let (mut seen, mut fields) = (BTreeSet::new(), Vec::new());
        while let Some(Field { collection, kind, root, steps, schema, object }) = queue.pop_front() {
            if let Some(name) = schema["$ref"].as_str()
                && !seen.insert(name.to_owned())
            {
                continue;
            }
            let schema = self.resolve(&schema).clone();
            let mut add = |schema: &Value, step: Step| {
                let (schema, steps) = (schema.clone(), [&steps[..], &[step]].concat());
                let (collection, kind, root, object) = (collection.clone(), kind.clone(), root.clone(), object.clone());
                queue.push_back(Field { collection, kind, root, steps, schema, object });
            };
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                // A creation does not set it; what a client sends is dropped.
                if name != "status" {
                    add(property, Step::Property(name.clone()));
                }
            }
            let (items, entries) = (&schema["items"], &schema["additionalProperties"]);
            if items.is_object() {
                add(items, Step::Element);
            }
            if entries.is_object() {
                add(entries, Step::Entry);
            }
            if items.is_object() || entries.is_object() {
                fields.push(Field { collection, kind, root, steps, schema, object });
            }
        }
        fields
    }

    /// The smallest value of a schema; `number` makes texts differ. Elements have all of their scalars.
    fn smallest(&self, schema: &Value, number: usize, with_scalars: bool, depth: usize) -> Value {
        let name = schema["$ref"].as_str().unwrap_or_default().to_owned();
        let schema = self.resolve(schema);
        match (schema["type"].as_str(), schema["format"].as_str()) {
            _ if name.ends_with(".Quantity") => json!("1"),
            (_, Some("int-or-string")) => json!(number % 60_000 + 1),
            (Some("string"), Some("date-time")) => json!("2026-01-01T00:00:00Z"),
            (Some("string"), Some("byte")) => json!("AA=="),
            (Some("string"), _) => json!(format!("n{number}")),
            (Some("integer" | "number"), _) => json!(number % 60_000 + 1),
            (Some("boolean"), _) => json!(true),
            (Some("array"), _) => json!([]),
            _ if name.ends_with("Time") => json!("2026-01-01T00:00:00.000000Z"),
            _ => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let mut object = Map::new();
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let is_scalar = !matches!(self.resolve(property)["type"].as_str(), Some("array" | "object") | None);
                    let is_wanted = with_scalars && is_scalar || required.contains(&json!(name));
                    if depth < 6 && is_wanted && name != "apiVersion" && name != "kind" {
                        object.insert(name.clone(), self.smallest(property, number, false, depth + 1));
                    }
                }
                Value::Object(object)
            }
        }
    }

    /// A list or map of about this many bytes.
    fn filled(&self, schema: &Value, bytes: usize, is_distinct: bool) -> Value {
        let number = |index: usize| if is_distinct { index } else { 0 };
        let mut left = bytes;
        let mut take = |value: &Value, more: usize| {
            left = left.saturating_sub(value.to_string().len() + more);
            left > 0
        };
        if schema["items"].is_object() {
            let elements = (0..).map(|index| self.smallest(&schema["items"], number(index), true, 0));
            Value::Array(elements.take_while(|value| take(value, 1)).collect())
        } else {
            let entry = |index| self.smallest(&schema["additionalProperties"], number(index), true, 0);
            let entries = (0..).map(|index| (format!("k{index}"), entry(index)));
            Value::Object(entries.take_while(|(name, value)| take(value, name.len() + 4)).collect())
        }
    }

    /// A body in which the field is filled and all else is as small as can be.
    fn body(&self, field: &Field, bytes: usize, is_distinct: bool) -> Value {
        let mut body = self.within(&field.root, &field.steps, self.filled(&field.schema, bytes, is_distinct), 0);
        if let Some(object) = &field.object {
            let mut changed = object.clone();
            changed["status"] = body["status"].take();
            return changed;
        }
        body["apiVersion"] = match field.kind["group"].as_str() {
            Some("") => field.kind["version"].clone(),
            group => json!(format!("{}/{}", group.unwrap(), field.kind["version"].as_str().unwrap())),
        };
        body["kind"] = field.kind["kind"].clone();
        if body["metadata"]["name"].is_null() {
            body["metadata"]["name"] = json!("measured");
        }
        body
    }

    fn within(&self, schema: &Value, steps: &[Step], value: Value, depth: usize) -> Value {
        let Some((step, rest)) = steps.split_first() else { return value };
        let mut outer = self.smallest(schema, 0, depth > 0, 0);
        let schema = self.resolve(schema);
        match step {
            Step::Property(name) => {
                outer[name.as_str()] = self.within(&schema["properties"][name], rest, value, depth + 1);
                outer
            }
            Step::Element => json!([self.within(&schema["items"], rest, value, depth + 1)]),
            Step::Entry => json!({"k": (self.within(&schema["additionalProperties"], rest, value, depth + 1))}),
        }
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn cost(cluster: &Cluster, field: &Field, body: &Value) -> (Duration, u16) {
    let (method, path) = match field.object.as_ref().and_then(|object| object["metadata"]["name"].as_str()) {
        Some(name) => ("PUT", format!("{}/{name}/status?dryRun=All", field.collection)),
        None => ("POST", format!("{}?dryRun=All", field.collection)),
    };
    let body = body.clone();
    let before = processor_time();
    let (code, _) = cluster.ask(&admin(), method, &path, body).await;
    (processor_time() - before, code)
}

/// Measures a field; why it is too slow, if it is.
async fn complaint(cluster: &Cluster, document: &Document, field: &Field, is_distinct: bool) -> Option<String> {
    let is_full = std::env::var_os("CELPLANE_COST_FULL").is_some();
    let bodies = [SHORT, LONG].map(|bytes| document.body(field, bytes, is_distinct));
    let [short_bytes, long_bytes] = [0, 1].map(|index| bodies[index].to_string().len());
    let times = u32::try_from(long_bytes.div_ceil(short_bytes)).unwrap();
    let mut said = None;
    for _ in 0..TRIALS {
        let (short, _) = cost(cluster, field, &bodies[0]).await;
        let (long, code) = cost(cluster, field, &bodies[1]).await;
        let allowed = short.max(NOISE) * times * HEAD_ROOM;
        if is_full {
            println!(
                "{}\tdistinct={is_distinct}\t{code}\t{short_bytes}\t{short:?}\t{long_bytes}\t{long:?}",
                field.name()
            );
        }
        if long <= allowed {
            said = None;
            break;
        }
        said = Some(format!(
            "{} ({}): {short:?} for {short_bytes} bytes, {long:?} for {long_bytes}",
            field.name(),
            if is_distinct { "distinct" } else { "equal" }
        ));
    }
    if is_full && said.is_none() {
        let longest = document.body(field, LONGEST, is_distinct);
        let (time, code) = cost(cluster, field, &longest).await;
        println!("{}\tdistinct={is_distinct}\t{code}\t{}\t{time:?}", field.name(), longest.to_string().len());
    }
    said
}

#[tokio::test]
async fn lists_and_maps_take_time_in_proportion_to_their_length() {
    let cluster = Cluster::start().await;
    let (code, _, document) = cluster.raw("GET", "/openapi/v2", &[], Value::Null).await;
    assert_eq!(code, 200);
    let document = Document(serde_json::from_slice(&document).unwrap());
    let fields = document.fields();
    let by_kind: BTreeMap<&str, usize> = fields.iter().fold(BTreeMap::new(), |mut counts, field| {
        *counts.entry(field.kind["kind"].as_str().unwrap()).or_default() += 1;
        counts
    });
    assert!(fields.len() > 300 && by_kind.contains_key("Pod"), "{} fields: {by_kind:?}", fields.len());
    let mut complaints = Vec::new();
    let is_full = std::env::var_os("CELPLANE_COST_FULL").is_some();
    for field in &fields {
        for is_distinct in [true, false].into_iter().filter(|is_distinct| *is_distinct || is_full) {
            complaints.extend(complaint(&cluster, &document, field, is_distinct).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Objects whose status is measured, with what their creation needs.
fn objects_with_status() -> Vec<(&'static str, Value)> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let workload = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"group": "a.example", "scope": "Namespaced", "names": {"plural": "measured", "kind": "Measured"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]});
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]});
    [
        ("/api/v1/nodes", "measured", json!({})),
        ("/api/v1/namespaces/ns/pods", "measured", template["spec"].clone()),
        ("/api/v1/namespaces/ns/services", "measured", json!({"ports": [{"port": 1}]})),
        ("/api/v1/namespaces/ns/persistentvolumeclaims", "measured", claim),
        ("/apis/apps/v1/namespaces/ns/deployments", "measured", workload.clone()),
        ("/apis/apps/v1/namespaces/ns/daemonsets", "measured", workload),
        ("/apis/batch/v1/namespaces/ns/jobs", "measured", json!({"template": job})),
        ("/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims", "measured", json!({"devices": devices})),
        ("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", "measured", json!({"minAvailable": 1})),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "measured.a.example", definition),
    ]
    .map(|(path, name, spec)| (path, json!({"metadata": {"name": name}, "spec": spec})))
    .into()
}

#[tokio::test]
async fn lists_in_status_take_time_in_proportion_to_their_length() {
    let cluster = Cluster::start().await;
    cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let (_, _, document) = cluster.raw("GET", "/openapi/v2", &[], Value::Null).await;
    let document = Document(serde_json::from_slice(&document).unwrap());
    let mut objects = Vec::new();
    for (path, object) in objects_with_status() {
        let (code, object) = cluster.ask(&admin(), "POST", path, object).await;
        assert_eq!(code, 201, "{path}: {object}");
        objects.push((path, object));
    }
    let fields = document.status_fields(&objects);
    let names: Vec<String> = fields.iter().map(Field::name).collect();
    for expected in ["Node.status.addresses", "ResourceClaim.status.devices", "Pod.status.containerStatuses"] {
        assert!(names.iter().any(|it| it == expected), "{names:?}");
    }
    let mut complaints = Vec::new();
    for field in &fields {
        for is_distinct in [true, false] {
            complaints.extend(complaint(&cluster, &document, field, is_distinct).await);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A request whose body grows with a number.
struct Request {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: fn(usize) -> Value,
}

fn map(prefix: &str, count: usize) -> Value {
    (0..count).map(|number| (format!("{prefix}{number}"), json!(""))).collect::<Map<_, _>>().into()
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": data})
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (name, value) in spec.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

fn many(count: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..count).map(element).collect()
}

fn tolerations(count: usize, seconds: u64) -> Value {
    let one = |it| json!({"key": format!("k{it}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    many(count, one)
}

const LARGE: &str = "/api/v1/namespaces/ns/configmaps/large";
const PODS: &str = "/api/v1/namespaces/ns/pods";
const JSON: &str = "application/json";

/// Requests that validation accepts: changes to large maps, and pods that are warned about.
const REQUESTS: &[Request] = &[
    Request {
        name: "merge patch that adds",
        method: "PATCH",
        path: LARGE,
        content_type: "application/merge-patch+json",
        body: |count| json!({"data": map("o", count)}),
    },
    Request {
        name: "merge patch that removes",
        method: "PATCH",
        path: LARGE,
        content_type: "application/merge-patch+json",
        body: |count| json!({"data": (0..count).map(|it| (format!("k{it}"), Value::Null)).collect::<Map<_, _>>()}),
    },
    Request {
        name: "strategic patch that adds",
        method: "PATCH",
        path: LARGE,
        content_type: "application/strategic-merge-patch+json",
        body: |count| json!({"data": map("o", count)}),
    },
    Request {
        name: "strategic patch of a list with an order",
        method: "PATCH",
        path: LARGE,
        content_type: "application/strategic-merge-patch+json",
        body: |count| {
            let owner = |it| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{it}")});
            let order = many(count, |it| json!({"uid": format!("u{it}")}));
            json!({"metadata": {"ownerReferences": many(count, owner), "$setElementOrder/ownerReferences": order}})
        },
    },
    Request {
        name: "apply",
        method: "PATCH",
        path: LARGE,
        content_type: "application/apply-patch+yaml",
        body: |count| config_map(map("o", count)),
    },
    Request {
        name: "update",
        method: "PUT",
        path: LARGE,
        content_type: JSON,
        body: |count| config_map(map("o", count)),
    },
    Request {
        name: "owners",
        method: "POST",
        path: "/api/v1/namespaces/ns/configmaps",
        content_type: JSON,
        body: |count| {
            let owner = |it| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("u{it}")});
            json!({"metadata": {"name": "owned", "ownerReferences": many(count, owner)}})
        },
    },
    Request {
        name: "managers",
        method: "POST",
        path: "/api/v1/namespaces/ns/configmaps",
        content_type: JSON,
        body: |count| {
            let manager = |it| {
                let fields = json!({"f:data": {format!("f:k{it}"): {}}});
                json!({"manager": format!("m{it}"), "operation": "Update", "apiVersion": "v1",
                       "fieldsType": "FieldsV1", "fieldsV1": fields})
            };
            json!({"metadata": {"name": "managed", "managedFields": many(count, manager)}})
        },
    },
    Request {
        name: "equal paths",
        method: "POST",
        path: PODS,
        content_type: JSON,
        body: |count| {
            let items = many(count, |_| json!({"key": "k", "path": "p"}));
            pod(json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}))
        },
    },
    Request {
        name: "equal ports",
        method: "POST",
        path: PODS,
        content_type: JSON,
        body: |count| {
            let ports = many(count, |_| json!({"containerPort": 1}));
            pod(json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}))
        },
    },
    Request {
        name: "tolerations that change",
        method: "PATCH",
        path: "/api/v1/namespaces/ns/pods/tolerating",
        content_type: "application/merge-patch+json",
        body: |count| json!({"spec": {"tolerations": tolerations(count, 2)}}),
    },
    Request {
        name: "mounts",
        method: "POST",
        path: PODS,
        content_type: JSON,
        body: |count| {
            let mounts = many(count, |it| json!({"name": format!("v{it}"), "mountPath": format!("/{it}")}));
            let volumes = many(count, |it| json!({"name": format!("v{it}"), "emptyDir": {}}));
            pod(json!({"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}], "volumes": volumes}))
        },
    },
];

#[tokio::test]
async fn accepted_requests_take_time_in_proportion_to_their_size() {
    const COUNTS: [usize; 2] = [150, 2400];
    let mut complaints = Vec::new();
    for request in REQUESTS {
        let mut said = Some(String::new());
        for _ in 0..TRIALS {
            let mut times = Vec::new();
            for count in COUNTS {
                let cluster = Cluster::start().await;
                cluster.make("/api/v1/namespaces/ns/configmaps", config_map(map("k", count))).await;
                cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
                let mut tolerating = pod(json!({"tolerations": tolerations(count, 1)}));
                tolerating["metadata"]["name"] = json!("tolerating");
                cluster.make(PODS, tolerating).await;
                let path = format!("{}?dryRun=All&fieldManager=m&force=true", request.path);
                let path = if request.content_type.contains("apply") { path } else { path.replace("&force=true", "") };
                let (headers, body) = ([("content-type", request.content_type)], (request.body)(count));
                let before = processor_time();
                let (code, answer) = cluster.ask_as(&admin(), request.method, &path, &headers, body).await;
                times.push(processor_time() - before);
                assert!((200..300).contains(&code), "{}: {answer}", request.name);
            }
            let allowed = times[0].max(NOISE) * (COUNTS[1] / COUNTS[0]) as u32 * HEAD_ROOM;
            said = (times[1] > allowed).then(|| format!("{}: {times:?} for {COUNTS:?}", request.name));
            if said.is_none() {
                break;
            }
        }
        complaints.extend(said);
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn bodies_with_too_many_objects_are_rejected() {
    let cluster = Cluster::start().await;
    cluster.make("/api/v1/namespaces/ns/configmaps", config_map(map("k", 1))).await;
    let empty = many(70_000, |_| json!({}));
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let requests = [
        ("POST", PODS, JSON, pod(json!({"containers": empty}))),
        ("POST", review, JSON, json!({"metadata": {"ownerReferences": empty}})),
        ("PATCH", LARGE, "application/strategic-merge-patch+json", json!({"metadata": {"ownerReferences": empty}})),
        ("PATCH", LARGE, "application/apply-patch+yaml", json!({"metadata": {"ownerReferences": empty}})),
    ];
    for (method, path, content_type, body) in requests {
        let path = if content_type.contains("apply") { format!("{path}?fieldManager=m") } else { path.to_owned() };
        let (code, answer) = cluster.ask_as(&admin(), method, &path, &[("content-type", content_type)], body).await;
        let message = "Request entity too large: the lists of the object hold more than 65536 objects";
        assert_eq!((code, answer["message"].as_str()), (413, Some(message)), "{method} {path} {content_type}");
    }
}
