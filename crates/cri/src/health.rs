//! The gRPC health check, `grpc.health.v1.Health/Check`, by which gRPC probes decide.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use tonic::Status;

use crate::Client;

/// The state `SERVING`.
pub const SERVING: i32 = 1;

/// A service to check; the empty name stands for the whole server.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckRequest {
    /// Name of the service.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The state of a service.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckResponse {
    /// [`SERVING`], or another state.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// Returns the state of a service.
///
/// # Errors
/// The status that the server returns, or `DeadlineExceeded`.
pub async fn check(address: SocketAddr, service: &str, timeout: Duration) -> Result<i32, Status> {
    let client = Client::at_address(address).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer: HealthCheckResponse = client.call("/grpc.health.v1.Health/Check", request, timeout).await?;
    Ok(answer.status)
}
