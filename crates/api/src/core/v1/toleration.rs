//! Tolerations: which taints a pod can live with.
//!
//! `expression` is the field of KEP-5500; it is part of a toleration's identity. Whether a toleration tolerates a taint
//! is decided by `matching`.

use crate::json::Text;
use crate::view::view;

view! {
    /// A taint, or a set of taints, that a pod tolerates.
    pub struct Toleration {
        pub key: Text,
        pub operator: Text,
        pub value: Text,
        pub effect: Text,
        pub toleration_seconds: Option<i64>,
        pub expression: Text,
    }
}

/// Comparison of a toleration's value with a taint's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TolerationOperator {
    /// Any value.
    Exists,
    /// The values are equal.
    Equal,
    /// A taint whose number is less (KEP-5471).
    Lt,
    /// A taint whose number is greater (KEP-5471).
    Gt,
    /// A taint whose version is less (KEP-5721).
    SemverLt,
    /// A taint whose version is greater (KEP-5721).
    SemverGt,
    /// A taint whose version is equal (KEP-5721).
    SemverEq,
}

impl TolerationOperator {
    /// The operator of this name; an empty name means `Equal`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            "Lt" => Self::Lt,
            "Gt" => Self::Gt,
            "SemverLt" => Self::SemverLt,
            "SemverGt" => Self::SemverGt,
            "SemverEq" => Self::SemverEq,
            _ => return None,
        })
    }

    /// Whether versions are compared.
    #[must_use]
    pub fn is_semver(self) -> bool {
        matches!(self, Self::SemverLt | Self::SemverGt | Self::SemverEq)
    }

    /// Whether numbers are compared.
    #[must_use]
    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Lt | Self::Gt)
    }
}
