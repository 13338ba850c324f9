//! Responses to the health checks of load balancers (`healthCheckNodePort`).
//!
//! Follows `pkg/proxy/healthcheck/service_health.go` of Kubernetes.

use client::Key;

/// The health check of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port that answers.
    pub port: u16,
    /// Number of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A response: the status code, the header `X-Load-Balancing-Endpoint-Weight`, and a body of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code: 200, or 503 if load balancers should use other nodes.
    pub code: u16,
    /// The number of local endpoints.
    pub weight: usize,
    /// The body.
    pub body: String,
}

/// Returns the response for a Service. `is_healthy` is whether the proxy's own rules are up to date.
#[must_use]
pub fn respond(service: &Key, local_endpoints: usize, is_healthy: bool) -> Response {
    // The names are DNS labels: they need no quoting.
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{}\",\n\t\t\"name\": \"{}\"\n\t}},\n\t\"localEndpoints\": {local_endpoints},\n\t\"serviceProxyHealthy\": {is_healthy}\n}}\n",
        service.namespace, service.name
    );
    let code = if local_endpoints > 0 && is_healthy { 200 } else { 503 };
    Response { code, weight: local_endpoints, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_local_endpoints_are_unavailable() {
        let key = Key::new("a", "web");
        let good = respond(&key, 2, true);
        assert_eq!((good.code, good.weight), (200, 2));
        let body = api::json::parse(good.body.as_bytes()).unwrap();
        assert_eq!(body.str_at(&["service", "name"]), Some("web"));
        assert_eq!((body.int("localEndpoints"), body.flag("serviceProxyHealthy")), (2, true));
        assert_eq!((respond(&key, 0, true).code, respond(&key, 2, false).code), (503, 503));
    }
}
