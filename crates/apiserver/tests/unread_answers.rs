//! Answers that clients leave unread: their bytes are counted by user, and a connection that never reads ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::Options;
use apiserver::identity::User;
use apiserver::server::{Kubelets, Logs, LogsFailure};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::network::{Connection, Network, Place};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JANE: (&str, &str) = ("authorization", "Bearer jane");

/// Short times and small budgets, and a user with all permissions.
fn options() -> Options {
    let short = Duration::from_millis(500);
    let jane = User::authenticated("jane", &["system:masters"]);
    Options {
        tokens: [("jane".to_owned(), jane)].into(),
        answer_bytes_max: 4 << 20,
        write_timeout: short,
        ..Options::without_controllers()
    }
}

/// A connection whose client never reads a body, and what becomes of it.
async fn closed_window(place: &Place) -> (Connection, tokio::task::JoinHandle<()>) {
    let stream = TokioIo::new(place.stream_with(None).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection): (SendRequest<Full<Bytes>>, _) = builder.handshake(stream).await.unwrap();
    let ended = tokio::spawn(async move {
        let _ = connection.await;
    });
    (Connection(sender), ended)
}

async fn fill(admin: &mut Connection, count: usize) {
    for index in 0..count {
        let data = json!({"text": "x".repeat(900_000)});
        let map = json!({"metadata": {"name": format!("m{index}")}, "data": data});
        assert_eq!(admin.ask("POST", MAPS, &map).await.0, 201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_lists_are_counted_by_user_and_end_their_connection() {
    let network = Network::start_with(store::Options::default(), options()).await;
    let mut admin = network.connect().await;
    fill(&mut admin, 6).await;
    let (mut jane, ended) = closed_window(&network).await;
    // One list counts as 4 MiB, so that the second one waits until it times out.
    let answer = jane.send("GET", MAPS, &[JANE], &Value::Null).await;
    assert_eq!(answer.status(), 200);
    let mut others: Vec<Connection> = vec![jane.clone(); 5];
    let others = others.iter_mut().map(|jane| jane.try_send("GET", MAPS, &[JANE], &Value::Null));
    let statuses: Vec<u16> =
        join_all(others).await.into_iter().flatten().map(|answer| answer.status().as_u16()).collect();
    // Clients that read are served meanwhile.
    let (status, list) = admin.ask("GET", MAPS, &Value::Null).await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (200, 6));
    // After a while the server does not wait for the client any more: neither for the answer nor for the connection.
    ended.await.unwrap();
    assert!(answer.into_body().collect().await.is_err(), "a cut looks like an end");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    let mut jane = network.try_connect().await.unwrap();
    let answer = jane.send("GET", MAPS, &[JANE], &Value::Null).await;
    assert_eq!(answer.status(), 200, "what was left unread counts no longer");
    network.stop().await;
}

/// An agent whose containers have all written the same.
struct Agent(Mutex<String>);

impl Kubelets for Agent {
    fn logs(&self, wanted: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>> {
        let text = self.0.lock().unwrap().clone();
        let lines =
            wanted.options.iter().find(|(name, _)| *name == "tailLines").map(|(_, count)| count.parse().unwrap());
        let skipped = lines.map_or(0, |lines| text.lines().count().saturating_sub(lines));
        let text: String = text.split_inclusive('\n').skip(skipped).collect();
        Box::pin(async move { Ok(text.into()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_log_are_counted_and_read_by_position() {
    let network = Network::start_with(store::Options::default(), options()).await;
    let agent = Arc::new(Agent(Mutex::new("one\ntwo\n".to_owned())));
    network.server.set_kubelets(agent.clone());
    let mut admin = network.connect().await;
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    });
    let account = json!({"metadata": {"name": "default"}});
    admin.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let (status, created) = admin.ask("POST", "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(status, 201, "{created}");

    let log = "/api/v1/namespaces/default/pods/p/log?follow=true";
    let mut jane = network.try_connect().await.unwrap();
    let mut followers = Vec::new();
    // Each counts as 256 KiB of 4 MiB, and what it begins with.
    for index in 0..15 {
        let path = if index % 2 == 0 { log.to_owned() } else { format!("{log}&tailLines=1") };
        let answer = jane.send("GET", &path, &[JANE], &Value::Null).await;
        assert_eq!(answer.status(), 200, "{index}");
        followers.push(answer.into_body());
    }
    let answer = jane.send("GET", log, &[JANE], &Value::Null).await;
    assert_eq!(answer.status(), 429);
    agent.0.lock().unwrap().push_str("three\n");
    for (index, follower) in followers.iter_mut().enumerate() {
        let expected = if index % 2 == 0 { "one\ntwo\nthree\n" } else { "two\nthree\n" };
        let mut text = String::new();
        while text.len() < expected.len() {
            let frame = follower.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
        assert_eq!(text, expected, "{index}");
    }
    drop(followers);
    let follows_again = async {
        while jane.send("GET", log, &[JANE], &Value::Null).await.status() == 429 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), follows_again).await.unwrap();
    network.end().await;
}
