//! Field ownership after applies and updates.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use api::structural_schema::Schema;

use super::*;

const SCHEMA: &str = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
    "s":{"type":"string"},
    "set":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
    "atom":{"type":"array","items":{"type":"string"}},
    "lm":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],
        "items":{"type":"object","properties":{"k":{"type":"string"},"p":{"type":"string","default":"TCP"},"v":{"type":"string"},
            "in":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}}}},
    "m":{"type":"object","additionalProperties":{"type":"string"}},
    "am":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"},"b":{"type":"string"}}},
    "any":{"x-kubernetes-preserve-unknown-fields":true}}}}}"#;

fn value(text: &str) -> Value {
    api::json::parse(text.as_bytes()).unwrap()
}

fn schema() -> Schema {
    Schema::from_value(&value(SCHEMA)).unwrap()
}

fn widgets(schema: &Schema) -> CustomResourceKind<'_> {
    CustomResourceKind::new(
        "Widget",
        vec![("e.com/v1".to_owned(), Some(schema)), ("e.com/v2".to_owned(), Some(schema))],
        true,
        "",
    )
}

fn write<'a>(versions: &'a dyn Versions, manager: &'a str, now: &'a str) -> Write<'a> {
    Write { versions, api_version: "e.com/v1", kind: "Widget", subresource: "", manager, now }
}

/// The object that is stored after an apply.
fn stored(live: &Value, applied: ApplyResult) -> Value {
    let mut object = applied.object.unwrap_or_else(|| live.clone());
    metadata::remove(&mut object, "managedFields");
    if let Some(entries) = applied.managed_fields {
        metadata::set(&mut object, "managedFields", entries);
    }
    metadata::set(&mut object, "uid", "u");
    object
}

fn managers_of(object: &Value) -> Managers {
    Managers::decode(object.at(&["metadata", "managedFields"])).unwrap()
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn choose<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(u64::try_from(words.len()).unwrap())).unwrap()]
    }

    fn some(&mut self) -> bool {
        self.below(3) == 0
    }

    /// A configuration without empty lists and maps that are merged: when the last item is removed, null
    /// remains, which the code after the engine drops.
    fn config(&mut self) -> Value {
        let mut spec = api::json::Object::new();
        let words = ["x", "y", "z"];
        if self.some() {
            spec.insert("s", self.choose(&words));
        }
        for name in ["set", "atom"] {
            if self.some() {
                let mut items: Vec<Value> = words.iter().filter(|_| self.some()).map(|it| Value::from(*it)).collect();
                if items.is_empty() && name == "set" {
                    items.push("w".into());
                }
                spec.insert(name, items);
            }
        }
        for name in ["m", "am"] {
            if self.some() {
                let mut map = api::json::Object::new();
                for key in ["a", "b"] {
                    if self.some() {
                        map.insert(key, self.choose(&words));
                    }
                }
                if map.is_empty() && name == "m" {
                    map.insert("c", "c");
                }
                spec.insert(name, map);
            }
        }
        if self.some() || spec.is_empty() {
            let mut items = vec![api::json!({"k": "w"})];
            for key in words {
                if self.some() {
                    let mut item = api::json!({"k": key});
                    let fields = item.as_object_mut().unwrap();
                    if self.some() {
                        fields.insert("p", self.choose(&["TCP", "UDP"]));
                    }
                    if self.some() {
                        fields.insert("v", self.choose(&words));
                    }
                    if self.some() {
                        fields.insert("in", vec![Value::from(self.choose(&words))]);
                    }
                    items.push(item);
                }
            }
            spec.insert("lm", items);
        }
        if self.some() {
            let any = self.choose(&["1", "[1,2]", r#"{"a":{"b":[1]}}"#, r#"{"a":2,"c":"d"}"#]);
            spec.insert("any", value(any));
        }
        let name = api::json!({"name": "w"});
        api::json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": name, "spec": spec})
    }
}

#[test]
fn random_applies_keep_their_promises() {
    let schema = schema();
    let versions = widgets(&schema);
    let mut numbers = Numbers(7);
    let mut refusals = 0;
    for _ in 0..400 {
        let mut live = versions.empty("e.com/v1");
        for minute in 0..6 {
            let now = format!("2000-01-01T00:0{minute}:00Z");
            let write = write(&versions, numbers.choose(&["a", "b", "c"]), &now);
            let config = numbers.config();
            let force = numbers.some();
            let applied = match write.apply(&live, &config, force) {
                Ok(applied) => applied,
                Err(refusal) => {
                    assert!(!force && matches!(refusal, Refusal::Conflicts(_)), "{refusal:?}");
                    refusals += 1;
                    // Force always wins.
                    assert!(write.apply(&live, &config, true).is_ok());
                    continue;
                }
            };
            let object = stored(&live, applied);
            let shape = versions.shape("e.com/v1").unwrap();
            assert!(walk::validate(shape, &object, walk::Duplicates::Refused).is_ok(), "{object}");
            // Applying the same again changes nothing.
            let again = write.apply(&object, &config, false).unwrap();
            assert_eq!(again.object, None);
            assert_eq!(again.managed_fields.as_ref(), object.at(&["metadata", "managedFields"]));
            // A manager owns exactly the fields that it applied, and they round-trip.
            let managers = managers_of(&object);
            let wanted = walk::field_set(shape, &config).difference(stripped());
            let own = managers.0.iter().find(|it| it.name == write.manager).map(|it| it.fields.clone());
            assert_eq!(own.clone().unwrap_or_default(), wanted);
            let extracted = walk::extract(shape, &object, &wanted);
            if !wanted.is_empty() {
                assert_eq!(walk::field_set(shape, &extracted), wanted, "{extracted} from {object} by {config}");
            }
            // Every owned field exists, regardless of its manager.
            let all = walk::name_members(Some(shape), &walk::field_set(shape, &object));
            for manager in &managers.0 {
                let missing = manager.fields.clone().difference(&all);
                assert!(missing.is_empty(), "{missing:?} of {}", manager.name);
                assert_eq!(fields_v1::decode(&fields_v1::encode(&manager.fields)).unwrap(), manager.fields);
            }
            live = object;
        }
    }
    assert!(refusals > 100, "{refusals}");
}

#[test]
fn an_update_that_changes_nothing_keeps_the_entries() {
    let schema = schema();
    let versions = widgets(&schema);
    let config = value(r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"s":"1"}}"#);
    let empty = versions.empty("e.com/v1");
    let applied = write(&versions, "a", "2000-01-01T00:00:00Z").apply(&empty, &config, false).unwrap();
    let live = stored(&empty, applied);
    let entries = live.at(&["metadata", "managedFields"]).cloned();
    let second = write(&versions, "b", "2000-01-01T00:01:00Z");
    assert_eq!(second.update(&live, &live), entries);
    let mut without = live.clone();
    metadata::remove(&mut without, "managedFields");
    assert_eq!(second.update(&live, &without), entries);
    // An empty list requests a reset; ownership is not tracked until the next apply.
    let mut reset = live.clone();
    metadata::set(&mut reset, "managedFields", Vec::new());
    assert_eq!(second.update(&live, &reset), None);
    assert_eq!(second.update(&without, &live), entries);
    // Broken entries are ignored.
    metadata::set(&mut reset, "managedFields", vec![api::json!({"manager": "x"}), api::json!({"manager": "y"})]);
    assert_eq!(second.update(&live, &reset), entries);
}

#[test]
fn existing_fields_are_owned_before_the_first_apply() {
    let schema = schema();
    let versions = widgets(&schema);
    let live = value(r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w","uid":"u"},"spec":{"s":"1"}}"#);
    let config = value(r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"s":"2"}}"#);
    let apply = write(&versions, "a", "2000-01-01T00:00:00Z");
    let Err(Refusal::Conflicts(conflicts)) = apply.apply(&live, &config, false) else { panic!("no conflict") };
    let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using e.com/v1: .spec.s";
    assert_eq!(conflict_message(&conflicts).0, message);
}

#[test]
fn ownership_follows_a_manager_to_another_version() {
    let schema = schema();
    let versions = widgets(&schema);
    let config = |version: &str, spec: &str| {
        value(&format!(r#"{{"apiVersion":"e.com/{version}","kind":"Widget","metadata":{{"name":"w"}},"spec":{spec}}}"#))
    };
    let empty = versions.empty("e.com/v1");
    let first = write(&versions, "a", "2000-01-01T00:00:00Z");
    let live = stored(&empty, first.apply(&empty, &config("v1", r#"{"s":"1","set":["x"]}"#), false).unwrap());
    let second = Write { api_version: "e.com/v2", ..first };
    let live = versions.convert(&live, "e.com/v2").unwrap();
    let applied = second.apply(&live, &config("v2", r#"{"s":"1"}"#), false).unwrap();
    let object = stored(&live, applied);
    assert_eq!(object.get("spec"), Some(&value(r#"{"s":"1"}"#)));
    let managers = managers_of(&object);
    assert_eq!(managers.0.len(), 1);
    assert_eq!(managers.0[0].api_version, "e.com/v2");
    // Managers of versions that are no longer served go.
    let gone = Manager { api_version: "e.com/v0".to_owned(), name: "old".to_owned(), ..managers.0[0].clone() };
    let mut entries = managers.clone();
    entries.0.push(gone);
    let mut live = object.clone();
    metadata::set(&mut live, "managedFields", entries.encode().unwrap());
    let applied = second.apply(&live, &config("v2", r#"{"s":"2"}"#), false).unwrap();
    assert_eq!(managers_of(&stored(&live, applied)).0.len(), 1);
}

#[test]
fn a_schema_that_becomes_atomic_turns_parts_into_the_whole() {
    let granular = schema();
    let mut atomic = schema();
    let spec = atomic.properties.get_mut("spec").unwrap();
    spec.properties.get_mut("m").unwrap().x_map_type = Some("atomic".to_owned());
    spec.properties.get_mut("set").unwrap().x_list_type = Some("atomic".to_owned());
    let config = value(
        r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"m":{"a":"1"},"set":["x"],"s":"1"}}"#,
    );
    let before = widgets(&granular);
    let empty = before.empty("e.com/v1");
    let applied = write(&before, "a", "2000-01-01T00:00:00Z").apply(&empty, &config, false).unwrap();
    let live = stored(&empty, applied);
    let after = widgets(&atomic);
    let mut changed = live.clone();
    changed.get_mut("spec").unwrap().as_object_mut().unwrap().insert("s", "2");
    let entries = write(&after, "b", "2000-01-01T00:01:00Z").update(&live, &changed).unwrap();
    let managers = Managers::decode(Some(&entries)).unwrap();
    let own = managers.0.iter().find(|it| it.name == "a").unwrap();
    assert_eq!(own.fields, FieldSet::of_names(&[&["spec", "m"], &["spec", "set"]]));
}

#[test]
fn the_oldest_of_too_many_managers_are_merged() {
    let schema = schema();
    let versions = widgets(&schema);
    let mut live = value(r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"m":{}}}"#);
    let empty = versions.empty("e.com/v1");
    let entries = write(&versions, "m00", "2000-01-01T00:00:00Z").update(&empty, &live).unwrap();
    metadata::set(&mut live, "managedFields", entries);
    metadata::set(&mut live, "uid", "u");
    for number in 1..15 {
        let (name, now) = (format!("m{number:02}"), format!("2000-01-01T00:{number:02}:00Z"));
        let mut new = live.clone();
        let map = new.get_mut("spec").unwrap().get_mut("m").unwrap().as_object_mut().unwrap();
        map.insert(name.as_str(), "1");
        let entries = write(&versions, &name, &now).update(&live, &new).unwrap();
        metadata::set(&mut new, "managedFields", entries);
        live = new;
    }
    let managers = managers_of(&live);
    assert_eq!(managers.0.len(), 10);
    let names: Vec<&str> = managers.0.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["ancient-changes", "m06", "m07", "m08", "m09", "m10", "m11", "m12", "m13", "m14"]);
    assert_eq!(managers.0[0].time.as_deref(), Some("2000-01-01T00:05:00Z"));
    assert!(managers.0[0].fields.has(&["spec".into(), "m".into(), "m05".into()]));
}

#[test]
fn kubectl_takes_over_client_side_fields() {
    let schema = schema();
    let versions = widgets(&schema);
    let last = r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"s":"1"}}"#;
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = value(r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"s":"1"}}"#);
    let annotations: api::json::Object = [(annotation, last)].into_iter().collect();
    metadata::set(&mut live, "annotations", annotations);
    let empty = versions.empty("e.com/v1");
    let entries = write(&versions, "kubectl-client-side-apply", "2000-01-01T00:00:00Z").update(&empty, &live).unwrap();
    metadata::set(&mut live, "managedFields", entries);
    metadata::set(&mut live, "uid", "u");
    let config = value(r#"{"spec":{"s":"2"},"kind":"Widget","apiVersion":"e.com/v1","metadata":{"name":"w"}}"#);
    let other = write(&versions, "other", "2000-01-01T00:01:00Z");
    assert!(matches!(other.apply(&live, &config, false), Err(Refusal::Conflicts(_))));
    let kubectl = write(&versions, "kubectl", "2000-01-01T00:01:00Z");
    let object = stored(&live, kubectl.apply(&live, &config, false).unwrap());
    assert_eq!(object.str_at(&["spec", "s"]), Some("2"));
    let renewed = r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"s":"2"}}"#;
    assert_eq!(object.str_at(&["metadata", "annotations", annotation]), Some(format!("{renewed}\n").as_str()));
    // Fields that another manager changed meanwhile are not taken over.
    live.get_mut("spec").unwrap().as_object_mut().unwrap().insert("s", "3");
    assert!(matches!(kubectl.apply(&live, &config, false), Err(Refusal::Conflicts(_))));
}

#[test]
fn replicas_are_owned_through_the_scale_as_well() {
    let replicas = |version: &str| (version == "apps/v1").then(|| vec!["spec".into(), "replicas".into()]);
    let entry = |manager: &str, operation: &str, version: &str, fields: &str, subresource: &str| {
        let mut entry = api::json!({
            "manager": manager, "operation": operation, "apiVersion": version, "time": "2000-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": (value(fields))
        });
        if !subresource.is_empty() {
            entry.as_object_mut().unwrap().insert("subresource", subresource);
        }
        entry
    };
    let both = r#"{"f:spec":{"f:paused":{},"f:replicas":{}}}"#;
    let only = r#"{"f:spec":{"f:replicas":{}}}"#;
    let parent = Value::Array(vec![
        entry("a", "Apply", "apps/v1", both, ""),
        entry("b", "Apply", "apps/v1", r#"{"f:spec":{"f:paused":{}}}"#, ""),
        entry("c", "Update", "apps/v0", only, ""),
    ]);
    let scale = to_scale(Some(&parent), &replicas).unwrap();
    assert_eq!(scale, Value::Array(vec![entry("a", "Apply", "autoscaling/v1", only, "")]));
    // Ownership is unchanged.
    let same = to_parent(Some(&parent), Some(&scale), "apps/v1", &replicas).unwrap();
    assert_eq!(same.as_array().unwrap(), &parent.as_array().unwrap()[..2]);
    // Someone else wrote it through the scale.
    let taken = Value::Array(vec![entry("h", "Update", "autoscaling/v1", only, "scale")]);
    let after = to_parent(Some(&parent), Some(&taken), "apps/v1", &replicas).unwrap();
    let mut owner = entry("h", "Update", "apps/v1", only, "scale");
    owner.as_object_mut().unwrap().remove("time");
    let rest = r#"{"f:spec":{"f:paused":{}}}"#;
    let wanted = vec![entry("a", "Apply", "apps/v1", rest, ""), entry("b", "Apply", "apps/v1", rest, ""), owner];
    assert_eq!(after, Value::Array(wanted));
}

#[test]
fn configurations_that_do_not_fit_are_explained() {
    let schema = schema();
    let versions = widgets(&schema);
    let apply = write(&versions, "a", "2000-01-01T00:00:00Z");
    let refused = |text: &str| match apply.apply(&versions.empty("e.com/v1"), &value(text), false) {
        Err(Refusal::Unfit(message) | Refusal::BadRequest(message)) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("{}"), "invalid object type: /, Kind=");
    assert_eq!(refused(r#"{"apiVersion":"v1","kind":"Widget"}"#), "invalid object type: /v1, Kind=Widget");
    let start = r#"{"apiVersion":"e.com/v1","kind":"Widget","metadata":{"name":"w""#;
    let message = refused(&format!(r#"{start},"managedFields":[]}}}}"#));
    assert_eq!(message, "metadata.managedFields must be nil");
    let unfit = |spec: &str| {
        let message = refused(&format!("{start}}},\"spec\":{spec}}}"));
        let start = "failed to create typed patch object (/w; e.com/v1, Kind=Widget): ";
        message.strip_prefix(start).unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    assert_eq!(unfit(r#"{"set":["a","a"]}"#), ".spec.set: duplicate entries for key [=\"a\"]");
    assert_eq!(
        unfit(r#"{"set":[null]}"#),
        ".spec.set: element 0: associative list without keys has an element that's an explicit null"
    );
    assert_eq!(unfit(r#"{"lm":[1]}"#), ".spec.lm: element 0: associative list with keys may not have non-map elements");
    assert_eq!(
        unfit(r#"{"s":[1]}"#),
        ".spec.s: expected string, got &value.valueUnstructured{Value:[]interface {}{1}}"
    );
    assert_eq!(
        unfit(r#"{"lm":[{"k":"a"},{"k":"a","p":"TCP"}]}"#),
        ".spec.lm: duplicate entries for key [k=\"a\",p=\"TCP\"]"
    );
    assert_eq!(
        unfit(r#"{"s":1,"m":2}"#),
        "errors:\n  .spec.s: expected string, got &value.valueUnstructured{Value:1}\n  .spec.m: expected map, got &{2}"
    );
}
