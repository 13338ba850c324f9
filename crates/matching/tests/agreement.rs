//! The verdict of the deduplicating matcher equals naive evaluation, over random taints, labels, tolerations, expressions.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{
    Affinity, Node as NodeView, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
    PodSpecPart, PreferredSchedulingTerm, Taint, Toleration,
};
use api::semver::Version;
use api::time::Timestamp;
use cel::program::Verdict;
use cel_kubernetes::environments::{Dialect, node_affinity, toleration};
use matching::explain::Explainer;
use matching::{CompileCache, Features, Node, PodMatcher, taints};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const VALUES: [&str; 10] = ["", "a", "b", "ab", "5", "-3", "007", "v1.2", "1.10.0", "v2.0.0-rc.1"];
const KEYS: [&str; 5] = ["zone", "version", "gpu.example.com/old", "team", "n"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Pieces of conditions on a taint; some fail for some taints.
fn toleration_expression() -> impl Strategy<Value = String> {
    let field = select(vec!["key", "value", "effect"]);
    let piece = prop_oneof![
        (field.clone(), select(VALUES.to_vec())).prop_map(|(field, value)| format!("taint.{field} == '{value}'")),
        (field, select(VALUES.to_vec())).prop_map(|(field, value)| format!("taint.{field}.startsWith('{value}')")),
        select(VALUES.to_vec()).prop_map(|value| format!("semver.compare(taint.value, '>={}')", plain_version(value))),
        select(KEYS.to_vec()).prop_map(|key| format!("taint.key in ['{key}', 'team']")),
        Just("int(taint.value) > 1".to_owned()),
        Just("has(taint.timeAdded)".to_owned()),
        Just("taint.timeAdded > timestamp('2000-01-01T00:00:00Z')".to_owned()),
        Just("true".to_owned()),
        Just("taint.value.split('.')[1] == '2'".to_owned()),
    ];
    combined(piece)
}

/// Pieces of conditions on labels; some fail for some nodes, some read every label.
fn affinity_expression() -> impl Strategy<Value = String> {
    let key = select(KEYS.to_vec());
    let piece = prop_oneof![
        key.clone().prop_map(|key| format!("'{key}' in node.labels")),
        (key.clone(), select(VALUES.to_vec())).prop_map(|(key, value)| format!("node.labels['{key}'] == '{value}'")),
        (key.clone(), select(VALUES.to_vec()))
            .prop_map(|(key, value)| format!("node.labels[?'{key}'].orValue('5') == '{value}'")),
        key.clone().prop_map(|key| format!("semver(node.labels['{key}'], true).isLessThan(semver('1.5.0'))")),
        (key.clone(), key).prop_map(|(left, right)| format!("node.labels['{left}'] == node.labels['{right}']")),
        Just("node.labels.size() > 2".to_owned()),
        select(VALUES.to_vec()).prop_map(|value| format!("node.labels.exists(key, node.labels[key] == '{value}')")),
        Just("node.labels[node.labels['zone']] == 'a'".to_owned()),
    ];
    combined(piece)
}

fn combined(piece: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    let joined = (piece.clone(), select(vec!["&&", "||"]), piece.clone())
        .prop_map(|(left, operator, right)| format!("({left}) {operator} !({right})"));
    prop_oneof![piece, joined, Just("does not compile".to_owned())]
}

fn plain_version(value: &str) -> String {
    Version::parse_tolerant(value).map_or_else(|_| "1.0.0".to_owned(), |version| version.to_string())
}

fn toleration() -> impl Strategy<Value = Toleration> {
    let operators = vec!["", "Equal", "Exists", "Lt", "Gt", "SemverLt", "SemverGt", "SemverEq", "Bogus"];
    let plain = (
        option::of(select(KEYS.to_vec())),
        select(operators),
        select(VALUES.to_vec()),
        option::of(select(EFFECTS.to_vec())),
    )
        .prop_map(|(key, operator, value, effect)| Toleration {
            key: key.unwrap_or_default().into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.unwrap_or_default().into(),
            ..Toleration::default()
        });
    let expression = toleration_expression()
        .prop_map(|expression| Toleration { expression: expression.into(), ..Toleration::default() });
    prop_oneof![plain, expression]
}

fn taint() -> impl Strategy<Value = Taint> {
    let time = option::of(select(vec![0_i64, 1_700_000_000]));
    (select(KEYS.to_vec()), select(VALUES.to_vec()), select(EFFECTS.to_vec()), time).prop_map(
        |(key, value, effect, time)| Taint {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
            time_added: time.map(|seconds| Timestamp { seconds, nanos: 0 }),
        },
    )
}

fn term() -> impl Strategy<Value = NodeSelectorTerm> {
    let operators =
        vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "SemverLt", "SemverGt", "SemverEq", "Bogus"];
    let requirement = (select(KEYS.to_vec()), select(operators), vec(select(VALUES.to_vec()), 0..2)).prop_map(
        |(key, operator, values)| NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: (!values.is_empty()).then(|| values.into_iter().map(Into::into).collect()),
        },
    );
    (vec(requirement, 0..2), vec(affinity_expression(), 0..2)).prop_map(|(match_expressions, expressions)| {
        NodeSelectorTerm {
            match_expressions,
            match_cel_expressions: expressions.into_iter().map(Into::into).collect(),
            ..NodeSelectorTerm::default()
        }
    })
}

fn spec() -> impl Strategy<Value = PodSpec> {
    let preferred = (0..5_i32, term()).prop_map(|(weight, preference)| PreferredSchedulingTerm { weight, preference });
    (vec(toleration(), 0..4), option::of(vec(term(), 0..3)), vec(preferred, 0..3)).prop_map(
        |(tolerations, required, preferred)| {
            PodSpec::from(PodSpecPart {
                tolerations,
                affinity: Some(Affinity {
                    node_affinity: Some(NodeAffinity {
                        required_during_scheduling_ignored_during_execution: required
                            .map(|node_selector_terms| NodeSelector { node_selector_terms }),
                        preferred_during_scheduling_ignored_during_execution: preferred,
                    }),
                    ..Affinity::default()
                }),
                ..PodSpecPart::default()
            })
        },
    )
}

fn node() -> impl Strategy<Value = NodeView> {
    (vec(taint(), 0..4), btree_map(select(KEYS.to_vec()), select(VALUES.to_vec()), 0..4)).prop_map(
        |(taints, labels)| {
            let mut node = NodeView::default();
            node.spec.taints = taints;
            node.metadata.labels = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            node
        },
    )
}

fn features() -> impl Strategy<Value = Features> {
    // Mostly on: off is simple.
    let gate = || prop::bool::weighted(0.85);
    (gate(), gate(), gate(), gate()).prop_map(|(cel, affinity_cel, semver, comparison)| Features {
        cel,
        affinity_cel,
        semver,
        comparison,
    })
}

/// Straight from the text of the proposals, without caches and prepared forms.
struct Naive {
    features: Features,
    toleration: cel_kubernetes::compile::Environment,
    affinity: cel_kubernetes::compile::Environment,
}

impl Naive {
    fn tolerates(&self, toleration: &Toleration, taint: &Taint) -> bool {
        if !toleration.expression.is_empty() {
            let Ok(program) = self.toleration.compile(&toleration.expression) else { return false };
            let seen = toleration::Taint {
                key: &taint.key,
                value: &taint.value,
                effect: &taint.effect,
                time_added: taint.time_added.map(|time| cel::value::Timestamp::new(time.seconds, time.nanos).unwrap()),
            };
            return self.features.cel && program.eval(&seen).verdict() == Verdict::TRUE;
        }
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        if !fits(&toleration.key, &taint.key) || !fits(&toleration.effect, &taint.effect) {
            return false;
        }
        let numbers = || {
            let canonical = |text: &str| text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            Some((canonical(&taint.value)?, canonical(&toleration.value)?)).filter(|_| self.features.comparison)
        };
        let versions = || self.versions(&taint.value, &toleration.value);
        match toleration.operator.as_str() {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            "Lt" => numbers().is_some_and(|(taint, own)| taint < own),
            "Gt" => numbers().is_some_and(|(taint, own)| taint > own),
            "SemverLt" => versions().is_some_and(|(taint, own)| taint < own),
            "SemverGt" => versions().is_some_and(|(taint, own)| taint > own),
            "SemverEq" => versions().is_some_and(|(taint, own)| taint == own),
            _ => false,
        }
    }

    fn versions(&self, found: &str, wanted: &str) -> Option<(Version, Version)> {
        let parse = |text: &str| Version::parse_tolerant(text).ok();
        Some((parse(found)?, parse(wanted)?)).filter(|_| self.features.semver)
    }

    fn requirement(&self, requirement: &NodeSelectorRequirement, node: &NodeView) -> bool {
        let values = requirement.values.as_deref().unwrap_or_default();
        let label = node.metadata.labels.get(&requirement.key);
        let count_is_right = match requirement.operator.as_str() {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => values.len() == 1,
        };
        let is_label_value = |value: &api::json::Text| api::names::label_value(value).is_empty();
        let is_semver = requirement.operator.starts_with("Semver");
        if !count_is_right || (!is_semver && !values.iter().all(is_label_value)) {
            return false;
        }
        let numbers = || Some((label?.parse::<i64>().ok()?, values[0].parse::<i64>().ok()?));
        let versions = || self.versions(label?, &values[0]);
        match requirement.operator.as_str() {
            "In" => label.is_some_and(|label| values.contains(label)),
            "NotIn" => label.is_none_or(|label| !values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => numbers().is_some_and(|(label, own)| label > own),
            "Lt" => numbers().is_some_and(|(label, own)| label < own),
            "SemverLt" => versions().is_some_and(|(label, own)| label < own),
            "SemverGt" => versions().is_some_and(|(label, own)| label > own),
            "SemverEq" => versions().is_some_and(|(label, own)| label == own),
            _ => false,
        }
    }

    fn term(&self, term: &NodeSelectorTerm, node: &NodeView) -> bool {
        let labels = matching::node::labels(&node.metadata.labels);
        let is_empty = term.match_expressions.is_empty() && term.match_cel_expressions.is_empty();
        let holds = |text: &api::json::Text| {
            let Ok(program) = self.affinity.compile(text) else { return false };
            let seen = node_affinity::Node { labels: &labels };
            self.features.affinity_cel && program.eval(&seen).verdict() == Verdict::TRUE
        };
        !is_empty
            && term.match_expressions.iter().all(|it| self.requirement(it, node))
            && term.match_cel_expressions.iter().all(holds)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deduplicated_verdicts_are_those_of_naive_evaluation(
        specs in vec(spec(), 1..4),
        nodes in vec(node(), 1..8),
        features in features(),
    ) {
        let cache = CompileCache::new(NonZeroUsize::new(4).unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let sets = taints::Sets::new();
        let naive = Naive {
            features,
            toleration: toleration::environment(Dialect::CELPLANE).unwrap(),
            affinity: node_affinity::environment(Dialect::CELPLANE).unwrap(),
        };
        let seen: Vec<Node> = nodes.iter().map(|node| Node::new(node, &sets)).collect();
        for spec in &specs {
            let matcher = PodMatcher::new(spec, &cache, &features);
            let explainer = Explainer { spec, cache: &cache, features };
            let affinity = spec.affinity.as_ref().unwrap().node_affinity.as_ref().unwrap();
            // The second round is answered from memory.
            for (view, node) in nodes.iter().zip(&seen).chain(nodes.iter().zip(&seen)) {
                let tolerated = |taint: &Taint| spec.tolerations.iter().any(|it| naive.tolerates(it, taint));
                let hard = view.spec.taints.iter().position(|it| it.effect != "PreferNoSchedule" && !tolerated(it));
                let soft = view.spec.taints.iter().filter(|it| it.effect == "PreferNoSchedule" && !tolerated(it)).count();
                let verdict = matcher.taints(&node.taints);
                prop_assert_eq!(verdict.first_untolerated.map(usize::from), hard);
                prop_assert_eq!(usize::from(verdict.intolerable_soft), soft);

                let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
                let expected = required.is_none_or(|it| it.node_selector_terms.iter().any(|it| naive.term(it, view)));
                prop_assert_eq!(matcher.required().matches(node), expected);
                prop_assert_eq!(matcher.fits(node), expected && hard.is_none());

                let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
                let score: i64 =
                    preferred.iter().filter(|it| naive.term(&it.preference, view)).map(|it| i64::from(it.weight)).sum();
                prop_assert_eq!(matcher.preferred().score(node), score);

                for taint in &view.spec.taints {
                    prop_assert_eq!(explainer.taint(taint).tolerated_by, matcher.tolerations().find(taint));
                }
                let reasons = explainer.required(node);
                prop_assert_eq!(reasons.is_none_or(|terms| terms.iter().any(|term| term.matches)), expected);
                let reasons = explainer.preferred(node);
                let explained = reasons.iter().filter(|term| term.matches).filter_map(|term| term.weight);
                prop_assert_eq!(explained.map(i64::from).sum::<i64>(), score);
            }
        }
    }
}
