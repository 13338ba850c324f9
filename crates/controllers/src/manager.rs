//! The list of controllers, and which of them run.
//!
//! Each controller acts under its own service account, whose rights Kubernetes' bootstrap roles give it; the informers
//! are shared and read as the manager itself. A controller is one line in [`CONTROLLERS`]: the name that `--controllers`
//! takes, its service account, and what runs it.

use std::fmt::Display;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use api::core::v1::ServiceAccount;
use api::features::Features;
use client::controller::{Controller, Runtime};
use client::informer::{Change, Key};
use client::{Client, Informers};
use telemetry::logs::chain;
use tokio::task::JoinSet;
use tracing::error;

use crate::machinery::executor::Executor;
use crate::machinery::refusals::Refusals;
use crate::settings::Settings;

/// The identity under which informers read.
pub const IDENTITY: &str = "system:kube-controller-manager";

/// A running controller.
type ControllerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

type Run = fn(Context) -> ControllerFuture;

/// A controller that can run.
pub struct Entry {
    /// Name in `--controllers`.
    pub name: &'static str,
    /// The service account in `kube-system` under which it acts, which is also the component of its events.
    pub account: &'static str,
    run: Run,
}

macro_rules! controllers {
    ($($name:literal as $account:literal => $run:path,)*) => {
        /// All controllers. Not a constant: each use of a constant would compile its contents again.
        pub static CONTROLLERS: &[Entry] =
            &[$(Entry { name: $name, account: $account, run: |context| Box::pin($run(context)) },)*];
    };
}

controllers! {
    "bootstrap-signer-controller" as "bootstrap-signer" => crate::identity::bootstrap_signer::run,
    "certificatesigningrequest-approving-controller" as "certificate-controller" => crate::identity::certificate_requests::approve::run,
    "certificatesigningrequest-cleaner-controller" as "certificate-controller" => crate::identity::certificate_requests::clean::run,
    "certificatesigningrequest-signing-controller" as "certificate-controller" => crate::identity::certificate_requests::sign::run,
    "clusterrole-aggregation-controller" as "clusterrole-aggregation-controller" => crate::identity::clusterrole_aggregation::run,
    "cronjob-controller" as "cronjob-controller" => crate::workloads::cronjob::run,
    "daemonset-controller" as "daemon-set-controller" => crate::workloads::daemonset::run,
    "deployment-controller" as "deployment-controller" => crate::workloads::deployment::run,
    "disruption-controller" as "disruption-controller" => crate::workloads::disruption::run,
    "endpoints-controller" as "endpoint-controller" => crate::network::endpoints::run,
    "endpointslice-controller" as "endpointslice-controller" => crate::network::endpointslice::run,
    "endpointslice-mirroring-controller" as "endpointslicemirroring-controller" => crate::network::endpointslice_mirroring::run,
    "ephemeral-volume-controller" as "ephemeral-volume-controller" => crate::storage::ephemeral_volume::run,
    "garbage-collector-controller" as "generic-garbage-collector" => crate::cluster::garbage_collector::run,
    "horizontal-pod-autoscaler-controller" as "horizontal-pod-autoscaler" => crate::workloads::horizontal_pod_autoscaler::run,
    "job-controller" as "job-controller" => crate::workloads::job::run,
    "kube-apiserver-serving-clustertrustbundle-publisher-controller" as "kube-apiserver-serving-clustertrustbundle-publisher" => crate::identity::trust_bundle_publisher::run,
    "namespace-controller" as "namespace-controller" => crate::cluster::namespace::run,
    "node-ipam-controller" as "node-controller" => crate::nodes::node_ipam::run,
    "node-lifecycle-controller" as "node-controller" => crate::nodes::node_lifecycle::run,
    "persistentvolume-binder-controller" as "persistent-volume-binder" => crate::storage::persistentvolume_binder::run,
    "persistentvolume-protection-controller" as "pv-protection-controller" => crate::storage::volume_protection::run_volumes,
    "persistentvolumeclaim-protection-controller" as "pvc-protection-controller" => crate::storage::volume_protection::run_claims,
    "pod-garbage-collector-controller" as "pod-garbage-collector" => crate::workloads::pod_garbage_collector::run,
    "podcertificaterequest-cleaner-controller" as "podcertificaterequestcleaner" => crate::identity::certificate_requests::clean_pods::run,
    "replicaset-controller" as "replicaset-controller" => crate::workloads::replicaset::run,
    "replicationcontroller-controller" as "replication-controller" => crate::workloads::replicationcontroller::run,
    "device-taint-eviction-controller" as "device-taint-eviction-controller" => crate::nodes::device_taint_eviction::run,
    "resourceclaim-controller" as "resource-claim-controller" => crate::storage::resourceclaim::run,
    "resourcequota-controller" as "resourcequota-controller" => crate::cluster::resourcequota::run,
    "root-ca-certificate-publisher-controller" as "root-ca-cert-publisher" => crate::identity::root_ca_publisher::run,
    "service-cidr-controller" as "service-cidrs-controller" => crate::network::service_cidr::run,
    "serviceaccount-controller" as "service-account-controller" => crate::identity::service_account::run,
    "serviceaccount-token-controller" as "service-account-token" => crate::identity::service_account_tokens::run,
    "simulated-load-balancer-controller" as "service-controller" => crate::network::simulated_load_balancers::run,
    "simulated-volume-controller" as "persistent-volume-binder" => crate::storage::simulated_volumes::run,
    "statefulset-controller" as "statefulset-controller" => crate::workloads::statefulset::run,
    "taint-eviction-controller" as "node-controller" => crate::nodes::taint_eviction::run,
    "toleration-resolver-controller" as "toleration-resolver" => crate::nodes::toleration_resolver::run,
    "token-cleaner-controller" as "token-cleaner" => crate::identity::token_cleaner::run,
    "ttl-after-finished-controller" as "ttl-after-finished-controller" => crate::workloads::ttl_after_finished::run,
    "ttl-controller" as "ttl-controller" => crate::nodes::ttl::run,
    "validatingadmissionpolicy-status-controller" as "validatingadmissionpolicy-status-controller" => crate::cluster::policy_status::run,
    "volumeattributesclass-protection-controller" as "volumeattributesclass-protection-controller" => crate::storage::volume_protection::run_classes,
}

/// Controllers that `*` does not select: they are for clusters whose other components are upstream's.
const NAMED_ONLY: &[&str] = &["toleration-resolver-controller"];

/// Inputs of a controller.
pub struct Context {
    /// Its service account: component of its events, and its name in logs and metrics.
    pub name: &'static str,
    /// Client with its identity.
    pub client: Client,
    /// Informers, shared with the other controllers.
    pub informers: Arc<Informers>,
    /// Rejected creations, shared with the other controllers.
    pub refusals: Arc<Refusals>,
    /// Enabled feature gates.
    pub features: Features,
    /// Settings from the flags.
    pub settings: Arc<Settings>,
    /// Metrics of queues, health, and the end.
    pub runtime: Runtime,
}

impl Context {
    /// Returns the executor of its actions.
    #[must_use]
    pub fn executor(&self) -> Executor {
        Executor::new(self.name, self.client.clone(), self.refusals.clone())
    }

    /// Reconciles keys whose pods were rejected for lack of a service account as soon as the account appears.
    #[must_use]
    pub fn watch_accounts<K>(&self, runner: Controller<K>, executor: &Executor, item: fn(Key) -> K) -> Controller<K>
    where
        K: Clone + Eq + Hash + Display + Send + Sync + 'static,
    {
        let executor = executor.clone();
        runner.watch_changes(&self.informers.all::<ServiceAccount>(), move |change| {
            let keys = match change {
                Change::Added(account) => executor.refused_without(&account.metadata.namespace, &account.metadata.name),
                _ => Vec::new(),
            };
            keys.into_iter().map(item)
        })
    }
}

/// Returns a client for an identity: the name of a user.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Inputs of the manager.
pub struct Options {
    /// Returns a client for an identity.
    pub clients: Clients,
    /// Controllers to run, as in `--controllers`: `*`, `name` or `-name`.
    pub controllers: Vec<String>,
    /// Enabled feature gates.
    pub features: Features,
    /// Settings from the flags.
    pub settings: Settings,
    /// Metrics of queues, health, and the end.
    pub runtime: Runtime,
}

/// An unknown name in `--controllers`.
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

    /// Whether the controller runs: `name` or `*` enables it, `-name` disables it. The first match decides.
    fn is_selected(&self, selection: &[String]) -> bool {
        for word in selection {
            match word.strip_prefix('-') {
                Some(name) if self.is_called(name) => return false,
                None if self.is_called(word) => return true,
                _ => {}
            }
        }
        selection.iter().any(|word| word == "*") && !NAMED_ONLY.contains(&self.name)
    }
}

/// Runs the selected controllers until shutdown.
///
/// The future is boxed: all controllers would be compiled once more in the crate that awaits it.
pub fn run(options: Options) -> ControllerFuture {
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
            client: (options.clients)(&format!("system:serviceaccount:kube-system:{}", entry.account))
                .with_clock(&options.runtime.clock),
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
            error!(err = %chain(&failure), "Controller ended");
        }
    }
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
        let resolver = CONTROLLERS.iter().find(|entry| entry.is_called("toleration-resolver")).unwrap();
        assert!(!resolver.is_selected(&["*".to_owned()]));
        assert!(resolver.is_selected(&["toleration-resolver".to_owned()]));
        let unknown = check_selection(&["*".to_owned(), "-unheard".to_owned()]).unwrap_err();
        assert_eq!(unknown.to_string(), "\"unheard\" is not in the list of known controllers");
    }
}
