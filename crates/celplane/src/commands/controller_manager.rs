//! `celplane controller-manager`: the controllers alone, over a kubeconfig.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::features::Features;
use apiserver::identity::keys::KeyRing;
use apiserver::serving::certificates::Authority;
use client::Client;
use controllers::settings::Settings;

use crate::roles::connections::groups_of;
use crate::roles::node_lifecycle::NodeLifecycle;
use crate::roles::{self, controller_manager, signing};
use crate::separate::SeparateArguments;
use crate::waiting_time;

/// Run the controllers of the cluster that a kubeconfig names
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Contend for a lease, so that several can run
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: bool,
    /// Which controllers run: `*` for all, `name`, `-name` for all but that one
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Let each controller act under a service account of its own, which the kubeconfig's user must be allowed to
    /// impersonate
    #[arg(long)]
    use_service_account_credentials: bool,
    /// The certificates by which pods know the API server; they are published in every namespace
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// The certificate of the authority that signs approved requests for certificates; none are signed without
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// For how long signed certificates hold at the most
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s")]
    cluster_signing_duration: String,
    /// The key that signs service account tokens in secrets (ECDSA P-256); none are made without
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    /// How many pods that have ended may exist before the oldest are deleted; 0 for any number
    #[arg(long, value_name = "COUNT", default_value_t = 12_500)]
    terminated_pod_gc_threshold: usize,
    /// How often autoscalers are looked at
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    horizontal_pod_autoscaler_sync_period: String,
    /// How often quotas are counted anew
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    resource_quota_sync_period: String,
    /// How often volumes and claims are looked at though nothing has changed
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pvclaimbinder_sync_period: String,
    #[command(flatten)]
    node_lifecycle: NodeLifecycle,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        controllers::manager::check_selection(&self.controllers)?;
        let settings = self.settings()?;
        self.role.block_on(async |role| {
            let own = role.connect(controller_manager::NAME).await?;
            let place = role.place(10257, &own)?;
            if role.dry_run.is_on() {
                let leads = Some(self.leader_elect);
                return role.rehearse(controller_manager::NAME, features, leads, place.as_ref()).await;
            }
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
            quota_period: waiting_time::parse(&self.resource_quota_sync_period)?,
            binder_period: waiting_time::parse(&self.pvclaimbinder_sync_period)?,
            signing_duration: waiting_time::parse(&self.cluster_signing_duration)?,
            node_lifecycle: self.node_lifecycle.settings(),
            ..Settings::default()
        };
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
