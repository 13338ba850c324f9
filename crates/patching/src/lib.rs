//! Changes to Kubernetes objects as data.
//!
//! Pure: documents, types and a time are arguments; results are documents or errors. The API server maps the errors to
//! HTTP responses.
//!
//! - [`patch`]: JSON patch, merge patch and strategic merge patch.
//! - [`apply`]: server-side apply, and the owners of fields after any write.
//! - [`policy`]: the mutations of admission policies.

pub mod apply;
pub mod patch;
pub mod policy;
