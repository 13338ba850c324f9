//! Bodies and answers in CBOR, against a whole server without a network: with the gate, and refused without.

use std::sync::Arc;

use api::features::{Features, Gate};
use api::json::Value;
use api::{cbor, json};
use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use store::EmbeddedStore;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Answer {
    code: u16,
    content_type: String,
    body: Bytes,
}

impl Answer {
    #[track_caller]
    fn cbor(&self) -> Value {
        assert_eq!(self.content_type, "application/cbor");
        assert!(self.body.starts_with(&cbor::SELF_DESCRIBED));
        cbor::parse(&self.body).unwrap()
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.content_type, "application/json");
        json::parse(&self.body).unwrap()
    }
}

async fn server(gate: bool) -> Arc<Server> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let features = Features::default().with(Gate::CBORServingAndStorage, gate);
    Server::start(store, Options { features, ..Options::without_controllers() }).await.unwrap()
}

fn admin() -> User {
    User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

async fn ask(server: &Arc<Server>, method: &str, path: &str, sends: &str, accepts: &str, body: Vec<u8>) -> Answer {
    let request = Request::builder().method(method).uri(path).header("accept", accepts).header("content-type", sends);
    let response = server.handle(request.body(Full::new(Bytes::from(body))).unwrap(), Some(&admin())).await;
    let code = response.status().as_u16();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    Answer { code, content_type, body: response.into_body().collect().await.unwrap().to_bytes() }
}

fn config_map(name: &str) -> Vec<u8> {
    cbor::to_bytes(&json!({"metadata": {"name": name}, "data": {"k": "v"}, "binaryData": {"b": "AQID"}}))
}

#[tokio::test]
async fn without_the_gate_it_is_refused_as_client_go_expects() {
    let server = server(false).await;
    let answer = ask(&server, "POST", CONFIG_MAPS, "application/cbor", "application/json", config_map("a")).await;
    assert_eq!(answer.code, 415);
    let path = format!("{CONFIG_MAPS}/a?fieldManager=m");
    let answer = ask(&server, "PATCH", &path, "application/apply-patch+cbor", "*/*", config_map("a")).await;
    assert_eq!(answer.code, 415);
    let answer = ask(&server, "GET", CONFIG_MAPS, "", "application/cbor", Vec::new()).await;
    assert_eq!((answer.code, answer.json().str_at(&["reason"])), (406, Some("NotAcceptable")));
    let answer = ask(&server, "GET", CONFIG_MAPS, "", "application/cbor,application/json;q=0.9", Vec::new()).await;
    assert_eq!((answer.code, answer.json().str_at(&["kind"])), (200, Some("ConfigMapList")));
}

#[tokio::test]
async fn objects_are_written_and_read() {
    let server = server(true).await;
    let both = "application/cbor,application/json;q=0.9";
    let made = ask(&server, "POST", CONFIG_MAPS, "application/cbor", both, config_map("a")).await;
    assert_eq!(made.code, 201);
    assert_eq!(made.cbor().str_at(&["binaryData", "b"]), Some("AQID"));
    let path = format!("{CONFIG_MAPS}/a");
    let (in_json, in_cbor) = (
        ask(&server, "GET", &path, "", "application/json", Vec::new()).await,
        ask(&server, "GET", &path, "", "application/cbor", Vec::new()).await,
    );
    assert_eq!(in_json.json(), in_cbor.cbor());
    // Lists and tables, which are sent in pieces.
    let list = ask(&server, "GET", CONFIG_MAPS, "", "application/cbor", Vec::new()).await;
    assert_eq!(list.cbor().str_at(&["kind"]), Some("ConfigMapList"));
    let table = "application/cbor;as=Table;v=v1;g=meta.k8s.io,application/cbor";
    let table = ask(&server, "GET", CONFIG_MAPS, "", table, Vec::new()).await;
    assert_eq!(table.cbor().str_at(&["kind"]), Some("Table"));
    // Errors too.
    let missing = ask(&server, "GET", &format!("{CONFIG_MAPS}/b"), "", both, Vec::new()).await;
    assert_eq!((missing.code, missing.cbor().str_at(&["reason"])), (404, Some("NotFound")));
    // A client that prefers JSON gets it.
    let json = ask(&server, "GET", &path, "", "application/json,application/cbor;q=0.9", Vec::new()).await;
    assert_eq!(json.json(), in_json.json());
}

#[tokio::test]
async fn apply_is_read() {
    let server = server(true).await;
    let path = format!("{CONFIG_MAPS}/a?fieldManager=m");
    let config = cbor::to_bytes(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}),
    );
    let answer = ask(&server, "PATCH", &path, "application/apply-patch+cbor", "application/cbor", config).await;
    assert_eq!(answer.code, 201);
    let managers = answer.cbor();
    let manager = managers.at(&["metadata", "managedFields"]).unwrap().as_array().unwrap()[0].clone();
    assert_eq!((manager.str_at(&["manager"]), manager.str_at(&["operation"])), (Some("m"), Some("Apply")));
}

#[tokio::test]
async fn a_watch_is_a_sequence() {
    let server = server(true).await;
    for name in ["a", "b"] {
        let made = ask(&server, "POST", CONFIG_MAPS, "application/cbor", "application/json", config_map(name)).await;
        assert_eq!(made.code, 201);
    }
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    let answer = ask(&server, "GET", &path, "", "application/cbor,application/json;q=0.9", Vec::new()).await;
    assert_eq!((answer.code, answer.content_type.as_str()), (200, "application/cbor-seq"));
    let starts: Vec<usize> =
        (0..answer.body.len()).filter(|at| answer.body[*at..].starts_with(b"\xd9\xd9\xf7")).collect();
    assert_eq!(starts.len(), 2);
    let names: Vec<String> = [&answer.body[..starts[1]], &answer.body[starts[1]..]]
        .map(|event| cbor::parse(event).unwrap().str_at(&["object", "metadata", "name"]).unwrap().to_owned())
        .into();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn broken_bodies_are_bad_requests() {
    let server = server(true).await;
    let deep = [vec![0x81; 100_000], vec![0]].concat();
    for body in [vec![0xff], vec![0xa1, 0x01], vec![0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], deep] {
        let answer = ask(&server, "POST", CONFIG_MAPS, "application/cbor", "application/json", body).await;
        assert_eq!(answer.code, 400);
        let message = answer.json().str_at(&["message"]).unwrap().to_owned();
        assert!(
            message.starts_with("the object provided is unrecognized (must be of type ConfigMap): cbor: "),
            "{message}"
        );
    }
}

#[tokio::test]
async fn long_lists_are_the_same_in_cbor() {
    let server = server(true).await;
    for number in 0..600 {
        let body = format!(r#"{{"metadata": {{"name": "m-{number}", "labels": {{"n": "{}"}}}}}}"#, number % 3);
        let made = ask(&server, "POST", CONFIG_MAPS, "application/json", "application/json", body.into()).await;
        assert_eq!(made.code, 201);
    }
    let metadata = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (query, form) in [("", ""), ("?labelSelector=n%3D1", ""), ("?labelSelector=n%3D5", ""), ("", metadata)] {
        let path = format!("{CONFIG_MAPS}{query}");
        let plain = ask(&server, "GET", &path, "", &format!("application/json{form}"), Vec::new()).await.json();
        let found = ask(&server, "GET", &path, "", &format!("application/cbor{form}"), Vec::new()).await.cbor();
        assert!(found == plain, "{query} {form}");
    }
}
