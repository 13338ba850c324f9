//! Cases from the recordings of real clients: each request, and the state of the server that it found.
//!
//! A recording holds requests and answers in order, but not what other clients wrote meanwhile. The state before a
//! request is the newest one that an answer shows: by the version that the request names, by the version of the answer, or
//! by its place in the recording. Where no answer shows it, the answer to the request itself stands in for it, so that a
//! change is replayed as one that changes nothing; `stands_in` marks these cases.

use std::collections::BTreeMap;
use std::path::Path;

use apiserver::resources;
use serde_json::{Value, json};

use super::super::player::message;

/// The recordings, and the name by which their clients introduce themselves.
const FILES: &[(&str, &str)] = &[
    ("components-exchanges", ""),
    ("kubectl-138", "kubectl/v1.38.0"),
    ("kubectl-132", "kubectl/v1.32.0"),
    ("python-client", "OpenAPI-Generator/37.0.2/python"),
];

/// Cases of all recordings.
pub(crate) fn all() -> Vec<Value> {
    FILES.iter().flat_map(|(file, agent)| cases(read(file, agent))).collect()
}

/// A request and its answer.
struct Exchange {
    scenario: String,
    step: usize,
    user: String,
    request: Value,
    response: Value,
}

/// Group and resource, namespace and name.
type Name = (String, String, String);

/// A state of an object: its version, the place of the answer that shows it, and the object.
type Version = (u64, usize, Value);

fn read(file: &str, agent: &str) -> Vec<Exchange> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/http/{file}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut steps: BTreeMap<String, usize> = BTreeMap::new();
    let mut exchanges = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let scenario = line["scenario"].as_str().unwrap();
        let scenario = match line["kubectl"].as_str() {
            Some(version) => format!("kubectl-{version}/{}", scenario.trim_start_matches("kubectl/")),
            None => scenario.to_owned(),
        };
        let agent = match line["component"].as_str() {
            Some(component) => format!("{component}/v1.38.0"),
            None => agent.to_owned(),
        };
        let single = [line.clone()];
        for exchange in line["exchanges"].as_array().map_or(&single[..], Vec::as_slice) {
            let step = steps.entry(scenario.clone()).or_default();
            *step += 1;
            let mut request = exchange["request"].clone();
            if request["headers"].is_null() {
                request["headers"] = json!({});
            }
            request["headers"]["User-Agent"] = agent.clone().into();
            exchanges.push(Exchange {
                scenario: scenario.clone(),
                step: *step,
                user: line["as"].as_str().unwrap_or("admin").to_owned(),
                request,
                response: exchange["response"].clone(),
            });
        }
    }
    exchanges
}

fn cases(exchanges: Vec<Exchange>) -> Vec<Value> {
    let mut known = RecordedVersions::default();
    for (place, exchange) in exchanges.iter().enumerate() {
        known.learn(place, exchange);
    }
    let cases = exchanges.into_iter().enumerate();
    cases.map(|(place, exchange)| known.case(place, exchange)).collect()
}

/// All states of objects that a recording shows.
#[derive(Default)]
struct RecordedVersions {
    versions: BTreeMap<Name, Vec<Version>>,
}

impl RecordedVersions {
    fn learn(&mut self, place: usize, exchange: &Exchange) {
        let mut found = body(&exchange.response).map(|body| objects(&body)).unwrap_or_default();
        for event in exchange.response["events"].as_array().into_iter().flatten() {
            found.extend(objects(&event["object"]));
        }
        for object in found {
            if let (Some(name), Some(version)) = (name_of(&object), version(&object)) {
                self.versions.entry(name).or_default().push((version, place, object));
            }
        }
    }

    /// The state of an object at a version.
    fn at(&self, name: &Name, version: u64) -> Option<Value> {
        let versions = self.versions.get(name)?;
        versions.iter().find(|it| it.0 == version).map(|it| it.2.clone())
    }

    /// The newest state before a version, of the object with this uid.
    fn before(&self, name: &Name, answer: &Value) -> Option<Value> {
        let version = version(answer)?;
        let uid = &answer["metadata"]["uid"];
        let versions = self.versions.get(name)?.iter();
        let older = versions.filter(|it| it.0 < version && it.2["metadata"]["uid"] == *uid);
        older.max_by_key(|it| it.0).map(|it| it.2.clone())
    }

    /// The last state that an answer before this place shows, or else the first one after it.
    fn around(&self, name: &Name, place: usize) -> Option<Value> {
        let versions = self.versions.get(name)?;
        let earlier = versions.iter().filter(|it| it.1 < place).max_by_key(|it| it.1);
        earlier.or_else(|| versions.iter().find(|it| it.1 > place)).map(|it| it.2.clone())
    }

    fn case(&self, place: usize, exchange: Exchange) -> Value {
        let Exchange { scenario, step, user, mut request, mut response } = exchange;
        let mut stands_in = false;
        let is_watch = request["path"].as_str().unwrap().contains("watch=");
        let mut given = if is_watch {
            watch(&mut request, &mut response)
        } else {
            self.given(place, &request, &response, &mut stands_in)
        };
        given.extend(self.definition(&request, place));
        let is_text = ["body_text", "body_shape"].iter().any(|field| response.get(field).is_some());
        let is_compared = body(&response).is_some() || is_text || response.get("events").is_some();
        json!({
            "scenario": scenario, "step": step, "user": user, "request": request, "response": response, "given": given,
            "status_only": !is_compared, "stands_in": stands_in,
        })
    }

    /// The objects that a request needs.
    fn given(&self, place: usize, request: &Value, response: &Value, stands_in: &mut bool) -> Vec<Value> {
        let target = Target::of(request["path"].as_str().unwrap());
        let named = target.name();
        let answer = body(response);
        let code = response["status"].as_u64().unwrap();
        let mut instead = |answer: &Value| {
            *stands_in = true;
            vec![answer.clone()]
        };
        match request["method"].as_str().unwrap() {
            "GET" if code != 200 => Vec::new(),
            "GET" => {
                let Some(answer) = answer else { return Vec::new() };
                let rows = answer["rows"].as_array().into_iter().flatten();
                let partial = rows.filter(|row| row["object"]["kind"] == "PartialObjectMetadata");
                let partial = partial.filter_map(|row| {
                    let metadata = &row["object"]["metadata"];
                    let name = target.named(text(metadata, "namespace"), text(metadata, "name"));
                    self.at(&name, version(&row["object"])?).or_else(|| self.around(&name, place))
                });
                match objects(&answer) {
                    // A subresource shows the object in another form.
                    _ if !target.subresource.is_empty() => {
                        named.and_then(|it| self.around(&it, place)).into_iter().collect()
                    }
                    found if found.is_empty() => partial.collect(),
                    found => found,
                }
            }
            "POST" if target.subresource.is_empty() && code != 409 => Vec::new(),
            "POST" => {
                let body = &request["body"];
                let own = target.named(&target.namespace, text(&body["metadata"], "name"));
                let name = if target.subresource.is_empty() { own } else { named.unwrap_or(own) };
                self.around(&name, place).into_iter().collect()
            }
            "PUT" => {
                let Some(name) = named else { return Vec::new() };
                let old = version(&request["body"]);
                let exact = old.and_then(|old| self.at(&name, old));
                match (code, exact, answer) {
                    (409, _, _) => {
                        let versions = self.versions.get(&name).into_iter().flatten();
                        let newer = versions.filter(|it| old.is_none_or(|old| it.0 > old)).min_by_key(|it| it.0);
                        newer.map(|it| it.2.clone()).into_iter().collect()
                    }
                    (_, Some(exact), _) => vec![exact],
                    (200, None, Some(answer)) => {
                        let mut answer = answer;
                        answer["metadata"]["resourceVersion"] = request["body"]["metadata"]["resourceVersion"].clone();
                        instead(&answer)
                    }
                    _ => Vec::new(),
                }
            }
            "PATCH" if code != 200 => Vec::new(),
            "PATCH" => {
                let Some(name) = named else { return Vec::new() };
                let Some(answer) = answer else { return self.around(&name, place).into_iter().collect() };
                let is_whole = name_of(&answer).as_ref() == Some(&name);
                let unchanged = self.versions.get(&name).into_iter().flatten();
                let mut unchanged = unchanged.filter(|it| it.1 < place && Some(it.0) == version(&answer));
                match unchanged.next().map(|it| it.2.clone()).or_else(|| self.before(&name, &answer)) {
                    Some(before) => vec![before],
                    None if is_whole => instead(&answer),
                    None => self.around(&name, place).into_iter().collect(),
                }
            }
            "DELETE" if code == 404 => Vec::new(),
            "DELETE" => {
                let Some(name) = named else { return answer.map(|answer| objects(&answer)).unwrap_or_default() };
                let before = answer.as_ref().and_then(|answer| self.before(&name, answer));
                match (before.or_else(|| self.earlier(&name, place)), answer) {
                    (Some(before), _) => vec![before],
                    (None, Some(mut answer)) if name_of(&answer).as_ref() == Some(&name) => {
                        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
                            answer["metadata"].as_object_mut().unwrap().remove(field);
                        }
                        instead(&answer)
                    }
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn earlier(&self, name: &Name, place: usize) -> Option<Value> {
        let versions = self.versions.get(name)?.iter();
        versions.filter(|it| it.1 < place).max_by_key(|it| it.1).map(|it| it.2.clone())
    }

    /// The definition of a custom resource.
    fn definition(&self, request: &Value, place: usize) -> Option<Value> {
        let target = Target::of(request["path"].as_str().unwrap());
        if !target.group.contains('.') || target.group.ends_with(".k8s.io") {
            return None;
        }
        let name = format!("{}.{}", target.resource, target.group);
        let definitions = "customresourcedefinitions.apiextensions.k8s.io".to_owned();
        self.around(&(definitions, String::new(), name), place)
    }
}

/// The parts of a path.
struct Target {
    group: String,
    resource: String,
    namespace: String,
    object: String,
    subresource: String,
}

impl Target {
    fn of(path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let mut parts = path.split('/').skip(1).map(ToOwned::to_owned);
        let group = match parts.next().as_deref() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => String::new(),
        };
        let rest: Vec<String> = parts.skip(1).collect();
        let part = |at: usize| rest.get(at).cloned().unwrap_or_default();
        let is_inside = part(0) == "namespaces" && rest.len() > 2 && !matches!(part(2).as_str(), "status" | "finalize");
        let at = if is_inside { 2 } else { 0 };
        Target {
            group,
            resource: part(at),
            namespace: if is_inside { part(1) } else { String::new() },
            object: part(at + 1),
            subresource: part(at + 2),
        }
    }

    fn named(&self, namespace: &str, name: &str) -> Name {
        let resource = format!("{}.{}", self.resource, self.group);
        (resource.trim_end_matches('.').to_owned(), namespace.to_owned(), name.to_owned())
    }

    /// The object that the path names.
    fn name(&self) -> Option<Name> {
        (!self.object.is_empty()).then(|| self.named(&self.namespace, &self.object))
    }
}

/// The initial events of a watch, and the objects that they show. Later events depend on what other clients wrote: the
/// watch ends after a second.
fn watch(request: &mut Value, response: &mut Value) -> Vec<Value> {
    let path = request["path"].as_str().unwrap();
    let has_initial = path.contains("sendInitialEvents=true") || !path.contains("resourceVersion=");
    let mut parts: Vec<String> = path.split('&').map(ToOwned::to_owned).collect();
    for part in &mut parts {
        let (start, name) = part.rsplit_once('?').map_or(("", part.as_str()), |(start, name)| (start, name));
        let start = if start.is_empty() { String::new() } else { format!("{start}?") };
        if name.starts_with("timeoutSeconds=") {
            *part = format!("{start}timeoutSeconds=1");
        } else if name.starts_with("resourceVersion=") {
            *part = format!("{start}resourceVersion=0");
        }
    }
    if !parts.iter().any(|part| part.contains("timeoutSeconds=")) {
        parts.push("timeoutSeconds=1".to_owned());
    }
    request["path"] = parts.join("&").into();
    let Some(events) = response["events"].as_array().cloned() else { return Vec::new() };
    let is_end =
        |event: &Value| event["type"] == "BOOKMARK" && event["object"].to_string().contains("initial-events-end");
    let end = events.iter().position(is_end).map(|at| at + 1);
    let count = match end {
        Some(end) => end,
        None if has_initial => events.iter().take_while(|event| event["type"] == "ADDED").count(),
        None => 0,
    };
    let initial: Vec<Value> = events.into_iter().take(count).collect();
    let given = initial.iter().filter(|event| event["type"] == "ADDED").flat_map(|event| objects(&event["object"]));
    let given = given.collect();
    response["events"] = initial.into();
    response.as_object_mut().unwrap().remove("ended");
    given
}

/// The body of an answer, also one in protobuf.
fn body(response: &Value) -> Option<Value> {
    use base64::Engine as _;
    if let Some(text) = response["body_base64"].as_str() {
        return message(&base64::engine::general_purpose::STANDARD.decode(text).unwrap());
    }
    response.get("body").filter(|body| !body.is_null()).cloned()
}

/// The whole objects in a document.
fn objects(document: &Value) -> Vec<Value> {
    let (kind, api_version) = (text(document, "kind"), &document["apiVersion"]);
    match kind {
        "Status" | "PartialObjectMetadata" | "PartialObjectMetadataList" | "" => Vec::new(),
        "Table" => document["rows"].as_array().into_iter().flatten().flat_map(|row| objects(&row["object"])).collect(),
        list if list.ends_with("List") && document.get("items").is_some() => {
            let items = document["items"].as_array().into_iter().flatten().cloned();
            let kind = list.trim_end_matches("List").to_owned();
            items
                .map(|mut item| {
                    item["kind"] = kind.clone().into();
                    item["apiVersion"] = api_version.clone();
                    item
                })
                .collect()
        }
        _ if name_of(document).is_some() => vec![document.clone()],
        _ => Vec::new(),
    }
}

fn name_of(object: &Value) -> Option<Name> {
    let (kind, api_version) = (text(object, "kind"), text(object, "apiVersion"));
    let (group, _) = api_version.rsplit_once('/').unwrap_or_default();
    let plural = match resources::find_by_api_version(api_version, kind) {
        Some(resource) => resource.plural.to_owned(),
        None if group.contains('.') && !group.ends_with(".k8s.io") => custom_plural(kind),
        None => return None,
    };
    let resource = format!("{plural}.{group}").trim_end_matches('.').to_owned();
    let metadata = &object["metadata"];
    let name = text(metadata, "name");
    version(object)?;
    (!name.is_empty()).then(|| (resource, text(metadata, "namespace").to_owned(), name.to_owned()))
}

/// The resource of a recorded custom kind: `GadgetK138` is `gadgetsk138`.
pub(super) fn custom_plural(kind: &str) -> String {
    let client = kind.rfind(char::is_uppercase).filter(|at| *at > 0).unwrap_or(kind.len());
    let (kind, client) = kind.split_at(client);
    format!("{kind}s{client}").to_lowercase()
}

fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}

#[test]
fn every_recorded_exchange_is_a_case() {
    let cases = all();
    let stand_ins = cases.iter().filter(|case| case["stands_in"] == true).count();
    let outside = cases.iter().filter(|case| case["status_only"] == true).count();
    assert_eq!((cases.len(), stand_ins, outside), (1249, 47, 222));
}
