//! The etcd stand-in for test environments: the store on etcd, its API served in front of a store in memory.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::{Etcd, Options, server};
use store::{EmbeddedStore, Error, ListOptions, Outcome, Retention, Store, Write, conformance};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Serves a store in memory and returns its address.
async fn start() -> std::net::SocketAddr {
    let options = store::Options { retention: Retention::manual(), ..store::Options::default() };
    let store = Arc::new(EmbeddedStore::in_memory(options).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server::serve(listener, store));
    address
}

fn connect(address: std::net::SocketAddr) -> Arc<Etcd> {
    let options = Options {
        root: "/registry".to_owned(),
        progress_interval: Duration::from_millis(100),
        ..Options::new([format!("http://{address}")])
    };
    Arc::new(Etcd::new(options).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn stand_in_passes_the_conformance_suite() {
    let store = connect(start().await);
    for (name, property) in conformance::ALL {
        println!("{name}");
        property(store.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_share_objects_across_reconnects() {
    let address = start().await;
    let first = connect(address);
    let Outcome::Done { revision } = first.write(Write::create("/a", "1")).await.unwrap() else { panic!() };
    first.close().await.unwrap();
    let second = connect(address);
    assert_eq!(second.get("/a", revision).await.unwrap().entry.unwrap().value, "1");
    for n in 0..1203 {
        assert!(matches!(second.write(Write::create(format!("/many/{n:04}"), "x")).await, Ok(Outcome::Done { .. })));
    }
    let page = second.list("/many/", ListOptions { limit: Some(700), ..ListOptions::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining), (700, 503));
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_requests_are_rejected() {
    let address = start().await;
    let options = Options { request_bytes_max: 64 << 20, ..Options::new([format!("http://{address}")]) };
    let store = Etcd::new(options).unwrap();
    let refused = store.write(Write::create("/big", vec![0; 17 << 20])).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(matches!(store.get("/big", 0).await, Ok(reading) if reading.entry.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_check_answers_over_http_1() {
    let address = start().await;
    for (path, expected) in [("/health", "HTTP/1.1 200 OK"), ("/etcdserverpb.KV/Nothing", "HTTP/1.1 200 OK")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(expected), "{answer}");
        assert_eq!(answer.contains(r#"{"health":"true""#), path == "/health", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_watch_is_canceled() {
    let store = connect(start().await);
    let mut last = 0;
    for n in 0..5 {
        if let Outcome::Done { revision } = store.write(Write::create(format!("/{n}"), "x")).await.unwrap() {
            last = revision;
        }
    }
    store.compact(last).await.unwrap();
    let mut watch = store.watch("/", 1).await.unwrap();
    assert!(matches!(watch.next().await, Err(Error::Compacted { .. })));
}
