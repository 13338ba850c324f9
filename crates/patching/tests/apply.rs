//! Recorded steps of apply and update on one object: the object after each, managed fields with their times included,
//! or why it was refused.
//!
//! The engine runs with the rules of each kind, as in the server's verbs, but with a fixed clock and without
//! admission.

use api::features::Features;
use api::field::Errors;
use api::json::{self, Value};
use celplane_patching::apply::{BuiltIn, CustomResourceKind, Refusal, Versions, Write, conflict_message, keep_times};
use registry::admit::{self, AdmitError};
use registry::custom_resource::CustomResource;
use registry::expressions::{Environments, Languages};
use registry::resources;
use registry::strategy::Context;

/// Cases that differ, each with the reason.
const KNOWN_GAPS: &[(&str, &str)] = &[];

const UID: &str = "00000000-0000-4000-8000-000000000001";
const CREATED: &str = "2000-01-01T00:00:00Z";

/// Failure of a step: message, code, reason and causes, as recorded.
#[derive(Debug)]
struct Failure {
    message: String,
    code: Option<i64>,
    causes: Vec<Value>,
}

impl Failure {
    fn new(message: impl Into<String>, code: Option<i64>) -> Self {
        Self { message: message.into(), code, causes: Vec::new() }
    }
}

/// Processing of an object after the write itself.
trait Rules {
    fn versions<'a>(&'a self, subresource: &str) -> Box<dyn Versions + 'a>;
    fn create(&self, object: &Value, now: &str) -> Result<Value, Failure>;
    fn update(&self, object: &Value, old: &Value, subresource: &str, now: &str) -> Result<Value, Failure>;
    /// An object that a client sends, as the server reads it.
    fn read(&self, object: &Value) -> Value;
}

struct Kind<'a> {
    resource: &'static resources::Resource<'static>,
    environments: &'a Environments,
}

impl Kind<'_> {
    fn context<'a>(&'a self, now: &'a str) -> Context<'a> {
        Context {
            features: Features::default(),
            expressions: self.environments,
            namespace: if self.resource.namespaced { "default" } else { "" },
            now,
            uid: UID,
            name_suffix: "bcdfg",
            namespace_allows_admin_access: false,
        }
    }
}

fn refused(refused: AdmitError) -> Failure {
    match refused {
        AdmitError::Invalid { message, errors, .. } => Failure { message, code: Some(422), causes: errors.causes() },
        other => Failure::new(other.to_string(), None),
    }
}

impl Rules for Kind<'_> {
    fn versions<'a>(&'a self, subresource: &str) -> Box<dyn Versions + 'a> {
        Box::new(BuiltIn::new(self.resource, subresource))
    }

    fn create(&self, object: &Value, now: &str) -> Result<Value, Failure> {
        let mut object = admit::create(self.resource, object, &self.context(now)).map_err(refused)?.object;
        set(&mut object, &["metadata", "creationTimestamp"], CREATED);
        Ok(object)
    }

    fn update(&self, object: &Value, old: &Value, subresource: &str, now: &str) -> Result<Value, Failure> {
        let part = Some(subresource).filter(|it| !it.is_empty());
        let accepted = admit::update(self.resource, object, old, part, &self.context(now)).map_err(refused)?;
        Ok(accepted.object)
    }

    fn read(&self, object: &Value) -> Value {
        admit::read(self.resource, object, CREATED).unwrap().object
    }
}

struct CustomKind(CustomResource);

impl CustomKind {
    fn new(definition: &Value) -> Self {
        Self(CustomResource::new(definition, "v1", &Languages::default()).unwrap())
    }
}

/// An object, unless something is wrong with it.
fn accepted(object: Value, errors: &Errors) -> Result<Value, Failure> {
    if errors.is_empty() {
        return Ok(object);
    }
    let name = object.text_at(&["metadata", "name"]);
    let message = errors.invalid_message("Widget.example.com", name);
    Err(Failure { message, code: Some(422), causes: errors.causes() })
}

fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let (last, path) = path.split_last().unwrap();
    let parent =
        path.iter().fold(object, |value, key| value.as_object_mut().unwrap().get_or_insert(key, Value::object));
    parent.as_object_mut().unwrap().insert(*last, value);
}

impl Rules for CustomKind {
    fn versions<'a>(&'a self, subresource: &str) -> Box<dyn Versions + 'a> {
        let versions = vec![("example.com/v1".to_owned(), Some(self.0.schema()))];
        Box::new(CustomResourceKind::new("Widget", versions, self.0.has_status(), subresource))
    }

    fn create(&self, object: &Value, _now: &str) -> Result<Value, Failure> {
        let mut object = object.clone();
        for (field, value) in [("uid", UID), ("creationTimestamp", CREATED), ("namespace", "default")] {
            set(&mut object, &["metadata", field], value);
        }
        self.0.default(&mut object);
        self.0.prepare_create(&mut object);
        let errors = self.0.validate_create(&object).errors;
        accepted(object, &errors)
    }

    fn update(&self, object: &Value, old: &Value, subresource: &str, _now: &str) -> Result<Value, Failure> {
        let mut object = object.clone();
        for field in ["uid", "creationTimestamp", "namespace", "generation"] {
            set(&mut object, &["metadata", field], old.at(&["metadata", field]).unwrap().clone());
        }
        self.0.default(&mut object);
        let part = Some(subresource).filter(|it| !it.is_empty());
        self.0.prepare_update(&mut object, old, part);
        let errors = self.0.validate_update(&object, old, part).errors;
        accepted(object, &errors)
    }

    fn read(&self, object: &Value) -> Value {
        let mut object = self.0.read(object).unwrap().object;
        self.0.default(&mut object);
        object
    }
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut)?.remove("managedFields")
}

fn step(rules: &dyn Rules, step: &Value, stored: Option<&Value>, number: usize) -> Result<Value, Failure> {
    let text = |name: &str| step.text(name);
    let config = step.get("object").unwrap();
    // The kind that is written is that of the first step.
    let kind_of = |object: &Value| {
        let text = |name: &str| object.text(name).to_owned();
        (text("apiVersion"), text("kind"))
    };
    let subresource = text("subresource");
    let versions = rules.versions(subresource);
    let (api_version, kind) = match stored {
        Some(stored) => kind_of(stored),
        None => (kind_of(config).0, step.str_at(&["served"]).unwrap().to_owned()),
    };
    let now = format!("2000-01-01T00:{number:02}:00Z");
    let write = Write {
        versions: &*versions,
        api_version: &api_version,
        kind: &kind,
        subresource,
        manager: text("manager"),
        now: &now,
    };
    let empty = versions.empty(&api_version);
    let live = stored.unwrap_or(&empty);
    let (object, managed) = if text("op") == "apply" {
        let force = step.get("force").and_then(Value::as_bool).unwrap_or_default();
        let applied = write.apply(live, config, force).map_err(|refusal| match refusal {
            Refusal::BadRequest(message) => Failure::new(message, Some(400)),
            Refusal::Unfit(message) => Failure::new(message, None),
            Refusal::Conflicts(conflicts) => {
                let (message, causes) = conflict_message(&conflicts);
                let causes = causes.as_array().unwrap().to_vec();
                Failure { message, code: Some(409), causes }
            }
        })?;
        (applied.object.unwrap_or_else(|| live.clone()), applied.managed_fields)
    } else {
        let mut config = config.clone();
        // Like the server's reader for an empty list, which would be omitted.
        if config.array_at(&["metadata", "managedFields"]).is_some_and(<[Value]>::is_empty) {
            set(&mut config, &["metadata", "managedFields"], vec![Value::object()]);
        }
        let mut object = rules.read(&config);
        set(&mut object, &["metadata", "namespace"], "default");
        let managed = write.update(live, &object);
        (object, managed)
    };
    let mut object = object;
    take_managed(&mut object);
    let mut object = match stored {
        None => rules.create(&object, &now)?,
        Some(old) => {
            let mut old = old.clone();
            take_managed(&mut old);
            set(&mut object, &["metadata", "resourceVersion"], "1");
            rules.update(&object, &old, subresource, &now)?
        }
    };
    if let Some(managed) = managed {
        set(&mut object, &["metadata", "managedFields"], managed);
    }
    set(&mut object, &["metadata", "resourceVersion"], "1");
    if let Some(old) = stored {
        keep_times(&mut object, old);
    }
    Ok(object)
}

/// Returns the recorded form of an object, without its version, which counts steps.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    object.get_mut("metadata").unwrap().as_object_mut().unwrap().remove("resourceVersion");
    object
}

fn agrees(result: &Result<Value, Failure>, expected: &Value) -> bool {
    match (result, expected.get("object")) {
        (Ok(object), Some(wanted)) => comparable(object) == comparable(wanted),
        (Err(failure), None) => {
            let message = expected.str_at(&["message"]).unwrap();
            // The text after a line break shows Go's own form of objects.
            let first = |text: &str| text.split("\n@@").next().unwrap().trim_end().to_owned();
            let causes: Vec<Value> = expected.get("causes").and_then(Value::as_array).unwrap_or_default().to_vec();
            let same_causes = causes.len() == failure.causes.len()
                && causes.iter().zip(&failure.causes).all(|(wanted, real)| {
                    let text = |value: &Value, name: &str| first(value.text(name));
                    text(wanted, "field") == text(real, "field")
                        && text(wanted, "message") == text(real, "message")
                        && text(wanted, "type") == text(real, "reason")
                });
            first(message) == first(&failure.message)
                && expected.get("code").and_then(Value::as_i64) == failure.code
                && same_causes
        }
        _ => false,
    }
}

#[test]
fn recorded_steps_agree() {
    let environments = Environments::new().unwrap();
    let (mut count, mut steps_count, mut wrong) = (0, 0, Vec::new());
    for line in include_str!("data/apply.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let id = case.str_at(&["id"]).unwrap();
        let input = case.get("input").unwrap();
        let steps = input.get("steps").unwrap().as_array().unwrap();
        let expected = case.at(&["expected", "steps"]).unwrap().as_array().unwrap();
        let definition = input.get("crd");
        // A wrong kind is sent to the resource that its case is about.
        let served = match id.split('/').next().unwrap() {
            "configmap" => "ConfigMap",
            _ => steps[0].str_at(&["object", "kind"]).unwrap(),
        };
        let rules: Box<dyn Rules> = match definition {
            Some(definition) => Box::new(CustomKind::new(definition)),
            None => {
                let api_version = steps[0].str_at(&["object", "apiVersion"]).unwrap();
                let resource = resources::find_by_api_version(api_version, served).unwrap();
                Box::new(Kind { resource, environments: &environments })
            }
        };
        let mut stored: Option<Value> = None;
        let mut difference = None;
        for (index, (input, wanted)) in steps.iter().zip(expected).enumerate() {
            let mut input = input.clone();
            set(&mut input, &["served"], served);
            let result = step(&*rules, &input, stored.as_ref(), index + 1);
            steps_count += 1;
            if !agrees(&result, wanted) {
                difference = Some(format!("{id} step {}: {result:?}\n   instead of {wanted}", index + 1));
                break;
            }
            if let Ok(object) = result {
                stored = Some(object);
            }
        }
        count += 1;
        let listed = KNOWN_GAPS.iter().any(|(gap, _)| *gap == id);
        match difference {
            Some(difference) if !listed => wrong.push(difference),
            None if listed => wrong.push(format!("{id}: agrees now, take it off the list")),
            _ => {}
        }
    }
    println!("{count} cases, {steps_count} steps, {} differ", wrong.len());
    assert!(count > 150);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
