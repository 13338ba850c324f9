//! What the manager's flags say, beyond which controllers run.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::x509::request::Request;

use crate::node_lifecycle;

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What controllers are told at the start. The defaults are Kubernetes'.
#[derive(Clone)]
pub struct Settings {
    /// The certificates by which pods know the API server, as PEM; none are published if this is empty.
    pub root_ca: String,
    /// Makes the tokens that are kept in secrets; none are made without.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// Signs the certificates that are asked for; none are signed without.
    pub signer: Option<Arc<dyn CertificateSigner>>,
    /// For how long certificates hold at the most (`--cluster-signing-duration`).
    pub signing_duration: Duration,
    /// By which evictions are planned.
    pub clock: Clock,
    /// How nodes are watched (`--node-monitor-period` and others).
    pub node_lifecycle: node_lifecycle::Settings,
    /// How many pods that have ended may exist; all, if this is 0 (`--terminated-pod-gc-threshold`).
    pub terminated_pods: usize,
    /// How often volumes and claims are looked at though nothing has changed (`--pvclaimbinder-sync-period`).
    pub binder_period: Duration,
    /// How often autoscalers are looked at (`--horizontal-pod-autoscaler-sync-period`).
    pub autoscaler_period: Duration,
    /// How often quotas are counted anew (`--resource-quota-sync-period`).
    pub quota_period: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root_ca: String::new(),
            tokens: None,
            signer: None,
            signing_duration: Duration::from_secs(365 * 24 * 3600),
            clock: Arc::new(crate::manager::now),
            node_lifecycle: node_lifecycle::Settings::default(),
            terminated_pods: 12_500,
            binder_period: Duration::from_secs(15),
            autoscaler_period: Duration::from_secs(15),
            quota_period: Duration::from_secs(300),
        }
    }
}

/// Signs certificates with the key of an authority.
pub trait CertificateSigner: Send + Sync {
    /// The certificate that a request asks for, as PEM.
    ///
    /// # Errors
    /// Why there is none, as text.
    fn sign(&self, request: &Request<'_>, order: &Order<'_>) -> Result<String, String>;
}

/// What is said about the key of a request.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// What it may be used for.
    pub usages: &'a [&'a str],
    /// For how long.
    pub seconds: i64,
    /// From when.
    pub now: Timestamp,
}

/// Makes tokens without an end, for secrets that hold one.
pub trait TokenSource: Send + Sync {
    /// A token of a service account that is bound to a secret; nothing if it cannot be signed.
    fn token(&self, account: &Bound<'_>) -> Option<String>;
}

/// Whose token it is.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// The namespace of both.
    pub namespace: &'a str,
    /// The service account's name.
    pub account: &'a str,
    /// The service account's uid.
    pub account_uid: &'a str,
    /// The secret's name.
    pub secret: &'a str,
}
