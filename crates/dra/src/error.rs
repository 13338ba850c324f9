//! Why claims cannot be allocated, in Kubernetes' words.

use crate::RESULTS_MAX;

/// Why claims cannot be allocated. [`Error::is_about_node`] tells whether other nodes are worth a try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice says in a way that cannot be read from which nodes its devices can be used.
    #[error("gather pool information: failed to perform node selection for {of}: {problem}")]
    NodeSelection {
        /// The slice, or the device and its slice.
        of: String,
        /// What is wrong.
        problem: String,
    },
    /// A device says in a way that cannot be read from which nodes it can be used.
    #[error("{0}")]
    DeviceNodeSelection(String),
    /// A request cannot be met anywhere.
    #[error("claim {claim}, {of}: {problem}")]
    Request {
        /// The claim, with its namespace.
        claim: String,
        /// The request, or a part of it.
        of: String,
        /// What is wrong.
        problem: RequestProblem,
    },
    /// A claim asks for too many devices.
    #[error("claim {claim}: number of requested devices {requested} exceeds the claim limit of {RESULTS_MAX}")]
    TooManyDevices {
        /// The claim, with its namespace.
        claim: String,
        /// How many it asks for at least.
        requested: i64,
    },
    /// A constraint cannot be used.
    #[error("claim {claim}, constraint #{index}: {problem}")]
    Constraint {
        /// The claim, with its namespace.
        claim: String,
        /// Which constraint.
        index: usize,
        /// What is wrong.
        problem: ConstraintProblem,
    },
    /// A selector does not compile.
    #[error("{of}: selector #{index}: CEL compile error: {error}")]
    SelectorDoesNotCompile {
        /// The claim or class.
        of: String,
        /// Which selector.
        index: usize,
        /// The compiler's words.
        error: String,
    },
    /// A selector gives no answer about a device.
    #[error("{of}: selector #{index} on device {device}: CEL runtime error: {error}")]
    SelectorFails {
        /// The claim or class.
        of: String,
        /// Which selector.
        index: usize,
        /// The device, with driver and pool.
        device: String,
        /// What happened.
        error: String,
    },
    /// A derived attribute does not compile.
    #[error("compile derived attribute {name} failed: {error}")]
    DerivedAttributeDoesNotCompile {
        /// The attribute.
        name: String,
        /// The compiler's words.
        error: String,
    },
    /// A derived attribute has no value for a device.
    #[error("evaluate derived attribute {name} on device {device} failed: {error}")]
    DerivedAttributeFails {
        /// The attribute.
        name: String,
        /// The device, with driver and pool.
        device: String,
        /// What happened.
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
        /// What is wrong.
        problem: String,
    },
    /// A slice selects nodes in a way that an allocation cannot repeat.
    #[error("create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms")]
    NodeSelectorTerms {
        /// The claim's name.
        claim: String,
        /// How many terms the slice has.
        terms: usize,
    },
    /// Nothing was found, and some pools could not be used.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// A constraint over a set of devices gives no answer.
    #[error("node {node}: claim {claim}: constraint #{index} on devices {devices}: CEL runtime error: {error}")]
    ConstraintFails {
        /// The node.
        node: String,
        /// The claim, with its namespace.
        claim: String,
        /// Which constraint.
        index: usize,
        /// The set in canonical order, shortened.
        devices: String,
        /// What happened.
        error: String,
    },
    /// The expressions of a scheduling attempt cost too much altogether.
    #[error("filter operation aborted: device constraints cost more than {limit} in one scheduling attempt")]
    TooCostly {
        /// What they may cost.
        limit: u64,
    },
    /// The search takes longer than its attempt can wait.
    #[error("the search for devices goes on elsewhere")]
    OutOfPatience,
    /// The caller wants no answer any more.
    #[error("filter operation aborted: {0}")]
    Interrupted(String),
}

/// What is wrong with a request.
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
        /// Its name.
        class: String,
    },
    /// All devices, and it cannot be known which these are.
    #[error("asks for all devices, but resource pool {pool} is currently being updated")]
    PoolIncomplete {
        /// The pool, with its driver.
        pool: String,
    },
    /// All devices, and some cannot be told apart.
    #[error("asks for all devices, but resource pool {pool} is currently invalid")]
    PoolInvalid {
        /// The pool, with its driver.
        pool: String,
    },
    /// An allocation mode that is not known.
    #[error("unsupported count mode {mode}")]
    UnknownMode {
        /// What stands there.
        mode: String,
    },
    /// All devices, and one of them is excluded by a constraint.
    #[error("cannot add device {device} because a claim constraint would not be satisfied")]
    AllExcludedByConstraint {
        /// The device, with driver and pool.
        device: String,
    },
}

/// What is wrong with a constraint.
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
    /// Other nodes are worth a try: the pod is only refused if none of them fits either.
    #[must_use]
    pub fn is_about_node(&self) -> bool {
        matches!(self, Error::InvalidPools | Error::ConstraintFails { .. })
    }

    /// An expression does not compile, or gives no answer.
    #[must_use]
    pub fn is_about_expression(&self) -> bool {
        self.does_not_compile()
            || matches!(
                self,
                Error::SelectorFails { .. } | Error::DerivedAttributeFails { .. } | Error::ConstraintFails { .. }
            )
    }

    /// An expression does not compile.
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

/// What Kubernetes adds where a key is missing.
pub(crate) fn with_hint(error: &str) -> String {
    if error.contains("no such key:") {
        format!(
            "{error}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        )
    } else {
        error.to_owned()
    }
}
