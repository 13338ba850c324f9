//! Plugins of a node: their registration, and the calls by which drivers prepare devices (dynamic resource allocation).
//!
//! Follows `pluginregistration/v1` and `dra/v1` of Kubernetes' kubelet. A plugin listens on a socket in the agent's
//! directory `plugins_registry`; the agent connects to it.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use tonic::Status;

use crate::Client;

/// The type of plugins that prepare devices.
pub const DRA_PLUGIN: &str = "DRAPlugin";
/// The version of their calls that is spoken here.
pub const DRA_VERSION: &str = "v1.DRAPlugin";

/// Path of the call that returns the description of a plugin.
pub const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// Path of the call that returns the result of the registration to the plugin.
pub const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
/// Path of the call that prepares devices.
pub const PREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
/// Path of the call that releases devices.
pub const UNPREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";

/// Time limit of the registration's calls.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a driver.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(45);

/// A request for the description of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct InfoRequest {}

/// Description of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// Type of the plugin, such as [`DRA_PLUGIN`].
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Socket of the driver; if empty, that of the registration.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Services that it serves, such as [`DRA_VERSION`].
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// The result of a registration.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// Whether the plugin is registered.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// The reason if it is not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// The answer to a [`RegistrationStatus`].
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatusResponse {}

/// A ResourceClaim.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Namespace of the claim.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Claims to prepare, or to release.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimsRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Prepared claims by uid.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareResponse {
    /// Results by uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, PreparedClaim>,
}

/// The devices of a claim, or the reason for their absence.
#[derive(Clone, PartialEq, Message)]
pub struct PreparedClaim {
    /// Its devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// The reason if they could not be prepared.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A prepared device.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// The requests of the claim that the device is for; all if empty.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Its pool.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// Names by which the runtime adds it to containers (Container Device Interface).
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// The share of a device that several claims use.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// Released claims by uid.
#[derive(Clone, PartialEq, Message)]
pub struct UnprepareResponse {
    /// Results by uid.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, UnpreparedClaim>,
}

/// The result of releasing a claim.
#[derive(Clone, PartialEq, Message)]
pub struct UnpreparedClaim {
    /// The reason; empty if it was released.
    #[prost(string, tag = "1")]
    pub error: String,
}

impl Client {
    /// Returns the description of a plugin.
    ///
    /// # Errors
    /// The status that the plugin returns, or `DeadlineExceeded`.
    pub async fn plugin_info(&self) -> Result<PluginInfo, Status> {
        self.call(GET_INFO, InfoRequest {}, REGISTRATION_TIMEOUT).await
    }

    /// Returns the result of the registration to the plugin.
    ///
    /// # Errors
    /// The status that the plugin returns, or `DeadlineExceeded`.
    pub async fn notify_registration(&self, error: Option<String>) -> Result<RegistrationStatusResponse, Status> {
        let plugin_registered = error.is_none();
        let status = RegistrationStatus { plugin_registered, error: error.unwrap_or_default() };
        self.call(NOTIFY, status, REGISTRATION_TIMEOUT).await
    }

    /// Prepares the devices of claims. A driver answers the same for claims that it has prepared before.
    ///
    /// # Errors
    /// The status that the driver returns, or `DeadlineExceeded`.
    pub async fn prepare_claims(&self, claims: Vec<Claim>) -> Result<PrepareResponse, Status> {
        self.call(PREPARE, ClaimsRequest { claims }, DRIVER_TIMEOUT).await
    }

    /// Releases the devices of claims.
    ///
    /// # Errors
    /// The status that the driver returns, or `DeadlineExceeded`.
    pub async fn unprepare_claims(&self, claims: Vec<Claim>) -> Result<UnprepareResponse, Status> {
        self.call(UNPREPARE, ClaimsRequest { claims }, DRIVER_TIMEOUT).await
    }
}
