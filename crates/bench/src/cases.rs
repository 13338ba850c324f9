//! The expressions that placement runs most, with an input and the verdict that every engine must give.

/// One expression, what it reads and what it must answer.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name in the table.
    pub name: &'static str,
    /// The expression.
    pub expression: &'static str,
    /// Input of the expression.
    pub input: Input,
    /// Expected verdict.
    pub verdict: bool,
}

/// The variables of an expression.
#[derive(Debug, Clone)]
pub enum Input {
    /// `taint.key`, `taint.value`, `taint.effect`.
    Taint([(&'static str, &'static str); 3]),
    /// `node.labels`.
    Node(Vec<(String, String)>),
}

const TAINT: Input = Input::Taint([("key", "env.example.com/staging"), ("value", "v1.29.3"), ("effect", "NoSchedule")]);

/// Number of labels of the node, as on nodes of large providers.
pub const LABEL_COUNT: usize = 33;

/// All cases, in the order of the table.
#[must_use]
pub fn all() -> Vec<Case> {
    let taint = |name, expression, verdict| Case { name, expression, input: TAINT, verdict };
    vec![
        taint("startsWith", "taint.key.startsWith('env.example.com/')", true),
        taint("or", "taint.key == 'dedicated' || taint.key == 'env.example.com/staging'", true),
        taint("semver", "semver(taint.value, true).isGreaterThan(semver('1.28.0'))", true),
        taint("regex", r"taint.value.matches('^v[0-9]+\\.[0-9]+\\.[0-9]+$')", true),
        Case {
            name: "exists",
            expression: "node.labels.exists(k, k.startsWith('gpu.') && node.labels[k] == 'true')",
            input: Input::Node(labels()),
            // No label decides it early, so the order in which an engine visits them does not matter.
            verdict: false,
        },
    ]
}

fn labels() -> Vec<(String, String)> {
    let mut labels: Vec<_> = (2..LABEL_COUNT)
        .map(|number| (format!("feature.node.kubernetes.io/cpu-{number:02}"), "true".to_owned()))
        .collect();
    labels.push(("topology.kubernetes.io/zone".into(), "eu-west-1a".into()));
    labels.push(("gpu.example.com/present".into(), "false".into()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_has_the_stated_number_of_distinct_labels() {
        let keys: std::collections::BTreeSet<_> = labels().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), LABEL_COUNT);
    }
}
