//! Small things in which clients rely on Kubernetes' answers.

use serde_json::{Value, json};

use crate::cluster::{Cluster, admin, node, pod};

#[tokio::test]
async fn a_dry_run_that_is_not_understood_deletes_nothing() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/ns/configmaps";
    cluster.make(maps, json!({"metadata": {"name": "c"}})).await;
    let one = format!("{maps}/c");
    for (body, code) in [
        (json!({"dryRun": ["all"]}), 422),
        (json!({"dryRun": ["All", "x"]}), 422),
        (json!({"dryRun": "All"}), 400),
        (json!({"preconditions": {"uid": 7}}), 400),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422),
        (json!({"propagationPolicy": "orphan"}), 422),
        (json!({"propagationPolicy": ""}), 422),
        (json!({"dryRun": ["All"]}), 200),
    ] {
        for path in [&one, maps] {
            assert_eq!(cluster.ask(&admin(), "DELETE", path, body.clone()).await.0, code, "{path} {body}");
        }
    }
    let both = format!("{one}?propagationPolicy=Orphan&orphanDependents=true");
    assert_eq!(cluster.ask(&admin(), "DELETE", &both, Value::Null).await.0, 422);
    assert_eq!(cluster.ask(&admin(), "GET", &one, Value::Null).await.0, 200);
    let (_, answer) = cluster.ask(&admin(), "DELETE", &one, json!({"dryRun": ["x"]})).await;
    let message =
        "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
    assert_eq!(answer["message"], message);
    let body = json!({"propagationPolicy": "all", "orphanDependents": false, "dryRun": [""]});
    let (_, answer) = cluster.ask(&admin(), "DELETE", &one, body).await;
    let message = "DeleteOptions.meta.k8s.io \"\" is invalid: [propagationPolicy: Invalid value: \"all\": orphanDependents \
                   and deletionPropagation cannot be both set, propagationPolicy: Unsupported value: \"all\": supported \
                   values: \"Foreground\", \"Background\", \"Orphan\", \"nil\", dryRun: Unsupported value: [\"\"]: \
                   supported values: \"All\"]";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn a_dry_run_that_is_not_understood_writes_nothing() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/ns/configmaps";
    let body = json!({"metadata": {"name": "c"}});
    for query in ["dryRun=", "dryRun=all", "dryRun=All&dryRun=", "dryRun=true"] {
        let (code, answer) = cluster.ask(&admin(), "POST", &format!("{maps}?{query}"), body.clone()).await;
        assert_eq!(code, 422, "{query}: {answer}");
    }
    cluster.make(maps, body.clone()).await;
    let one = format!("{maps}/c?dryRun=");
    let changed = json!({"metadata": {"name": "c"}, "data": {"a": "b"}});
    for (method, body) in [("PUT", changed.clone()), ("PATCH", changed), ("DELETE", Value::Null)] {
        assert_eq!(cluster.ask(&admin(), method, &one, body).await.0, 422, "{method}");
    }
    assert_eq!(cluster.ask(&admin(), "DELETE", &format!("{maps}?dryRun="), Value::Null).await.0, 422);
    let (code, found) = cluster.ask(&admin(), "GET", &format!("{maps}/c"), Value::Null).await;
    assert_eq!((code, &found["data"]), (200, &Value::Null));
    let (_, answer) = cluster.ask(&admin(), "POST", &format!("{maps}?dryRun=&fieldManager=a%07b"), body).await;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: [fieldManager: Invalid value: \"a\\ab\": invalid character \
                   U+0007 (at position 1), dryRun: Unsupported value: [\"\"]: supported values: \"All\"]";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn metadata_that_comes_with_a_status_is_kept() {
    let cluster = Cluster::start().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let of = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let target = json!({"scaleTargetRef": of, "maxReplicas": 2});
    let backend = json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}});
    for (path, spec) in [
        ("/api/v1/namespaces/ns/services", json!({"ports": [{"port": 80}]})),
        ("/api/v1/namespaces/ns/resourcequotas", json!({"hard": {"pods": "1"}})),
        ("/api/v1/namespaces/ns/replicationcontrollers", json!({"selector": {"a": "b"}, "template": template})),
        ("/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers", target),
        ("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", json!({"minAvailable": 1})),
        ("/apis/networking.k8s.io/v1/namespaces/ns/ingresses", backend),
    ] {
        cluster.make(path, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        let patch = json!({"metadata": {
            "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"], "ownerReferences": [owner]
        }});
        let (code, answer) = cluster.ask(&admin(), "PATCH", &format!("{path}/x/status"), patch).await;
        assert_eq!(code, 200, "{path}: {answer}");
        let metadata = &answer["metadata"];
        assert_eq!((&metadata["labels"]["l"], &metadata["annotations"]["a"]), (&json!("1"), &json!("1")), "{path}");
        assert_eq!(metadata["finalizers"], json!(["example.com/f"]), "{path}");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u", "{path}");
    }
    // Some kinds do not support it.
    let attachment = json!({"metadata": {"name": "x"}, "spec": {
        "attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}
    }});
    cluster.make("/apis/storage.k8s.io/v1/volumeattachments", attachment).await;
    let path = "/apis/storage.k8s.io/v1/volumeattachments/x/status";
    let (_, answer) = cluster.ask(&admin(), "PATCH", path, json!({"metadata": {"labels": {"l": "1"}}})).await;
    assert_eq!(answer["metadata"]["labels"], Value::Null);
}

#[tokio::test]
async fn a_bound_pod_wishes_for_no_node() {
    let cluster = Cluster::start().await;
    cluster.make("/api/v1/namespaces/ns/pods", pod("p", "")).await;
    let path = "/api/v1/namespaces/ns/pods/p";
    let wish = json!({"status": {"nominatedNodeName": "n"}});
    let (_, answer) = cluster.ask(&admin(), "PATCH", &format!("{path}/status"), wish).await;
    assert_eq!(answer["status"]["nominatedNodeName"], "n");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    cluster.make(&format!("{path}/binding"), binding).await;
    let (_, answer) = cluster.ask(&admin(), "GET", path, Value::Null).await;
    assert_eq!(answer["spec"]["nodeName"], "n");
    assert_eq!(answer["status"]["nominatedNodeName"], Value::Null);
}

#[tokio::test]
async fn addresses_are_named_by_themselves() {
    let cluster = Cluster::start().await;
    let path = "/apis/networking.k8s.io/v1/ipaddresses";
    let address =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"parentRef": {"resource": "services", "name": "s"}}});
    assert_eq!(cluster.ask(&admin(), "POST", path, address("fe80::1")).await.0, 201);
    assert_eq!(cluster.ask(&admin(), "POST", path, address("not-an-ip")).await.0, 422);
    assert_eq!(cluster.ask(&admin(), "GET", &format!("{path}/fe80::1"), Value::Null).await.0, 200);
}

#[tokio::test]
async fn bundles_of_a_signer_are_named_after_it() {
    let cluster = Cluster::start().await;
    let path = "/apis/certificates.k8s.io/v1/clustertrustbundles";
    let authority = apiserver::serving::certificates::Authority::generate().unwrap();
    let bundle = |name: &str| {
        let spec = json!({"signerName": "example.com/s", "trustBundle": (authority.certificate())});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let (code, answer) = cluster.ask(&admin(), "POST", path, bundle("example.com:s:one")).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(cluster.ask(&admin(), "GET", &format!("{path}/example.com:s:one"), Value::Null).await.0, 200);
    assert_eq!(cluster.ask(&admin(), "POST", path, bundle("one")).await.0, 422);
}

#[tokio::test]
async fn a_watch_of_one_name_needs_the_right_to_that_name_only() {
    let cluster = Cluster::start().await;
    let rules = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"], "verbs": ["list", "watch"]
    }]);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns";
    cluster.make(&format!("{roles}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}]
    });
    cluster.make(&format!("{roles}/rolebindings"), binding).await;
    let user = node("a");
    let maps = "/api/v1/namespaces/ns/configmaps";
    for (query, code) in [
        ("?fieldSelector=metadata.name%3Dc", 200),
        ("?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=c", 200),
        ("?fieldSelector=metadata.name%3Dd", 403),
        ("?fieldSelector=metadata.name!=c", 403),
        ("", 403),
    ] {
        assert_eq!(cluster.ask(&user, "GET", &format!("{maps}{query}"), Value::Null).await.0, code, "{query}");
    }
}

#[tokio::test]
async fn a_patch_makes_no_other_object_of_one() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/ns/configmaps";
    cluster.make(maps, json!({"metadata": {"name": "c"}})).await;
    let (code, answer) = cluster.ask(&admin(), "PATCH", &format!("{maps}/c"), json!({"metadata": {"uid": "7"}})).await;
    let message = "ConfigMap \"c\" is invalid: metadata.uid: Invalid value: \"7\": field is immutable";
    assert_eq!((code, &answer["message"]), (422, &json!(message)));
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{maps}/c"), json!({"metadata": {"uid": null}})).await.0, 200);
}

#[tokio::test]
async fn discovery_is_only_read() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.ask(&admin(), "POST", "/apis", json!({})).await.1["kind"], "APIGroupList");
    for path in ["/api", "/apis/apps", "/apis/apps/v1", "/api/v1"] {
        assert_eq!(cluster.ask(&admin(), "POST", path, json!({})).await.0, 405, "{path}");
        assert_eq!(cluster.ask(&admin(), "GET", path, Value::Null).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn terminating_namespace_has_no_grace_period() {
    let cluster = Cluster::start().await;
    let (_, answer) = cluster.ask(&admin(), "DELETE", "/api/v1/namespaces/ns", Value::Null).await;
    assert!(answer["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], Value::Null);
}

#[tokio::test]
async fn answers_have_line_breaks_for_people() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/ns";
    for (query, agent, pretty) in [
        ("", "kubectl/v1.38", false),
        ("", "curl/8.5", true),
        ("?pretty=true", "kubectl/v1.38", true),
        ("?pretty=false", "curl/8.5", false),
    ] {
        let (_, _, body) = cluster.raw("GET", &format!("{path}{query}"), &[("user-agent", agent)], Value::Null).await;
        assert_eq!(body.starts_with(b"{\n  \"kind\": \"Namespace\""), pretty, "{query} {agent}");
    }
}

#[tokio::test]
async fn every_answer_has_a_name() {
    let cluster = Cluster::start().await;
    let (_, headers, _) = cluster.raw("GET", "/api/v1/nodes", &[], Value::Null).await;
    assert_eq!(headers["audit-id"].len(), 36);
    let (_, headers, _) = cluster.raw("GET", "/nowhere", &[("audit-id", "mine")], Value::Null).await;
    assert_eq!(headers["audit-id"], "mine");
}

#[tokio::test]
async fn a_review_is_not_a_table() {
    let cluster = Cluster::start().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, code) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let (found, _, _) = cluster.raw("POST", path, &[("accept", &accept)], review.clone()).await;
        assert_eq!(found, code, "{accept}");
    }
}

/// Of the subresources only status and scale have a table.
#[tokio::test]
async fn a_token_is_not_a_table() {
    let cluster = Cluster::start().await;
    cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let path = "/api/v1/namespaces/ns/serviceaccounts/robot/token";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, code) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let (found, _, body) = cluster.raw("POST", path, &[("accept", &accept)], json!({"spec": {}})).await;
        assert_eq!(found, code, "{accept}: {body:?}");
    }
    assert_eq!(cluster.raw("GET", "/api/v1/namespaces/ns/status", &[("accept", table)], Value::Null).await.0, 200);
}

#[tokio::test]
async fn deleting_jobs_warns_about_their_pods() {
    let cluster = Cluster::start().await;
    let path = "/apis/batch/v1/namespaces/ns/jobs";
    let warnings = cluster.warnings("DELETE", path, Value::Null).await;
    assert!(warnings[0].contains("child pods are preserved by default when jobs are deleted"), "{warnings:?}");
    assert!(cluster.warnings("DELETE", path, json!({"propagationPolicy": "Background"})).await.is_empty());
}

#[tokio::test]
async fn metadata_alone_shows_nothing_internal() {
    let cluster = Cluster::start().await;
    let path = "/apis/apps/v1/namespaces/ns/daemonsets";
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    let made = cluster.make(path, set).await;
    assert_eq!(made["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "1");
    for (path, form) in [
        (format!("{path}/d"), "PartialObjectMetadata"),
        (path.to_owned(), "PartialObjectMetadataList"),
        (path.to_owned(), "Table"),
        (format!("{path}/d"), "Table"),
    ] {
        let accept = format!("application/json;as={form};v=v1;g=meta.k8s.io");
        let (code, _, body) = cluster.raw("GET", &path, &[("accept", &accept)], Value::Null).await;
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(code, 200);
        let annotation = "\"deprecated.daemonset.template.generation\":\"1\"";
        assert!(!text.contains(annotation) && text.contains("\"d\""), "{text}");
    }
}

#[tokio::test]
async fn one_storage_class_of_a_list_is_the_default() {
    let cluster = Cluster::start().await;
    let path = "/apis/storage.k8s.io/v1/storageclasses";
    for name in ["a", "b"] {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let class = json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "x.y/z"});
        cluster.make(path, class).await;
    }
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let names = |body: &[u8]| -> Vec<String> {
        let table: Value = serde_json::from_slice(body).unwrap();
        table["rows"].as_array().unwrap().iter().map(|it| it["cells"][0].as_str().unwrap().to_owned()).collect()
    };
    let list = names(&cluster.raw("GET", path, &accept, Value::Null).await.2);
    assert_eq!(list.iter().filter(|name| name.ends_with(" (default)")).count(), 1, "{list:?}");
    assert_eq!(names(&cluster.raw("GET", &format!("{path}/a"), &accept, Value::Null).await.2), ["a"]);
}

#[tokio::test]
async fn times_in_yaml_are_text() {
    let cluster = Cluster::start().await;
    let accept = [("accept", "application/yaml")];
    let (_, _, body) = cluster.raw("GET", "/api/v1/namespaces/ns", &accept, Value::Null).await;
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains("creationTimestamp: \"20"), "{text}");
}

#[tokio::test]
async fn names_and_bodies_that_say_little_are_answered_as_in_kubernetes() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/ns/configmaps";
    let (code, answer) = cluster.ask(&admin(), "GET", &format!("{maps}/.."), Value::Null).await;
    assert_eq!((code, &answer["message"]), (400, &json!("Name parameter invalid: \"..\": may not be '..'")));
    let (code, _, body) = cluster.raw("POST", maps, &[], json!("x")).await;
    assert_eq!(code, 400, "{body:?}");
    let request = http::Request::builder().method("POST").uri(maps);
    let null = http_body_util::Full::new(bytes::Bytes::from_static(b"null"));
    let response = cluster.0.handle(request.body(null).unwrap(), Some(&admin())).await;
    assert_eq!(response.status(), 422);
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/ns/deployments";
    cluster.make(deployments, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let scale = format!("{deployments}/d/scale");
    let (code, answer) = cluster.ask(&admin(), "PATCH", &scale, json!({"spec": {"replicas": "many"}})).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
    let spec = json!({"replicas": 3});
    for (method, body, code, message) in [
        (
            "PUT",
            json!({"spec": spec}),
            400,
            "the name of the object (d based on URL) was undeterminable: name must be provided",
        ),
        (
            "PUT",
            json!({"metadata": {"name": "e"}, "spec": spec}),
            400,
            "the name of the object (e) does not match the name on the URL (d)",
        ),
        (
            "PATCH",
            json!({"metadata": {"name": "e"}, "spec": spec}),
            400,
            "the name of the object (e) does not match the name on the URL (d)",
        ),
        (
            "PUT",
            json!({"metadata": {"name": "d", "namespace": "x"}, "spec": spec}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ] {
        let (found, answer) = cluster.ask(&admin(), method, &scale, body).await;
        assert_eq!((found, &answer["message"]), (code, &json!(message)));
    }
    for method in ["PUT", "PATCH"] {
        let body = json!({"metadata": {"name": "d", "uid": "another"}, "spec": spec});
        assert_eq!(cluster.ask(&admin(), method, &scale, body).await.0, 409);
    }
    let (_, found) = cluster.ask(&admin(), "GET", &scale, Value::Null).await;
    assert_eq!(found["spec"]["replicas"], 1);
    let body = json!({"metadata": {"name": "d", "uid": found["metadata"]["uid"]}, "spec": spec});
    assert_eq!(cluster.ask(&admin(), "PUT", &scale, body).await.0, 200);
}
