//! Fields that take an expression, a pattern or a selector, in kinds that have no generator of their own.
//!
//! A table of fields: an object around as many elements as fit into the size.

use serde_json::{Value, json};

use super::{Input, Shape, expression};

/// A field: the collection of its kind, and an object with these elements in the field.
pub(super) struct Field {
    collection: &'static str,
    object: fn(&[String]) -> Value,
}

fn each(texts: &[String], form: impl Fn(&str) -> Value) -> Value {
    texts.iter().map(|text| form(text)).collect()
}

/// Elements with a name each, as match conditions, variables and audit annotations have.
fn named(texts: &[String], field: &str) -> Value {
    texts.iter().enumerate().map(|(index, it)| json!({"name": format!("n{index}"), field: it})).collect()
}

const RULES: &str =
    r#"[{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["podtemplates"]}]"#;

fn rules() -> Value {
    serde_json::from_str(RULES).unwrap()
}

/// Webhooks with at most 64 match conditions each, as many as there are.
fn webhooks(texts: &[String]) -> Value {
    let webhook = |(index, texts): (usize, &[String])| {
        json!({"name": format!("w{index}.cost.example"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "rules": rules(), "matchConditions": named(texts, "expression"),
            "clientConfig": {"service": {"namespace": "default", "name": "none"}}})
    };
    json!({"webhooks": texts.chunks(64).enumerate().map(webhook).collect::<Vec<_>>()})
}

fn policy(field: &str, elements: Value) -> Value {
    let mut spec = json!({"matchConstraints": {"resourceRules": rules()}, "validations": [{"expression": "true"}]});
    spec[field] = elements;
    json!({"spec": spec})
}

fn mutating(field: &str, elements: Value) -> Value {
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}});
    let mut spec = json!({"matchConstraints": {"resourceRules": rules()}, "reinvocationPolicy": "Never",
        "failurePolicy": "Ignore", "mutations": [mutation]});
    spec[field] = elements;
    json!({"spec": spec})
}

/// A definition whose name is that of the object.
fn definition(schema: &Value, version: Value) -> Value {
    let mut first = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (name, value) in version.as_object().into_iter().flatten() {
        first[name] = value.clone();
    }
    json!({"metadata": {"name": "cost{n}s.cost.example"}, "spec": {"group": "cost.example", "scope": "Namespaced",
        "names": {"plural": "cost{n}s", "kind": "Cost{n}"}, "versions": [first]}})
}

/// The innermost of nested lists without limits, which multiply the estimate of a rule.
fn in_lists(schema: Value) -> Value {
    let mut outer = schema;
    for _ in 0..3 {
        outer = json!({"type": "object", "properties": {"l": {"type": "array", "items": outer}}});
    }
    outer
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";

/// Fields that take expressions or patterns.
pub(super) static EXPRESSIONS: &[Field] = &[
    Field { collection: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", object: webhooks },
    Field { collection: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", object: webhooks },
    Field { collection: VALIDATING, object: |texts| policy("matchConditions", named(texts, "expression")) },
    Field {
        collection: VALIDATING,
        object: |texts| {
            let annotation =
                |(index, it)| json!({"key": format!("k{index}"), "valueExpression": format!("string({it})")});
            policy("auditAnnotations", texts.iter().enumerate().map(annotation).collect())
        },
    },
    Field {
        collection: VALIDATING,
        object: |texts| {
            let validation = |it: &str| json!({"expression": "true", "messageExpression": format!("string({it})")});
            policy("validations", each(texts, validation))
        },
    },
    Field {
        collection: MUTATING,
        object: |texts| {
            let patch = |it: &str| {
                let text = format!("[JSONPatch{{op: 'add', path: '/a', value: ({it})}}]");
                json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}})
            };
            mutating("mutations", each(texts, patch))
        },
    },
    Field {
        collection: MUTATING,
        object: |texts| {
            let apply = |it: &str| {
                let text = format!("Object{{metadata: Object.metadata{{name: string({it})}}}}");
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}})
            };
            mutating("mutations", each(texts, apply))
        },
    },
    Field { collection: MUTATING, object: |texts| mutating("variables", named(texts, "expression")) },
    Field { collection: MUTATING, object: |texts| mutating("matchConditions", named(texts, "expression")) },
    Field {
        collection: DEFINITIONS,
        object: |texts| {
            let rules = each(texts, |it| json!({"rule": it, "messageExpression": format!("string({it})")}));
            definition(&in_lists(json!({"type": "object", "x-kubernetes-validations": rules})), json!({}))
        },
    },
    Field {
        collection: DEFINITIONS,
        object: |texts| {
            let property =
                |(index, it): (usize, &String)| (format!("p{index}"), json!({"type": "string", "pattern": it}));
            let properties: serde_json::Map<_, _> = texts.iter().enumerate().map(property).collect();
            definition(&in_lists(json!({"type": "object", "properties": properties})), json!({}))
        },
    },
    Field {
        collection: DEFINITIONS,
        object: |texts| {
            let paths = each(texts, |it| json!({"jsonPath": format!(".spec['{}']", it.replace('\'', ""))}));
            definition(&json!({"type": "object"}), json!({"selectableFields": paths}))
        },
    },
    Field {
        collection: DEFINITIONS,
        object: |texts| {
            let column = |(index, it): (usize, &String)| {
                let path = format!(".spec[?(@.a==\"{}\")]", it.replace('"', ""));
                json!({"name": format!("c{index}"), "type": "string", "jsonPath": path})
            };
            let columns: Value = texts.iter().enumerate().map(column).collect();
            definition(&json!({"type": "object"}), json!({"additionalPrinterColumns": columns}))
        },
    },
    Field {
        collection: "/apis/resource.k8s.io/v1/deviceclasses",
        object: |texts| json!({"spec": {"selectors": each(texts, |it| json!({"cel": {"expression": it}}))}}),
    },
    Field {
        collection: "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
        object: |texts| {
            let selectors = each(texts, |it| json!({"cel": {"expression": it}}));
            let request = json!({"name": "a", "exactly": {"deviceClassName": "d", "selectors": selectors}});
            json!({"spec": {"spec": {"devices": {"requests": [request]}}}})
        },
    },
    Field {
        collection: "/apis/node.k8s.io/v1/runtimeclasses",
        object: |texts| json!({"handler": "h", "scheduling": {"tolerations": each(texts, |it| json!({"expression": it}))}}),
    },
    Field {
        collection: "/api/v1/persistentvolumes",
        object: |texts| {
            let terms = each(texts, |it| json!({"matchCELExpressions": [it]}));
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/p"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
        },
    },
    Field {
        collection: "/apis/batch/v1/namespaces/default/cronjobs",
        object: |texts| {
            let tolerations = each(texts, |it| json!({"expression": it}));
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "tolerations": tolerations});
            json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}})
        },
    },
];

/// An expression that is costly by a pattern: its own, or one that the server builds.
fn pattern(index: usize, shape: &Shape) -> String {
    let number = if shape.distinct { index } else { 0 };
    format!("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('(x{{1,{}}}){{1,{}}}(a+)+{number}$')", 30, shape.depth.min(30))
}

/// Each field with costly expressions, and with patterns.
pub(super) fn expression_field(shape: &Shape, size: usize) -> Input {
    let field = &EXPRESSIONS[shape.form / 2 % EXPRESSIONS.len()];
    let text =
        |index: usize| if shape.form.is_multiple_of(2) { expression(shape, index) } else { pattern(index, shape) };
    let element = (field.object)(&[text(0), text(0)]).to_string().len() - (field.object)(&[text(0)]).to_string().len();
    post(field, (0..(size / element.max(1)).max(1)).map(text).collect())
}

fn post(field: &Field, texts: Vec<String>) -> Input {
    let mut object = (field.object)(&texts);
    let name = object["metadata"]["name"].as_str().unwrap_or("cost-{n}").to_owned();
    object["metadata"]["name"] = json!(name);
    Input::post(field.collection, if is_review(field) { "" } else { &name }, &object)
}

fn is_review(field: &Field) -> bool {
    field.collection.ends_with("reviews")
}

/// A selector with a requirement for each text, by all others.
fn requirements(texts: &[String]) -> Value {
    let values: Vec<&str> = texts.iter().take(8).map(String::as_str).collect();
    json!({"matchExpressions": each(texts, |it| json!({"key": it, "operator": "NotIn", "values": values}))})
}

/// Fields that take selectors.
pub(super) static SELECTORS: &[Field] = &[
    Field {
        collection: "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        object: |texts| json!({"spec": {"minAvailable": 1, "selector": requirements(texts)}}),
    },
    Field {
        collection: "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        object: |texts| {
            let peer = json!({"podSelector": requirements(texts), "namespaceSelector": requirements(texts)});
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}})
        },
    },
    Field {
        collection: "/api/v1/namespaces/default/services",
        object: |texts| {
            let selector: serde_json::Map<_, _> = texts.iter().map(|it| (it.clone(), json!("v"))).collect();
            json!({"spec": {"ports": [{"port": 1}], "selector": selector}})
        },
    },
    Field {
        collection: "/apis/apps/v1/namespaces/default/deployments",
        object: |texts| {
            let mut selector = requirements(texts);
            selector["matchLabels"] = json!({"a": "b"});
            let template =
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            json!({"spec": {"replicas": 1, "selector": selector, "template": template}})
        },
    },
    Field {
        collection: "/api/v1/namespaces/default/persistentvolumeclaims",
        object: |texts| {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "selector": requirements(texts)}})
        },
    },
    Field {
        collection: "/apis/storage.k8s.io/v1/storageclasses",
        object: |texts| {
            let term = |it: &str| json!({"matchLabelExpressions": [{"key": it, "values": [it]}]});
            json!({"provisioner": "p.example/p", "allowedTopologies": each(texts, term)})
        },
    },
    Field {
        collection: "/api/v1/persistentvolumes",
        object: |texts| {
            let term = json!({"matchExpressions": requirements(texts)["matchExpressions"]});
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/p"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
        },
    },
    Field {
        collection: "/api/v1/namespaces/default/resourcequotas",
        object: |texts| {
            let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": texts});
            json!({"spec": {"hard": {"pods": "1000"}, "scopeSelector": {"matchExpressions": [scope]}}})
        },
    },
    Field {
        collection: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        object: |texts| {
            let selector = |it: &str| json!({"matchLabels": {it: "v"}});
            json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": each(texts, selector)}})
        },
    },
    Field {
        collection: VALIDATING,
        object: |texts| {
            let constraints = json!({"resourceRules": rules(), "objectSelector": requirements(texts),
                "namespaceSelector": requirements(texts)});
            policy("matchConstraints", constraints)
        },
    },
    Field {
        collection: VALIDATING,
        object: |texts| {
            let rule =
                |it: &str| json!({"apiGroups": [it], "apiVersions": ["*"], "operations": ["*"], "resources": [it]});
            policy("matchConstraints", json!({"resourceRules": each(texts, rule)}))
        },
    },
    Field {
        collection: "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        object: |texts| {
            let target = json!({"type": "Value", "value": "1"});
            let metric = json!({"type": "External", "external": {
                "metric": {"name": "m", "selector": requirements(texts)}, "target": target}});
            json!({"spec": {"maxReplicas": 2, "metrics": [metric],
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}}})
        },
    },
    Field {
        collection: "/api/v1/namespaces/default/pods",
        object: |texts| {
            let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": requirements(texts),
                "namespaceSelector": requirements(texts)});
            json!({"spec": {"containers": [{"name": "c", "image": "i"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
        },
    },
    Field {
        collection: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        object: |texts| {
            let subject = |it: &str| json!({"kind": "User", "user": {"name": it}});
            let rule = json!({"apiGroups": ["*"], "resources": texts, "verbs": ["*"], "namespaces": ["*"]});
            json!({"spec": {"matchingPrecedence": 9000, "priorityLevelConfiguration": {"name": "global-default"},
                "rules": [{"subjects": each(texts, subject), "resourceRules": [rule]}]}})
        },
    },
    Field {
        collection: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        object: |texts| {
            let requirement = |it: &str| json!({"key": it, "operator": "In", "values": [it]});
            json!({"spec": {"user": "u", "resourceAttributes": {"verb": "list", "resource": "pods",
                "fieldSelector": {"requirements": each(texts, requirement)}}}})
        },
    },
];

/// Each field with as many requirements as fit.
pub(super) fn selector_field(shape: &Shape, size: usize) -> Input {
    let field = &SELECTORS[shape.form % SELECTORS.len()];
    let text = |index: usize| shape.text(index);
    let length = |count: usize| (field.object)(&(0..count).map(text).collect::<Vec<_>>()).to_string().len();
    let element = (length(20) - length(10)) / 10;
    post(field, (0..(size / element.max(1)).max(1)).map(text).collect())
}

/// A policy with costly validations and one with costly mutations, both bound, for pod templates.
pub(super) fn policies() -> Vec<(&'static str, String)> {
    let shape = Shape { form: 0, depth: 4, length: 16, distinct: true };
    let over = "object.metadata.annotations.all(k, object.metadata.annotations.all(l, k.size() >= 0 || l.size() >= 0))";
    let mut texts: Vec<String> = (0..16).map(|index| expression(&shape, index).replace("&&false", "")).collect();
    texts.push(format!("!has(object.metadata.annotations) || {over}"));
    let mut validating = policy("validations", each(&texts, |it| json!({"expression": it})));
    validating["metadata"] = json!({"name": "cost"});
    validating["spec"]["failurePolicy"] = json!("Ignore");
    let mut mutation = mutating("matchConditions", named(&texts, "expression"));
    mutation["metadata"] = json!({"name": "cost"});
    let binding = json!({"metadata": {"name": "cost"}, "spec": {"policyName": "cost"}});
    let mut denying = binding.clone();
    denying["spec"]["validationActions"] = json!(["Deny"]);
    vec![
        (VALIDATING, validating.to_string()),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", denying.to_string()),
        (MUTATING, mutation.to_string()),
        ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", binding.to_string()),
    ]
}

/// Objects that policies evaluate.
pub(super) fn admitted(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 8);
    let annotations: serde_json::Map<_, _> = match shape.form {
        0 => texts.iter().map(|it| (it.clone(), json!("v"))).collect(),
        _ => [("k".to_owned(), json!("v".repeat(size)))].into_iter().collect(),
    };
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "cost-{n}", "annotations": annotations}, "template": template});
    Input::post("/api/v1/namespaces/default/podtemplates", "cost-{n}", &body)
}
