//! Reasons why claims cannot be allocated, in Kubernetes' words.

use crate::RESULTS_MAX;

/// A reason why claims cannot be allocated. [`Error::is_about_node`] returns whether other nodes should be
/// tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice has an unreadable node selection.
    #[error("gather pool information: failed to perform node selection for {of}: {problem}")]
    NodeSelection {
        /// The slice, or the device and its slice.
        of: String,
        /// Description of the problem.
        problem: String,
    },
    /// A device has an unreadable node selection.
    #[error("{0}")]
    DeviceNodeSelection(String),
    /// A request cannot be met anywhere.
    #[error("claim {claim}, {of}: {problem}")]
    Request {
        /// The claim, with its namespace.
        claim: String,
        /// The request, or a part of it.
        of: String,
        /// Description of the problem.
        problem: RequestProblem,
    },
    /// A claim requests too many devices.
    #[error("claim {claim}: number of requested devices {requested} exceeds the claim limit of {RESULTS_MAX}")]
    TooManyDevices {
        /// The claim, with its namespace.
        claim: String,
        /// Minimum number of requested devices.
        requested: i64,
    },
    /// A constraint cannot be used.
    #[error("claim {claim}, constraint #{index}: {problem}")]
    Constraint {
        /// The claim, with its namespace.
        claim: String,
        /// Index of the constraint.
        index: usize,
        /// Description of the problem.
        problem: ConstraintProblem,
    },
    /// A selector does not compile.
    #[error("{of}: selector #{index}: CEL compile error: {error}")]
    SelectorDoesNotCompile {
        /// The claim or class.
        of: String,
        /// Index of the selector.
        index: usize,
        /// Message of the compiler.
        error: String,
    },
    /// A selector gives no answer about a device.
    #[error("{of}: selector #{index} on device {device}: CEL runtime error: {error}")]
    SelectorFails {
        /// The claim or class.
        of: String,
        /// Index of the selector.
        index: usize,
        /// The device, with driver and pool.
        device: String,
        /// Evaluation error.
        error: String,
    },
    /// A derived attribute does not compile.
    #[error("compile derived attribute {name} failed: {error}")]
    DerivedAttributeDoesNotCompile {
        /// The attribute.
        name: String,
        /// Message of the compiler.
        error: String,
    },
    /// A derived attribute has no value for a device.
    #[error("evaluate derived attribute {name} on device {device} failed: {error}")]
    DerivedAttributeFails {
        /// The attribute.
        name: String,
        /// The device, with driver and pool.
        device: String,
        /// Evaluation error.
        error: String,
    },
    /// An amount cannot be computed with.
    #[error("claim {claim}, request {request}: checking capacity for device {device}: {problem}")]
    Capacity {
        /// The claim, with its namespace.
        claim: String,
        /// The request.
        request: String,
        /// The device.
        device: String,
        /// Description of the problem.
        problem: String,
    },
    /// A slice selects nodes in a way that an allocation cannot express.
    #[error("create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms")]
    NodeSelectorTerms {
        /// The claim's name.
        claim: String,
        /// Number of terms of the slice.
        terms: usize,
    },
    /// No devices were found, and some pools are invalid.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// A constraint over a set of devices gives no answer.
    #[error("node {node}: claim {claim}: constraint #{index} on devices {devices}: CEL runtime error: {error}")]
    ConstraintFails {
        /// The node.
        node: String,
        /// The claim, with its namespace.
        claim: String,
        /// Index of the constraint.
        index: usize,
        /// The set in canonical order, shortened.
        devices: String,
        /// Evaluation error.
        error: String,
    },
    /// The expressions of a scheduling attempt cost too much altogether.
    #[error("filter operation aborted: device constraints cost more than {limit} in one scheduling attempt")]
    TooCostly {
        /// Cost limit.
        limit: u64,
    },
    /// The search takes longer than its attempt can wait.
    #[error("the search for devices continues in the background")]
    OutOfPatience,
    /// The caller cancelled the search.
    #[error("filter operation aborted: {0}")]
    Interrupted(String),
}

/// A problem of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestProblem {
    /// Alternatives are not allowed.
    #[error("has subrequests, but the DRAPrioritizedList feature is disabled")]
    SubrequestsOff,
    /// Parts of devices are not allowed.
    #[error("has capacity requests, but the DRAConsumableCapacity feature is disabled")]
    CapacityOff,
    /// Derived attributes are not allowed.
    #[error("cannot handle request with derived attributes, the feature is disabled")]
    DerivedAttributesOff,
    /// Access for administrators is not allowed.
    #[error("admin access is requested, but the feature is disabled")]
    AdminAccessOff,
    /// A selector of a kind that is not known.
    #[error("CEL expression empty (unsupported selector type?)")]
    EmptySelector,
    /// No class.
    #[error("missing device class name (unsupported request type?)")]
    NoClassName,
    /// A class that does not exist.
    #[error("could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found")]
    NoClass {
        /// Name of the class.
        class: String,
    },
    /// All devices, and it cannot be known which these are.
    #[error("asks for all devices, but resource pool {pool} is currently being updated")]
    PoolIncomplete {
        /// The pool, with its driver.
        pool: String,
    },
    /// A request for all devices, with duplicates among them.
    #[error("asks for all devices, but resource pool {pool} is currently invalid")]
    PoolInvalid {
        /// The pool, with its driver.
        pool: String,
    },
    /// An allocation mode that is not known.
    #[error("unsupported count mode {mode}")]
    UnknownMode {
        /// The unknown value.
        mode: String,
    },
    /// All devices, and one of them is excluded by a constraint.
    #[error("cannot add device {device} because a claim constraint would not be satisfied")]
    AllExcludedByConstraint {
        /// The device, with driver and pool.
        device: String,
    },
}

/// A problem of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstraintProblem {
    /// A constraint of a kind that is not known.
    #[error("empty constraint (unsupported constraint type?)")]
    Unknown,
    /// Expressions are not allowed.
    #[error("device constraint CEL expressions require feature gate DRACELDeviceConstraint")]
    GateOff,
    /// The expression does not compile.
    #[error("CEL compile error: {0}")]
    DoesNotCompile(String),
}

impl Error {
    /// The error without node and devices: nodes with equal failures have the same summary.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Error::ConstraintFails { claim, index, error, .. } => {
                format!("node(s): constraint #{index} of claim {claim} failed: CEL runtime error: {error}")
            }
            other => other.to_string(),
        }
    }

    /// Whether other nodes should be tried: the pod is rejected only if none of them fits either.
    #[must_use]
    pub fn is_about_node(&self) -> bool {
        matches!(self, Error::InvalidPools | Error::ConstraintFails { .. })
    }

    /// Whether an expression does not compile, or fails.
    #[must_use]
    pub fn is_about_expression(&self) -> bool {
        self.does_not_compile()
            || matches!(
                self,
                Error::SelectorFails { .. } | Error::DerivedAttributeFails { .. } | Error::ConstraintFails { .. }
            )
    }

    /// Whether an expression does not compile.
    #[must_use]
    pub fn does_not_compile(&self) -> bool {
        matches!(
            self,
            Error::SelectorDoesNotCompile { .. }
                | Error::DerivedAttributeDoesNotCompile { .. }
                | Error::Constraint { problem: ConstraintProblem::DoesNotCompile(_), .. }
        )
    }
}

/// Adds Kubernetes' hint for a missing key.
pub(crate) fn with_hint(error: &str) -> String {
    if error.contains("no such key:") {
        format!(
            "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        )
    } else {
        error.to_owned()
    }
}
