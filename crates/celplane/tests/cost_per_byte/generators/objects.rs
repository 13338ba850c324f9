//! Objects with long lists.

use serde_json::{Value, json};

use super::{Input, Shape, expression};

const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) fn pod_of(spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cost-{n}"},
                         "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (name, value) in spec.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

pub(super) fn pod(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 40);
    let each = |form: fn(&String) -> Value| -> Value { texts.iter().map(form).collect() };
    let spec = match shape.form {
        0 => {
            json!({"containers": [{"name": "c", "image": "i", "env": each(|it| json!({"name": it, "value": "$(A)$(B)"}))}]})
        }
        1 => json!({"volumes": each(|it| json!({"name": it, "emptyDir": {}}))}),
        2 => json!({"containers": each(|it| json!({"name": it, "image": "i"}))}),
        3 => json!({"tolerations": each(|it| json!({"key": it, "operator": "Exists"}))}),
        4 => json!({"topologySpreadConstraints": each(|it| json!({"maxSkew": 1, "topologyKey": it,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}))}),
        5 => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            each(|it| json!({"topologyKey": it, "labelSelector": {}}))}}}),
        _ => json!({"hostAliases": each(|it| json!({"ip": "1.2.3.4", "hostnames": [it]}))}),
    };
    Input::post(PODS, "cost-{n}", &pod_of(spec))
}

pub(super) fn pod_expressions(shape: &Shape, size: usize) -> Input {
    let length = expression(shape, 0).len() + 60;
    let expressions: Vec<String> = (0..(size / length).max(1)).map(|index| expression(shape, index)).collect();
    let each = |form: fn(&String) -> Value| -> Value { expressions.iter().map(form).collect() };
    let spec = match shape.form {
        0 => json!({"tolerations": each(|it| json!({"expression": it, "effect": "NoSchedule"}))}),
        1 => {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            each(|it| json!({"matchCELExpressions": [it]}))}}}})
        }
        2 => json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            each(|it| json!({"weight": 1, "preference": {"matchCELExpressions": [it]}}))}}}),
        _ => {
            json!({"tolerations": [{"expression": format!("({})", vec!["taint.key.matches('(a+)+$')"; (size / 30).max(1)].join("||"))}]})
        }
    };
    Input::post(PODS, "cost-{n}", &pod_of(spec))
}

pub(super) fn workload(shape: &Shape, size: usize) -> Input {
    let length = expression(shape, 0).len() + 60;
    let expressions: Vec<Value> = (0..(size / length).max(1))
        .map(|index| json!({"expression": expression(shape, index), "effect": "NoSchedule"}))
        .collect();
    let (kind, path) = match shape.form {
        0 => ("DaemonSet", "/apis/apps/v1/namespaces/default/daemonsets"),
        _ => ("Deployment", "/apis/apps/v1/namespaces/default/deployments"),
    };
    let body = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "cost-{n}"},
        "spec": {"selector": {"matchLabels": {"a": "{n}"}}, "template": {"metadata": {"labels": {"a": "{n}"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": expressions}}}});
    Input::post(path, "cost-{n}", &body)
}

pub(super) fn service(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 40);
    let spec = match shape.form {
        0 => {
            let ports: Vec<Value> =
                texts.iter().enumerate().map(|(index, it)| json!({"name": it, "port": index % 60000 + 1})).collect();
            json!({"ports": ports})
        }
        _ => json!({"ports": [{"port": 1}], "externalIPs": vec!["1.2.3.4"; size / 10]}),
    };
    let path = "/api/v1/namespaces/default/services";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "spec": spec}))
}

pub(super) fn network_policy(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 40);
    let spec = match shape.form {
        0 => {
            json!({"podSelector": {"matchExpressions": texts.iter().map(|it| json!({"key": it, "operator": "Exists"})).collect::<Vec<_>>()}})
        }
        _ => {
            json!({"podSelector": {}, "ingress": texts.iter().map(|it| json!({"from": [{"ipBlock": {"cidr": "1.2.3.0/24", "except": [it]}}]})).collect::<Vec<_>>()})
        }
    };
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "spec": spec}))
}

pub(super) fn role(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 50);
    let rules: Vec<Value> = match shape.form {
        0 => texts.iter().map(|it| json!({"apiGroups": [""], "resources": [it], "verbs": ["get"]})).collect(),
        _ => vec![json!({"apiGroups": texts, "resources": texts, "verbs": ["get"]})],
    };
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "rules": rules}))
}

pub(super) fn review(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 6);
    match shape.form {
        0 => Input::post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "",
            &json!({"spec": {"user": "u", "groups": texts, "resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        1 => Input::post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "",
            &json!({"spec": {"token": "a.".repeat(size / 2), "audiences": []}}),
        ),
        _ => Input::post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "",
            &json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector": {"requirements":
                texts.iter().map(|it| json!({"key": it, "operator": "Exists"})).collect::<Vec<_>>()}}}}),
        ),
    }
}

pub(super) fn endpoint_slice(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 40);
    let mut slice = json!({"metadata": {"name": "cost-{n}"}, "addressType": "IPv4", "endpoints": [], "ports": []});
    match shape.form {
        0 => slice["endpoints"] = texts.iter().map(|_| json!({"addresses": ["10.0.0.1"]})).collect(),
        _ => slice["ports"] = texts.iter().map(|it| json!({"name": it, "port": 1})).collect(),
    }
    Input::post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "cost-{n}", &slice)
}

pub(super) fn resource_claim(shape: &Shape, size: usize) -> Input {
    let length = expression(shape, 0).len() + 80;
    let expressions: Vec<String> = (0..(size / length).max(1)).map(|index| expression(shape, index)).collect();
    let selectors: Vec<Value> = expressions.iter().map(|it| json!({"cel": {"expression": it}})).collect();
    let exactly = |selectors: Vec<Value>| json!({"deviceClassName": "d", "selectors": selectors});
    let devices = match shape.form {
        0 => json!({"requests": [{"name": "a", "exactly": exactly(selectors)}]}),
        1 => {
            json!({"requests": expressions.iter().enumerate().map(|(index, _)| json!({"name": format!("r{index}"), "exactly": exactly(vec![])})).collect::<Vec<_>>()})
        }
        _ => json!({"requests": [{"name": "a", "exactly": exactly(vec![])}],
            "constraints": expressions.iter().map(|it| json!({"requests": ["a"], "cel": {"expression": it}})).collect::<Vec<_>>()}),
    };
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "spec": {"devices": devices}}))
}

pub(super) fn resource_slice(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 40);
    let devices: Vec<Value> = match shape.form {
        0 => texts.iter().map(|it| json!({"name": it})).collect(),
        _ => vec![
            json!({"name": "a", "attributes": texts.iter().map(|it| (it.clone(), json!({"string": "s"}))).collect::<serde_json::Map<_, _>>()}),
        ],
    };
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let body = json!({"metadata": {"name": "cost-{n}"}, "spec": {"driver": "d.example", "nodeName": "n", "pool": pool, "devices": devices}});
    Input::post("/apis/resource.k8s.io/v1/resourceslices", "cost-{n}", &body)
}

pub(super) fn certificate_request(shape: &Shape, size: usize) -> Input {
    let request = match shape.form {
        0 => "A".repeat(size),
        _ => "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K".repeat(size / 48 + 1),
    };
    let spec = json!({"request": request, "signerName": "a.example/b", "usages": ["client auth"]});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "spec": spec}))
}

pub(super) fn event(shape: &Shape, size: usize) -> Input {
    let mut body = json!({"metadata": {"name": "cost-{n}"}, "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"}});
    match shape.form {
        0 => body["message"] = "x".repeat(size).into(),
        _ => {
            body["metadata"]["annotations"] =
                shape.texts(size, 8).iter().map(|it| (it.clone(), json!("v"))).collect::<serde_json::Map<_, _>>().into()
        }
    }
    Input::post("/api/v1/namespaces/default/events", "cost-{n}", &body)
}
