//! Feature gates: one row each, and the set that a component runs with.
//!
//! Gates are read where components are wired; pure code receives booleans. Texts and the meaning of `AllAlpha` and
//! `AllBeta` follow Kubernetes' `component-base/featuregate`.

use std::fmt;

/// Maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off unless turned on.
    Alpha,
    /// Most often on.
    Beta,
    /// Enabled, usually permanently.
    Stable,
    /// Will be removed.
    Deprecated,
}

impl Stage {
    /// Label in metrics. Kubernetes: stable features have none.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Stable => "",
            Stage::Deprecated => "DEPRECATED",
        }
    }
}

/// The row of a gate.
pub type Spec = GateSpec<Gate>;

/// The row of a gate of some table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSpec<G: 'static> {
    /// The gate.
    pub gate: G,
    /// Name of the gate on the command line.
    pub name: &'static str,
    /// The number of the enhancement proposal.
    pub kep: u32,
    /// Maturity of the feature.
    pub stage: Stage,
    /// The Kubernetes minor since which it is so.
    pub since: &'static str,
    /// Whether components have it on by default.
    pub default: bool,
    /// Whether it cannot be set to anything else.
    pub locked: bool,
    /// Gates that must be on, too.
    pub requires: &'static [G],
}

/// The stage of a row, and the defaults of gates of that stage: whether they are enabled, and locked.
macro_rules! stage {
    (alpha) => {
        (Stage::Alpha, false, false)
    };
    (beta) => {
        (Stage::Beta, true, false)
    };
    (stable) => {
        (Stage::Stable, true, true)
    };
    (deprecated) => {
        (Stage::Deprecated, false, false)
    };
}

/// A value given by the row itself, or else the default of its stage.
macro_rules! said {
    ($by_stage:expr) => {
        $by_stage
    };
    ($by_stage:expr, $said:literal) => {
        $said
    };
}

macro_rules! gates {
    ($($(#[$doc:meta])* gate!(
        $name:ident, kep = $kep:literal, $stage:ident = $since:literal
        $(, default = $default:literal)? $(, locked = $locked:literal)?, requires = [$($requires:ident),*]
    );)*) => {
        /// A feature that can be turned on or off.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Gate {
            $($(#[$doc])* $name,)*
        }

        /// All gates, in the order of their names' first mention in the documentation.
        pub const GATES: &[Spec] = &[
            $(Spec {
                gate: Gate::$name,
                name: stringify!($name),
                kep: $kep,
                stage: stage!($stage).0,
                since: $since,
                default: said!(stage!($stage).1 $(, $default)?),
                locked: said!(stage!($stage).2 $(, $locked)?),
                requires: &[$(Gate::$requires),*],
            },)*
        ];
    };
}

gates! {
    /// `Toleration.expression`.
    gate!(TaintTolerationCEL, kep = 5500, alpha = "1.37", requires = []);
    /// `Toleration.expression` and `NodeSelectorTerm.matchCELExpressions`.
    gate!(TaintTolerationNodeAffinityCEL, kep = 5500, alpha = "1.37", requires = []);
    /// `SemverLt`, `SemverGt` and `SemverEq` in tolerations and node affinity.
    gate!(TaintTolerationNodeAffinitySemverComparisonOperators, kep = 5721, alpha = "1.37", requires = []);
    /// `DeviceConstraint.cel`.
    gate!(DRACELDeviceConstraint, kep = 5254, alpha = "1.37", requires = []);
    /// `CustomResourceColumnDefinition.expression`.
    gate!(CRDAdditionalPrinterColumnCEL, kep = 4595, alpha = "1.37", requires = []);
    /// `Lt` and `Gt` in tolerations.
    gate!(TaintTolerationComparisonOperators, kep = 5471, alpha = "1.35", requires = []);
    /// Bodies and answers in CBOR.
    gate!(CBORServingAndStorage, kep = 4222, alpha = "1.32", requires = []);
}

/// The gates of the five proposals that Celplane implements.
pub const PROPOSALS: [Gate; 5] = [
    Gate::TaintTolerationCEL,
    Gate::TaintTolerationNodeAffinityCEL,
    Gate::TaintTolerationNodeAffinitySemverComparisonOperators,
    Gate::DRACELDeviceConstraint,
    Gate::CRDAdditionalPrinterColumnCEL,
];

/// A reason to reject a `--feature-gates` flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// No gate has this name.
    #[error("unrecognized feature gate: {0}")]
    Unrecognized(String),
    /// A name without a value.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// A value that is neither true nor false.
    #[error(
        "invalid value of {name}={value}, err: strconv.ParseBool: parsing {}: invalid syntax",
        crate::go_text::quote(value)
    )]
    InvalidValue {
        /// The gate.
        name: String,
        /// The given value.
        value: String,
    },
    /// A gate that cannot be changed.
    #[error("cannot set feature gate {gate} to {value}, feature is locked to {locked}")]
    Locked {
        /// The gate.
        gate: &'static str,
        /// The given value.
        value: bool,
        /// The value that the gate is locked to.
        locked: bool,
    },
    /// A gate is on, and one that it requires is not.
    #[error("{gate} is enabled, but depends on features that are disabled: [{}]", missing.join(" "))]
    MissingDependencies {
        /// The gate.
        gate: &'static str,
        /// The disabled gates that it requires.
        missing: Vec<&'static str>,
    },
}

impl Gate {
    /// The row of this gate.
    #[must_use]
    pub fn spec(self) -> &'static Spec {
        #[expect(clippy::indexing_slicing, reason = "the table has one row for each variant, in the same order")]
        &GATES[self as usize]
    }

    /// Name of the gate on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The gate of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        GATES.iter().find(|spec| spec.name == name).map(|spec| spec.gate)
    }

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

/// The set of enabled features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features {
    enabled: u32,
}

impl Default for Features {
    /// The features that are enabled by default.
    fn default() -> Self {
        let on = GATES.iter().filter(|spec| spec.default);
        on.fold(Self::none(), |features, spec| features.with(spec.gate, true))
    }
}

impl Features {
    /// The empty set.
    #[must_use]
    pub const fn none() -> Self {
        Self { enabled: 0 }
    }

    /// The defaults with the five proposals enabled, as in `celplane up`.
    #[must_use]
    pub fn all_proposals() -> Self {
        PROPOSALS.into_iter().fold(Self::default(), |features, gate| features.with(gate, true))
    }

    /// Whether the feature is on.
    #[must_use]
    pub const fn enabled(self, gate: Gate) -> bool {
        self.enabled & gate.bit() != 0
    }

    /// The same features with one gate changed.
    #[must_use]
    pub const fn with(self, gate: Gate, enabled: bool) -> Self {
        let enabled = if enabled { self.enabled | gate.bit() } else { self.enabled & !gate.bit() };
        Self { enabled }
    }

    /// Whether expressions in tolerations are admitted: either gate of KEP-5500 opens them.
    #[must_use]
    pub const fn toleration_cel(self) -> bool {
        self.enabled(Gate::TaintTolerationCEL) || self.enabled(Gate::TaintTolerationNodeAffinityCEL)
    }

    /// Applies `A=true,B=false`. `AllAlpha` and `AllBeta` set the gates of that stage that the flag does not name.
    ///
    /// # Errors
    /// The first name or value that is not understood, or a gate whose requirements are off.
    pub fn with_flag(self, flag: &str) -> Result<Self, FeatureError> {
        let mut named: Vec<(Gate, bool)> = Vec::new();
        let mut stages: Vec<(Stage, bool)> = Vec::new();
        for (name, value) in parse_flag(flag)? {
            match name {
                "AllAlpha" => stages.push((Stage::Alpha, value)),
                "AllBeta" => stages.push((Stage::Beta, value)),
                _ => {
                    let gate = Gate::from_name(name).ok_or_else(|| FeatureError::Unrecognized(name.to_owned()))?;
                    let spec = gate.spec();
                    if spec.locked && value != spec.default {
                        return Err(FeatureError::Locked { gate: spec.name, value, locked: spec.default });
                    }
                    named.push((gate, value));
                }
            }
        }
        let mut features = self;
        for spec in GATES.iter().filter(|spec| !spec.locked) {
            let stage = stages.iter().rev().find(|(stage, _)| *stage == spec.stage);
            if let Some((_, value)) = stage {
                features = features.with(spec.gate, *value);
            }
        }
        features = named.into_iter().fold(features, |features, (gate, value)| features.with(gate, value));
        features.check_requirements()?;
        Ok(features)
    }

    /// Each gate with its stage as metrics show it, and whether it is on: `kubernetes_feature_enabled`.
    pub fn states(self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES.iter().map(move |spec| (spec.name, spec.stage.label(), self.enabled(spec.gate)))
    }

    fn check_requirements(self) -> Result<(), FeatureError> {
        for spec in GATES.iter().filter(|spec| self.enabled(spec.gate)) {
            let disabled = spec.requires.iter().filter(|gate| !self.enabled(**gate));
            let missing: Vec<_> = disabled.map(|gate| gate.name()).collect();
            if !missing.is_empty() {
                return Err(FeatureError::MissingDependencies { gate: spec.name, missing });
            }
        }
        Ok(())
    }
}

/// Names and values; Go's spellings of booleans are all understood.
fn parse_flag(flag: &str) -> Result<Vec<(&str, bool)>, FeatureError> {
    let mut pairs = Vec::new();
    for part in flag.split(',').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(FeatureError::MissingValue(part.trim().to_owned()));
        };
        let (name, value) = (name.trim(), value.trim());
        let enabled = match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                return Err(FeatureError::InvalidValue { name: name.to_owned(), value: value.to_owned() });
            }
        };
        pairs.push((name, enabled));
    }
    Ok(pairs)
}

impl fmt::Display for Features {
    /// Formats the features as a flag value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = GATES.iter().map(|spec| (spec.name, self.enabled(spec.gate))).collect();
        names.sort_unstable();
        for (index, (name, enabled)) in names.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{name}={enabled}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_gates() {
        for spec in GATES {
            assert_eq!(spec.gate.spec(), spec);
            assert_eq!(Gate::from_name(spec.name), Some(spec.gate));
        }
    }

    #[test]
    fn everything_is_off_by_default_and_the_proposals_are_on_in_up() {
        assert_eq!(Features::default(), Features::none());
        let features = Features::all_proposals();
        assert!(PROPOSALS.into_iter().all(|gate| features.enabled(gate)));
        assert!(!features.enabled(Gate::TaintTolerationComparisonOperators));
    }

    #[test]
    fn flags_override_in_any_order() {
        let features = Features::none().with_flag("TaintTolerationCEL=false, AllAlpha=true,").unwrap();
        assert!(!features.enabled(Gate::TaintTolerationCEL));
        assert!(features.enabled(Gate::CRDAdditionalPrinterColumnCEL));
        let features = Features::all_proposals().with_flag("AllAlpha=0,DRACELDeviceConstraint=T").unwrap();
        assert_eq!(features, Features::none().with(Gate::DRACELDeviceConstraint, true));
        assert_eq!(Features::none().with_flag("AllBeta=true").unwrap(), Features::none());
    }

    #[test]
    fn errors_have_the_texts_of_kubernetes() {
        let text = |flag: &str| Features::none().with_flag(flag).unwrap_err().to_string();
        assert_eq!(text("Nope=true"), "unrecognized feature gate: Nope");
        assert_eq!(text("AllAlpha"), "missing bool value for AllAlpha");
        assert_eq!(
            text("AllAlpha=yes"),
            "invalid value of AllAlpha=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax"
        );
    }

    /// Rows of every stage, as the table would have them.
    #[allow(unreachable_pub, reason = "the macro declares a public table")]
    mod stages {
        use super::super::Stage;

        gates! {
            /// Young.
            gate!(Young, kep = 1, alpha = "1.1", requires = []);
            /// Grown.
            gate!(Grown, kep = 2, beta = "1.1", requires = []);
            /// Grown, but not trusted.
            gate!(Doubted, kep = 3, beta = "1.1", default = false, requires = [Grown]);
            /// Settled.
            gate!(Settled, kep = 4, stable = "1.1", requires = []);
            /// Settled, but not for all.
            gate!(Optional, kep = 5, stable = "1.1", locked = false, requires = []);
            /// Leaving.
            gate!(Leaving, kep = 6, deprecated = "1.1", requires = []);
        }

        type Spec = super::super::GateSpec<Gate>;
    }

    #[test]
    fn a_stage_decides_unless_the_row_does() {
        let row = |spec: &GateSpec<stages::Gate>| (spec.name, spec.stage.label(), spec.default, spec.locked);
        let rows: Vec<_> = stages::GATES.iter().map(row).collect();
        assert_eq!(
            rows,
            [
                ("Young", "ALPHA", false, false),
                ("Grown", "BETA", true, false),
                ("Doubted", "BETA", false, false),
                ("Settled", "", true, true),
                ("Optional", "", true, false),
                ("Leaving", "DEPRECATED", false, false),
            ]
        );
        assert_eq!(stages::GATES[2].requires, [stages::Gate::Grown]);
        let locked = FeatureError::Locked { gate: "Settled", value: false, locked: true };
        assert_eq!(locked.to_string(), "cannot set feature gate Settled to false, feature is locked to true");
    }

    #[test]
    fn text_is_the_flag() {
        let text = Features::none().with(Gate::TaintTolerationCEL, true).to_string();
        assert!(text.contains("TaintTolerationCEL=true,TaintTolerationComparisonOperators=false"), "{text}");
        assert_eq!(Features::none().with_flag(&text).unwrap().to_string(), text);
    }
}
