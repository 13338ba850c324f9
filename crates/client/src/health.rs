//! Health of a component: named checks that its parts add, and that `/readyz` runs.

use locks::Mutex;
use std::sync::Arc;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type NamedCheck = (Arc<str>, Check);

/// The checks of a component. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Vec<NamedCheck>>>,
}

impl Health {
    /// No checks yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check; it replaces one of the same name.
    pub fn add(&self, name: impl Into<Arc<str>>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let (name, check): NamedCheck = (name.into(), Arc::new(check));
        let mut checks = self.checks.lock();
        checks.retain(|(known, _)| *known != name);
        checks.push((name, check));
    }

    /// Results of all checks, in the order in which they were added.
    #[must_use]
    pub fn results(&self) -> Vec<(Arc<str>, Result<(), String>)> {
        // Checks run without the lock: they may add others.
        let checks = self.checks.lock().clone();
        checks.into_iter().map(|(name, check)| (name, check())).collect()
    }

    /// The checks that fail, each with its reason.
    #[must_use]
    pub fn failures(&self) -> Vec<(Arc<str>, String)> {
        self.results().into_iter().filter_map(|(name, result)| Some((name, result.err()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_check_of_a_name_counts() {
        let health = Health::new();
        health.add("a", || Err("broken".to_owned()));
        health.add("b", || Ok(()));
        assert_eq!(health.failures(), [(Arc::from("a"), "broken".to_owned())]);
        health.add("a", || Ok(()));
        assert!(health.failures().is_empty() && health.results().len() == 2);
    }
}
