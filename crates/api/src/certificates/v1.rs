//! `certificates.k8s.io/v1`: requests for certificates.

use std::collections::BTreeMap;

use crate::json::Text;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// A request for a certificate.
    pub struct CertificateSigningRequest("certificates.k8s.io", "v1") {
        pub spec: CertificateSigningRequestSpec,
        pub status: CertificateSigningRequestStatus,
    }
}

view! {
    /// The requester, and the requested certificate.
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

    /// Decision on a request, and the issued certificate.
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
