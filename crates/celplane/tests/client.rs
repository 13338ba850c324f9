//! The client crate against the real server in one process: no socket, but identities, rights and watches as ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use api::core::v1::{Event, Namespace, Node, ObjectReference, Pod};
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Body, Options, Server};
use client::election::{self, Election, Outcome};
use client::events::{Recorder, Severity, reference};
use client::informer::{Change, Informers, Key};
use client::objects::{Deletion, Patch, Selection};
use client::{Client, DecodedObjects, Document, Informer, Resource};
use http::{Request, Response};
use store::{EmbeddedStore, Store};

const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps", "ConfigMap");
const LIMIT: Duration = Duration::from_secs(90);

async fn server() -> (Arc<dyn Store>, Arc<Server>) {
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let server = Server::start(store.clone(), Options::default()).await.unwrap();
    (store, server)
}

fn client(server: &Arc<Server>, name: &str, groups: &[&str]) -> Client {
    let user = User::authenticated(name, groups);
    Client::in_process(Connection::new(server.clone(), Some(user)), name)
}

fn admin(server: &Arc<Server>) -> Client {
    client(server, "admin", &["system:masters"])
}

fn config_map(name: &str, number: usize) -> Value {
    let number = number.to_string();
    api::json!({"metadata": {"name": name}, "data": {"n": number}})
}

fn number_of(object: &Value) -> usize {
    object.str_at(&["data", "n"]).unwrap().parse().unwrap()
}

fn all() -> Selection {
    Selection { namespace: "default".to_owned(), ..Selection::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_component_has_its_own_rights() {
    let (_, server) = server().await;
    let admin = admin(&server);
    let node = api::json!({"metadata": {"name": "n1"}});
    admin.objects::<Node>().create("", &node).await.unwrap();
    let scheduler = client(&server, "system:kube-scheduler", &[]);
    let nodes = scheduler.objects::<Node>().list(&Selection::default()).await.unwrap();
    assert_eq!(nodes.items[0].metadata.name, "n1");
    let namespace = api::json!({"metadata": {"name": "mine"}});
    let error = scheduler.objects::<Namespace>().create("", &namespace).await.unwrap_err();
    assert_eq!(error.code(), 403);
    assert!(
        error.to_string().contains("User \"system:kube-scheduler\" cannot create resource \"namespaces\""),
        "{error}"
    );
    let error = admin.objects::<Pod>().get("default", "none").await.unwrap_err();
    assert!(error.is_not_found() && error.to_string() == "pods \"none\" not found", "{error}");
    let error = admin.objects::<Node>().create("", &node).await.unwrap_err();
    assert!(error.is_already_exists() && !error.is_conflict(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_sees_every_change_in_order_while_others_write() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 60;
    let (_, server) = server().await;
    let admin = admin(&server);
    let maps = admin.documents(CONFIG_MAPS);
    maps.create("default", &config_map("before", 0)).await.unwrap();
    let informer = Informer::of_documents(&admin, CONFIG_MAPS, all());
    informer.store().add_index("number", |map| vec![number_of(map).to_string().into()]);
    informer.synced().await;
    assert_eq!(informer.store().len(), 1);
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    informer.on_change(move |key, change| sender.send((key.clone(), change.clone())).unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let maps = maps.clone();
        tokio::spawn(async move {
            let name = format!("w{writer}");
            maps.create("default", &config_map(&name, 0)).await.unwrap();
            for round in 1..ROUNDS {
                let number = round.to_string();
                let patch = api::json!({"data": {"n": number}});
                maps.patch("default", &name, "", Patch::Merge, &patch).await.unwrap();
            }
            if writer % 2 == 1 {
                maps.delete("default", &name, &Deletion::default()).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let expected = 1 + WRITERS * ROUNDS + WRITERS / 2;
    let mut last: HashMap<Key, Arc<Value>> = HashMap::new();
    let mut version = 0;
    for number in 0..expected {
        let (key, change) = tokio::time::timeout(LIMIT, changes.recv()).await.unwrap().unwrap();
        let newest: u64 = change.newest().str_at(&["metadata", "resourceVersion"]).unwrap().parse().unwrap();
        assert!(newest > version, "change {number} is out of order");
        version = newest;
        match &change {
            Change::Added(new) => assert!(last.insert(key, new.clone()).is_none()),
            Change::Updated { old, new } => {
                assert_eq!(number_of(new), number_of(old) + 1);
                assert_eq!(last.insert(key, new.clone()).unwrap(), *old);
            }
            Change::Deleted(_) => assert_eq!(number_of(&last.remove(&key).unwrap()), ROUNDS - 1),
        }
    }
    assert!(changes.try_recv().is_err(), "nothing was told twice");
    assert_eq!(informer.store().len(), 1 + WRITERS / 2);
    assert_eq!(informer.store().by_index("number", &(ROUNDS - 1).to_string()).len(), WRITERS / 2);
    assert!(informer.store().get("default", "w0").unwrap().at(&["metadata", "managedFields"]).is_none());
}

/// A way to whichever server serves now, or to none; counts the watches that begin from a version.
#[derive(Clone, Default)]
struct Switch {
    server: Arc<Mutex<Option<Arc<Server>>>>,
    resumed: Arc<AtomicUsize>,
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

impl tower_service::Service<Request<http_body_util::Full<bytes::Bytes>>> for Switch {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<http_body_util::Full<bytes::Bytes>>) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") && query.contains("&resourceVersion=") {
            self.resumed.fetch_add(1, Ordering::SeqCst);
        }
        let server = self.server.lock().unwrap().clone();
        Box::pin(async move {
            let Some(server) = server else { return Err(std::io::ErrorKind::ConnectionRefused.into()) };
            Ok(server.handle(request, Some(&User::authenticated("admin", &["system:masters"]))).await)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_resumes_and_starts_over_when_it_was_away_for_too_long() {
    let (store, first) = server().await;
    let maps = admin(&first).documents(CONFIG_MAPS);
    for name in ["kept", "changed", "deleted"] {
        maps.create("default", &config_map(name, 0)).await.unwrap();
    }
    let switch = Switch::default();
    *switch.server.lock().unwrap() = Some(first.clone());
    let informer = Informer::of_documents(&Client::in_process(switch.clone(), "test"), CONFIG_MAPS, all());
    informer.synced().await;
    let mut changes = informer.changes();
    for _ in 0..3 {
        changes.next().await;
    }
    // The server stops, and the following changes are too old for the next one to replay.
    *switch.server.lock().unwrap() = None;
    first.end_watches();
    maps.patch("default", "changed", "", Patch::Merge, &api::json!({"data": {"n": "1"}})).await.unwrap();
    maps.delete("default", "deleted", &Deletion::default()).await.unwrap();
    maps.create("default", &config_map("added", 5)).await.unwrap();
    let second = Server::start(store, Options::default()).await.unwrap();
    *switch.server.lock().unwrap() = Some(second.clone());
    let mut told = Vec::new();
    for _ in 0..3 {
        let (key, change) = tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
        let kind = match change {
            Change::Added(_) => "added",
            Change::Updated { .. } => "changed",
            Change::Deleted(_) => "deleted",
        };
        assert_eq!(key.name, kind);
        told.push(kind);
    }
    told.sort_unstable();
    assert_eq!(told, ["added", "changed", "deleted"]);
    assert!(switch.resumed.load(Ordering::SeqCst) >= 1, "it tried to resume first");
    // The watch continues.
    admin(&second).documents(CONFIG_MAPS).create("default", &config_map("late", 6)).await.unwrap();
    let (key, _) = tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
    assert_eq!(key.to_string(), "default/late");
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_share_one_copy() {
    let (_, server) = server().await;
    let informers = Informers::new(admin(&server));
    let one: Informer<Node> = informers.of(&Selection::default());
    let two: Informer<Node> = informers.of(&Selection::default());
    let other: Informer<Pod> = informers.of(&Selection::default());
    informers.synced().await;
    let node = api::json!({"metadata": {"name": "n1"}});
    let mut changes = one.changes();
    informers.client().objects::<Node>().create("", &node).await.unwrap();
    changes.next().await;
    assert!(Arc::ptr_eq(&one.store().list()[0], &two.store().list()[0]));
    assert!(other.has_synced() && other.store().is_empty());
}

/// Waits until an informer has the object in a version.
async fn has_version<T: client::controller::HasMetadata + Send + Sync + 'static>(
    informer: &Informer<T>,
    namespace: &str,
    name: &str,
    version: &str,
) -> Arc<T> {
    let arrival = async {
        loop {
            let found = informer.store().get(namespace, name);
            if let Some(object) = found.filter(|it| it.metadata().resource_version == version) {
                return object;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, arrival).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_one_process_share_decoded_objects() {
    const PODS: usize = 200;
    let (_, server) = server().await;
    let decoded: Arc<DecodedObjects> = Arc::default();
    let (admin, account) = (admin(&server), Resource::new("", "v1", "serviceaccounts", "ServiceAccount"));
    let account_named_default = api::json!({"metadata": {"name": "default"}});
    admin.documents(account).create("default", &account_named_default).await.unwrap();
    let pods = admin.documents(Resource::new("", "v1", "pods", "Pod"));
    let pod = |name: &str| api::json!({"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    for number in 0..PODS {
        pods.create("default", &pod(&format!("p{number}"))).await.unwrap();
    }
    // A scheduler, controllers and a fleet, each with its own identity; the last one selects.
    let named = |name: &str| client(&server, name, &["system:masters"]).sharing(&decoded);
    let scheduler = Informers::new(named("scheduler"));
    let controllers = Informers::new(named("controllers"));
    let first = scheduler.all::<Pod>();
    first.synced().await;
    let second = controllers.all::<Pod>();
    let bound = Selection { fields: "spec.nodeName!=".to_owned(), ..Selection::default() };
    let third: Informer<Pod> = Informer::start(&named("fleet"), bound);
    let whole: Informer<Document<Pod>> = controllers.all();
    second.synced().await;
    third.synced().await;
    whole.synced().await;
    let known = u64::try_from(PODS).unwrap();
    let counts = decoded.counts();
    // The documents of one are decoded, their views are those of the others.
    assert_eq!((counts.decoded, counts.shared), (2 * known, 2 * known));
    for pod in first.store().list() {
        let name = pod.metadata.name.as_str();
        let [second, third] = [&second, &third].map(|it| it.store().get("default", name).unwrap());
        let document = whole.store().get("default", name).unwrap();
        assert!(Arc::ptr_eq(&pod, &second) && Arc::ptr_eq(&pod, &third) && Arc::ptr_eq(&pod, document.view()));
    }
    // A change is decoded by the first informer that receives it; others may be as fast, and still all keep one
    // object.
    let patch = api::json!({"metadata": {"labels": {"a": "b"}}});
    let changed = pods.patch("default", "p7", "", Patch::Merge, &patch).await.unwrap();
    let version = changed.str_at(&["metadata", "resourceVersion"]).unwrap();
    let one = has_version(&first, "default", "p7", version).await;
    for other in [&second, &third] {
        assert!(Arc::ptr_eq(&one, &has_version(other, "default", "p7", version).await));
    }
    assert_eq!(one.metadata.labels["a"], "b");
    // A deleted object is removed everywhere, and its memory is released.
    let (held, now) = (Arc::downgrade(&one), Deletion { grace_period_seconds: Some(0), ..Deletion::default() });
    drop(one);
    pods.delete("default", "p7", &now).await.unwrap();
    let gone = async {
        let counts = || [&first, &second, &third].map(|it| it.store().len());
        while held.strong_count() > 0 || counts() != [PODS - 1; 3] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, gone).await.unwrap();
}

fn contender(server: &Arc<Server>, identity: &str) -> Election {
    let mut options = election::Options::new("kube-system", "test-lease", identity);
    options.lease_duration = Duration::from_secs(2);
    options.renew_deadline = Duration::from_millis(1500);
    options.retry_period = Duration::from_millis(50);
    Election::new(&admin(server), options)
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_hand_over_and_are_replaced_when_they_vanish() {
    let (_, server) = server().await;
    let leaders = Arc::new(AtomicUsize::new(0));
    let lead = |name: &'static str, stop: tokio::sync::oneshot::Receiver<()>| {
        let (leaders, election) = (leaders.clone(), contender(&server, name));
        let (leads, leading) = tokio::sync::oneshot::channel();
        let work = move |leadership: election::Leadership, tasks: election::Tasks| async move {
            assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "two lead at a time");
            assert!(leadership.holds());
            let _ = leads.send(());
            let leaving = Leaving(leaders);
            tasks.spawn(async move {
                let _leaving = leaving;
                std::future::pending::<()>().await;
            });
            std::future::pending::<()>().await;
        };
        let stop = async move {
            let _ = stop.await;
        };
        (tokio::spawn(async move { election.lead(stop, work).await }), leading)
    };
    let (stop_a, stopped_a) = tokio::sync::oneshot::channel();
    let (a, a_leads) = lead("a", stopped_a);
    tokio::time::timeout(LIMIT, a_leads).await.unwrap().unwrap();
    let (_stop_b, stopped_b) = tokio::sync::oneshot::channel();
    let (b, b_leads) = lead("b", stopped_b);
    // The first gives the lease back: the second need not wait until it runs out.
    stop_a.send(()).unwrap();
    assert_eq!(a.await.unwrap(), Outcome::Stopped);
    tokio::time::timeout(LIMIT, b_leads).await.unwrap().unwrap();
    // The second one vanishes silently.
    let (_stop_c, stopped_c) = tokio::sync::oneshot::channel();
    let (c, c_leads) = lead("c", stopped_c);
    b.abort();
    tokio::time::timeout(LIMIT, c_leads).await.unwrap().unwrap();
    // Another client takes the lease from the third, which notices and ends.
    let leases = admin(&server).objects::<api::coordination::v1::Lease>();
    let patch = api::json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}});
    leases.patch("kube-system", "test-lease", "", Patch::Merge, &patch).await.unwrap();
    assert_eq!(tokio::time::timeout(LIMIT, c).await.unwrap().unwrap(), Outcome::Lost);
    let lease = leases.get("kube-system", "test-lease").await.unwrap();
    assert_eq!(lease.spec.lease_transitions, Some(2), "{lease:?}");
    assert_eq!(lease.spec.holder_identity.as_deref(), Some("thief"));
}

struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn events_of(client: &Client, object: &ObjectReference) -> Vec<Event> {
    let fields = format!("involvedObject.name={}", object.name);
    let selection = Selection { fields, ..Selection::default() };
    client.objects::<Event>().list(&selection).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_counted_combined_and_rationed() {
    let (_, server) = server().await;
    let admin = admin(&server);
    let recorder = Recorder::start(&client(&server, "system:kube-controller-manager", &[]), "tester", "host");
    let mut pod = Pod::default();
    pod.metadata.name = "p".into();
    pod.metadata.namespace = "default".into();
    let about = reference(&pod);
    for _ in 0..5 {
        recorder.event(about.clone(), Severity::Warning, "Failed", "again");
    }
    recorder.flush().await;
    let events = events_of(&admin, &about).await;
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!((event.count, event.message.as_str(), event.event_type.as_str()), (5, "again", "Warning"));
    assert_eq!((event.source.component.as_str(), event.involved_object.kind.as_str()), ("tester", "Pod"));
    for number in 0..100 {
        recorder.event(about.clone(), Severity::Warning, "Failed", &format!("message {number}"));
    }
    recorder.flush().await;
    let events = events_of(&admin, &about).await;
    // Nine messages stand alone, the first of them being the repeated one; the ration of 25 is used up.
    let combined: Vec<_> = events.iter().filter(|event| event.message.starts_with("(combined from")).collect();
    assert_eq!((events.len(), combined.len()), (10, 1), "{events:#?}");
    assert_eq!(combined[0].count, 25 - 5 - 8);
    assert_eq!(recorder.dropped(), 0);
}

#[tokio::test]
async fn recorder_starts_tasks_with_their_first_event() {
    let (_, server) = server().await;
    let client = client(&server, "system:kube-controller-manager", &[]);
    // Nothing else runs on this thread between two counts.
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let recorder = Recorder::start(&client, "tester", "host");
    assert_eq!(tasks(), before);
    let about = reference(&Pod::default());
    recorder.event(about.clone(), Severity::Normal, "Started", "a");
    recorder.event(about, Severity::Normal, "Started", "b");
    assert_eq!(tasks(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_become_series() {
    let (_, server) = server().await;
    let recorder = Recorder::start(&client(&server, "system:kube-scheduler", &[]), "default-scheduler", "host");
    let mut pod = Pod::default();
    pod.metadata.name = "p".into();
    pod.metadata.namespace = "default".into();
    for number in 0..4 {
        let note = format!("0/{number} nodes are available");
        recorder.action(reference(&pod), None, Severity::Warning, "FailedScheduling", "Scheduling", &note);
    }
    recorder.flush().await;
    let events = events_of(&admin(&server), &reference(&pod)).await;
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0].series.as_ref().unwrap().count, 2, "further ones are only counted until the end");
    assert_eq!(events[0].reporting_instance, "default-scheduler-host");
}
