//! A gate goes off under workloads whose pods need it: how often controllers ask, counted at the server, and how soon all
//! goes on when the gate returns.
//!
//! Time is paused, so that three minutes take seconds.

mod workloads;

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::features::Features;
use tokio::time::Instant;

use self::workloads::Kind;
use crate::paused::{Asked, Cluster};

const MINUTE: Duration = Duration::from_secs(60);

/// Refuses as many workloads of a kind, and lets them go on.
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
    cluster.pass(3 * MINUTE, || false).await;

    let refused = |asked: &[Asked]| asked.iter().filter(|it| it.code == 422).count();
    let first = log.between(off, MINUTE);
    let shown: Vec<String> = first.iter().take(20).map(|it| format!("{} {} {}", it.method, it.path, it.code)).collect();
    assert!(first.len() <= 10 * count, "{what}: {} requests in the first minute: {shown:#?}", first.len());
    assert!((count..=count + 6).contains(&refused(&first)), "{what}: {} refusals in the first minute", refused(&first));
    let mut later = 0;
    for minute in 1..3 {
        let asked = log.between(off + minute * MINUTE, MINUTE);
        assert!(asked.len() <= 6, "{what}: {} requests in minute {minute}: {asked:?}", asked.len());
        assert!(refused(&asked) >= 3, "{what}: {} tries in minute {minute}", refused(&asked));
        later = later.max(asked.len());
    }
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
    assert!(most <= 25, "{what}: {most} within a second");
    println!(
        "{what}: {} requests ({} refused) in the first minute, {later} a minute later; first {soonest:.1?}, all {last:.1?}",
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
