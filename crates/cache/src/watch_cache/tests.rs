//! The cache over a store that loses its place, and pods that are changed by hand.

use super::*;

#[test]
fn only_keys_below_a_resource_are_objects() {
    assert!(is_object("/registry/core/pods/default/a"));
    assert!(!is_object("/registry/compact_rev_key"));
}

/// A store whose watches lose their position on request.
struct Forgetful {
    store: store::EmbeddedStore,
    forget: watch::Sender<bool>,
}

struct LosingWatch(store::Watch, Option<watch::Receiver<bool>>, Revision);

#[async_trait::async_trait]
impl store::Source for LosingWatch {
    async fn next(&mut self) -> Result<Batch, store::Error> {
        let Self(inner, forget, after) = self;
        let forgotten = async {
            match forget {
                Some(forget) => drop(forget.wait_for(|it| *it).await.unwrap()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = forgotten => Err(store::Error::Compacted { requested: *after, oldest: u64::MAX }),
            batch = inner.next() => batch,
        }
    }

    fn progress_request(&self) -> ProgressRequest {
        self.0.progress_request()
    }
}

#[async_trait::async_trait]
impl Store for Forgetful {
    async fn current_revision(&self) -> Result<Revision, store::Error> {
        self.store.current_revision().await
    }

    async fn get(&self, key: &str, at_least: Revision) -> Result<store::Reading, store::Error> {
        self.store.get(key, at_least).await
    }

    async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, store::Error> {
        self.store.list(prefix, options).await
    }

    async fn write(&self, write: store::Write) -> Result<store::Outcome, store::Error> {
        self.store.write(write).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<store::Watch, store::Error> {
        let inner = self.store.watch(prefix, after).await?;
        // A watch that is opened after the loss is a good one.
        let forget = (!*self.forget.borrow()).then(|| self.forget.subscribe());
        Ok(store::Watch::new(LosingWatch(inner, forget, after)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), store::Error> {
        self.store.compact(revision).await
    }

    async fn close(&self) -> Result<(), store::Error> {
        self.store.close().await
    }
}

#[tokio::test]
async fn cache_behind_history_refills_and_resets_watchers() {
    let store = store::EmbeddedStore::in_memory(store::Options::default()).unwrap();
    let store = Arc::new(Forgetful { store, forget: watch::channel(false).0 });
    let object = |name: &str| {
        let mut object = api::json!({"metadata": {"name": name, "creationTimestamp": "t"}});
        crate::stored::encode(&mut object).unwrap()
    };
    let put = async |name: &str| {
        let write = store::Write::create(format!("/registry/core/pods/{name}"), object(name));
        match store.write(write).await.unwrap() {
            store::Outcome::Done { revision } => revision,
            conflict => panic!("{conflict:?}"),
        }
    };
    put("old").await;
    let cache = Cache::start(store.clone(), 1, 1 << 20).await.unwrap();
    let pods = cache.resource("/registry/core/pods/");
    let before = put("before").await;
    cache.reach(before).await.unwrap();
    let mut of_all = pods.follow_after(Interest::Everything, before).unwrap();
    let mut of_one = pods.follow_after(Interest::Key("/registry/core/pods/x".to_owned()), before).unwrap();
    assert_eq!(of_all.take().unwrap().len(), 0);
    store.forget.send_replace(true);
    let missed = put("missed").await;
    cache.reach(missed).await.unwrap();
    assert!(of_all.changed().await && of_one.changed().await);
    assert_eq!(pods.len(), 3);
    let oldest = cache.started_at.load(Ordering::Acquire);
    assert_eq!(of_all.take().unwrap_err(), TooOld { oldest });
    assert!(of_one.take().is_err());
    // A client that resumes from an older version must list again.
    assert_eq!(pods.follow_after(Interest::Everything, oldest - 1).err(), Some(TooOld { oldest }));
    let after = put("after").await;
    cache.reach(after).await.unwrap();
    let mut follower = pods.follow_after(Interest::Everything, missed).unwrap();
    assert_eq!(follower.take().unwrap().len(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn events_are_followed_but_not_held_nor_read_at_the_start() {
    let store = Arc::new(store::EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let put = async |key: String, guard: store::Guard| {
        let mut object = api::json!({"metadata": {"name": "x", "creationTimestamp": "t"}});
        let value = crate::stored::encode(&mut object).unwrap();
        let change = store::Change::Put { value, ttl: None };
        match store.write(store::Write { key, guard, change }).await.unwrap() {
            store::Outcome::Done { revision } => revision,
            conflict => panic!("{conflict:?}"),
        }
    };
    let event = |n: u64| format!("{}default/{n}", EVENTS_PREFIX);
    let first = put(event(1), store::Guard::Absent).await;
    for key in ["/registry/core/configmaps/default/a", "/registry/core/pods/default/a"] {
        put(key.to_owned(), store::Guard::Absent).await;
    }
    let cache = Cache::start(store.clone(), 1, 1 << 20).await.unwrap();
    assert_eq!(cache.resource("/registry/core/configmaps/").len(), 1);
    assert_eq!(cache.resource("/registry/core/pods/").len(), 1, "what sorts behind events is read");
    let resource = cache.resource(EVENTS_PREFIX);
    assert!(!resource.keeps_objects());
    let mut follower = resource.follow(Interest::Everything);
    put(event(1), store::Guard::Unchanged(first)).await;
    let last = put(event(2), store::Guard::Absent).await;
    cache.reach(last).await.unwrap();
    let kinds: Vec<ChangeKind> = follower.take().unwrap().iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Modified, ChangeKind::Added]);
    assert_eq!(resource.len(), 0);
}

#[test]
fn prefixes_are_cut_behind_the_resource() {
    assert_eq!(prefix_of("/registry/core/pods/default/a"), "/registry/core/pods/");
    assert_eq!(prefix_of("/registry/core/nodes/a"), "/registry/core/nodes/");
    assert_eq!(prefix_of("/odd"), "/odd");
}

/// The cache of pods, changed by hand.
struct Pods {
    cache: Arc<ResourceCache>,
    revision: Revision,
}

impl Pods {
    fn new() -> Self {
        let changes = Changes::new(0, Arc::new(Budget::new(16 << 20)), true);
        Self { cache: Arc::new(ResourceCache::new(changes, true)), revision: 0 }
    }

    fn key(name: &str) -> String {
        format!("/registry/core/pods/{name}")
    }

    fn put(&mut self, name: &str, node: &str) {
        let labels = api::json!({"nodeName": "other"});
        let metadata = api::json!({"name": name, "creationTimestamp": "t", "labels": labels});
        let mut pod =
            api::json!({"metadata": metadata, "spec": {"nodeSelector": {"nodeName": "other"}, "nodeName": node}});
        self.change(name, crate::stored::encode(&mut pod));
    }

    fn change(&mut self, name: &str, value: Option<bytes::Bytes>) {
        self.revision = self.revision.saturating_add(1);
        let event = store::Event { key: Self::key(name).into(), value, revision: self.revision, previous: None };
        self.cache.apply(event);
    }

    fn names(&self, interest: &Interest) -> Vec<String> {
        let found = self.cache.find(interest, 0).objects;
        found.iter().map(|(key, _)| key.rsplit('/').next().unwrap().to_owned()).collect()
    }
}

/// Returns all changes that are available now.
fn taken(follower: &mut Follower) -> Vec<Arc<Change>> {
    let mut all = Vec::new();
    loop {
        let some = follower.take().unwrap();
        if some.is_empty() && !follower.is_behind() {
            return all;
        }
        all.extend(some);
    }
}

fn seen(follower: &mut Follower) -> Vec<String> {
    let name = |change: &Arc<Change>| change.key.rsplit('/').next().unwrap().to_owned();
    taken(follower).iter().map(|change| format!("{} {}", change.kind.event_type(), name(change))).collect()
}

#[test]
fn pods_are_found_by_node_after_any_change() {
    let mut pods = Pods::new();
    let of = |node: &str| on_node("", node);
    pods.put("a/one", "n1");
    pods.put("a/two", "");
    assert_eq!(pods.names(&of("n1")), ["one"]);
    assert_eq!(pods.names(&of("")), ["two"]);
    assert_eq!(pods.names(&of("other")), [""; 0]);
    pods.put("a/two", "n1");
    pods.put("b/three", "n2");
    assert_eq!(pods.names(&of("n1")), ["one", "two"]);
    assert_eq!(pods.names(&Interest::Range(Pods::key("b/"))), ["three"]);
    assert_eq!(pods.names(&Interest::Key(Pods::key("a/two"))), ["two"]);
    pods.put("a/one", "n2");
    pods.change("a/two", None);
    assert_eq!(pods.names(&of("n1")), [""; 0]);
    assert_eq!(pods.names(&of("n2")), ["one", "three"]);
    assert_eq!(pods.names(&on_node("b/", "n2")), ["three"]);
}

#[tokio::test]
async fn followers_receive_only_matching_changes() {
    let mut pods = Pods::new();
    pods.put("a/one", "n1");
    let follow = |pods: &Pods, interest| pods.cache.follow_after(interest, 0).unwrap();
    let mut of_node = follow(&pods, on_node("", "n1"));
    let mut of_other = follow(&pods, on_node("", "n9"));
    let mut of_namespace = follow(&pods, Interest::Range(Pods::key("b/")));
    let mut of_one = follow(&pods, Interest::Key(Pods::key("a/one")));
    let mut of_all = follow(&pods, Interest::Everything);
    // They also receive earlier changes.
    assert_eq!(seen(&mut of_node), ["ADDED one"]);
    pods.put("b/two", "n2");
    pods.put("a/one", "n2");
    pods.put("b/two", "n1");
    pods.change("b/two", None);
    assert!(of_node.changed().await);
    assert_eq!(seen(&mut of_node), ["MODIFIED one", "MODIFIED two", "DELETED two"]);
    assert_eq!(seen(&mut of_other), [""; 0]);
    assert_eq!(seen(&mut of_namespace), ["ADDED two", "MODIFIED two", "DELETED two"]);
    assert_eq!(seen(&mut of_one), ["ADDED one", "MODIFIED one"]);
    assert_eq!(seen(&mut of_all).len(), 5);
    drop((of_node, of_other, of_namespace, of_one));
    assert!(pods.cache.read().mailboxes.is_empty());
    let (snapshot, mut after) = pods.cache.find_and_follow(on_node("", "n2"), 0);
    assert_eq!(snapshot.objects.len(), 1);
    assert_eq!(seen(&mut after), [""; 0]);
}

#[test]
fn unread_follower_loses_its_place_and_memory() {
    let mut pods = Pods::new();
    let mut idle = pods.cache.follow(on_node("", "n1"));
    for _ in 0..5000 {
        pods.put("a/one", "n1");
    }
    assert!(idle.take().is_err());
    pods.put("a/one", "n1");
    assert!(idle.take().is_err());
}

fn on_node(namespace: &str, node: &str) -> Interest {
    let range = if namespace.is_empty() { String::new() } else { Pods::key(namespace) };
    Interest::Value { range, by: IndexKey::node(), value: node.to_owned() }
}

fn with_label(range: &str, label: &str, value: &str) -> Interest {
    Interest::Value { range: range.to_owned(), by: IndexKey::Label(label.into()), value: value.to_owned() }
}

/// The indexes return the same objects as a search, after any sequence of changes, even if an index is built in
/// between.
#[test]
fn objects_are_found_by_label_and_field_after_any_change() {
    let mut pods = Pods::new();
    let mut state = 99_u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let field = |name: &str| IndexKey::Field(name.into());
    for step in 0..6000_u64 {
        let name = format!("{}/p-{:04}", ["a", "b"][usize::from(next(2) == 1)], next(1500));
        if next(5) == 0 {
            pods.change(&name, None);
        } else {
            let mut labels = api::json!({"app": (format!("v{}", next(20)))});
            if next(3) == 0 {
                labels.as_object_mut().unwrap().insert("x.io/tier", format!("t{}", next(10)).as_str());
            }
            let phase = if next(8) == 0 { "Pending" } else { "Running" };
            let host_network = next(9) == 0;
            let mut pod = api::json!({"metadata": {"name": (name.as_str()), "creationTimestamp": "t", "labels": labels},
                "spec": {"hostNetwork": host_network, "color": (i64::try_from(next(9)).unwrap())}, "status": {"phase": phase}});
            if next(7) == 0 {
                pod.as_object_mut().unwrap().remove("status");
            }
            pods.change(&name, crate::stored::encode(&mut pod));
        }
        if step < 3000 || !step.is_multiple_of(300) {
            continue;
        }
        for (range, by, value) in [
            ("", IndexKey::Label("app".into()), "v3"),
            ("a/", IndexKey::Label("app".into()), "v7"),
            ("", IndexKey::Label("x.io/tier".into()), "t1"),
            ("", IndexKey::Label("app".into()), "no"),
            ("", field("status.phase"), "Pending"),
            ("b/", field("status.phase"), ""),
            ("", field("spec.hostNetwork"), "true"),
            ("a/", IndexKey::CustomField("spec.color".into()), "4"),
        ] {
            let range = if range.is_empty() { String::new() } else { Pods::key(range) };
            let has =
                |key: &str, pod: &ServedObject| key.starts_with(&range) && by.value(pod).as_deref() == Some(value);
            let all = pods.cache.list("", None, 0, has).objects;
            let interest = Interest::Value { range: range.clone(), by: by.clone(), value: value.to_owned() };
            let found = pods.cache.find(&interest, 0).objects;
            assert!(found.len() < pods.cache.len() / 4, "{by:?} is not indexed");
            let found: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
            assert_eq!(found, all.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
        }
    }
    // Values of most objects are not looked up one by one, and only some of many labels have an index.
    for label in 0..20 {
        let found = pods.cache.find(&with_label("", &format!("l{label}"), "v"), 0).objects;
        assert!(found.is_empty() || found.len() == pods.cache.len());
    }
    assert_eq!(pods.cache.find(&with_label("", "l19", "v"), 0).objects.len(), pods.cache.len());
}

/// The changes since then exceed the size of a mailbox.
#[test]
fn slow_follower_catches_up_then_receives_the_rest() {
    const CHANGES: usize = 5_000;
    let mut pods = Pods::new();
    for _ in 0..CHANGES {
        pods.put("a/one", "n1");
        pods.put("a/two", "n1");
    }
    let mut follower = pods.cache.follow_after(Interest::Key(Pods::key("a/one")), 0).unwrap();
    assert!(follower.is_behind() && pods.cache.read().mailboxes.is_empty());
    assert_eq!(taken(&mut follower).len(), CHANGES);
    assert!(!follower.is_behind() && !pods.cache.read().mailboxes.is_empty());
    pods.put("a/two", "n1");
    assert_eq!(taken(&mut follower).len(), 0);
    pods.put("a/one", "n1");
    assert_eq!(taken(&mut follower).len(), 1);
}

/// The history is read outside the lock; concurrent changes are neither lost nor duplicated.
#[test]
fn follower_from_the_past_misses_no_concurrent_write() {
    const CHANGES: usize = 3_000;
    let mut pods = Pods::new();
    (0..1_000).for_each(|_| pods.put("a/one", "n1"));
    let cache = pods.cache.clone();
    let writer = std::thread::spawn(move || (1_000..CHANGES).for_each(|_| pods.put("a/one", "n1")));
    let follow = |after| (after, cache.follow_after(on_node("", "n1"), after).unwrap(), Vec::new());
    let mut followers: Vec<_> = (0..20).map(|it| follow(it * 10)).collect();
    let read = |followers: &mut Vec<(u64, Follower, Vec<u64>)>| {
        for (_, follower, revisions) in followers {
            revisions.extend(taken(follower).iter().map(|change| change.object.revision));
        }
    };
    while !writer.is_finished() {
        read(&mut followers);
    }
    writer.join().unwrap();
    read(&mut followers);
    for (after, _, revisions) in followers {
        assert_eq!(revisions, (after + 1..=u64::try_from(CHANGES).unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn field_followers_receive_changes_of_their_namespace() {
    let mut pods = Pods::new();
    let put = |pods: &mut Pods, name: &str, phase: &str| {
        let mut pod = api::json!({"metadata": {"name": name, "creationTimestamp": "t"}, "status": {"phase": phase}});
        pods.change(name, crate::stored::encode(&mut pod));
    };
    let of = |range: &str, phase: &str| Interest::Value {
        range: if range.is_empty() { String::new() } else { Pods::key(range) },
        by: IndexKey::Field("status.phase".into()),
        value: phase.to_owned(),
    };
    let mut everywhere = pods.cache.follow(of("", "Running"));
    let mut here = pods.cache.follow(of("a/", "Running"));
    let mut failed = pods.cache.follow(of("", "Failed"));
    put(&mut pods, "a/one", "Pending");
    put(&mut pods, "a/one", "Running");
    put(&mut pods, "b/two", "Running");
    put(&mut pods, "a/one", "Succeeded");
    put(&mut pods, "a/one", "Succeeded");
    assert_eq!(seen(&mut everywhere), ["MODIFIED one", "ADDED two", "MODIFIED one"]);
    assert_eq!(seen(&mut here), ["MODIFIED one", "MODIFIED one"]);
    assert_eq!(seen(&mut failed), [""; 0]);
    drop((everywhere, here, failed));
    assert!(pods.cache.read().mailboxes.is_empty());
}

#[test]
fn label_followers_receive_entering_and_leaving_objects() {
    let mut pods = Pods::new();
    let put = |pods: &mut Pods, name: &str, app: &str| {
        let mut pod = api::json!({"metadata": {"name": name, "creationTimestamp": "t", "labels": {"app": app}}});
        pods.change(name, crate::stored::encode(&mut pod));
    };
    put(&mut pods, "a/one", "web");
    let mut web = pods.cache.follow_after(with_label("", "app", "web"), 0).unwrap();
    let mut db = pods.cache.follow(with_label("", "app", "db"));
    // Beyond a few labels, all of a namespace, or everything, is followed.
    let others: Vec<_> = (0..10).map(|it| pods.cache.follow(with_label("", &format!("l{it}"), "v"))).collect();
    let mut late = pods.cache.follow(with_label(&Pods::key("b/"), "late", "v"));
    put(&mut pods, "a/one", "db");
    put(&mut pods, "b/two", "web");
    put(&mut pods, "a/three", "other");
    pods.change("b/two", None);
    assert_eq!(seen(&mut web), ["ADDED one", "MODIFIED one", "ADDED two", "DELETED two"]);
    assert_eq!(seen(&mut db), ["MODIFIED one"]);
    assert_eq!(seen(&mut late), ["ADDED two", "DELETED two"]);
    drop((web, db, late, others));
    assert!(pods.cache.read().mailboxes.is_empty());
}

/// The authorizer of nodes only needs the pods of each node. The node name is read when a pod is created or
/// bound, and shared by all later versions. The cost per change of a pod is printed (`--no-capture`).
#[test]
fn which_pods_are_on_a_node_is_known_at_a_small_price() {
    const PODS: usize = 1_000;
    const ROUNDS: usize = 10;
    let key = |number: usize| -> Arc<str> { format!("/registry/core/pods/ns/p-{number:05}").into() };
    let event = |number: usize, round: usize| {
        // The first round creates the pods, the second binds them, the others change their status.
        let node = if round == 0 { String::new() } else { format!("node-{}", number % 100) };
        let mut pod = api::json!({"metadata": {"name": "p", "creationTimestamp": "t"},
            "spec": {"containers": [{"name": "c", "image": "registry.example.com/web:1"}], "nodeName": node},
            "status": {"message": (round.to_string())}});
        let value = Some(crate::stored::encode(&mut pod).unwrap());
        let revision = u64::try_from(round * PODS + number + 1).unwrap();
        store::Event { key: key(number), revision, value, previous: None }
    };
    let run = |is_asked: bool| {
        let changes = Changes::new(0, Arc::new(Budget::new(1 << 20)), true);
        let cache = ResourceCache::new(changes, true);
        let on = |node: &str| cache.find(&on_node("", node), 0).objects.len();
        assert!(!is_asked || on("node-7") == 0);
        let events: Vec<_> = (0..ROUNDS).flat_map(|round| (0..PODS).map(move |number| event(number, round))).collect();
        let (count, started) = (events.len(), Instant::now());
        let mut bound = Vec::new();
        for (number, event) in events.into_iter().enumerate() {
            cache.apply(event);
            if number + 1 == 2 * PODS {
                bound = (0..PODS).map(|pod| cache.get(&key(pod)).unwrap()).collect();
            }
        }
        let each = started.elapsed() / u32::try_from(count).unwrap();
        assert!((0..100).all(|node| on(&format!("node-{node}")) == PODS / 100));
        for (number, bound) in bound.iter().enumerate().filter(|_| is_asked) {
            assert!(Arc::ptr_eq(bound.node_name(), cache.get(&key(number)).unwrap().node_name()));
        }
        each
    };
    let (without, with) = (run(false), run(true));
    println!("a change of a pod: {without:?} without the nodes, {with:?} with them");
}
