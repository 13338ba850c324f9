//! The Kubernetes release whose API is implemented: one number, and the texts made of it.

/// The minor version as a literal, for [`concat!`].
macro_rules! minor {
    () => {
        38
    };
}

/// The minor version of Kubernetes 1.
pub const MINOR: u32 = minor!();
/// The version, for example in OpenAPI documents.
pub const VERSION: &str = concat!("1.", minor!());
/// The release.
pub const RELEASE: &str = concat!("v1.", minor!(), ".0-alpha.0");
/// The release as programs report it.
pub const BUILD: &str = concat!("v1.", minor!(), ".0-alpha.0+celplane-", env!("CARGO_PKG_VERSION"));
