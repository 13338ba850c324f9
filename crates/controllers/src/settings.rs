//! Settings from the manager's flags, except the selection of controllers.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::x509::request::Request;

use crate::network::simulated_load_balancers::AddressRange;
use crate::nodes::node_ipam::NodeNetworks;
use crate::nodes::node_lifecycle;

/// Settings of controllers. The defaults are Kubernetes'.
#[derive(Clone)]
pub struct Settings {
    /// The certificates by which pods know the API server, as PEM; none are published if this is empty.
    pub root_ca: String,
    /// Makes the tokens that are kept in secrets; none are made without.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// Signs certificates; without it none are signed.
    pub signer: Option<Arc<dyn CertificateSigner>>,
    /// Maximum lifetime of certificates (`--cluster-signing-duration`).
    pub signing_duration: Duration,
    /// Settings for the monitoring of nodes (`--node-monitor-period` and others).
    pub node_lifecycle: node_lifecycle::Settings,
    /// Maximum number of terminated pods; unlimited if 0 (`--terminated-pod-gc-threshold`).
    pub terminated_pods: usize,
    /// Interval at which volumes and claims are checked without changes (`--pvclaimbinder-sync-period`).
    pub binder_period: Duration,
    /// Interval at which autoscalers are evaluated (`--horizontal-pod-autoscaler-sync-period`).
    pub autoscaler_period: Duration,
    /// Change of a metric that autoscalers ignore (`--horizontal-pod-autoscaler-tolerance`).
    pub autoscaler_tolerance: f64,
    /// Period without removal of replicas after a higher recommendation
    /// (`--horizontal-pod-autoscaler-downscale-stabilization`).
    pub autoscaler_downscale_stabilization: Duration,
    /// Period after the start of a pod in which its processor time counts only while it is ready
    /// (`--horizontal-pod-autoscaler-cpu-initialization-period`).
    pub autoscaler_cpu_initialization: Duration,
    /// Period after the start of a pod in which a change of readiness is its first state
    /// (`--horizontal-pod-autoscaler-initial-readiness-delay`).
    pub autoscaler_initial_readiness_delay: Duration,
    /// Interval at which quotas are recounted (`--resource-quota-sync-period`).
    pub quota_period: Duration,
    /// Whether volumes are provisioned without disks.
    pub simulated_volumes: bool,
    /// Merges annotations into the fields of objects that informers receive. Set if this manager runs together with
    /// upstream components, which do not know the fields.
    pub placement: Option<client::Rewrite>,
    /// Networks of pods that are allocated to nodes (`--allocate-node-cidrs`); none without.
    pub node_networks: Option<NodeNetworks>,
    /// The addresses of simulated load balancers; none are given without (`--load-balancer-range`).
    pub load_balancers: Option<AddressRange>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root_ca: String::new(),
            tokens: None,
            signer: None,
            signing_duration: Duration::from_secs(365 * 24 * 3600),
            node_lifecycle: node_lifecycle::Settings::default(),
            terminated_pods: 12_500,
            binder_period: Duration::from_secs(15),
            autoscaler_period: Duration::from_secs(15),
            autoscaler_tolerance: 0.1,
            autoscaler_downscale_stabilization: Duration::from_secs(300),
            autoscaler_cpu_initialization: Duration::from_secs(300),
            autoscaler_initial_readiness_delay: Duration::from_secs(30),
            quota_period: Duration::from_secs(300),
            simulated_volumes: false,
            node_networks: None,
            load_balancers: None,
            placement: None,
        }
    }
}

/// Signs certificates with the key of an authority.
pub trait CertificateSigner: Send + Sync {
    /// Signs a request; returns the certificate as PEM.
    ///
    /// # Errors
    /// Why there is none, as text.
    fn sign(&self, request: &Request<'_>, order: &Order<'_>) -> Result<String, String>;
}

/// Contents of a certificate besides the request's key.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Permitted usages.
    pub usages: &'a [&'a str],
    /// For how long.
    pub seconds: i64,
    /// From when.
    pub now: Timestamp,
}

/// Makes tokens without an end, for secrets that hold one.
pub trait TokenSource: Send + Sync {
    /// Issues a token of a service account, bound to a secret; nothing if it cannot be signed.
    fn token(&self, account: &TokenSubject<'_>) -> Option<String>;
}

/// Subject of a token.
#[derive(Debug, Clone, Copy)]
pub struct TokenSubject<'a> {
    /// The namespace of both.
    pub namespace: &'a str,
    /// The service account's name.
    pub account: &'a str,
    /// The service account's uid.
    pub account_uid: &'a str,
    /// The secret's name.
    pub secret: &'a str,
}
