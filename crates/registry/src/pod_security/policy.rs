//! Levels, versions, and the policy that the labels of a namespace select.

use std::fmt;

use api::field::{Errors, Path};
use api::json::Value;

/// Prefix of the labels.
pub(super) const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

/// A level of the Pod Security Standards, from the weakest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No restrictions.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Follows hardening best practices.
    Restricted,
}

impl Level {
    /// Parses the name of a level.
    ///
    /// # Errors
    /// Kubernetes' text for unknown names.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        match name {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    /// The name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The Kubernetes version whose definition of a level applies. `Latest` is newer than every minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1.x.
    Minor(u64),
    /// The newest definition.
    Latest,
}

impl Version {
    /// Parses `latest` or `v1.x`.
    ///
    /// # Errors
    /// Kubernetes' text for anything else.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let error = "must be \"latest\" or \"v1.x\"";
        let digits = text.strip_prefix("v1.").ok_or(error)?;
        let is_canonical = digits == "0" || !digits.starts_with('0');
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        if !(is_canonical && is_number) {
            return Err(error);
        }
        // Go's `int` has 64 bits with a sign.
        digits.parse::<i64>().ok().and_then(|it| u64::try_from(it).ok()).map(Version::Minor).ok_or(error)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

/// A level as one version defines it: `baseline:v1.34`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version that defines it.
    pub version: Version,
}

impl LevelVersion {
    /// Whether both have the same effect: privileged is the same in every version.
    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

/// The standards of the three modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Violations are rejected.
    pub enforce: LevelVersion,
    /// Violations are recorded in the audit log.
    pub audit: LevelVersion,
    /// Violations are returned as warnings.
    pub warn: LevelVersion,
}

impl Default for Policy {
    /// Privileged in all modes, the latest version.
    fn default() -> Self {
        let standard = LevelVersion { level: Level::Privileged, version: Version::Latest };
        Policy { enforce: standard, audit: standard, warn: standard }
    }
}

impl Policy {
    /// Resolves the labels of a namespace on top of `self`, the defaults.
    ///
    /// A policy results even with errors: enforcement falls back to restricted, audit and warn to privileged.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Value) -> (Policy, Errors) {
        let labels = namespace.field("metadata").field("labels");
        let mut errors = Errors::new();
        let mut policy = *self;
        let enforce = read_mode(labels, "enforce", Level::Restricted, &mut policy.enforce, &mut errors);
        read_mode(labels, "audit", Level::Privileged, &mut policy.audit, &mut errors);
        let warn = read_mode(labels, "warn", Level::Privileged, &mut policy.warn, &mut errors);
        // A stricter enforce level without a warn level also warns, except if the label was not readable.
        let is_readable = enforce.level.is_some_and(|text| Level::parse(text).is_ok());
        if warn.level.is_none() && is_readable && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if warn.version.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether all modes are privileged.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|it| it.level == Level::Privileged)
    }

    fn is_equivalent(&self, other: &Policy) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// Whether pods of a namespace whose enforce standard changes from `old` to this one need to be checked again.
    #[must_use]
    pub fn is_stricter_than(&self, old: &Policy) -> bool {
        let (new, old) = (self.enforce, old.enforce);
        let is_relaxed = new.version == old.version && new.level <= old.level;
        new != old && new.level != Level::Privileged && !is_relaxed
    }

    /// Returns the warning about labels of an exempt namespace that have no effect, if they would have one.
    #[must_use]
    pub fn exempt_warning(&self, namespace: &Value, defaults: &Policy) -> Option<String> {
        if self.is_privileged() || self.is_equivalent(defaults) {
            return None;
        }
        let labels = namespace.field("metadata").field("labels");
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let shown = modes.into_iter().filter(|(mode, standard)| {
            let is_set = ["", "-version"].iter().any(|suffix| label(labels, mode, suffix).is_some());
            standard.level != Level::Privileged && is_set
        });
        let shown: Vec<String> = shown.map(|(mode, standard)| format!("{mode}={standard}")).collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            api::go_text::quote(namespace.field("metadata").text("name")),
            shown.join(", ")
        ))
    }
}

fn label<'a>(labels: &'a Value, mode: &str, suffix: &str) -> Option<&'a str> {
    labels.optional_text(&format!("{LABEL_PREFIX}{mode}{suffix}"))
}

/// The labels of one mode.
struct ModeLabels<'a> {
    level: Option<&'a str>,
    version: Option<&'a str>,
}

fn read_mode<'a>(
    labels: &'a Value,
    mode: &str,
    fallback: Level,
    standard: &mut LevelVersion,
    errors: &mut Errors,
) -> ModeLabels<'a> {
    let (metadata, level, version) = (Path::new("metadata"), label(labels, mode, ""), label(labels, mode, "-version"));
    let at = metadata.child("labels");
    if let Some(text) = level {
        standard.level = Level::parse(text).unwrap_or_else(|detail| {
            errors.invalid(at.key(&format!("{LABEL_PREFIX}{mode}")), text, detail);
            fallback
        });
    }
    if let Some(text) = version {
        standard.version = Version::parse(text).unwrap_or_else(|detail| {
            errors.invalid(at.key(&format!("{LABEL_PREFIX}{mode}-version")), text, detail);
            Version::Latest
        });
    }
    ModeLabels { level, version }
}
