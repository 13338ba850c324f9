//! The list of controllers, and which of them run.
//!
//! Each controller acts under its own service account, whose rights Kubernetes' bootstrap roles give it; the informers
//! are shared and read as the manager itself. A controller is one line in [`CONTROLLERS`]: the name that `--controllers`
//! takes, its service account, and what runs it.

use std::pin::Pin;
use std::sync::Arc;
#[cfg(not(test))]
use std::time::{SystemTime, UNIX_EPOCH};

use api::features::Features;
#[cfg(not(test))]
use api::time::Timestamp;
use client::controller::Runtime;
use client::{Client, Informers};
use tokio::task::JoinSet;
use tracing::error;

use crate::executor::Executor;
use crate::refusals::Refusals;
use crate::settings::Settings;

/// The identity under which informers read.
pub const IDENTITY: &str = "system:kube-controller-manager";

/// What runs until its end.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

type Run = fn(Context) -> Running;

/// A controller that can run.
pub struct Entry {
    /// What `--controllers` calls it.
    pub name: &'static str,
    /// The service account in `kube-system` under which it acts, which is also the component of its events.
    pub account: &'static str,
    run: Run,
}

macro_rules! controllers {
    ($($name:literal as $account:literal => $run:path,)*) => {
        /// All controllers. Not a constant: those who read one compile what is in it.
        pub static CONTROLLERS: &[Entry] =
            &[$(Entry { name: $name, account: $account, run: |context| Box::pin($run(context)) },)*];
    };
}

controllers! {
    "bootstrap-signer-controller" as "bootstrap-signer" => crate::bootstrap_signer::run,
    "certificatesigningrequest-approving-controller" as "certificate-controller" => crate::certificate_requests::approve::run,
    "certificatesigningrequest-cleaner-controller" as "certificate-controller" => crate::certificate_requests::clean::run,
    "certificatesigningrequest-signing-controller" as "certificate-controller" => crate::certificate_requests::sign::run,
    "clusterrole-aggregation-controller" as "clusterrole-aggregation-controller" => crate::clusterrole_aggregation::run,
    "cronjob-controller" as "cronjob-controller" => crate::cronjob::run,
    "daemonset-controller" as "daemon-set-controller" => crate::daemonset::run,
    "deployment-controller" as "deployment-controller" => crate::deployment::run,
    "disruption-controller" as "disruption-controller" => crate::disruption::run,
    "endpoints-controller" as "endpoint-controller" => crate::endpoints::run,
    "endpointslice-controller" as "endpointslice-controller" => crate::endpointslice::run,
    "endpointslice-mirroring-controller" as "endpointslicemirroring-controller" => crate::endpointslice_mirroring::run,
    "ephemeral-volume-controller" as "ephemeral-volume-controller" => crate::ephemeral_volume::run,
    "garbage-collector-controller" as "generic-garbage-collector" => crate::garbage_collector::run,
    "horizontal-pod-autoscaler-controller" as "horizontal-pod-autoscaler" => crate::horizontal_pod_autoscaler::run,
    "job-controller" as "job-controller" => crate::job::run,
    "kube-apiserver-serving-clustertrustbundle-publisher-controller" as "kube-apiserver-serving-clustertrustbundle-publisher" => crate::trust_bundle_publisher::run,
    "namespace-controller" as "namespace-controller" => crate::namespace::run,
    "node-lifecycle-controller" as "node-controller" => crate::node_lifecycle::run,
    "persistentvolume-binder-controller" as "persistent-volume-binder" => crate::persistentvolume_binder::run,
    "persistentvolume-protection-controller" as "pv-protection-controller" => crate::volume_protection::run_volumes,
    "persistentvolumeclaim-protection-controller" as "pvc-protection-controller" => crate::volume_protection::run_claims,
    "pod-garbage-collector-controller" as "pod-garbage-collector" => crate::pod_garbage_collector::run,
    "podcertificaterequest-cleaner-controller" as "podcertificaterequestcleaner" => crate::certificate_requests::clean_pods::run,
    "replicaset-controller" as "replicaset-controller" => crate::replicaset::run,
    "replicationcontroller-controller" as "replication-controller" => crate::replicationcontroller::run,
    "device-taint-eviction-controller" as "device-taint-eviction-controller" => crate::device_taint_eviction::run,
    "resourceclaim-controller" as "resource-claim-controller" => crate::resourceclaim::run,
    "resourcequota-controller" as "resourcequota-controller" => crate::resourcequota::run,
    "root-ca-certificate-publisher-controller" as "root-ca-cert-publisher" => crate::root_ca_publisher::run,
    "service-cidr-controller" as "service-cidrs-controller" => crate::service_cidr::run,
    "serviceaccount-controller" as "service-account-controller" => crate::service_account::run,
    "serviceaccount-token-controller" as "service-account-token" => crate::service_account_tokens::run,
    "statefulset-controller" as "statefulset-controller" => crate::statefulset::run,
    "taint-eviction-controller" as "node-controller" => crate::taint_eviction::run,
    "token-cleaner-controller" as "token-cleaner" => crate::token_cleaner::run,
    "ttl-after-finished-controller" as "ttl-after-finished-controller" => crate::ttl_after_finished::run,
    "ttl-controller" as "ttl-controller" => crate::ttl::run,
    "validatingadmissionpolicy-status-controller" as "validatingadmissionpolicy-status-controller" => crate::policy_status::run,
    "volumeattributesclass-protection-controller" as "volumeattributesclass-protection-controller" => crate::volume_protection::run_classes,
}

/// What a controller is given.
pub struct Context {
    /// Its service account: the component of its events, and its name in logs and metrics.
    pub name: &'static str,
    /// Speaks under its identity.
    pub client: Client,
    /// What it reads, shared with the others.
    pub informers: Arc<Informers>,
    /// What the server refuses, shared with the others.
    pub refusals: Arc<Refusals>,
    /// Which gates are open.
    pub features: Features,
    /// What the flags say.
    pub settings: Arc<Settings>,
    /// Metrics of queues, health, and the end.
    pub runtime: Runtime,
}

impl Context {
    /// What performs its actions.
    #[must_use]
    pub fn executor(&self) -> Executor {
        Executor::new(self.name, self.client.clone(), self.refusals.clone())
    }
}

/// Gives a client to each identity: the name of a user.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// What the manager needs.
pub struct Options {
    /// Gives a client to each identity.
    pub clients: Clients,
    /// Which controllers run, as `--controllers` has it: `*`, `name` or `-name`.
    pub controllers: Vec<String>,
    /// Which gates are open.
    pub features: Features,
    /// What the flags say.
    pub settings: Settings,
    /// Metrics of queues, health, and the end.
    pub runtime: Runtime,
}

/// Why `--controllers` cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not in the list of known controllers")]
pub struct UnknownController(String);

/// Checks a selection of controllers.
///
/// # Errors
/// The first name that is not known.
pub fn check_selection(selection: &[String]) -> Result<(), UnknownController> {
    let is_known = |name: &str| name == "*" || CONTROLLERS.iter().any(|entry| entry.is_called(name));
    let mut names = selection.iter().map(|name| name.strip_prefix('-').unwrap_or(name));
    match names.find(|name| !is_known(name)) {
        Some(name) => Err(UnknownController(name.to_owned())),
        None => Ok(()),
    }
}

impl Entry {
    /// Whether this is its name, or the older one without the ending.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_suffix("-controller") == Some(name)
    }

    /// Whether it runs: it is named, or all are and it is not excluded. The first word about it counts.
    fn is_selected(&self, selection: &[String]) -> bool {
        for word in selection {
            match word.strip_prefix('-') {
                Some(name) if self.is_called(name) => return false,
                None if self.is_called(word) => return true,
                _ => {}
            }
        }
        selection.iter().any(|word| word == "*")
    }
}

/// Runs the selected controllers until the end is asked for.
///
/// The future is boxed: all controllers would be compiled once more in the crate that awaits it.
pub fn run(options: Options) -> Running {
    Box::pin(run_selected(options))
}

async fn run_selected(options: Options) {
    let informers = Arc::new(Informers::new((options.clients)(IDENTITY)));
    let refusals = Arc::new(Refusals::default());
    let settings = Arc::new(options.settings);
    let mut running = JoinSet::new();
    for entry in CONTROLLERS.iter().filter(|entry| entry.is_selected(&options.controllers)) {
        let context = Context {
            name: entry.account,
            client: (options.clients)(&format!("system:serviceaccount:kube-system:{}", entry.account)),
            informers: informers.clone(),
            refusals: refusals.clone(),
            features: options.features,
            settings: settings.clone(),
            runtime: options.runtime.clone(),
        };
        running.spawn((entry.run)(context));
    }
    while let Some(ended) = running.join_next().await {
        if let Err(failure) = ended {
            error!(err = %failure, "Controller ended");
        }
    }
}

/// The time in tests, which may be paused.
#[cfg(test)]
pub(crate) use crate::model::now;

/// The time on the wall.
#[cfg(not(test))]
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selection: &str, deployment: bool, replica_set: bool) {
        let selection: Vec<String> = selection.split(',').map(ToOwned::to_owned).collect();
        assert_eq!(check_selection(&selection), Ok(()));
        let runs = |name: &str| {
            let entry = CONTROLLERS.iter().find(|entry| entry.name == name).unwrap();
            entry.is_selected(&selection)
        };
        assert_eq!((runs("deployment-controller"), runs("replicaset-controller")), (deployment, replica_set));
    }

    #[test]
    fn controllers_are_selected_by_name() {
        check("*", true, true);
        check("*,-deployment-controller", false, true);
        check("deployment", true, false);
        check("-replicaset,*", true, false);
        let unknown = check_selection(&["*".to_owned(), "-unheard".to_owned()]).unwrap_err();
        assert_eq!(unknown.to_string(), "\"unheard\" is not in the list of known controllers");
    }
}
