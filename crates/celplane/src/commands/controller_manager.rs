//! `celplane controller-manager`: the controllers alone, over a kubeconfig.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::features::Features;
use apiserver::identity::keys::KeyRing;
use apiserver::serving::certificates::Authority;
use client::Client;
use controllers::nodes::node_ipam::NodeNetworks;
use controllers::settings::Settings;
use controlplane::placement;
use controlplane::roles::connections::groups_of;
use controlplane::roles::{self, controller_manager, signing};

use crate::arguments::node_lifecycle::NodeLifecycle;
use crate::arguments::node_network::NODE_PREFIX;
use crate::separate::SeparateArguments;
use crate::waiting_time;

/// Run the controllers for the cluster named by a kubeconfig
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Run only while holding the leader election lease, so that several instances can run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: bool,
    /// Controllers to run: `*` for all, `name`, or `-name` for all others
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Run each controller under its own service account; the kubeconfig's user must be allowed to impersonate
    /// them
    #[arg(long)]
    use_service_account_credentials: bool,
    /// CA certificates of the API server, published in every namespace for pods
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// CA certificate that signs approved certificate signing requests; without it none are signed
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of that CA certificate
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// Maximum lifetime of signed certificates
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s")]
    cluster_signing_duration: String,
    /// Key that signs service account tokens in Secrets (ECDSA P-256); without it no such tokens are created
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    /// Number of terminated pods above which the oldest are deleted; 0 disables deletion
    #[arg(long, value_name = "COUNT", default_value_t = 12_500)]
    terminated_pod_gc_threshold: usize,
    /// Interval at which HorizontalPodAutoscalers are evaluated
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    horizontal_pod_autoscaler_sync_period: String,
    /// Ratio of a metric to its target that changes nothing: from 1 minus to 1 plus this
    #[arg(long, value_name = "RATIO", default_value_t = 0.1)]
    horizontal_pod_autoscaler_tolerance: f64,
    /// Period without removal of replicas after a higher recommendation
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    horizontal_pod_autoscaler_downscale_stabilization: String,
    /// Period after a pod's start in which its CPU usage counts only while it is ready
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    horizontal_pod_autoscaler_cpu_initialization_period: String,
    /// Period after a pod's start in which a change of readiness is its first state
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    horizontal_pod_autoscaler_initial_readiness_delay: String,
    /// Interval at which quota usage is recalculated
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    resource_quota_sync_period: String,
    /// Interval at which volumes and claims are checked even if nothing has changed
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pvclaimbinder_sync_period: String,
    #[command(flatten)]
    node_lifecycle: NodeLifecycle,
    /// Allocate a network of pods (spec.podCIDR) to each node; requires --cluster-cidr
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    allocate_node_cidrs: bool,
    /// IPv4 network of all pods
    #[arg(long, value_name = "NETWORK")]
    cluster_cidr: Option<String>,
    /// Length of the prefix of each node's network of pods
    #[arg(long, value_name = "BITS", default_value_t = NODE_PREFIX)]
    node_cidr_mask_size: u8,
    /// Read the proposals' fields from annotations of pods; for the controller toleration-resolver beside upstream's components
    #[arg(long)]
    placement_annotations: bool,
}

impl Arguments {
    /// Runs until a signal is received.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let defaults = if self.placement_annotations { Features::all_proposals() } else { Features::default() };
        let features = defaults.with_flag(&self.role.feature_gates)?;
        controllers::manager::check_selection(&self.controllers)?;
        let mut settings = self.settings()?;
        if self.placement_annotations {
            settings.placement = Some(placement::rewrite(features, placement::Devices::default())?);
        }
        self.role.block_on(async |role| {
            let own = role.connect(controller_manager::NAME).await?;
            let place = role.place(10257, &own)?;
            if role.dry_run.is_on() {
                let leads = Some(self.leader_elect);
                return role.rehearse(controller_manager::NAME, features, leads, place.as_ref()).await;
            }
            let lease = self.leader_elect.then(|| roles::lease(controller_manager::NAME));
            role.announce(controller_manager::NAME, &own, lease.map(|lease| (lease.namespace, lease.name)));
            let (shared, by_account) = (own.clone(), self.use_service_account_credentials);
            let clients = Arc::new(move |user: &str| client_for(&shared, user, by_account));
            let role_at_work = controller_manager::start(
                own,
                clients,
                self.controllers.clone(),
                settings,
                features,
                self.leader_elect,
            );
            roles::run_alone(role_at_work, place).await
        })
    }
}

impl Arguments {
    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            terminated_pods: self.terminated_pod_gc_threshold,
            autoscaler_period: waiting_time::parse(&self.horizontal_pod_autoscaler_sync_period)?,
            autoscaler_tolerance: self.horizontal_pod_autoscaler_tolerance,
            autoscaler_downscale_stabilization: waiting_time::parse(
                &self.horizontal_pod_autoscaler_downscale_stabilization,
            )?,
            autoscaler_cpu_initialization: waiting_time::parse(
                &self.horizontal_pod_autoscaler_cpu_initialization_period,
            )?,
            autoscaler_initial_readiness_delay: waiting_time::parse(
                &self.horizontal_pod_autoscaler_initial_readiness_delay,
            )?,
            quota_period: waiting_time::parse(&self.resource_quota_sync_period)?,
            binder_period: waiting_time::parse(&self.pvclaimbinder_sync_period)?,
            signing_duration: waiting_time::parse(&self.cluster_signing_duration)?,
            node_lifecycle: self.node_lifecycle.settings(),
            ..Settings::default()
        };
        if self.allocate_node_cidrs {
            let network = self.cluster_cidr.as_deref().context("--allocate-node-cidrs requires --cluster-cidr")?;
            let networks = NodeNetworks::new(network, self.node_cidr_mask_size);
            settings.node_networks = Some(networks.context("cannot use --cluster-cidr with --node-cidr-mask-size")?);
        }
        if let Some(path) = &self.root_ca_file {
            settings.root_ca = read(path)?;
        }
        if let (Some(certificate), Some(key)) = (&self.cluster_signing_cert_file, &self.cluster_signing_key_file) {
            let authority = Authority::from_pem(read(certificate)?, read(key)?)
                .with_context(|| format!("cannot sign with `{}`", certificate.display()))?;
            settings.signer = Some(Arc::new(signing::Certificates(authority)));
        }
        if let Some(path) = &self.service_account_private_key_file {
            let keys = KeyRing::parse(&read(path)?).with_context(|| format!("cannot use `{}`", path.display()))?;
            settings.tokens = Some(Arc::new(signing::Tokens::Keys(Box::new(keys))));
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn client_for(own: &Client, user: &str, by_account: bool) -> Client {
    if !by_account || !user.starts_with("system:serviceaccount:") {
        return own.clone();
    }
    let groups = groups_of(user);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    // The names of service accounts can stand in headers.
    own.impersonating(user, &groups).unwrap_or_else(|_| own.clone())
}
