//! Annotations that carry the proposals' fields: each gives the errors of the field, and the object that the field gives.

use api::annotations::{COLUMNS, DEVICE_CONSTRAINTS, NODE_AFFINITY, POSITIONS, TOLERATIONS};
use api::features::Features;
use api::json::{Object, Value};
use registry::annotations::review::{Carrier, Request};
use registry::annotations::{has_any, merge};
use registry::expressions::Environments;
use registry::strategy::Context;

use crate::proposals::{definition, pod_spec, read_cases};

fn context(environments: &Environments, features: Features) -> Context<'_> {
    Context {
        features,
        expressions: environments,
        namespace: "default",
        now: "2000-01-01T00:00:00Z",
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    }
}

fn with_annotations(object: &mut Value, annotations: Vec<(&str, String)>) {
    let annotations: Object = annotations.into_iter().map(|(name, text)| (name, Value::from(text))).collect();
    let fields = object.as_object_mut().unwrap();
    fields.get_or_insert("metadata", Value::object).as_object_mut().unwrap().insert("annotations", annotations);
}

/// A kind, an object with the fields of a case, the one with annotations in their place, and the paths of both.
type Forms = (&'static str, Value, Value, Vec<(&'static str, &'static str)>);

/// The two forms of a case.
fn forms(case: &Value) -> Option<Forms> {
    let requests = api::json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
    if let Some(constraints) = case.get("constraints").cloned() {
        let text = api::yaml::to_string(&constraints);
        let field = api::json!({"spec": {"devices": {"requests": (requests.clone()), "constraints": constraints}}});
        let mut other = api::json!({"spec": {"devices": {"requests": requests}}});
        with_annotations(&mut other, vec![(DEVICE_CONSTRAINTS, text)]);
        return Some(("ResourceClaim", field, other, vec![("spec.devices.constraints", DEVICE_CONSTRAINTS)]));
    }
    if let Some(columns) = case.get("columns").cloned() {
        let text = api::yaml::to_string(&columns);
        let mut other = definition(Value::Null);
        other.get_mut("spec").and_then(|it| it.get_mut("versions")).unwrap().as_array_mut().unwrap()[0]
            .as_object_mut()
            .unwrap()
            .remove("additionalPrinterColumns");
        with_annotations(&mut other, vec![("columns.celplane.dev/v1", text)]);
        let paths = vec![("spec.additionalPrinterColumns", "columns.celplane.dev/v1")];
        return Some(("CustomResourceDefinition", definition(columns), other, paths));
    }
    if let Some(terms) = case.get("volume_terms").cloned() {
        let affinity = api::json!({"required": {"nodeSelectorTerms": terms}});
        let mut other = api::json!({"spec": {}});
        with_annotations(&mut other, vec![(NODE_AFFINITY, api::yaml::to_string(&affinity))]);
        let field = api::json!({"spec": {"nodeAffinity": affinity}});
        return Some(("PersistentVolume", field, other, vec![("spec.nodeAffinity", NODE_AFFINITY)]));
    }
    if case.get("old").is_some() || case.get("slice_terms").is_some() {
        return None;
    }
    let spec = pod_spec(case.get("spec"), case.get("terms"));
    let field = api::json!({"spec": (spec.clone())});
    let (mut rest, mut annotations) = (spec.clone(), Vec::new());
    if let Some(tolerations) = rest.as_object_mut().unwrap().remove("tolerations") {
        annotations.push((TOLERATIONS, api::yaml::to_string(&tolerations)));
    }
    if let Some(affinity) = rest.as_object_mut().unwrap().remove("affinity") {
        annotations.push((NODE_AFFINITY, api::yaml::to_string(affinity.get("nodeAffinity").unwrap())));
    }
    let mut other = api::json!({"spec": rest});
    with_annotations(&mut other, annotations);
    let paths = vec![("spec.tolerations", TOLERATIONS), ("spec.affinity.nodeAffinity", NODE_AFFINITY)];
    Some(("Pod", field, other, paths))
}

#[test]
fn annotations_give_the_errors_and_objects_of_fields() {
    let environments = Environments::new().unwrap();
    let cases = read_cases(include_str!("cases/proposals.yaml"));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases.as_array().unwrap() {
        let name = case.str_at(&["name"]).unwrap();
        let gates = Features::none().with_flag(case.text("gates")).unwrap();
        let Some((kind, field, mut object, paths)) = forms(case) else { continue };
        count += 1;
        let list = case.get("errors").and_then(Value::as_array).unwrap_or_default();
        let expected: Vec<String> = list
            .iter()
            .map(|it| {
                let (from, to) = paths.iter().find(|(path, _)| it.as_str().unwrap().starts_with(path)).unwrap();
                it.as_str().unwrap().replacen(from, &format!("metadata.annotations[{to}]"), 1)
            })
            .collect();
        let before = object.clone();
        let found: Vec<String> = match merge(kind, &mut object, &context(&environments, gates)) {
            Ok(_) => {
                let (merged, field) = (object.get("spec").unwrap(), field.get("spec").unwrap());
                // Decoding orders the fields of structs.
                let sorted = |value: &Value| {
                    let mut value = value.clone();
                    value.sort_keys();
                    value
                };
                if sorted(merged) != sorted(field) {
                    wrong.push(format!("{name}: merged into {merged}, not {field}"));
                }
                Vec::new()
            }
            Err(errors) => {
                assert_eq!(object, before, "{name}");
                errors.iter().map(|it| it.to_string().lines().next().unwrap().to_owned()).collect()
            }
        };
        if found != expected {
            wrong.push(format!("{name}\n  found {found:#?}\n  expected {expected:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} cases");
}

#[track_caller]
fn check(kind: &str, object: &str, expected: &str) {
    let (mut documents, error) = api::yaml::parse_documents(object);
    assert!(error.is_none());
    let mut object = documents.remove(0).value;
    let environments = Environments::new().unwrap();
    let found = match merge(kind, &mut object, &context(&environments, Features::all_proposals())) {
        Ok(_) => object.to_string(),
        Err(errors) => errors.message().lines().next().unwrap().to_owned(),
    };
    assert_eq!(found, expected);
}

#[test]
fn entries_follow_those_of_the_field_or_take_positions() {
    let pod = |positions: &str| {
        format!(
            "metadata: {{annotations: {{{TOLERATIONS}: '[{{expression: \"true\"}}, {{key: c}}]'{positions}}}}}\n\
             spec: {{tolerations: [{{key: a}}, {{key: b}}]}}"
        )
    };
    check(
        "Pod",
        &pod(""),
        r#"{"metadata":{"annotations":{}},"spec":{"tolerations":[{"key":"a"},{"key":"b"},{"expression":"true"},{"key":"c"}]}}"#,
    );
    let with = |text: &str| pod(&format!(", {TOLERATIONS}{POSITIONS}: '{text}'"));
    check(
        "Pod",
        &with("0,2"),
        r#"{"metadata":{"annotations":{}},"spec":{"tolerations":[{"expression":"true"},{"key":"a"},{"key":"c"},{"key":"b"}]}}"#,
    );
    let at = format!("metadata.annotations[{TOLERATIONS}{POSITIONS}]: Invalid value");
    check("Pod", &with("2,0"), &format!("{at}: \"2,0\": must be in ascending order"));
    check("Pod", &with("1"), &format!("{at}: \"1\": must have one index for each of the 2 entries"));
    check("Pod", &with("x,y"), &format!("{at}: \"x,y\": must be indexes, separated by commas"));
}

#[test]
fn required_selectors_must_both_match() {
    let pod = |own: &str, added: &str| {
        format!(
            "metadata: {{annotations: {{{NODE_AFFINITY}: '{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {added}}}}}'}}}}\n\
             spec: {{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {own}}}}}}}}}"
        )
    };
    let merged = |terms: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{}}}},"spec":{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}}}}}"#
        )
    };
    let a = "[{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}, {}]";
    let both = r#"[{"matchExpressions":[{"key":"a","operator":"Exists"}],"matchCELExpressions":["true"]},{"matchExpressions":[{"key":"b","operator":"Exists"}],"matchCELExpressions":["true"]}]"#;
    check("Pod", &pod(a, r#"[{matchCELExpressions: ["true"]}]"#), &merged(both));
    check("Pod", &pod("[{}]", r#"[{matchCELExpressions: ["true"]}]"#), &merged("[{}]"));
    let many = format!("[{}]", vec!["{matchExpressions: [{key: a, operator: Exists}]}"; 17].join(", "));
    let at = format!("metadata.annotations[{NODE_AFFINITY}].requiredDuringSchedulingIgnoredDuringExecution");
    let text = "with the terms of the field, 289 node selector terms exceed the limit of 256";
    check("Pod", &pod(&many, &many), &format!("{at}.nodeSelectorTerms: Forbidden: {text}"));
}

#[test]
fn annotations_without_effect_are_rejected() {
    let object = |name: &str| format!("metadata: {{annotations: {{{name}: '[]'}}}}");
    let at = |name: &str| format!("metadata.annotations[{name}]");
    check(
        "Deployment",
        &object(TOLERATIONS),
        &format!(
            "{}: Forbidden: has no effect here, set it in spec.template.metadata.annotations: pods get only those",
            at(TOLERATIONS)
        ),
    );
    check(
        "ResourceClaimTemplate",
        &object(DEVICE_CONSTRAINTS),
        &format!(
            "{}: Forbidden: has no effect here, set it in spec.metadata.annotations: claims get only those",
            at(DEVICE_CONSTRAINTS)
        ),
    );
    let unknown = "placement.celplane.dev/toleration";
    check(
        "Pod",
        &object(unknown),
        &format!(
            "{}: Unsupported value: \"{unknown}\": supported values: \"{TOLERATIONS}\", \"{NODE_AFFINITY}\"",
            at(unknown)
        ),
    );
    let version = format!("{COLUMNS}v2");
    check(
        "CustomResourceDefinition",
        &format!("{}\nspec: {{versions: [{{name: v1}}]}}", object(&version)),
        &format!("{}: Unsupported value: \"{version}\": supported values: \"{COLUMNS}v1\"", at(&version)),
    );
}

#[test]
fn texts_are_read_strictly_and_bounded() {
    let pod = |text: &str| {
        let text = api::json::to_string(&Value::from(text));
        format!("metadata: {{annotations: {{{TOLERATIONS}: {text}}}}}")
    };
    let at = format!("metadata.annotations[{TOLERATIONS}]");
    check("Pod", &pod("a: b"), &format!("{at}: Invalid value: \"a: b\": must be a list"));
    check("Pod", &pod("[a]"), &format!("{at}[0]: Invalid value: \"a\": must be a Toleration"));
    check(
        "Pod",
        &pod("[{Expression: 'true', keys: a}]"),
        &format!(
            "[{at}[0]: Invalid value: {{\"Expression\":\"true\",\"keys\":\"a\"}}: unknown field \"Expression\", {at}[0]: Invalid value: {{\"Expression\":\"true\",\"keys\":\"a\"}}: unknown field \"keys\", {at}[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]"
        ),
    );
    check(
        "Pod",
        &pod("[{key: a, key: b}]"),
        &format!("{at}: Invalid value: \"[{{key: a, key: b}}]\": duplicate field \"[0].key\""),
    );
    let alias = "- &a {key: a}\n- *a";
    check(
        "Pod",
        &pod(alias),
        &format!("{at}: Invalid value: \"- &a {{key: a}}\\n- *a\": yaml: document contains excessive aliasing"),
    );
    check(
        "Pod",
        &pod(&format!("[{{key: {}}}]", "a".repeat(200_000))),
        &format!("{at}: Too long: may not be more than 131072 bytes"),
    );
    let many = format!("[{}]", vec!["{expression: 'true'}"; 2000].join(", "));
    let (mut documents, _) = api::yaml::parse_documents(&pod(&many));
    let environments = Environments::new().unwrap();
    let found = merge("Pod", &mut documents.remove(0).value, &context(&environments, Features::all_proposals()));
    let message = found.unwrap_err().message();
    assert!(message.starts_with(&format!("{at}: Forbidden: ")) && message.contains("2000"), "{message}");
}

#[test]
fn totals_count_fields_and_annotations() {
    let environments = Environments::new().unwrap();
    let context = context(&environments, Features::all_proposals());
    let list = |count| vec![api::json!({"expression": "taint.key == 'a'"}); count];
    let max = 2
        * (1..4096)
            .find(|count| {
                let mut pod = api::json!({"spec": {"tolerations": (list(*count))}});
                with_annotations(&mut pod, vec![(TOLERATIONS, api::yaml::to_string(&Value::from(list(*count))))]);
                merge("Pod", &mut pod, &context).is_err()
            })
            .unwrap();
    let mut alone = api::json!({"spec": {}});
    with_annotations(&mut alone, vec![(TOLERATIONS, api::yaml::to_string(&Value::from(list(max - 2))))]);
    assert!(merge("Pod", &mut alone, &context).is_ok(), "{max}");
    with_annotations(&mut alone, vec![(TOLERATIONS, api::yaml::to_string(&Value::from(list(max + 1))))]);
    assert!(merge("Pod", &mut alone, &context).is_err(), "{max}");
}

#[test]
fn objects_without_annotations_are_left_alone() {
    let pod = api::json!({"metadata": {"annotations": {"a": "b"}}, "spec": {}});
    assert!(!has_any("Pod", &pod));
    assert!(has_any(
        "Deployment",
        &api::json!({"spec": {"template": {"metadata": {"annotations": {TOLERATIONS: ""}}}}})
    ));
    assert!(!has_any("ConfigMap", &api::json!({"metadata": {"annotations": {TOLERATIONS: ""}}})));
}

/// Reviews the change of a pod to `new`, by a webhook that knows the scheduler `celplane`; both are in YAML.
#[track_caller]
fn check_review(old: Option<&str>, new: &str, carrier: Option<Carrier<'_>>, expected: &str) {
    let read = |text: &str| api::yaml::parse_documents(text).0.remove(0).value;
    let (old, new) = (old.map(read), read(new));
    let environments = Environments::new().unwrap();
    let schedulers = ["celplane".to_owned()];
    let request = Request { kind: "Pod", object: &new, old: old.as_ref(), schedulers: &schedulers, carrier };
    let errors = request.validate(&context(&environments, Features::all_proposals()));
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found.join("; "), expected);
}

#[test]
fn annotations_need_a_scheduler_that_reads_them() {
    let pod = |annotations: &str, spec: &str| format!("metadata: {{annotations: {{{annotations}}}}}\nspec: {{{spec}}}");
    let tolerations = format!("{TOLERATIONS}: '[{{expression: \"true\"}}]'");
    let affinity = format!(
        "{NODE_AFFINITY}: '{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
         [{{matchCELExpressions: [\"true\"]}}]}}}}'"
    );
    let refused = |name: &str, reason: &str| {
        format!(
            "spec.schedulerName: Invalid value: \"{name}\": {reason} has placement annotations, which only these schedulers \
             read: \"celplane\""
        )
    };
    let (own, other) = ("schedulerName: celplane", "schedulerName: other");
    check_review(None, &pod(&tolerations, own), None, "");
    check_review(None, &pod("a: b", other), None, "");
    check_review(None, &pod(&tolerations, other), None, &refused("other", "the pod"));
    check_review(None, &pod("", other), Some(Carrier::Claim("c")), &refused("other", "resource claim \"c\""));

    // Additions to a pod that waits for a scheduler. A gated pod may narrow its node affinity.
    check_review(Some(&pod("a: b", own)), &pod(&tolerations, own), None, "");
    check_review(Some(&pod("a: b", other)), &pod(&tolerations, other), None, &refused("other", "the pod"));
    let gated = |name: &str| format!("schedulerName: {name}, schedulingGates: [{{name: g}}]");
    check_review(Some(&pod("", &gated("celplane"))), &pod(&affinity, &gated("celplane")), None, "");
    check_review(Some(&pod("", &gated("other"))), &pod(&affinity, &gated("other")), None, &refused("other", "the pod"));
    let invalid = format!("{TOLERATIONS}: '[{{expression: nope}}]'");
    check_review(Some(&pod(&invalid, other)), &pod(&tolerations, other), None, &refused("other", "the pod"));

    // Annotations that were there before, and pods that are placed already.
    check_review(Some(&pod(&tolerations, other)), &pod(&format!("{tolerations}, a: b"), other), None, "");
    check_review(Some(&pod(&tolerations, other)), &pod("a: b", other), None, "");
    let bound = "schedulerName: other, nodeName: n1";
    check_review(Some(&pod("a: b", bound)), &pod(&tolerations, bound), None, "");
}

#[test]
fn assigned_scheduler_is_for_new_pods_only() {
    let pod = api::json!({
        "metadata": {"annotations": {TOLERATIONS: "[]"}}, "spec": {"schedulerName": "default-scheduler"},
    });
    let plain = api::json!({"metadata": {}, "spec": {"schedulerName": "default-scheduler"}});
    let schedulers = ["celplane".to_owned()];
    let request = |object, old| Request { kind: "Pod", object, old, schedulers: &schedulers, carrier: None };
    assert_eq!(request(&pod, None).assigned_scheduler(), Some("celplane"));
    assert_eq!(request(&plain, None).assigned_scheduler(), None);
    assert_eq!(request(&pod, Some(&plain)).assigned_scheduler(), None);
}

#[test]
fn preferred_terms_are_concatenated() {
    let term = |weight: u8, key: &str| {
        format!("{{weight: {weight}, preference: {{matchExpressions: [{{key: {key}, operator: Exists}}]}}}}")
    };
    let list = |terms: &str| format!("preferredDuringSchedulingIgnoredDuringExecution: [{terms}]");
    let pod = format!(
        "metadata: {{annotations: {{{NODE_AFFINITY}: '{{{}}}'}}}}\nspec: {{affinity: {{nodeAffinity: {{{}}}}}}}",
        list(&term(2, "b")),
        list(&term(1, "a"))
    );
    let environments = Environments::new().unwrap();
    let mut object = api::yaml::parse_documents(&pod).0.remove(0).value;
    assert!(merge("Pod", &mut object, &context(&environments, Features::all_proposals())).unwrap());
    let affinity = object.at(&["spec", "affinity", "nodeAffinity"]).unwrap();
    let terms = affinity.list("preferredDuringSchedulingIgnoredDuringExecution");
    let weights: Vec<i64> = terms.iter().filter_map(|it| it.optional_int("weight")).collect();
    assert_eq!(weights, [1, 2]);
}
