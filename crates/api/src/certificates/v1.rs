//! `certificates.k8s.io/v1`: requests for certificates.

use std::collections::BTreeMap;

use crate::json::Text;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// Somebody asks for a certificate.
    pub struct CertificateSigningRequest("certificates.k8s.io", "v1") {
        pub spec: CertificateSigningRequestSpec,
        pub status: CertificateSigningRequestStatus,
    }
}

view! {
    /// Who asks, and for what.
    pub struct CertificateSigningRequestSpec {
        pub request: Text,
        pub signer_name: Text,
        pub expiration_seconds: Option<i32>,
        pub usages: Vec<Text>,
        pub username: Text,
        pub uid: Text,
        pub groups: Vec<Text>,
        pub extra: BTreeMap<Text, Vec<Text>>,
    }

    /// What became of it.
    pub struct CertificateSigningRequestStatus {
        pub conditions: Vec<CertificateSigningRequestCondition>,
        pub certificate: Text,
    }

    /// A decision about it.
    pub struct CertificateSigningRequestCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub reason: Text,
        pub message: Text,
        pub last_update_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
    }
}
