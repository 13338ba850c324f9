//! `kubernetes_feature_enabled`: which gates a component runs with.

use crate::metrics::{Gauge, Registry};

/// Shows gates in `registry`: name, stage and whether each is on.
pub fn publish<'a>(registry: &Registry, gates: impl IntoIterator<Item = (&'a str, &'a str, bool)>) {
    let family = registry.family::<Gauge>(
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        &["name", "stage"],
        &[],
    );
    for (name, stage, enabled) in gates {
        family.with(&[name, stage]).set(i64::from(enabled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_shown_with_their_stage() {
        let registry = Registry::new();
        publish(&registry, [("Young", "ALPHA", true), ("Settled", "", false)]);
        let text = registry.text();
        assert!(text.contains("kubernetes_feature_enabled{name=\"Young\",stage=\"ALPHA\"} 1\n"), "{text}");
        assert!(text.contains("kubernetes_feature_enabled{name=\"Settled\",stage=\"\"} 0\n"), "{text}");
    }
}
