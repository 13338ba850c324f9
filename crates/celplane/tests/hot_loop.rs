//! A gate is disabled under workloads whose pods need it: the number of requests of the controllers, counted at
//! the server, and the time until all continue when the gate returns.
//!
//! The first rejection predicts those of others: they try and record events one after the other, so that 200 of
//! them make fewer than five requests a second. Time is paused, so that minutes take seconds.

mod workloads;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::core::v1::{Event, Node};
use api::features::Features;
use api::json;
use client::objects::{Patch, Selection};
use client::resources::ServedView as _;
use tokio::time::Instant;

use self::workloads::Kind;
use crate::paused::{Cluster, SentRequest};

const MINUTE: Duration = Duration::from_secs(60);
/// Time after which each of 200 workloads has tried once and recorded an event.
const TOLD: Duration = Duration::from_secs(240);

/// Number of requests by kind.
fn summary(asked: &[SentRequest]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for it in asked {
        let parts: Vec<&str> = it.path.split('/').collect();
        let plural = parts.iter().position(|part| *part == "default").and_then(|at| parts.get(at + 1)).unwrap_or(&"");
        let part = if it.path.ends_with("/status") { "/status" } else { "" };
        *counts.entry(format!("{} {plural}{part} {}", it.method, it.code)).or_default() += 1;
    }
    format!("{counts:?}")
}

/// Has many workloads of a kind rejected, and then lets them continue.
async fn refuse(kind: Kind, count: usize) {
    let what = format!("{count} of {kind:?}");
    let cluster = Cluster::start().await;
    kind.create(&cluster.admin, count).await;
    tokio::time::pause();
    let (log, is_on) = (&cluster.switch.log, &cluster.switch.is_on);
    if !kind.prepared_by().is_empty() {
        is_on.store(true, Ordering::SeqCst);
        let preparing = cluster.controllers(kind.prepared_by(), Features::all_proposals());
        cluster
            .pass(Duration::from_secs(30), || log.made(kind.prepares(), Instant::now() - MINUTE).len() >= count)
            .await;
        drop(preparing);
        // What they still write does not count.
        cluster.pass(Duration::from_secs(1), || false).await;
        is_on.store(false, Ordering::SeqCst);
    }
    let off = Instant::now();
    let _controllers = cluster.controllers(kind.controllers(), Features::all_proposals());
    cluster.pass(TOLD + MINUTE, || false).await;

    let refused = |asked: &[SentRequest]| asked.iter().filter(|it| it.code == 422).count();
    let minute = |number: u32| log.between(off + number * MINUTE, MINUTE);
    let first = minute(0);
    let all = log.between(off, TOLD + MINUTE);
    let busiest = all.iter().map(|it| log.between(it.at, MINUTE).len()).max().unwrap_or(0);
    let kinds = summary(&all);
    // A few begin at once, before the first refusal is known.
    assert!(busiest <= (10 * count).min(5 * 60), "{what}: {busiest} requests in a minute: {kinds}");
    assert!(refused(&all) >= count, "{what}: {} refusals: {kinds}", refused(&all));
    let later = log.between(off + TOLD, MINUTE);
    assert!(later.len() <= 6, "{what}: {} requests in a later minute: {later:?}", later.len());
    assert!(refused(&later) >= 3, "{what}: {} tries in a later minute", refused(&later));
    let later = later.len();
    assert!(log.made(kind.makes(), off).is_empty(), "{what}: nothing was made");

    is_on.store(true, Ordering::SeqCst);
    let on = Instant::now();
    cluster.pass(2 * MINUTE, || log.made(kind.makes(), on).len() >= count).await;
    let made = log.made(kind.makes(), on);
    assert_eq!(made.len(), count, "{what}: all go on, and none twice");
    let (soonest, last) = (made[0] - on, made[count - 1] - on);
    assert!(soonest <= Duration::from_secs(30), "{what}: the first after {soonest:?}");
    assert!(last <= Duration::from_secs(60), "{what}: the last after {last:?}");
    let in_one_second =
        made.iter().map(|at| made.iter().filter(|it| **it >= *at && **it - *at < Duration::from_secs(1)).count());
    let most = in_one_second.max().unwrap_or(0);
    // Twenty a second, and a few more.
    assert!(most <= 30, "{what}: {most} within a second");
    println!(
        "{what}: {} requests ({} refused) in the first minute, {busiest} in the busiest, {later} a minute when all are told; \
         first {soonest:.1?}, all {last:.1?}; {kinds}",
        first.len(),
        refused(&first)
    );
}

macro_rules! kinds {
    ($($name:ident => $kind:ident,)*) => {$(
        #[tokio::test]
        async fn $name() {
            refuse(Kind::$kind, 1).await;
            tokio::time::resume();
            refuse(Kind::$kind, 200).await;
        }
    )*};
}

kinds! {
    refused_replication_controllers_ask_rarely => ReplicationController,
    refused_replica_sets_ask_rarely => ReplicaSet,
    refused_deployments_ask_rarely => Deployment,
    refused_pods_of_deployments_ask_rarely => LiveDeployment,
    refused_daemon_sets_ask_rarely => DaemonSet,
    refused_stateful_sets_ask_rarely => StatefulSet,
    refused_jobs_ask_rarely => Job,
    refused_cron_jobs_ask_rarely => CronJob,
    refused_resource_claims_ask_rarely => ResourceClaim,
}

/// The account of a Deployment's pods is created after it, as in one `kubectl apply`: pods follow the account at once,
/// however long it took. Time is paused, so that a back-off would be visible.
#[tokio::test]
async fn pods_follow_their_account_at_once() {
    for wait in [Duration::from_millis(200), Duration::from_secs(5), 3 * MINUTE] {
        let cluster = Cluster::start().await;
        workloads::create_deployment(&cluster.admin, "late").await;
        tokio::time::pause();
        let log = &cluster.switch.log;
        cluster.switch.is_on.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        let _controllers = cluster.controllers(&["deployment", "replicaset"], Features::all_proposals());
        cluster.pass(wait, || false).await;
        let tried = log.between(begin, wait + MINUTE);
        let refused = tried.iter().filter(|it| it.code == 403 && it.path.ends_with("/pods")).count();
        // The first retries are fast, and a minute of waiting makes few of them.
        assert!((1..=40).contains(&refused), "{refused} tries in {wait:?}");
        assert!(log.made("pods", begin).is_empty());
        let created = Instant::now();
        cluster.at_once(workloads::create_account(&cluster.admin, "late")).await;
        cluster.pass(Duration::from_secs(1), || log.made("pods", created).len() == 2).await;
        assert_eq!(log.made("pods", created).len(), 2, "within a second of the account, after {wait:?}");
        tokio::time::resume();
    }
}

/// A DaemonSet whose expression has no answer for a node gets the event that pods get, once.
#[tokio::test]
async fn daemon_set_reports_failed_expressions_once() {
    let cluster = Cluster::start().await;
    let nodes = cluster.admin.documents(Node::RESOURCE);
    nodes.create("", &json!({"metadata": {"name": "node"}})).await.unwrap();
    let taint = json!({"spec": {"taints": [{"key": "maint", "value": "v", "effect": "NoSchedule"}]}});
    nodes.patch("", "node", "", Patch::Merge, &taint).await.unwrap();
    let expression = "taint.key == string(1 / int(taint.value.size() - 1))";
    let tolerations = json!([{"expression": expression}]);
    workloads::create_daemon_set(&cluster.admin, "agent", tolerations).await;
    tokio::time::pause();
    cluster.switch.is_on.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let _controllers = cluster.controllers(&["daemonset"], Features::all_proposals());
    cluster.pass(MINUTE, || false).await;
    let label = json!({"metadata": {"labels": {"unrelated": "x"}}});
    cluster.at_once(nodes.patch("", "node", "", Patch::Merge, &label)).await.unwrap();
    cluster.pass(MINUTE, || false).await;
    let events = cluster.admin.objects::<Event>();
    let events = cluster.at_once(events.list(&Selection::default())).await.unwrap();
    let failed: Vec<(&str, &str, &str)> = events
        .items
        .iter()
        .filter(|it| it.reason == "ExpressionFailed")
        .map(|it| (&*it.involved_object.kind, &*it.involved_object.name, &*it.message))
        .collect();
    let note = format!("expression {expression:?} failed on node node for taint maint=v:NoSchedule: division by zero");
    assert_eq!(failed, [("DaemonSet", "agent", note.as_str())]);
    assert!(cluster.switch.log.made("pods", begin).is_empty());
}
