//! The store on a real etcd: every property of a store, and failures of the server.

use crate::etcd_server;

use crate::model;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_server::{Certificates, Server, is_missing};
use proptest::prelude::ProptestConfig;
use store::etcd::{Etcd, Options, Tls};
use store::{Error, Event, ListOptions, Outcome, Revision, Store, Write, conformance};

fn options(server: &Server) -> Options {
    Options { progress_interval: Duration::from_millis(100), ..Options::new(server.endpoints()) }
}

async fn ready(store: &Etcd) {
    let started = Instant::now();
    while let Err(error) = store.current_revision().await {
        assert!(started.elapsed() < Duration::from_secs(30), "etcd does not start: {error:?}");
    }
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Result<Revision, Error> {
    let write = match store.get(key, 0).await?.entry {
        Some(entry) => Write::update(key, entry.revision, value.to_owned()),
        None => Write::create(key, value.to_owned()),
    };
    match store.write(write).await? {
        Outcome::Done { revision } => Ok(revision),
        conflict => panic!("{conflict:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_property_of_a_store_holds() {
    if is_missing("every_property_of_a_store_holds") {
        return;
    }
    let server = Server::start(1, None);
    let store: Arc<Etcd> = Arc::new(Etcd::new(Options { root: "/celplane".to_owned(), ..options(&server) }).unwrap());
    ready(&store).await;
    for (name, property) in conformance::ALL {
        println!("{name}");
        property(store.clone()).await;
    }
    let mut watch = store.watch("/", 1).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(watch.next().await, Err(Error::Closed)));
    assert!(matches!(store.get("/a", 0).await, Err(Error::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_the_server_are_reported() {
    if is_missing("limits_of_the_server_are_reported") {
        return;
    }
    let server = Server::start(1, None);
    let store = Etcd::new(options(&server)).unwrap();
    ready(&store).await;
    for size in [1_700_000, 3 << 20, 7 << 20] {
        let refused = store.write(Write::create("/big", vec![0; size])).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{size}: {refused:?}");
    }
    put(&store, "/small", "x").await.unwrap();
    // Long lists come in several pieces, all at one revision.
    for n in 0..1203 {
        put(&store, &format!("/many/{n:04}"), "x").await.unwrap();
    }
    let page = store.list("/many/", ListOptions::default()).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining), (1203, 0));
    assert!(page.entries.is_sorted_by(|a, b| a.key < b.key));
    let page = store.list("/many/", ListOptions { limit: Some(700), ..ListOptions::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining), (700, 503));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_the_right_certificates() {
    if is_missing("tls_needs_the_right_certificates") {
        return;
    }
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, &authority_key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        (parameters.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let (certificate, key) = signed("127.0.0.1");
    let server = Server::start(
        1,
        Some(&Certificates {
            authority: file("ca.pem", &issuer_certificate.pem()),
            certificate: file("server.pem", &certificate),
            key: file("server.key", &key),
        }),
    );
    let (certificate, key) = signed("client");
    let good = Tls {
        authority_pem: Some(issuer_certificate.pem().into()),
        identity_pem: Some((certificate.into(), key.into())),
        server_name: None,
    };
    let open =
        |tls: Tls| Etcd::new(Options { tls: Some(tls), timeout: Duration::from_secs(1), ..options(&server) }).unwrap();
    let store = open(good.clone());
    ready(&store).await;
    let revision = put(&store, "/a", "x").await.unwrap();
    let mut watch = store.watch("/", revision - 1).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events.len(), 1);
    for bad in [
        Tls { identity_pem: None, ..good.clone() },
        Tls { authority_pem: None, ..good.clone() },
        Tls { server_name: Some("elsewhere".to_owned()), ..good.clone() },
    ] {
        let refused = open(bad.clone()).current_revision().await;
        assert!(
            matches!(refused, Err(Error::Unavailable(_) | Error::TimedOut(_) | Error::Refused(_))),
            "{bad:?}: {refused:?}"
        );
    }
    assert!(!format!("{good:?}").contains("PRIVATE"), "keys are not shown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_a_clear_error_in_time() {
    if is_missing("a_server_that_is_away_is_a_clear_error_in_time") {
        return;
    }
    let mut server = Server::start(1, None);
    let store = Etcd::new(Options { timeout: Duration::from_secs(1), ..options(&server) }).unwrap();
    ready(&store).await;
    let revision = put(&store, "/a", "1").await.unwrap();
    let check = async |what: &str| {
        let started = Instant::now();
        for result in [
            store.current_revision().await.map(|_| ()),
            store.write(Write::create("/b", "x")).await.map(|_| ()),
            store.list("/", ListOptions::default()).await.map(|_| ()),
        ] {
            assert!(matches!(result, Err(Error::Unavailable(_) | Error::TimedOut(_))), "{what}: {result:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(6), "{what}: {:?}", started.elapsed());
    };
    server.pause(0, true);
    check("paused").await;
    server.pause(0, false);
    ready(&store).await;
    server.kill(0);
    check("killed").await;
    server.run(0);
    ready(&store).await;
    assert_eq!(store.get("/a", revision).await.unwrap().entry.unwrap().value, "1");

    // History that another server has compacted is too old here.
    let mut watch = store.watch("/", revision - 1).await.unwrap();
    // The interrupted write may have happened, too.
    assert!(watch.next().await.unwrap().revision >= revision);
    server.kill(0);
    server.run(0);
    let other = Etcd::new(options(&server)).unwrap();
    ready(&other).await;
    // The watcher does not look while this happens.
    let mut last = 0;
    for n in 0..5 {
        last = put(&other, "/a", &n.to_string()).await.unwrap();
    }
    other.compact(last).await.unwrap();
    let outcome = loop {
        match watch.next().await {
            Ok(batch) if batch.events.is_empty() => {}
            other => break other,
        }
    };
    assert!(matches!(outcome, Err(Error::Compacted { oldest, .. }) if oldest == last), "{outcome:?}");
}

/// Increments keys through one store until it is stopped; returns the acknowledged count.
async fn count_up(store: Arc<Etcd>, writer: usize, stop: Arc<AtomicBool>) -> (String, u64, u64) {
    let key = format!("/counter/{writer}");
    let (mut count, mut unknown) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let Ok(reading) = store.get(&key, 0).await else {
            continue;
        };
        let found = reading.entry.as_ref().map_or(0, |entry| number(&entry.value));
        // Acknowledged writes exist; interrupted ones may.
        assert!(found >= count && found <= count + unknown, "{key}: {found}, but {count} and {unknown} unknown");
        (count, unknown) = (found, 0);
        let value = (found + 1).to_string();
        let write = match reading.entry {
            Some(entry) => Write::update(&*key, entry.revision, value),
            None => Write::create(&*key, value),
        };
        match store.write(write).await {
            Ok(Outcome::Done { .. }) => count += 1,
            Ok(conflict) => {
                // A write that was cut off, and took effect only after the key was read again.
                assert!(
                    unknown > 0
                        || matches!(&conflict, Outcome::Conflict { current: Some(it) } if number(&it.value) == count + 1),
                    "{key}: {conflict:?}"
                );
                unknown = 1;
            }
            Err(_) => unknown = 1,
        }
    }
    (key, count, unknown)
}

fn number(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).parse().unwrap()
}

/// Runs writers through one store and a watcher through another during `disturb`; checks the watcher's events.
async fn nothing_is_lost(server: &mut Server, disturb: impl AsyncFnOnce(&mut Server, &Etcd)) {
    let open = |timeout| Arc::new(Etcd::new(Options { timeout, ..options(server) }).unwrap());
    let (one, other) = (open(Duration::from_secs(2)), open(Duration::from_secs(20)));
    ready(&one).await;
    let start = one.current_revision().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(count_up(one.clone(), writer, stop.clone()))).collect();
    let mut watch = other.watch("/counter/", start).await.unwrap();
    let (done, mut told) = tokio::sync::watch::channel(0);
    let watcher = tokio::spawn(async move {
        let (mut events, mut reached): (Vec<Event>, Revision) = (Vec::new(), start);
        loop {
            let until = *told.borrow_and_update();
            if until > 0 && reached >= until {
                return events;
            }
            tokio::select! {
                _ = told.changed() => {}
                batch = watch.next() => {
                    let batch = batch.unwrap();
                    assert!(batch.revision >= reached);
                    reached = batch.revision;
                    events.extend(batch.events);
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    disturb(server, &other).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = HashMap::new();
    for writer in writers {
        let (key, count, unknown) = writer.await.unwrap();
        acknowledged.insert(key, (count, unknown));
    }
    ready(&other).await;
    let page = other.list("/counter/", ListOptions::default()).await.unwrap();
    done.send(page.revision).unwrap();
    let events = tokio::time::timeout(Duration::from_secs(30), watcher).await.unwrap().unwrap();

    for entry in &page.entries {
        let (count, unknown) = acknowledged[&*entry.key];
        let found = number(&entry.value);
        assert!((count..=count + unknown).contains(&found), "{}: {found}, {count}, {unknown}", entry.key);
        // Every step was observed, once and in order.
        let seen = events.iter().filter(|event| event.key == entry.key);
        let seen: Vec<u64> = seen.map(|event| number(event.value.as_ref().unwrap())).collect();
        assert!(seen.iter().copied().eq(1..=found), "{}: {found}, but {seen:?}", entry.key);
    }
    assert!(events.is_sorted_by(|a, b| a.revision < b.revision));
    assert!(events.len() > 20, "{}", events.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_server_is_killed_or_paused() {
    if is_missing("nothing_is_lost_when_the_server_is_killed_or_paused") {
        return;
    }
    let mut server = Server::start(1, None);
    nothing_is_lost(&mut server, async |server, other| {
        for round in 0..3 {
            server.kill(0);
            tokio::time::sleep(Duration::from_millis(50 * round)).await;
            server.run(0);
            ready(other).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        server.pause(0, true);
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.pause(0, false);
        ready(other).await;
        // History that all watchers have seen can go at any time.
        tokio::time::sleep(Duration::from_millis(500)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_one_of_three_members_is() {
    if is_missing("nothing_is_lost_when_one_of_three_members_is") {
        return;
    }
    let mut server = Server::start(3, None);
    nothing_is_lost(&mut server, async |server, other| {
        for lost in 0..2 {
            server.kill(lost);
            ready(other).await;
            let before = other.current_revision().await.unwrap();
            let started = Instant::now();
            while other.current_revision().await.unwrap() < before + 5 {
                assert!(started.elapsed() < Duration::from_secs(20), "writers do not go on without member {lost}");
            }
            server.run(lost);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await;
}

#[test]
fn store_on_etcd_agrees_with_model() {
    if is_missing("store_on_etcd_agrees_with_model") {
        return;
    }
    let server = Server::start(1, None);
    let (options, case) = (options(&server), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
    let run = |steps| {
        case.set(case.get() + 1);
        let options = Options { root: format!("/case-{}", case.get()), ..options.clone() };
        let reopen = async |old: Option<Arc<dyn Store>>| -> Arc<dyn Store> {
            if let Some(old) = old {
                old.close().await.unwrap();
            }
            let store = Etcd::new(options.clone()).unwrap();
            ready(&store).await;
            let store: Arc<dyn Store> = Arc::new(store);
            store
        };
        model::block_on(model::run(steps, reopen, |_| {}));
        Ok(())
    };
    proptest::test_runner::TestRunner::new(config).run(&model::steps(), run).unwrap();
}
