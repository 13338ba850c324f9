//! Explanation of device allocation on a node: the candidates after each step, the largest set, and the
//! condition that no set satisfies.

use std::collections::BTreeMap;

use cel::syntax::ast::{Ast, ExprId, ExprKind, operator};
use cel_kubernetes::environments::device::Device;

use crate::allocated::AllocatedState;
use crate::attempt::Attempt;
use crate::claims::{Claim, Count, RequestAlternative};
use crate::constraints::first_set::{FirstSet, Outcome};
use crate::constraints::outlook::Outlooks;
use crate::constraints::{Constraint, Rule};
use crate::error::Error;
use crate::expressions::{Answer, Expressions, SetExpression};
use crate::ids::{AskId, CandidateId};
use crate::pools::{NodePools, State, Target};
use crate::taints;

/// Explanation of a pod's claims on a node.
#[derive(Debug, Clone)]
pub struct ClaimsExplanation {
    /// The devices that would be allocated, by claim and request; nothing if there are none.
    pub devices: Option<Vec<String>>,
    /// Error that ended the search.
    pub error: Option<Error>,
    /// Each request, or alternative of one.
    pub requests: Vec<RequestReport>,
    /// Each constraint.
    pub constraints: Vec<ConstraintReport>,
    /// Work of the search over sets; nothing if no constraint has an expression.
    pub search: Option<SearchReport>,
}

/// Work of a search over sets of devices, compared with an exhaustive one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchReport {
    /// Number of sets that an exhaustive search would examine.
    pub possible: u128,
    /// Number of complete sets on which the expressions were evaluated.
    pub evaluated: u64,
    /// Number of branches that were cut, because no completion could satisfy the expressions.
    pub cut: u64,
    /// Metered cost of the expressions on complete and partial sets.
    pub cost: u64,
}

/// Candidates of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestReport {
    /// The claim, with its namespace.
    pub claim: String,
    /// The request, and the alternative.
    pub request: String,
    /// Number of requested devices; `None` for all.
    pub wanted: Option<i64>,
    /// Number of devices after each step.
    pub stages: Vec<Stage>,
}

/// A step that leaves some of the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Description of the step.
    pub what: String,
    /// Number of remaining devices.
    pub left: usize,
    /// The device on which an evaluation failed, with the error.
    pub failed: Option<String>,
}

/// Effect of a constraint on the candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintReport {
    /// The claim, with its namespace.
    pub claim: String,
    /// Index of the constraint.
    pub index: usize,
    /// The attribute or the expression.
    pub what: String,
    /// Findings about the constraint.
    pub findings: Vec<String>,
}

/// Cost limit of a search for one condition.
const COST_MAX: u64 = 10_000_000;

impl Attempt<'_> {
    /// Explains the allocation on a node. `programs` compiles the conditions of constraints one by one.
    ///
    /// # Errors
    /// A slice has an unreadable node selection.
    pub fn explain(&mut self, target: Target<'_>, programs: &Expressions) -> Result<ClaimsExplanation, Error> {
        let shaped = self.inventory().shaped(target)?;
        let (mut devices, mut error) = (None, None);
        let before = self.effort();
        match self.ask(target) {
            Ok(None) => {}
            Ok(Some(found)) => devices = Some(self.names(&found)),
            Err(why) => error = Some(why),
        }
        let best = self.take_narration().map(|narration| narration.best).unwrap_or_default();
        let view = View { pools: &shaped.pools, state: self.inventory().allocated(), programs };
        let (mut requests, mut constraints) = (Vec::new(), Vec::new());
        let (mut possible, mut has_sets) = (1_u128, false);
        for (_, claim) in self.claims().claims.iter() {
            let mut left: Vec<(AskId, Vec<CandidateId>)> = Vec::new();
            for asks in claim.requests.iter().map(|request| &request.asks) {
                let mut sets = 0_u128;
                for id in asks {
                    let ask = self.claims().asks.of(*id);
                    let (stages, candidates) = view.stages(ask);
                    let wanted = match ask.count {
                        Count::Exactly(count) => Some(count),
                        Count::All => None,
                    };
                    let (claim, request) = (claim.key.clone(), ask.full_name.to_string());
                    requests.push(RequestReport { claim, request, wanted, stages });
                    let chosen = wanted.map_or(candidates.len(), |count| usize::try_from(count).unwrap_or(usize::MAX));
                    sets = sets.saturating_add(combinations(candidates.len(), chosen));
                    left.push((*id, candidates));
                }
                possible = possible.saturating_mul(sets);
            }
            has_sets |= claim.constraints.iter().flatten().any(|it| matches!(it.rule, Rule::Set(_)));
            for constraint in claim.constraints.iter().flatten() {
                let covered = |id: &AskId| {
                    let ask = self.claims().asks.of(*id);
                    claim.requests.get(ask.request).is_some_and(|request| constraint.covers(ask, &request.name))
                };
                let mut asks = left.iter().filter(|(id, _)| covered(id));
                let only = match (asks.next(), asks.next()) {
                    (Some((id, candidates)), None) => Some((self.claims().asks.of(*id), candidates.as_slice())),
                    _ => None,
                };
                constraints.push(view.constraint(claim, constraint, only, &best));
            }
        }
        let effort = self.effort();
        let search = has_sets.then(|| SearchReport {
            possible,
            evaluated: effort.evaluations.saturating_sub(before.evaluations),
            cut: effort.cuts.saturating_sub(before.cuts),
            cost: effort.cost.saturating_sub(before.cost),
        });
        Ok(ClaimsExplanation { devices, error, requests, constraints, search })
    }
}

/// Number of ways to choose `chosen` of `total` devices; `u128::MAX` if it does not fit.
fn combinations(total: usize, chosen: usize) -> u128 {
    let Some(rest) = total.checked_sub(chosen) else { return 0 };
    let mut count = 1_u128;
    for (taken, index) in (0..chosen.min(rest)).zip(1_u128..) {
        let factor = u128::try_from(total.saturating_sub(taken)).unwrap_or(u128::MAX);
        // INVARIANT: `count * factor` is a product of `index` successive numbers, which `index` divides.
        let Some(product) = count.checked_mul(factor) else { return u128::MAX };
        count = product.checked_div(index).unwrap_or(u128::MAX);
    }
    count
}

/// Input of the explanation.
struct View<'v> {
    pools: &'v NodePools,
    state: &'v AllocatedState,
    programs: &'v Expressions,
}

impl View<'_> {
    /// Returns the devices of the node after each step, in canonical order.
    fn stages(&self, ask: &RequestAlternative) -> (Vec<Stage>, Vec<CandidateId>) {
        let pools = self.pools;
        let mut left = pools.canonical.clone();
        let stage = |what: &str, left: &[CandidateId]| Stage { what: what.to_owned(), left: left.len(), failed: None };
        let mut stages = vec![stage("devices that the node can use", &left)];
        if pools.pools.iter().any(|(_, pool)| pool.state != State::Usable) {
            left.retain(|id| pools.pools.of(pools.candidates.of(*id).pool).state == State::Usable);
            stages.push(stage("in pools that are complete", &left));
        }
        for selector in &ask.selectors {
            let what = format!("{} selector #{}", selector.of, selector.index);
            let mut failed = None;
            match &selector.program {
                Err(error) => {
                    left.clear();
                    failed = Some(error.to_string());
                }
                Ok(program) => left.retain(|id| match pools.candidates.of(*id).model().answer(program) {
                    Answer::Yes => true,
                    Answer::No => false,
                    Answer::Fails(why) => {
                        failed.get_or_insert_with(|| format!("{}: {why}", pools.candidates.of(*id).id()));
                        false
                    }
                }),
            }
            stages.push(Stage { what, left: left.len(), failed });
        }
        let of = |id: &CandidateId| pools.candidates.of(*id);
        let before = left.len();
        left.retain(|id| !of(id).device().taints.iter().any(|taint| taints::prevents(taint, &ask.tolerations)));
        if left.len() < before {
            stages.push(stage("without taints that the request does not tolerate", &left));
        }
        if !ask.admin_access {
            left.retain(|id| {
                let candidate = of(id);
                let pool = self.state.pool(&candidate.slice.driver, &candidate.slice.pool);
                !pool.is_some_and(|pool| pool.is_dedicated(&candidate.device().name))
            });
            stages.push(stage("that no other claim has", &left));
        }
        (stages, left)
    }

    fn constraint(
        &self,
        claim: &Claim,
        constraint: &Constraint,
        only: Option<(&RequestAlternative, &[CandidateId])>,
        best: &str,
    ) -> ConstraintReport {
        let (what, findings) = match (&constraint.rule, only) {
            (Rule::Match(name), Some((_, left))) => {
                let groups = self.values(name, left);
                let largest = groups.values().max().copied().unwrap_or(0);
                let found = format!("{} values; at most {largest} devices have the same", groups.len());
                (format!("matchAttribute {name}"), vec![found])
            }
            (Rule::Distinct(name), Some((_, left))) => {
                let found = format!("{} values", self.values(name, left).len());
                (format!("distinctAttribute {name}"), vec![found])
            }
            (Rule::Match(name), None) => (format!("matchAttribute {name}"), Vec::new()),
            (Rule::Distinct(name), None) => (format!("distinctAttribute {name}"), Vec::new()),
            (Rule::Set(expression), only) => {
                let mut findings = Vec::new();
                if !best.is_empty() {
                    findings.push(format!("the search came as far as {best}"));
                }
                if let Some((ask, left)) = only
                    && let Count::Exactly(count) = ask.count
                {
                    findings.extend(self.conditions(expression, left, usize::try_from(count).unwrap_or(0)));
                }
                (expression.text().to_string(), findings)
            }
        };
        ConstraintReport { claim: claim.key.clone(), index: constraint.index, what, findings }
    }

    /// Number of devices by value of an attribute.
    fn values(&self, name: &str, left: &[CandidateId]) -> BTreeMap<String, usize> {
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        for id in left {
            if let Some(value) = self.pools.candidates.of(*id).model().attribute(name) {
                let count = groups.entry(format!("{value:?}")).or_default();
                *count = count.saturating_add(1);
            }
        }
        groups
    }

    /// Returns the effect of each condition of an expression on its own.
    fn conditions(&self, expression: &SetExpression, left: &[CandidateId], count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        let typed = expression.compiled().typed();
        conjuncts(typed.ast(), typed.ast().root(), &mut texts);
        let seen: Result<Vec<&Device>, _> =
            left.iter().map(|id| self.pools.candidates.of(*id).model().seen()).collect();
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => return vec![why.to_string()],
        };
        let mut findings = Vec::new();
        for text in texts {
            let Ok(condition) = self.programs.set(&text) else { continue };
            let mut search = FirstSet::new(condition.compiled(), &seen, COST_MAX, Some(Outlooks::default()));
            let names = |set: &[usize]| {
                let ids: Vec<CandidateId> = set.iter().filter_map(|index| left.get(*index).copied()).collect();
                self.pools.names(&ids)
            };
            findings.push(match search.run(count) {
                Outcome::Found(set) => format!("`{text}` holds for {}", names(&set)),
                Outcome::None => format!("`{text}` holds for no {count} of the {} devices", left.len()),
                Outcome::Failed(set) => {
                    let devices: Vec<&Device> = set.iter().filter_map(|index| seen.get(*index).copied()).collect();
                    let why = match condition.ask(&devices).0 {
                        Answer::Fails(why) => why.to_string(),
                        _ => "no answer".to_owned(),
                    };
                    format!("`{text}` fails on {}: {why}", names(&set))
                }
                Outcome::TooCostly => format!("`{text}`: too costly to find out"),
            });
        }
        findings
    }
}

/// The conditions that `&&` joins, as texts.
fn conjuncts(ast: &Ast, id: ExprId, texts: &mut Vec<String>) {
    match &ast[id].kind {
        ExprKind::Call { function, args, .. } if *function == operator::LOGICAL_AND => {
            args.iter().for_each(|arg| conjuncts(ast, *arg, texts));
        }
        _ => texts.push(ast.source().snippet(ast[id].span).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::combinations;

    #[test]
    fn combinations_count_sets_and_saturate() {
        assert_eq!(combinations(6, 4), 15);
        assert_eq!(combinations(64, 4), 635_376);
        assert_eq!(combinations(5, 0), 1);
        assert_eq!(combinations(5, 5), 1);
        assert_eq!(combinations(3, 4), 0);
        assert_eq!(combinations(100_000, 50_000), u128::MAX);
    }
}
