//! Empties namespaces that are being deleted, and lets them go.
//!
//! Pods are deleted first; while one remains, nothing else is touched. Then all other resources, including
//! custom ones, as listed by discovery. The status reports the remaining objects (`conditions`); a blocked
//! namespace is retried after half of its expected time. Follows Kubernetes `pkg/controller/namespace`.

mod conditions;

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Namespace, Pod};
use api::json::{Text, Value};
use api::meta::v1::ObjectMeta;
use api::time::Timestamp;
use client::controller::{Controller, Next};
use client::discovery::ServedResource;
use client::informer::Key;
use client::objects::{Deletion, Selection};
use client::queue::{Backoff, Bucket};
use client::resources::ServedView as _;
use client::{Client, Error};

use self::conditions::{Findings, with_conditions};
use crate::manager::Context;

/// Delay between the request for a deletion and its start, so that the last creations are observed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Expected time of a finalizer.
const FINALIZER_SECONDS: i64 = 15;
/// The finalizer in the spec of namespaces, which this controller removes.
const FINALIZER: &str = "kubernetes";

/// Number of concurrent workers.
const WORKERS: usize = 10;
/// Retries come at least once a minute.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_secs(60) };

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let namespaces = context.informers.all::<Namespace>();
    let runner = Controller::with_limits(context.name, &context.runtime, BACKOFF, Some(Bucket::default()));
    let queue = Arc::downgrade(runner.queue());
    let runner = runner.workers(WORKERS).watch_changes(&namespaces, move |change| {
        let namespace = change.newest();
        if namespace.metadata.is_deleting()
            && let Some(queue) = queue.upgrade()
        {
            queue.add_after(Key::new("", namespace.metadata.name.clone()), PATIENCE);
        }
        None
    });
    let client = context.client.clone();
    runner
        .run(move |key| {
            let (client, namespaces) = (client.clone(), namespaces.clone());
            async move {
                if namespaces.store().get_key(&key).is_none() {
                    return Ok(Next::Done);
                }
                let again = empty(&client, &key.name, client.clock().now()).await?;
                Ok::<_, EmptyError>(again.map_or(Next::Done, Next::After))
            }
        })
        .await;
}

/// Remaining objects of one resource of a namespace after deletion.
#[derive(Debug, Default)]
struct RemainingObjects {
    /// Expected time until the rest is deleted.
    seconds: i64,
    remaining: usize,
    failure: Option<String>,
}

/// Empties a namespace, if it is being deleted. Gives back when to look again, or nothing if nothing is left to do.
///
/// # Errors
/// A request failed; it is to be retried.
async fn empty(client: &Client, name: &str, now: Timestamp) -> Result<Option<Duration>, EmptyError> {
    let namespaces = client.documents(Namespace::RESOURCE);
    let mut namespace = match namespaces.get("", name).await {
        Ok(namespace) => namespace,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let deleted_at = namespace.str_at(&["metadata", "deletionTimestamp"]).and_then(|it| Timestamp::parse(it).ok());
    let Some(deleted_at) = deleted_at else { return Ok(None) };
    if namespace.str_at(&["status", "phase"]) != Some("Terminating") {
        namespace.set_at(&["status", "phase"], "Terminating");
        namespace = namespaces.update_status("", name, &namespace).await?;
    }
    let finalizers = namespace.list_at(&["spec", "finalizers"]);
    if finalizers.is_empty() {
        return Ok(None);
    }
    let (findings, seconds) = empty_all(client, name, deleted_at, now).await;
    if let Some(new) = with_conditions(&namespace, &findings, now) {
        namespace = namespaces.update_status("", name, &new).await?;
    }
    if let Some(failure) = findings.discovery.iter().chain(&findings.failures).next() {
        return Err(EmptyError::Content(failure.clone()));
    }
    if seconds > 0 {
        let half = u64::try_from(seconds.div_euclid(2)).unwrap_or(0).saturating_add(1);
        return Ok(Some(Duration::from_secs(half)));
    }
    namespace.make_list_at(&["spec", "finalizers"]).retain(|it| it.as_str() != Some(FINALIZER));
    match namespaces.update_below("", name, "finalize", &namespace).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(None),
    }
}

/// A reason why a namespace is not empty yet.
#[derive(Debug, thiserror::Error)]
enum EmptyError {
    /// A request failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// Some of its content could not be listed or deleted.
    #[error("content of the namespace was not deleted: {0}")]
    Content(String),
}

/// Deletes everything, pods first; returns the remaining objects and the expected time.
async fn empty_all(client: &Client, namespace: &str, deleted_at: Timestamp, now: Timestamp) -> (Findings, i64) {
    let mut findings = Findings::default();
    let mut seconds = 0;
    let discovery = match client.discover().await {
        Ok(discovery) => discovery,
        Err(error) => {
            findings.discovery = Some(error.to_string());
            return (findings, seconds);
        }
    };
    if !discovery.stale.is_empty() {
        let (count, groups) = (discovery.stale.len(), discovery.stale.join(", "));
        findings.discovery = Some(format!(
            "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {groups}"
        ));
    }
    let is_pods = |it: &ServedResource| it.resource == Pod::RESOURCE;
    let mut resources: Vec<&ServedResource> =
        discovery.resources.iter().filter(|it| it.preferred && it.namespaced && it.allows(&["delete"])).collect();
    resources.sort_by_key(|it| !is_pods(it));
    for served in resources {
        let rest = empty_one(client, served, namespace, (deleted_at, now), &mut findings).await;
        if let Some(failure) = rest.failure {
            let failure = if is_pods(served) {
                format!("failed to delete pods for namespace: {namespace}, err: {failure}")
            } else {
                failure
            };
            findings.failures.push(failure);
        }
        seconds = seconds.max(rest.seconds);
        if is_pods(served) && rest.remaining > 0 {
            // Kubernetes: as long as pods remain, the conditions do not mention content.
            findings.remaining.clear();
            findings.finalizers.clear();
            break;
        }
    }
    (findings, seconds)
}

async fn empty_one(
    client: &Client,
    served: &ServedResource,
    namespace: &str,
    (deleted_at, now): (Timestamp, Timestamp),
    findings: &mut Findings,
) -> RemainingObjects {
    let mut rest = RemainingObjects::default();
    let result = empty_resource(client, served, namespace, &mut rest, (deleted_at, now)).await;
    let left = match result {
        Ok(left) => left,
        Err(error) => {
            rest.failure = Some(error.to_string());
            return rest;
        }
    };
    rest.remaining = left.len();
    if left.is_empty() {
        rest.seconds = 0;
        return rest;
    }
    let resource = format!("{}.{}", served.resource.plural, served.resource.group);
    findings.remaining.insert(resource, left.len());
    let mut held = false;
    for finalizer in left.iter().flat_map(|metadata| &metadata.finalizers) {
        let count = findings.finalizers.entry(finalizer.to_string()).or_default();
        *count = count.saturating_add(1);
        held = true;
    }
    if rest.seconds == 0 && held {
        rest.seconds = FINALIZER_SECONDS;
    } else if rest.seconds == 0 {
        let (group, version, plural) = (&served.resource.group, &served.resource.version, &served.resource.plural);
        rest.failure = Some(format!(
            "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
        ));
    }
    rest
}

/// Deletes all objects of one resource; returns the remaining ones.
async fn empty_resource(
    client: &Client,
    served: &ServedResource,
    namespace: &str,
    rest: &mut RemainingObjects,
    (deleted_at, now): (Timestamp, Timestamp),
) -> Result<Vec<ObjectMeta>, Error> {
    let selection = Selection { namespace: namespace.to_owned(), ..Selection::default() };
    if served.resource == Pod::RESOURCE {
        let pods = client.objects::<Pod>().list(&selection).await?;
        let grace = longest_grace(&pods.items);
        let waited = now.seconds.saturating_sub(deleted_at.seconds);
        rest.seconds = if waited >= grace { 0 } else { grace };
    }
    let objects = client.documents(served.resource.clone());
    let how = Deletion { propagation_policy: Some("Background"), ..Deletion::default() };
    let not_there = |error: &Error| matches!(error.code(), 404 | 405);
    let whole = if served.allows(&["deletecollection"]) {
        match objects.delete_collection(&selection, &how).await {
            Ok(()) => true,
            Err(error) if not_there(&error) => false,
            Err(error) => return Err(error),
        }
    } else {
        false
    };
    if !served.allows(&["list"]) {
        return Ok(Vec::new());
    }
    let names = |items: &[Value]| -> Vec<Text> {
        items.iter().filter_map(|it| it.str_at(&["metadata", "name"])).map(Text::from).collect()
    };
    if !whole {
        for name in names(&objects.list(&selection).await?.items) {
            match objects.delete(namespace, &name, &how).await {
                Err(error) if !not_there(&error) => return Err(error),
                _ => {}
            }
        }
    }
    let left = match objects.list(&selection).await {
        Ok(left) => left.items,
        Err(error) if not_there(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(left.iter().map(|object| ObjectMeta::of(object).unwrap_or_default()).collect())
}

/// Longest grace period of running pods.
fn longest_grace(pods: &[Pod]) -> i64 {
    let runs = |pod: &&Pod| !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    pods.iter().filter(runs).filter_map(|pod| pod.spec.termination_grace_period_seconds).max().unwrap_or(0).max(0)
}
