//! The server behind the service of an APIService, or the reason why there is none.
//!
//! The checks and texts are those of Kubernetes' `RemoteAvailability` controller. Kubernetes connects to the cluster address
//! of the service; here there may be nothing that leads it to a pod, so one of its endpoints is dialed. Texts and the `Host`
//! header have the cluster address.

use api::go_text::quote;
use api::json::Value;

use super::{Aggregator, RemoteVersion, SIMULATED};
use crate::outbound::backends::{NoPod, join_host_port};
use crate::outbound::forward::Destination;
use crate::resources;

/// The server of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The place to connect to.
    pub(crate) destination: Destination,
    /// Host and port in texts and headers.
    pub(crate) host: String,
}

/// A server that cannot be called: reason and message of the condition `Available`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unavailability {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

fn unreachable(reason: &'static str, message: String) -> Unavailability {
    Unavailability { reason, message }
}

impl Aggregator {
    /// The server of an APIService. Dials nothing.
    ///
    /// # Errors
    /// The condition `Available`.
    pub(crate) fn endpoint(&self, remote: &RemoteVersion) -> Result<Endpoint, Unavailability> {
        let (namespace, name, port) = &remote.service;
        let service = self.backends.object(resources::SERVICES, namespace, name);
        let cluster_address = service.as_ref().and_then(|it| it.str_at(&["spec", "clusterIP"])).unwrap_or_default();
        let endpoint = |address: String, host: String| {
            let tls = Some((format!("{name}.{namespace}.svc"), remote.trust.clone()));
            Endpoint { destination: Destination { address, tls }, host }
        };
        if let Some(address) = self.backends.mapped.get(&remote.service) {
            let has_address = !cluster_address.is_empty() && cluster_address != "None";
            let host = if has_address { join_host_port(cluster_address, port) } else { address.clone() };
            return Ok(endpoint(address.clone(), host));
        }
        let Some(service) = &service else {
            let message = format!("service/{name} in {} is not present", quote(namespace));
            return Err(unreachable("ServiceNotFound", message));
        };
        if service.str_at(&["spec", "type"]) == Some("ExternalName") {
            let host = join_host_port(service.text_at(&["spec", "externalName"]), port);
            return Ok(endpoint(host.clone(), host));
        }
        let ports = service.list_at(&["spec", "ports"]);
        let found = ports.iter().find(|it| it.get("port").and_then(Value::as_i64) == Some(i64::from(*port)));
        let Some(found) = found else {
            let message = format!("service/{name} in {} is not listening on port {port}", quote(namespace));
            return Err(unreachable("ServicePortError", message));
        };
        let address = self.pod(remote, found.text("name"))?;
        if cluster_address == "None" {
            let message = "cannot route to service with ClusterIP \"None\"".to_owned();
            return Err(unreachable("FailedDiscoveryCheck", message));
        }
        Ok(endpoint(address, join_host_port(cluster_address, port)))
    }

    /// The address of a ready pod for a port.
    fn pod(&self, remote: &RemoteVersion, port_name: &str) -> Result<String, Unavailability> {
        let (namespace, name, _) = &remote.service;
        let quoted = quote(namespace);
        self.backends.pod(namespace, name, port_name).map_err(|none| match none {
            NoPod::NoSlices => {
                let message = format!("cannot find endpointslices for service/{name} in {quoted}");
                unreachable("EndpointsNotFound", message)
            }
            NoPod::NotReady => {
                let port_name = quote(port_name);
                let message =
                    format!("endpointslices for service/{name} in {quoted} have no addresses with port name {port_name}");
                unreachable("MissingEndpoints", message)
            }
            NoPod::Simulated => {
                let message = format!(
                    "the pods of service/{name} in {quoted} are simulated; map it to a local process with --backend, or use --simulated-backends=fail"
                );
                unreachable(SIMULATED, message)
            }
        })
    }
}
