//! Versions of the API to serve: `--runtime-config`, as in Kubernetes.
//!
//! Versions with `alpha` in their name are off until someone turns them on, all others are on until someone turns them
//! off. What is off is not there: not in discovery, not in OpenAPI, and its paths lead nowhere.

use super::api_version;

/// Enabled and disabled versions from the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Group and version as objects name them, or `api/all`, `api/alpha` …, and whether they are served.
    given: Vec<(String, bool)>,
}

/// A reason to reject a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeConfigError {
    /// The value is neither true nor false.
    #[error("`{0}` must be `group/version=true` or `group/version=false`")]
    Value(String),
    /// The version does not exist.
    #[error("unknown api groups {0}")]
    Unknown(String),
}

impl std::str::FromStr for RuntimeConfig {
    type Err = RuntimeConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut given = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let value = value.trim().parse().map_err(|_| RuntimeConfigError::Value(pair.to_owned()))?;
            let name = name.trim();
            let versions =
                |(group, versions): &(&str, &[&str])| versions.iter().any(|it| api_version(group, it) == name);
            if !matches!(name, "api/all" | "api/ga" | "api/beta" | "api/alpha") && !super::groups().iter().any(versions)
            {
                return Err(RuntimeConfigError::Unknown(name.to_owned()));
            }
            given.push((name.to_owned(), value));
        }
        Ok(Self { given })
    }
}

impl RuntimeConfig {
    /// Whether a version of a group is served.
    #[must_use]
    pub fn serves(&self, group: &str, version: &str) -> bool {
        let level = match version {
            it if it.contains("alpha") => "api/alpha",
            it if it.contains("beta") => "api/beta",
            _ => "api/ga",
        };
        let said = |name: &str| self.given.iter().rev().find(|(it, _)| it == name).map(|(_, served)| *served);
        // A setting for one version takes precedence over a setting for many.
        let said = said(&api_version(group, version)).or_else(|| said(level)).or_else(|| said("api/all"));
        said.unwrap_or(level != "api/alpha")
    }

    /// Groups in the order of discovery, with those of their versions that are served.
    pub fn groups(&self) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        let served = |(group, versions): &(&'static str, &'static [&'static str])| {
            (*group, versions.iter().copied().filter(|version| self.serves(group, version)).collect::<Vec<_>>())
        };
        super::groups().iter().map(served).filter(|(_, versions)| !versions.is_empty())
    }

    /// Whether a group is served in a version.
    #[must_use]
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        super::has_version(group, version) && self.serves(group, version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, group: &str, version: &str, served: bool) {
        assert_eq!(config.parse::<RuntimeConfig>().unwrap().serves(group, version), served, "{config}");
    }

    #[test]
    fn alpha_is_off_until_it_is_turned_on() {
        check("", "resource.k8s.io", "v1alpha3", false);
        check("", "resource.k8s.io", "v1beta1", true);
        check("resource.k8s.io/v1alpha3=true", "resource.k8s.io", "v1alpha3", true);
        check("resource.k8s.io/v1alpha3", "resource.k8s.io", "v1alpha3", true);
        check("api/all=true", "resource.k8s.io", "v1alpha3", true);
        check("api/all=false,v1=true", "", "v1", true);
        check("api/all=false,v1=true", "apps", "v1", false);
        check("api/beta=false", "resource.k8s.io", "v1beta2", false);
        check("resource.k8s.io/v1beta1=true,api/beta=false", "resource.k8s.io", "v1beta1", true);
    }

    #[test]
    fn invalid_configuration_is_rejected() {
        assert!("apps/v1=maybe".parse::<RuntimeConfig>().is_err());
        assert_eq!("apps/v7=true".parse::<RuntimeConfig>(), Err(RuntimeConfigError::Unknown("apps/v7".to_owned())));
    }
}
