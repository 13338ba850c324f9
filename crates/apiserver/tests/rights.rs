//! Attempts to gain permissions, beyond the recorded ones: other verbs, other forms of a patch, other places.

use apiserver::identity::User;
use serde_json::{Value, json};

use crate::cluster::{Cluster, admin, node, pod};

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn mallory() -> User {
    User::authenticated("mallory", &["dev"])
}

fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "resourceNames": names})
}

fn rbac(verbs: &[&str], resources: &[&str]) -> Value {
    rule(verbs, "rbac.authorization.k8s.io", resources, &[])
}

/// A cluster in which mallory has these rights everywhere.
async fn cluster_with(rules: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.make(&format!("{GROUP}/clusterroles"), json!({"metadata": {"name": "given"}, "rules": rules})).await;
    cluster.make(&format!("{GROUP}/clusterrolebindings"), binding("given", "given", "mallory")).await;
    cluster
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    })
}

async fn patch(cluster: &Cluster, user: &User, path: &str, kind: &str, body: Value) -> u16 {
    let path = if kind == APPLY { format!("{path}?fieldManager=m&force=true") } else { path.to_owned() };
    // The helper sets its own form for the method PATCH.
    cluster.ask_as(user, "PATCH", &path, &[("content-type", kind)], body).await.0
}

#[tokio::test]
async fn all_verbs_on_bindings_are_not_the_right_to_bind() {
    let cluster = cluster_with(json!([rbac(&["*"], &["clusterrolebindings", "rolebindings"])])).await;
    let user = mallory();
    let bindings = format!("{GROUP}/clusterrolebindings");
    let in_namespace = format!("{GROUP}/namespaces/ns/rolebindings");
    for role in ["cluster-admin", "admin", "edit", "view", "system:node", "system:aggregate-to-view"] {
        for path in [&bindings, &in_namespace] {
            let mut generated = binding("", role, "mallory");
            generated["metadata"] = json!({"generateName": "b-"});
            for body in [binding("b", role, "mallory"), generated] {
                assert_eq!(cluster.ask(&user, "POST", path, body.clone()).await.0, 403, "{role}");
                assert_eq!(cluster.ask(&user, "POST", &format!("{path}?dryRun=All"), body).await.0, 403, "{role}");
            }
            let one = format!("{path}/b");
            assert_eq!(cluster.ask(&user, "PUT", &one, binding("b", role, "mallory")).await.0, 403, "{role}");
            let mut applied = binding("b", role, "mallory");
            applied["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
            applied["kind"] = if path == &bindings { "ClusterRoleBinding".into() } else { "RoleBinding".into() };
            assert_eq!(patch(&cluster, &user, &one, APPLY, applied).await, 403, "{role}");
        }
    }
    // Joining a binding that is there.
    let one = format!("{bindings}/cluster-admin");
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"});
    assert_eq!(patch(&cluster, &user, &one, MERGE, json!({"subjects": [subject]})).await, 403);
    assert_eq!(patch(&cluster, &user, &one, STRATEGIC, json!({"subjects": [subject]})).await, 403);
    let add = json!([{"op": "add", "path": "/subjects/-", "value": subject}]);
    assert_eq!(patch(&cluster, &user, &one, JSON_PATCH, add).await, 403);
    // Only what garbage collection writes passes, and only alone.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/f"]}});
    assert_eq!(patch(&cluster, &user, &one, MERGE, finalizers).await, 200);
    let both = json!({"metadata": {"finalizers": []}, "subjects": [subject]});
    assert_eq!(patch(&cluster, &user, &one, MERGE, both).await, 403);
    // A role of another group, or of no kind.
    for (field, value) in [("apiGroup", "example.com"), ("kind", "clusterrole"), ("kind", ""), ("name", "")] {
        let mut body = binding("c", "cluster-admin", "mallory");
        body["roleRef"][field] = value.into();
        let (code, answer) = cluster.ask(&user, "POST", &bindings, body).await;
        assert!(code >= 400, "{field}={value:?}: {answer}");
    }
    let (code, _) = cluster.ask(&user, "GET", "/api/v1/secrets", Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn the_right_to_bind_is_that_of_one_role() {
    let view = rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"], &["view"]);
    let local = rule(&["bind"], "rbac.authorization.k8s.io", &["roles"], &[]);
    let cluster =
        cluster_with(json!([rbac(&["create", "update"], &["clusterrolebindings", "rolebindings"]), view, local])).await;
    let user = mallory();
    let bindings = format!("{GROUP}/clusterrolebindings");
    assert_eq!(cluster.ask(&user, "POST", &bindings, binding("v", "view", "bob")).await.0, 201);
    assert_eq!(cluster.ask(&user, "POST", &bindings, binding("e", "edit", "bob")).await.0, 403);
    // The right to bind roles of namespaces is not one to bind those of the cluster.
    let path = format!("{GROUP}/namespaces/ns/rolebindings");
    assert_eq!(cluster.ask(&user, "POST", &path, binding("e", "edit", "bob")).await.0, 403);
    // The role of a binding does not change.
    let (_, mut known) = cluster.ask(&admin(), "GET", &format!("{bindings}/v"), Value::Null).await;
    known["roleRef"]["name"] = "cluster-admin".into();
    let (code, _) = cluster.ask(&user, "PUT", &format!("{bindings}/v"), known).await;
    assert!(matches!(code, 403 | 422), "{code}");
}

#[tokio::test]
async fn roles_that_are_there_are_not_put_to_other_use() {
    let cluster = cluster_with(json!([rbac(&["get", "create", "update", "patch"], &["clusterroles", "roles"])])).await;
    let user = mallory();
    let roles = format!("{GROUP}/clusterroles");
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let one = format!("{roles}/cluster-admin");
    let into_view = json!({"metadata": {"labels": label}});
    assert_eq!(patch(&cluster, &user, &one, MERGE, into_view.clone()).await, 403);
    assert_eq!(patch(&cluster, &user, &one, STRATEGIC, into_view).await, 403);
    let add = json!([{"op": "add", "path": "/metadata/labels", "value": label}]);
    assert_eq!(patch(&cluster, &user, &one, JSON_PATCH, add).await, 403);
    let applied = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "cluster-admin", "labels": label}
    });
    assert_eq!(patch(&cluster, &user, &one, APPLY, applied).await, 403);
    let (_, mut role) = cluster.ask(&user, "GET", &one, Value::Null).await;
    // An unchanged object is accepted; a label without a value, or an annotation, is not.
    assert_eq!(cluster.ask(&user, "PUT", &one, role.clone()).await.0, 200);
    role["metadata"]["labels"]["x"] = "".into();
    assert_eq!(cluster.ask(&user, "PUT", &one, role).await.0, 403);
    assert_eq!(patch(&cluster, &user, &one, MERGE, json!({"metadata": {"annotations": {"a": "b"}}})).await, 403);
    // A role of one's own that takes others in.
    cluster.make(&roles, json!({"metadata": {"name": "own"}, "rules": []})).await;
    let selectors = json!([{"matchLabels": {"a": "b"}}]);
    let rule = json!({"aggregationRule": {"clusterRoleSelectors": selectors}});
    assert_eq!(patch(&cluster, &user, &format!("{roles}/own"), MERGE, rule).await, 403);
    let everything = json!({"metadata": {"name": "new"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    assert_eq!(cluster.ask(&user, "POST", &roles, everything).await.0, 403);
    // One that does already, with its rule taken away.
    assert_eq!(patch(&cluster, &user, &format!("{roles}/view"), MERGE, json!({"aggregationRule": null})).await, 403);
    // More than one holds, in a namespace, with stars and parts.
    for (groups, resources, verbs) in
        [("*", "*", "*"), ("", "secrets", "get"), ("", "pods/exec", "create"), ("apps", "*/scale", "update")]
    {
        let body = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [groups], "resources": [resources], "verbs": [verbs]}]});
        assert_eq!(cluster.ask(&user, "POST", &format!("{GROUP}/namespaces/ns/roles"), body).await.0, 403);
    }
    let paths = json!({"metadata": {"name": "p"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]});
    assert_eq!(cluster.ask(&user, "POST", &roles, paths).await.0, 403);
    // What one holds may be written down.
    let held = json!({"metadata": {"name": "h"}, "rules": [rbac(&["get"], &["roles"])]});
    assert_eq!(cluster.ask(&user, "POST", &roles, held).await.0, 201);
}

#[tokio::test]
async fn a_role_that_is_not_there_is_not_an_empty_one() {
    let cluster =
        cluster_with(json!([rbac(&["create", "update", "patch"], &["clusterrolebindings", "rolebindings"])])).await;
    let user = mallory();
    let bindings = format!("{GROUP}/clusterrolebindings");
    let in_namespace = format!("{GROUP}/namespaces/ns/rolebindings");
    assert_eq!(cluster.ask(&user, "POST", &bindings, binding("b", "later", "mallory")).await.0, 404);
    assert_eq!(cluster.ask(&user, "POST", &in_namespace, binding("b", "later", "mallory")).await.0, 404);
    let mut local = binding("b", "later", "mallory");
    local["roleRef"]["kind"] = "Role".into();
    assert_eq!(cluster.ask(&user, "POST", &in_namespace, local.clone()).await.0, 404);
    // A role of the same name elsewhere is another one.
    cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await;
    cluster.make(&format!("{GROUP}/namespaces/other/roles"), json!({"metadata": {"name": "later"}, "rules": []})).await;
    assert_eq!(cluster.ask(&user, "POST", &in_namespace, local).await.0, 404);
    assert_eq!(cluster.ask(&admin(), "POST", &bindings, binding("b", "later", "bob")).await.0, 201);
}

#[tokio::test]
async fn unreadable_identities_are_anonymous() {
    let cluster = Cluster::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let ask = async |headers: &[(&str, &[u8])]| {
        let mut request = http::Request::builder().method("POST").uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"{}"));
        let response = cluster.0.handle(request.body(body).unwrap(), Some(&admin())).await;
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        (status, body["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
    };
    let umlaut = "jürgen".as_bytes();
    assert_eq!(ask(&[("impersonate-user", umlaut)]).await, (201, "jürgen".to_owned()));
    for broken in [&b"\xff"[..], b"j\xfcrgen", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf"] {
        for header in ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-x"] {
            let mut headers = vec![(header, broken)];
            if header != "impersonate-user" {
                headers.push(("impersonate-user", b"bob"));
            }
            assert_eq!(ask(&headers).await.0, 400, "{header} {broken:?}");
        }
    }
    // The first of several users counts; parts without a user are rejected.
    assert_eq!(ask(&[("impersonate-user", b"bob"), ("impersonate-user", b"\xff")]).await.1, "bob");
    assert_eq!(ask(&[("impersonate-group", b"system:masters")]).await.0, 400);
    assert_eq!(ask(&[("impersonate-user", b""), ("impersonate-uid", b"7")]).await.0, 400);
    assert_eq!(ask(&[("impersonate-extra-%ff", b"v"), ("impersonate-user", b"bob")]).await.0, 400);
}

#[tokio::test]
async fn certificate_request_records_its_sender() {
    let signing = rule(
        &["create", "get", "update", "patch"],
        "certificates.k8s.io",
        &["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"],
        &[],
    );
    let cluster = cluster_with(json!([signing])).await;
    let user = mallory();
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = |organization: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "mallory");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request)
    };
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |name: &str, organization: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": (pem(organization)),
            "username": "admin", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}
        }})
    };
    let (code, answer) = cluster.ask(&user, "POST", path, request("m", "system:masters")).await;
    assert_eq!(code, 403, "{answer}");
    let (code, made) = cluster.ask(&user, "POST", path, request("r", "dev")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["spec"]["username"], &made["spec"]["groups"]),
        (&json!("mallory"), &json!(["dev", "system:authenticated"]))
    );
    assert_eq!((&made["spec"]["uid"], &made["spec"]["extra"]), (&Value::Null, &Value::Null));
    let one = format!("{path}/r");
    let username = json!({"spec": {"username": "admin", "groups": ["system:masters"]}});
    let (_, changed) = cluster.ask(&user, "PATCH", &one, username.clone()).await;
    assert_ne!(changed["spec"]["username"], "admin");
    let (_, changed) = cluster.ask(&user, "PATCH", &format!("{one}/status"), username).await;
    assert_ne!(changed["spec"]["username"], "admin");
    // Permission to write the parts does not include speaking for the signer.
    let approved =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}});
    assert_eq!(cluster.ask(&user, "PATCH", &format!("{one}/approval"), approved.clone()).await.0, 403);
    let failed =
        json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "r", "message": "m"}]}});
    assert_eq!(cluster.ask(&user, "PATCH", &format!("{one}/status"), failed).await.0, 403);
    // Nor is it approved from the start, or by another part.
    let mut early = request("e", "dev");
    early["status"] = approved["status"].clone();
    let (_, made) = cluster.ask(&user, "POST", path, early).await;
    assert_eq!(made["status"]["conditions"], Value::Null);
    let (_, changed) = cluster.ask(&user, "PATCH", &one, approved).await;
    assert_eq!(changed["status"]["conditions"], Value::Null);
}

#[tokio::test]
async fn a_certificate_of_a_pod_is_asked_for_with_the_key_and_answered_by_the_signer() {
    let parts = ["podcertificaterequests", "podcertificaterequests/status"];
    let writing = rule(&["create", "get", "update", "patch"], "certificates.k8s.io", &parts, &[]);
    let cluster = cluster_with(json!([writing])).await;
    let user = mallory();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let stub = params.serialize_request(&key).unwrap().der().to_vec();
    let request = |name: &str, stub: &[u8]| {
        let stub = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, stub);
        json!({"metadata": {"name": name}, "spec": {
            "signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "default",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": stub
        }})
    };
    let path = "/apis/certificates.k8s.io/v1/namespaces/ns/podcertificaterequests";
    let (code, made) = cluster.ask(&user, "POST", path, request("r", &stub)).await;
    assert_eq!((code, &made["spec"]["maxExpirationSeconds"]), (201, &json!(86_400)), "{made}");
    // The names of another are not signed with this key.
    let mut forged = stub.clone();
    let last = forged.last_mut().unwrap();
    *last = last.wrapping_add(1);
    let (code, answer) = cluster.ask(&user, "POST", path, request("f", &forged)).await;
    let message = "PodCertificateRequest.certificates.k8s.io \"f\" is invalid: spec.stubPKCS10Request: Invalid value: \
                   invalid signature";
    assert_eq!((code, &answer["message"]), (422, &json!(message)));
    let (code, answer) = cluster.ask(&user, "POST", path, json!({"metadata": {"name": "e"}, "spec": {}})).await;
    assert_eq!((code, answer["details"]["causes"].as_array().map(Vec::len)), (422, Some(8)), "{answer}");
    let one = format!("{path}/r");
    let (code, _) = cluster.ask(&user, "PATCH", &one, json!({"spec": {"podUID": "4"}})).await;
    assert_eq!(code, 422);
    // Permission to write the status does not include speaking for the signer.
    let time = "2026-01-01T00:00:00Z";
    let denied = json!({"status": {"conditions": [
        {"type": "Denied", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time}
    ]}});
    let (code, answer) = cluster.ask(&user, "PATCH", &format!("{one}/status"), denied.clone()).await;
    let message = "PodCertificateRequest.certificates.k8s.io \"r\" is invalid: spec.signerName: Forbidden: \
                   User \"mallory\" is not permitted to \"sign\" for signer \"example.com/s\"";
    assert_eq!((code, &answer["message"]), (422, &json!(message)));
    let may_sign = rule(&["sign"], "certificates.k8s.io", &["signers"], &["example.com/*"]);
    let role = json!({"metadata": {"name": "signer"}, "rules": [may_sign]});
    cluster.make(&format!("{GROUP}/clusterroles"), role).await;
    cluster.make(&format!("{GROUP}/clusterrolebindings"), binding("signer", "signer", "mallory")).await;
    let (code, answer) = cluster.ask(&user, "PATCH", &format!("{one}/status"), denied).await;
    assert_eq!(code, 200, "{answer}");
    let taken_back = json!({"status": {"conditions": []}});
    assert_eq!(cluster.ask(&user, "PATCH", &format!("{one}/status"), taken_back).await.0, 422);
}

#[tokio::test]
async fn a_node_reaches_nothing_of_another() {
    let cluster = Cluster::start().await;
    let user = node("a");
    for name in ["a", "b"] {
        cluster.make("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        cluster.make("/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": name}})).await;
        cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": name}})).await;
        let mut it = pod(name, name);
        it["spec"]["serviceAccountName"] = name.into();
        it["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": name}}]);
        cluster.make("/api/v1/namespaces/ns/pods", it).await;
    }
    let secrets = "/api/v1/namespaces/ns/secrets";
    let core = "/api/v1";
    let token = json!({"spec": {"audiences": [], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "b"}}});
    for (method, path, body, code) in [
        ("GET", format!("{secrets}/a"), Value::Null, 200),
        ("GET", format!("{secrets}/b"), Value::Null, 403),
        ("GET", format!("{secrets}?fieldSelector=metadata.name%3Db"), Value::Null, 403),
        ("GET", secrets.to_owned(), Value::Null, 403),
        ("GET", format!("{core}/secrets?fieldSelector=metadata.name%3Da"), Value::Null, 403),
        ("GET", format!("{core}/watch/namespaces/ns/secrets/b"), Value::Null, 403),
        ("GET", format!("{core}/watch/pods?fieldSelector=spec.nodeName%3Da"), Value::Null, 403),
        ("GET", format!("{core}/pods?fieldSelector=spec.nodeName!%3Db"), Value::Null, 403),
        ("GET", format!("{core}/pods?fieldSelector=spec.nodeName%3Db"), Value::Null, 403),
        ("GET", format!("{core}/pods?fieldSelector=spec.nodeName%3Da"), Value::Null, 200),
        ("GET", format!("{core}/nodes"), Value::Null, 403),
        ("GET", format!("{core}/nodes/b"), Value::Null, 403),
        ("PATCH", format!("{core}/nodes/b"), json!({"metadata": {"labels": {"x": "y"}}}), 403),
        ("PATCH", format!("{core}/nodes/b/status"), json!({"status": {"phase": "x"}}), 403),
        (
            "PATCH",
            format!("{core}/nodes/a"),
            json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}),
            403,
        ),
        ("PATCH", format!("{core}/nodes/a"), json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}), 403),
        ("DELETE", format!("{core}/nodes/b"), Value::Null, 403),
        ("DELETE", format!("{core}/namespaces/ns/pods/b"), Value::Null, 403),
        ("PATCH", format!("{core}/namespaces/ns/pods/b/status"), json!({"status": {"phase": "Failed"}}), 403),
        ("POST", format!("{core}/namespaces/ns/pods/b/eviction"), json!({"metadata": {"name": "b"}}), 403),
        ("POST", format!("{core}/namespaces/ns/pods"), pod("c", "a"), 403),
        (
            "POST",
            format!("{core}/namespaces/ns/pods/a/binding"),
            json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "b"}}),
            403,
        ),
        ("POST", format!("{core}/namespaces/ns/serviceaccounts/b/token"), token, 403),
        ("PATCH", format!("{core}/namespaces/ns/serviceaccounts/a"), json!({"secrets": [{"name": "b"}]}), 403),
        ("POST", format!("{core}/namespaces"), json!({"metadata": {"name": "mine"}}), 403),
        ("PUT", format!("{core}/namespaces/kube-node-lease/leases/b"), json!({"metadata": {"name": "b"}}), 403),
    ] {
        let (found, answer) = cluster.ask(&user, method, &path, body).await;
        assert_eq!(found, code, "{method} {path}: {answer}");
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
    assert_eq!(cluster.ask(&user, "POST", leases, lease("b")).await.0, 403);
    assert_eq!(cluster.ask(&user, "PUT", &format!("{leases}/b"), lease("b")).await.0, 403);
    assert_eq!(cluster.ask(&user, "POST", leases, lease("a")).await.0, 201);
    let slice = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "driver": "d.example.com", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}
        }})
    };
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    assert_eq!(cluster.ask(&user, "POST", slices, slice("b")).await.0, 403);
    assert_eq!(cluster.ask(&user, "POST", slices, slice("a")).await.0, 201);
    assert_eq!(cluster.ask(&user, "DELETE", slices, Value::Null).await.0, 403);
    // A name alone does not make a node.
    let nobody = User::authenticated("system:node:a", &[]);
    assert_eq!(cluster.ask(&nobody, "GET", &format!("{secrets}/a"), Value::Null).await.0, 403);
    let nameless = User::authenticated("system:node:", &["system:nodes"]);
    assert_eq!(cluster.ask(&nameless, "GET", &format!("{secrets}/a"), Value::Null).await.0, 403);
}

#[tokio::test]
async fn the_right_to_give_devices_is_not_the_right_to_change_claims() {
    const PROTECTION: &str = "resource.kubernetes.io/delete-protection";
    let rules = json!([rule(&["get", "update", "patch"], "resource.k8s.io", &["resourceclaims/status"], &[])]);
    let cluster = cluster_with(rules).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let device = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"});
    let status = json!({"allocation": {"devices": {"results": [device]}}});
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let smuggled = json!({
        "labels": {"l": "1"}, "annotations": {"a": "1"}, "ownerReferences": [owner], "finalizers": ["example.com/f", PROTECTION]
    });
    let both = json!({"metadata": smuggled, "status": status, "spec": {"devices": {}}});
    let added = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f", PROTECTION]},
        {"op": "add", "path": "/status", "value": status}
    ]);
    for (name, kind) in [("merge", MERGE), ("json", JSON_PATCH), ("apply", APPLY), ("put", "")] {
        let spec = json!({"devices": {"requests": [request]}});
        let claim = json!({"metadata": {"name": name, "labels": {"own": "1"}}, "spec": spec});
        cluster.make(claims, claim).await;
        let (one, of) = (format!("{claims}/{name}"), format!("{claims}/{name}/status"));
        let with_kind = |mut body: Value| {
            body["apiVersion"] = "resource.k8s.io/v1".into();
            body["kind"] = "ResourceClaim".into();
            body["metadata"]["name"] = name.into();
            body
        };
        // The claim itself is not theirs to write, and its finalizer does not come without devices.
        assert_eq!(
            patch(&cluster, &mallory(), &one, MERGE, json!({"metadata": {"finalizers": [PROTECTION]}})).await,
            403
        );
        let alone = json!({"metadata": {"finalizers": [PROTECTION]}});
        assert_eq!(patch(&cluster, &mallory(), &of, MERGE, alone).await, 200, "{name}");
        let (_, answer) = cluster.ask(&admin(), "GET", &one, Value::Null).await;
        assert_eq!(answer["metadata"]["finalizers"], Value::Null, "{name}");
        let code = match kind {
            "" => cluster.ask(&mallory(), "PUT", &of, with_kind(both.clone())).await.0,
            APPLY => patch(&cluster, &mallory(), &of, APPLY, with_kind(both.clone())).await,
            JSON_PATCH => patch(&cluster, &mallory(), &of, JSON_PATCH, added.clone()).await,
            _ => patch(&cluster, &mallory(), &of, kind, both.clone()).await,
        };
        assert_eq!(code, 200, "{name}");
        let (_, answer) = cluster.ask(&admin(), "GET", &one, Value::Null).await;
        let metadata = &answer["metadata"];
        assert_eq!(answer["status"]["allocation"]["devices"]["results"][0]["device"], "x", "{name}");
        assert_eq!(metadata["finalizers"], json!([PROTECTION]), "{name}");
        assert_eq!(metadata["labels"], json!({"own": "1"}), "{name}");
        assert_eq!((&metadata["annotations"], &metadata["ownerReferences"]), (&Value::Null, &Value::Null), "{name}");
        assert_eq!(answer["spec"]["devices"]["requests"][0]["name"], "r", "{name}");
        // Nor do they take it away, with devices or without.
        for status in [status.clone(), json!({"allocation": null})] {
            let bare = json!({"metadata": {"finalizers": null}, "status": status});
            assert_eq!(patch(&cluster, &mallory(), &of, MERGE, bare).await, 200, "{name}");
            let (_, answer) = cluster.ask(&admin(), "GET", &one, Value::Null).await;
            assert_eq!(answer["metadata"]["finalizers"], json!([PROTECTION]), "{name}");
        }
    }
}
