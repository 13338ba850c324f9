//! Identity: service account tokens, reviews, and impersonation, against a whole server without a network.

use std::sync::Arc;

use apiserver::identity::Authenticator;
use apiserver::identity::keys::{KeyRing, SigningKey};
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

struct Cluster(Arc<Server>);

impl Cluster {
    async fn start() -> Self {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let tokens = Authenticator::parse_tokens("admin,admin,1,system:masters\nalice,alice,2,dev\n").unwrap();
        let cluster = Self(Server::start(store, Options { tokens, ..Options::default() }).await.unwrap());
        cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "ns"}})).await;
        for name in ["default", "robot"] {
            cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": name}})).await;
        }
        cluster
    }

    async fn ask(&self, token: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.0.handle(request.body(Full::new(body)).unwrap(), None).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[track_caller]
    fn make(&self, path: &str, body: Value) -> impl Future<Output = Value> {
        let path = path.to_owned();
        async move {
            let (status, answer) = self.ask("admin", "POST", &path, &[], body).await;
            assert_eq!(status, 201, "{path}: {answer}");
            answer
        }
    }

    /// Deletes an object, and reads it, after which the server has observed the deletion.
    async fn delete(&self, path: &str) {
        assert_eq!(self.ask("admin", "DELETE", path, &[], Value::Null).await.0, 200);
        assert_eq!(self.ask("admin", "GET", path, &[], Value::Null).await.0, 404);
    }

    async fn token(&self, spec: Value) -> String {
        let answer = self.make("/api/v1/namespaces/ns/serviceaccounts/robot/token", json!({"spec": spec})).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The status with which a token may read what everyone may.
    async fn accepted(&self, token: &str) -> u16 {
        self.ask(token, "GET", "/apis", &[], Value::Null).await.0
    }

    async fn review(&self, token: &str, audiences: &[&str]) -> Value {
        let spec = json!({"token": token, "audiences": audiences});
        self.make("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": spec})).await["status"].clone()
    }
}

fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

fn pod(name: &str, account: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]
    }})
}

#[tokio::test]
async fn a_token_is_its_account_until_the_account_is_gone() {
    let cluster = Cluster::start().await;
    let token = cluster.token(json!({})).await;
    let claimed = claims(&token);
    assert_eq!(claimed["iss"], "https://kubernetes.default.svc");
    assert_eq!(claimed["aud"], json!(["https://kubernetes.default.svc"]));
    assert_eq!(claimed["sub"], "system:serviceaccount:ns:robot");
    assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 3600);
    assert_eq!(claimed["kubernetes.io"]["namespace"], "ns");
    let me = cluster.ask(&token, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &[], json!({})).await;
    let user = &me.1["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:ns:robot");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert_eq!(user["groups"], groups);
    assert_eq!(user["uid"], claimed["kubernetes.io"]["serviceaccount"]["uid"]);
    let id = format!("JTI={}", claimed["jti"].as_str().unwrap());
    assert_eq!(user["extra"], json!({"authentication.kubernetes.io/credential-id": [id]}));

    cluster.delete("/api/v1/namespaces/ns/serviceaccounts/robot").await;
    assert_eq!(cluster.accepted(&token).await, 401);
    // One of the same name is another one.
    cluster.make("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(cluster.accepted(&token).await, 401);
    let error = cluster.review(&token, &[]).await["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("service account UID ("), "{error}");
    let again = cluster.token(json!({})).await;
    assert_eq!(cluster.accepted(&again).await, 200);
}

#[tokio::test]
async fn a_bound_token_ends_with_its_object() {
    let cluster = Cluster::start().await;
    let uid = cluster.make("/api/v1/namespaces/ns/pods", pod("p", "robot")).await["metadata"]["uid"].clone();
    cluster.make("/api/v1/namespaces/ns/pods", pod("other", "default")).await;
    cluster.make("/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "s"}})).await;
    cluster.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let bind = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
    let path = "/api/v1/namespaces/ns/serviceaccounts/robot/token";
    for (spec, status, message) in [
        (bind("Pod", "nope", ""), 404, "pods \"nope\" not found"),
        (
            bind("Pod", "other", ""),
            400,
            "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.",
        ),
        (bind("ConfigMap", "c", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        (
            bind("Pod", "p", "x"),
            409,
            "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated",
        ),
    ] {
        let (found, answer) = cluster.ask("admin", "POST", path, &[], json!({"spec": spec})).await;
        assert_eq!((found, answer["message"].as_str().unwrap()), (status, message));
    }
    for (kind, plural, name) in
        [("Pod", "namespaces/ns/pods", "p"), ("Secret", "namespaces/ns/secrets", "s"), ("Node", "nodes", "n")]
    {
        let token = cluster.token(bind(kind, name, "")).await;
        assert_eq!(cluster.accepted(&token).await, 200, "{kind}");
        let claimed = &claims(&token)["kubernetes.io"][kind.to_lowercase()];
        assert_eq!(claimed["name"], name);
        if kind == "Pod" {
            assert_eq!(claimed["uid"], uid);
            let extra = &cluster.review(&token, &[]).await["user"]["extra"];
            assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
        }
        cluster.delete(&format!("/api/v1/{plural}/{name}")).await;
        assert_eq!(cluster.accepted(&token).await, 401, "{kind}");
        assert_eq!(cluster.review(&token, &[]).await["error"], "service account token has been invalidated");
    }
}

#[tokio::test]
async fn lifetime_and_audience_are_checked() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/ns/serviceaccounts/robot/token";
    for (seconds, message) in [
        (
            599,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            4_294_967_297_i64,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
    ] {
        let (status, answer) =
            cluster.ask("admin", "POST", path, &[], json!({"spec": {"expirationSeconds": seconds}})).await;
        assert_eq!((status, answer["message"].as_str().unwrap()), (422, message));
    }
    let other = cluster.token(json!({"audiences": ["vault", "bank"]})).await;
    assert_eq!(cluster.accepted(&other).await, 401, "it is for someone else");
    assert_eq!(
        cluster.review(&other, &[]).await["error"],
        "token audiences [\"vault\" \"bank\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]"
    );
    let review = cluster.review(&other, &["bank", "post"]).await;
    assert_eq!((&review["authenticated"], &review["audiences"]), (&json!(true), &json!(["bank"])));
    let missing = "/api/v1/namespaces/ns/serviceaccounts/nobody/token";
    assert_eq!(cluster.ask("admin", "POST", missing, &[], json!({})).await.0, 404);
    assert_eq!(cluster.ask("alice", "POST", path, &[], json!({})).await.0, 403);
}

#[tokio::test]
async fn keys_can_be_replaced_without_a_restart() {
    let cluster = Cluster::start().await;
    let (old, old_pem) = SigningKey::generate().unwrap();
    cluster.0.set_keys(KeyRing::new(old));
    let token = cluster.token(json!({})).await;
    assert_eq!(cluster.accepted(&token).await, 200);
    let mut both = KeyRing::generate().unwrap();
    both.accept(&old_pem).unwrap();
    cluster.0.set_keys(both);
    assert_eq!(cluster.accepted(&token).await, 200, "the old key still verifies");
    let newer = cluster.token(json!({})).await;
    let jwks = cluster.ask("admin", "GET", "/openid/v1/jwks", &[], Value::Null).await.1;
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 2);
    assert_eq!(jwks["keys"][0]["alg"], "ES256");
    cluster.0.set_keys(KeyRing::generate().unwrap());
    assert_eq!(cluster.accepted(&token).await, 401, "it has been remembered, and is forgotten with the keys");
    assert_eq!(cluster.accepted(&newer).await, 401);
    let discovery = cluster.ask("admin", "GET", "/.well-known/openid-configuration", &[], Value::Null).await.1;
    assert_eq!(discovery["issuer"], "https://kubernetes.default.svc");
    assert!(discovery["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"), "{discovery}");
    cluster.0.set_tokens(Authenticator::parse_tokens("fresh,bob,3\n").unwrap());
    assert_eq!(cluster.accepted("fresh").await, 200);
    assert_eq!(cluster.accepted("admin").await, 401);
}

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl Cluster {
    /// Lets alice do something.
    async fn grant(&self, name: &str, rules: Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.make(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}]
        });
        self.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    }

    async fn act_as(&self, headers: &[(&str, &str)]) -> (u16, Value) {
        let (status, answer) = self.ask("alice", "POST", WHOAMI, headers, json!({})).await;
        (status, if status == 201 { answer["status"]["userInfo"].clone() } else { answer["message"].clone() })
    }
}

#[tokio::test]
async fn acting_as_someone_needs_the_right_to_each_part() {
    let cluster = Cluster::start().await;
    let jane = [("impersonate-user", "jane")];
    let (status, message) = cluster.act_as(&jane).await;
    assert_eq!(status, 403);
    assert_eq!(
        message,
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"alice\" cannot impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
    let rule = |resource: &str, group: &str, names: Value| json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"], "resourceNames": names});
    cluster.grant("users", json!([rule("users", "", json!(["jane"]))])).await;
    let (_, user) = cluster.act_as(&jane).await;
    assert_eq!(user, json!({"username": "jane", "groups": ["system:authenticated"]}));
    assert_eq!(cluster.act_as(&[("impersonate-user", "john")]).await.0, 403);
    assert_eq!(cluster.act_as(&[jane[0], ("impersonate-group", "dev")]).await.0, 403);
    assert_eq!(cluster.act_as(&[jane[0], ("impersonate-uid", "7")]).await.0, 403);
    assert_eq!(cluster.act_as(&[jane[0], ("impersonate-extra-scopes", "view")]).await.0, 403);
    let authentication = "authentication.k8s.io";
    cluster
        .grant(
            "rest",
            json!([
                rule("groups", "", json!(["dev"])),
                rule("uids", authentication, json!(["7"])),
                rule("userextras/scopes", authentication, json!(["view"])),
                rule("serviceaccounts", "", json!(["robot"]))
            ]),
        )
        .await;
    let all = [jane[0], ("impersonate-group", "dev"), ("impersonate-uid", "7"), ("impersonate-extra-scopes", "view")];
    let expected = json!({
        "username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["view"]}
    });
    assert_eq!(cluster.act_as(&all).await, (201, expected));
    assert_eq!(cluster.act_as(&[jane[0], ("impersonate-extra-scopes", "edit")]).await.0, 403);
    let (_, robot) = cluster.act_as(&[("impersonate-user", "system:serviceaccount:ns:robot")]).await;
    assert_eq!(robot["groups"], json!(["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]));
    assert_eq!(cluster.act_as(&[("impersonate-group", "dev")]).await.0, 400);
}

#[tokio::test]
async fn constrained_rights_hold_for_their_verb_and_never_for_the_masters() {
    let cluster = Cluster::start().await;
    let authentication = "authentication.k8s.io";
    cluster
        .grant(
            "constrained",
            json!([
                {"apiGroups": [authentication], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]},
                {"apiGroups": [authentication], "resources": ["selfsubjectreviews"], "verbs": ["impersonate-on:user-info:create"]}
            ]),
        )
        .await;
    let (status, user) = cluster.act_as(&[("impersonate-user", "jane"), ("impersonate-group", "ops")]).await;
    assert_eq!((status, &user["groups"]), (201, &json!(["ops", "system:authenticated"])));
    let list = cluster.ask("alice", "GET", "/api/v1/nodes", &[("impersonate-user", "jane")], Value::Null).await;
    assert_eq!(list.0, 403);
    assert!(list.1["message"].as_str().unwrap().contains("cannot impersonate-on:user-info:list"), "{}", list.1);
    let (status, message) =
        cluster.act_as(&[("impersonate-user", "jane"), ("impersonate-group", "system:masters")]).await;
    assert_eq!(status, 403);
    assert!(message.as_str().unwrap().ends_with("impersonating the system:masters group is not allowed"), "{message}");
    // Nodes and accounts are not users of this mode.
    assert_eq!(cluster.act_as(&[("impersonate-user", "system:node:n")]).await.0, 403);
}

#[tokio::test]
async fn rules_review_lists_permissions() {
    let cluster = Cluster::start().await;
    let ask = |resource: &str| json!({"spec": {"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "ns"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(cluster.ask("alice", "POST", path, &[], ask("pods")).await.1["status"], json!({"allowed": false}));
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": []}]);
    cluster.make(&format!("{rbac}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"}, {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}]
    });
    cluster.make(&format!("{rbac}/rolebindings"), binding).await;
    assert_eq!(
        cluster.ask("alice", "POST", path, &[], ask("pods")).await.1["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"b/ns\" of Role \"r\" to Group \"dev\""})
    );
    assert_eq!(cluster.ask("alice", "POST", path, &[], ask("secrets")).await.1["status"], json!({"allowed": false}));
    let token = cluster.token(json!({})).await;
    assert_eq!(
        cluster.ask(&token, "POST", path, &[], ask("pods")).await.1["status"]["reason"],
        "RBAC: allowed by RoleBinding \"b/ns\" of Role \"r\" to ServiceAccount \"robot/ns\""
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = cluster.ask("alice", "POST", path, &[], json!({"spec": {"namespace": "ns"}})).await.1;
    let found = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    assert!(rules["status"]["resourceRules"].as_array().unwrap().contains(&found), "{rules}");
    assert_eq!(cluster.ask("alice", "POST", path, &[], json!({"spec": {}})).await.0, 400);
}

#[tokio::test]
async fn headers_that_cannot_be_read_are_not_taken_for_absent() {
    let cluster = Cluster::start().await;
    let ask = async |name: &str, value: &[u8]| {
        let mut request = Request::builder().method("POST").uri("/apis/authentication.k8s.io/v1/selfsubjectreviews");
        if name != "authorization" {
            request = request.header("authorization", "Bearer admin");
        }
        request = request.header(name, value);
        let response = cluster.0.handle(request.body(Full::new(Bytes::from("{}"))).unwrap(), None).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, me) = ask("impersonate-user", "jürgen".as_bytes()).await;
    assert_eq!((status, &me["status"]["userInfo"]["username"]), (201, &json!("jürgen")));
    assert_eq!(ask("impersonate-user", b"j\xfcrgen").await.0, 400);
    assert_eq!(ask("impersonate-group", b"j\xfcrgen").await.0, 400);
    // An unreadable token is not the same as none.
    assert_eq!(ask("authorization", b"Bearer j\xfcrgen").await.0, 401);
}

#[tokio::test]
async fn roles_that_choose_each_other_hold_the_rules_of_all() {
    let cluster = Cluster::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for name in ["a", "b", "c", "d", "e"] {
        let role = json!({
            "metadata": {"name": name, "labels": {"x": "y"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}, {"matchLabels": {"x": "y"}}]}
        });
        cluster.make(roles, role).await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    cluster.make(roles, json!({"metadata": {"name": "f", "labels": {"x": "y"}}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]
    });
    cluster.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    assert_eq!(cluster.ask("alice", "GET", "/api/v1/pods", &[], Value::Null).await.0, 200);
    assert_eq!(cluster.ask("alice", "GET", "/api/v1/secrets", &[], Value::Null).await.0, 403);
}

/// An unreadable entry of a list is not the same as an absent one.
#[tokio::test]
async fn an_audience_that_is_null_is_not_the_servers_own() {
    let cluster = Cluster::start().await;
    let nobody = cluster.token(json!({"audiences": [null]})).await;
    assert_eq!(cluster.ask(&nobody, "GET", "/api/v1/namespaces", &[], Value::Null).await.0, 401);
    let token = cluster.token(json!({})).await;
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = cluster.make(reviews, json!({"spec": {"token": token, "audiences": [null]}})).await;
    assert_ne!(review["status"]["authenticated"], true, "{review}");
    let review = cluster.make(reviews, json!({"spec": {"token": token, "audiences": null}})).await;
    assert_eq!(review["status"]["authenticated"], true, "{review}");
}

#[tokio::test]
async fn a_question_about_a_path_is_not_one_about_no_resource() {
    let cluster = Cluster::start().await;
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let ask = async |path: &str| {
        let spec = json!({"user": "alice", "groups": ["system:authenticated"], "resourceAttributes": null,
            "nonResourceAttributes": {"path": path, "verb": "get"}});
        cluster.make(reviews, json!({"spec": spec})).await["status"]["allowed"].clone()
    };
    assert_eq!((ask("/version").await, ask("/metrics").await), (json!(true), json!(false)));
}
