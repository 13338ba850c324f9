//! Matching of tolerations and taints.
//!
//! All components use these rules: scheduler plugins, DaemonSet and taint-eviction controllers, kubelet
//! admission. Follows `ToleratesTaint` in Kubernetes `api/core/v1/toleration.go`; expressions follow KEP-5500,
//! versions KEP-5721.

pub mod resolve;

use std::cmp::Ordering;

use api::core::v1::{self, Taint, TaintEffect, TolerationOperator};
use api::features::Gate;
use api::json::Text;
use api::semver::Version;

use crate::expressions::{CompileCache, Outcome, TolerationExpression};
use crate::features::Features;
use crate::taints::{self, Set};

/// The compiled tolerations of a pod.
#[derive(Debug, Default)]
pub struct Tolerations {
    list: Box<[Toleration]>,
}

/// A compiled toleration.
#[derive(Debug)]
pub struct Toleration {
    /// Empty for every key.
    key: Text,
    /// Empty for every effect.
    effect: Text,
    rule: Rule,
    seconds: Option<i64>,
}

/// Condition of a toleration on a taint of its key and effect.
#[derive(Debug)]
pub(crate) enum Rule {
    Exists,
    Equal(Text),
    Number(Ordering, i64),
    Version(Ordering, Version),
    Expression(TolerationExpression),
    /// Tolerates nothing.
    Never(UnusableReason),
}

/// A reason why a toleration or a requirement can never match.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnusableReason {
    /// The required gate is disabled.
    GateOff(Gate),
    /// The operator is unknown.
    UnknownOperator(Text),
    /// The value is not a canonical whole number.
    NotANumber(Text),
    /// The value is not a version.
    NotAVersion(String),
    /// The expression does not compile.
    DoesNotCompile(String),
}

/// Effect of `NoExecute` taints on a running pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayDuration {
    /// The pod does not tolerate them and must be evicted.
    No,
    /// The pod tolerates them for this many seconds.
    Seconds(i64),
    /// The pod tolerates them.
    Forever,
}

impl Tolerations {
    /// Compiles the tolerations of a pod. Unusable ones tolerate nothing.
    pub fn new(tolerations: &[v1::Toleration], cache: &CompileCache, features: &Features) -> Self {
        Tolerations { list: tolerations.iter().map(|it| Toleration::new(it, cache, features)).collect() }
    }

    /// The first toleration that tolerates the taint.
    pub fn find(&self, taint: &Taint) -> Option<usize> {
        self.list.iter().position(|toleration| toleration.tolerates(taint))
    }

    /// Whether a taint is tolerated.
    pub fn tolerate(&self, taint: &Taint) -> bool {
        self.list.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// The first of the taints that counts and is not tolerated.
    pub fn first_untolerated(&self, taints: &[Taint], counts: impl Fn(&Taint) -> bool) -> Option<usize> {
        taints.iter().position(|taint| counts(taint) && !self.tolerate(taint))
    }

    /// Returns the number of taints with the effect `PreferNoSchedule` that are not tolerated; tolerations of
    /// other effects do not count.
    pub fn intolerable_soft_count(&self, taints: &[Taint]) -> usize {
        let soft = taints.iter().filter(|taint| taints::is_soft(taint));
        soft.filter(|taint| !self.tolerate(taint)).count()
    }

    /// Returns how long a running pod may stay: for each `NoExecute` taint the first matching toleration
    /// counts, then the minimum over the taints. Negative `tolerationSeconds` mean at once.
    pub fn stay(&self, taints: &[Taint]) -> StayDuration {
        let mut stay = StayDuration::Forever;
        for taint in taints.iter().filter(|taint| taints::is_no_execute(taint)) {
            let Some(toleration) = self.list.iter().find(|toleration| toleration.tolerates(taint)) else {
                return StayDuration::No;
            };
            if let Some(seconds) = toleration.seconds {
                let seconds = seconds.max(0);
                stay = match stay {
                    StayDuration::Seconds(shorter) => StayDuration::Seconds(shorter.min(seconds)),
                    _ => StayDuration::Seconds(seconds),
                };
            }
        }
        stay
    }

    /// Returns the tolerated taints of a set that has masks, a bit for each.
    pub(crate) fn tolerated(&self, set: &Set) -> u32 {
        let mut mask = 0;
        for toleration in &self.list {
            match &toleration.rule {
                Rule::Expression(expression) if toleration.key.is_empty() && toleration.effect.is_empty() => {
                    mask |= expression.tolerated(set);
                }
                Rule::Never(_) => {}
                _ => {
                    for (bit, taint) in (0..taints::MASK_BITS).zip(set.taints()) {
                        mask |= u32::from(toleration.tolerates(taint)) << bit;
                    }
                }
            }
        }
        mask
    }

    /// Whether one of them reads when a taint was added.
    pub(crate) fn read_time(&self) -> bool {
        self.list.iter().any(|toleration| matches!(&toleration.rule, Rule::Expression(it) if it.reads_time()))
    }

    /// The expressions that have no answer for a taint, and why.
    pub fn failures(&self, taint: &Taint) -> impl Iterator<Item = (&str, Outcome)> {
        self.list.iter().filter_map(move |toleration| {
            let Rule::Expression(expression) = &toleration.rule else { return None };
            let outcome = expression.outcome(&taints::seen_by_expressions(taint));
            outcome.own_failure().is_some().then(|| (expression.text(), outcome.clone()))
        })
    }

    /// Returns the parse error of a taint value that a toleration would compare as a version.
    pub fn not_a_version(&self, taint: &Taint) -> Option<String> {
        let compares = |it: &Toleration| it.is_for(taint) && matches!(it.rule, Rule::Version(..));
        let error = || Version::parse_tolerant(&taint.value).err().map(|error| error.to_string());
        self.list.iter().any(compares).then(error).flatten()
    }

    /// The tolerations, in the pod's order.
    pub fn iter(&self) -> std::slice::Iter<'_, Toleration> {
        self.list.iter()
    }
}

impl Toleration {
    /// Compiles a toleration. An unusable one tolerates nothing.
    pub fn new(toleration: &v1::Toleration, cache: &CompileCache, features: &Features) -> Self {
        let rule = Rule::new(toleration, cache, features).unwrap_or_else(Rule::Never);
        // Validation rejects key and effect next to an expression; if they exist nevertheless, they must match,
        // too.
        Toleration {
            key: toleration.key.clone(),
            effect: toleration.effect.clone(),
            rule,
            seconds: toleration.toleration_seconds,
        }
    }

    /// Whether the taint is tolerated. An expression that fails, and a value that is not a number or version, tolerate nothing.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self.rule.tolerates(taint)
    }

    /// For how many seconds a `NoExecute` taint is tolerated; nothing for ever.
    pub fn seconds(&self) -> Option<i64> {
        self.seconds
    }

    /// The reason why it can never match.
    pub fn unusable(&self) -> Option<&UnusableReason> {
        match &self.rule {
            Rule::Never(why) => Some(why),
            _ => None,
        }
    }

    pub(crate) fn is_for(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect) && (self.key.is_empty() || self.key == taint.key)
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl Rule {
    fn new(toleration: &v1::Toleration, cache: &CompileCache, features: &Features) -> Result<Rule, UnusableReason> {
        if !toleration.expression.is_empty() {
            // Fail closed: never the toleration without a key that tolerates everything.
            if !features.cel {
                return Err(UnusableReason::GateOff(Gate::TaintTolerationCEL));
            }
            let expression = cache.toleration(&toleration.expression);
            return expression.map(Rule::Expression).map_err(|error| UnusableReason::DoesNotCompile(error.to_string()));
        }
        let operator = TolerationOperator::from_name(&toleration.operator)
            .ok_or_else(|| UnusableReason::UnknownOperator(toleration.operator.clone()))?;
        let order = match operator {
            TolerationOperator::Exists => return Ok(Rule::Exists),
            TolerationOperator::Equal => return Ok(Rule::Equal(toleration.value.clone())),
            TolerationOperator::Lt | TolerationOperator::SemverLt => Ordering::Less,
            TolerationOperator::Gt | TolerationOperator::SemverGt => Ordering::Greater,
            TolerationOperator::SemverEq => Ordering::Equal,
        };
        if operator.is_semver() {
            if !features.semver {
                return Err(UnusableReason::GateOff(Gate::TaintTolerationNodeAffinitySemverComparisonOperators));
            }
            let version = Version::parse_tolerant(&toleration.value);
            return version
                .map(|it| Rule::Version(order, it))
                .map_err(|error| UnusableReason::NotAVersion(error.to_string()));
        }
        if !features.comparison {
            return Err(UnusableReason::GateOff(Gate::TaintTolerationComparisonOperators));
        }
        let number = canonical_integer(&toleration.value);
        number.map(|it| Rule::Number(order, it)).ok_or_else(|| UnusableReason::NotANumber(toleration.value.clone()))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        match self {
            Rule::Exists => true,
            Rule::Equal(value) => *value == taint.value,
            Rule::Number(order, bound) => {
                canonical_integer(&taint.value).is_some_and(|value| value.cmp(bound) == *order)
            }
            Rule::Version(order, bound) => {
                Version::parse_tolerant(&taint.value).is_ok_and(|value| value.cmp(bound) == *order)
            }
            Rule::Expression(expression) => expression.matches(&taints::seen_by_expressions(taint)),
            Rule::Never(_) => false,
        }
    }
}

/// A whole number as Kubernetes writes it: no plus, no leading zeros, no `-0`.
pub(crate) fn canonical_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = match digits.as_bytes() {
        b"0" => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { text.parse().ok() } else { None }
}

/// Whether two tolerations are the same one, whatever their `tolerationSeconds`: the expression is part of the identity.
pub fn is_same(left: &v1::Toleration, right: &v1::Toleration) -> bool {
    left.key == right.key
        && left.effect == right.effect
        && left.operator == right.operator
        && left.value == right.value
        && left.expression == right.expression
}

/// Whether a toleration is about taints with this key and effect, by name or by leaving both open. Defaults, such as those
/// for `node.kubernetes.io/not-ready`, are added where none is. A toleration with an expression never is.
pub fn is_about(toleration: &v1::Toleration, key: &str, effect: &str) -> bool {
    toleration.expression.is_empty()
        && (toleration.key.is_empty() || toleration.key == key)
        && (toleration.effect.is_empty() || toleration.effect == effect)
}

/// Whether one toleration tolerates everything that another one does, as far as their fields show it. Follows
/// `isSuperset` of Kubernetes' `pkg/util/tolerations`. The set of taints that an expression tolerates is not known, so
/// an expression includes only itself.
pub fn includes(more: &v1::Toleration, less: &v1::Toleration) -> bool {
    if more == less {
        return true;
    }
    if !more.expression.is_empty() || !less.expression.is_empty() {
        return false;
    }
    if less.key != more.key && (!more.key.is_empty() || more.operator != "Exists") {
        return false;
    }
    if less.effect != more.effect && !more.effect.is_empty() {
        return false;
    }
    if TaintEffect::from_name(&more.effect) == Some(TaintEffect::NoExecute)
        && let Some(limit) = more.toleration_seconds
        && less.toleration_seconds.is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match more.operator.as_str() {
        "Equal" | "" => less.operator == "Equal" && less.value == more.value,
        "Exists" => true,
        _ => false,
    }
}

/// The positions of the tolerations that no other one in the list includes; of equal ones the first stays.
pub fn not_included(tolerations: &[v1::Toleration]) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for (position, toleration) in tolerations.iter().enumerate() {
        let mut earlier = kept.iter().filter_map(|kept| tolerations.get(*kept));
        let mut later = tolerations.iter().skip(position.saturating_add(1));
        let is_included = earlier.any(|other| includes(other, toleration))
            || later.any(|other| other != toleration && includes(other, toleration));
        if !is_included {
            kept.push(position);
        }
    }
    kept
}

/// Adds a toleration to a list, or replaces an equal one. Returns whether the list changed.
pub fn add_or_update(tolerations: &mut Vec<v1::Toleration>, toleration: &v1::Toleration) -> bool {
    let mut same = tolerations.iter_mut().filter(|it| is_same(it, toleration)).peekable();
    if same.peek().is_none() {
        tolerations.push(toleration.clone());
        return true;
    }
    let mut changed = false;
    for it in same {
        changed |= it != toleration;
        it.clone_from(toleration);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_canonical() {
        for (text, number) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-0", None),
            ("007", None),
            ("+5", None),
            ("", None),
            ("-", None),
            ("5a", None),
        ] {
            assert_eq!(canonical_integer(text), number, "{text}");
        }
    }

    #[test]
    fn an_expression_is_part_of_the_identity() {
        let plain = v1::Toleration { operator: "Exists".into(), ..v1::Toleration::default() };
        let with = |expression: &str| v1::Toleration { expression: expression.into(), ..v1::Toleration::default() };
        assert!(!is_same(&with("true"), &with("false")));
        assert!(!is_same(&with("true"), &v1::Toleration::default()));
        let longer = v1::Toleration { toleration_seconds: Some(5), ..with("true") };
        assert!(is_same(&with("true"), &longer));
        assert!(is_about(&plain, "node.kubernetes.io/not-ready", "NoExecute"));
        assert!(!is_about(&with("true"), "node.kubernetes.io/not-ready", "NoExecute"));
    }

    #[track_caller]
    fn check_not_included(tolerations: &str, kept: &[usize]) {
        let tolerations = api::json::parse(tolerations.as_bytes()).unwrap();
        let tolerations: Vec<v1::Toleration> = api::json::from_value(&tolerations).unwrap();
        assert_eq!(not_included(&tolerations), kept);
    }

    #[test]
    fn included_tolerations_are_left_out() {
        check_not_included(r#"[{"key":"a","operator":"Equal","value":"x"},{"key":"a","operator":"Exists"}]"#, &[1]);
        check_not_included(r#"[{"key":"a","operator":"Exists"},{"key":"a","operator":"Exists"}]"#, &[0]);
        check_not_included(r#"[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}]"#, &[0, 1]);
        check_not_included(r#"[{"operator":"Exists","effect":"NoSchedule"},{"operator":"Exists"}]"#, &[1]);
        // A limit of time includes only shorter ones.
        let seconds = |first: &str, second: &str| {
            let toleration =
                |seconds: &str| format!(r#"{{"key":"a","operator":"Exists","effect":"NoExecute"{seconds}}}"#);
            format!("[{},{}]", toleration(first), toleration(second))
        };
        check_not_included(&seconds(r#","tolerationSeconds":5"#, r#","tolerationSeconds":3"#), &[0]);
        check_not_included(&seconds(r#","tolerationSeconds":5"#, ""), &[1]);
        // The taints that an expression tolerates are not known.
        check_not_included(r#"[{"operator":"Exists"},{"expression":"true"}]"#, &[0, 1]);
    }

    #[test]
    fn adding_a_toleration_replaces_the_same_one() {
        let with = |expression: &str, seconds: i64| v1::Toleration {
            expression: expression.into(),
            toleration_seconds: Some(seconds),
            ..v1::Toleration::default()
        };
        let mut list = vec![with("true", 1)];
        assert!(!add_or_update(&mut list, &with("true", 1)));
        assert!(add_or_update(&mut list, &with("true", 2)));
        assert!(add_or_update(&mut list, &with("false", 2)));
        assert_eq!(list, [with("true", 2), with("false", 2)]);
    }
}
