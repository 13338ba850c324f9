//! A controller of twenty lines, in paused time, against a server that is a script.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::sync::Mutex;
use std::task::{Context, Poll};

use api::core::v1::Pod;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::mpsc;

use super::*;
use crate::objects::Selection;
use crate::{Client, Error};

/// Answers each watch with the lines that the test sends.
#[derive(Clone)]
struct Watches(Arc<Mutex<Vec<mpsc::UnboundedReceiver<String>>>>);

struct Lines(mpsc::UnboundedReceiver<String>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(http_body::Frame::data(Bytes::from(line)))))
    }
}

impl tower_service::Service<Request<Full<Bytes>>> for Watches {
    type Response = Response<Lines>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Response<Lines>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        let next = self.0.lock().unwrap().pop();
        std::future::ready(next.map(|lines| Response::new(Lines(lines))).ok_or(std::io::ErrorKind::NotConnected.into()))
    }
}

fn event(kind: &str, name: &str, version: u64) -> String {
    let version = version.to_string();
    let metadata = api::json!({"name": name, "namespace": "default", "resourceVersion": version});
    let event = api::json!({"type": kind, "object": {"metadata": metadata}});
    api::json::to_string(&event) + "\n"
}

fn bookmark(version: u64) -> String {
    let version = version.to_string();
    let annotations = api::json!({"k8s.io/initial-events-end": "true"});
    let metadata = api::json!({"resourceVersion": version, "annotations": annotations});
    let event = api::json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
    api::json::to_string(&event) + "\n"
}

/// An informer of pods, and a sender for the server's messages.
fn pods() -> (Informer<Pod>, mpsc::UnboundedSender<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let client = Client::in_process(Watches(Arc::new(Mutex::new(vec![receiver]))), "test");
    (Informer::start(&client, Selection::default()), sender)
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_twenty_lines() {
    let (pods, server) = pods();
    let (stop, shutdown) = Shutdown::channel();
    let (registry, health) = (Registry::new(), Health::new());
    let runtime = Runtime::new(&registry, health.clone(), shutdown);
    let (seen, mut keys) = mpsc::unbounded_channel();
    let controller = Controller::new("pod-greeter", &runtime).watch(&pods, own).workers(2);
    let running = tokio::spawn(controller.run(move |key: Key| {
        let (pods, seen) = (pods.clone(), seen.clone());
        async move {
            let exists = pods.store().get_key(&key).is_some();
            seen.send((key.name.to_string(), exists)).unwrap();
            Ok::<_, Error>(Next::Done)
        }
    }));
    assert_eq!(health.failures().len(), 1, "not everything is here");
    server.send(event("ADDED", "a", 1)).unwrap();
    server.send(bookmark(2)).unwrap();
    assert_eq!(keys.recv().await.unwrap(), ("a".to_owned(), true));
    assert!(health.failures().is_empty());
    server.send(event("DELETED", "a", 3)).unwrap();
    assert_eq!(keys.recv().await.unwrap(), ("a".to_owned(), false));
    assert!(registry.text().contains("workqueue_adds_total{name=\"pod-greeter\"} 2"));
    stop.stop();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failures_panics_and_repetitions_come_back_in_time() {
    let (pods, server) = pods();
    let (stop, shutdown) = Shutdown::channel();
    let runtime = Runtime::new(&Registry::new(), Health::new(), shutdown);
    let (seen, mut turns) = mpsc::unbounded_channel();
    let turn = Arc::new(Mutex::new(0));
    let controller = Controller::new("flaky", &runtime).watch(&pods, own);
    let running = tokio::spawn(controller.run(move |_: Key| {
        let (turn, seen) = (turn.clone(), seen.clone());
        async move {
            let turn = {
                let mut turn = turn.lock().unwrap();
                *turn += 1;
                *turn
            };
            seen.send(turn).unwrap();
            match turn {
                1 => Err("failed".to_owned()),
                2 => panic!("a mistake in the controller"),
                3 => Ok(Next::After(Duration::from_secs(60))),
                _ => Ok(Next::Done),
            }
        }
    }));
    server.send(event("ADDED", "a", 1)).unwrap();
    server.send(bookmark(2)).unwrap();
    let started = tokio::time::Instant::now();
    for expected in 1..=4 {
        assert_eq!(turns.recv().await.unwrap(), expected);
    }
    assert_eq!(started.elapsed().as_secs(), 60);
    stop.stop();
    running.await.unwrap();
    assert!(turns.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_lost_its_server_or_its_mind_is_not_healthy() {
    let (pods, server) = pods();
    server.send(bookmark(1)).unwrap();
    pods.synced().await;
    assert_eq!(pods.health(), Ok(()));
    // Nothing is received, but the connection stays open: after a while the informer closes it.
    tokio::time::sleep(Duration::from_secs(140)).await;
    assert_eq!(pods.health(), Ok(()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let why = pods.health().unwrap_err();
    assert!(why.starts_with("the informer of pods has received nothing from the server for"), "{why}");
    let (pods, server) = self::pods();
    server.send(bookmark(1)).unwrap();
    pods.synced().await;
    pods.on_change(|_, _| panic!("a mistake in a handler"));
    server.send(event("ADDED", "a", 2)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(pods.health().unwrap_err(), "the informer of pods has ended");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_does_not_leave_its_predecessor() {
    let (pods, server) = pods();
    server.send(event("ADDED", "a", 1)).unwrap();
    server.send(bookmark(2)).unwrap();
    pods.synced().await;
    let mut changes = pods.changes();
    assert!(matches!(changes.next().await, (_, Change::Added(_))));
    let broken = event("MODIFIED", "a", 3).replace("{\"metadata\"", "{\"spec\":{\"containers\":7},\"metadata\"");
    server.send(broken).unwrap();
    assert!(matches!(changes.next().await, (_, Change::Deleted(_))));
    assert_eq!((pods.store().len(), pods.unreadable()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn unused_informer_ends() {
    let (pods, server) = pods();
    server.send(bookmark(1)).unwrap();
    pods.synced().await;
    let second = pods.clone();
    drop(pods);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!server.is_closed());
    drop(second);
    server.closed().await;
}
