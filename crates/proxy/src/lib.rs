//! The service proxy of a real node.
//!
//! Pure part, in reading order:
//!
//! - [`network`]: IPv4 networks and protocols.
//! - [`service`] and [`endpoint`]: Services and EndpointSlices, reduced to validated facts.
//! - [`topology`]: the endpoints that a node uses for a port of a Service.
//! - [`rules`]: elements, chains and sets of one Service.
//! - [`plan`]: the ports of a Service that get rules, within limits.
//! - [`decide`]: Service and endpoints → its rules.
//! - [`ledger`]: the rules of all Services, and their difference from the applied ones.
//! - [`state`]: the observed Services and EndpointSlices; recomputes only changed Services.
//! - [`nft`]: rules and differences as text for `nft -f -`.
//! - [`conntrack`]: UDP flows to endpoints that no longer exist.
//! - [`health_check`]: responses of `healthCheckNodePort`.
//!
//! Shell: [`program`] runs `nft`, `conntrack` and `ip`, [`table`] keeps the kernel's table equal to the rules, [`proxier`] follows the
//! API server, [`routes`] adds routes to the pods of other machines, and [`metrics`] has kube-proxy's names.
//!
//! Follows kube-proxy in nftables mode (`pkg/proxy/nftables` of Kubernetes). IPv4 only.

pub mod conntrack;
pub mod decide;
pub mod endpoint;
pub mod health_check;
pub mod ledger;
pub mod machine;
pub mod metrics;
pub mod network;
pub mod nft;
pub mod plan;
pub mod program;
pub mod proxier;
pub mod routes;
pub mod rules;
pub mod service;
pub mod state;
pub mod table;
pub mod topology;
