//! Controllers of identities: certificates, service accounts, tokens, trust bundles, aggregated roles.

pub mod bootstrap_signer;
pub mod certificate_requests;
pub mod clusterrole_aggregation;
pub mod root_ca_publisher;
pub mod service_account;
pub mod service_account_tokens;
pub mod token_cleaner;
pub mod trust_bundle_publisher;
