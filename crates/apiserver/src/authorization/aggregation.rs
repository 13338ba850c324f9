//! Aggregated roles, resolved transitively.
//!
//! Aggregated roles may choose each other, in circles too. What each of them holds is the smallest solution: the rules of
//! all plain roles that can be reached. One that reaches no rules at all keeps those that are written in it, and hands them
//! on as a plain one does. It is worked out once per change of the roles, for all of them together.

use api::json::Object;
use api::labels::Selector;

/// A role as others choose it.
pub(super) struct Candidate<'a> {
    pub(super) labels: &'a Object,
    /// Whether rules are written in it.
    pub(super) has_rules: bool,
    /// Selectors of the aggregated roles; `None` for a plain role.
    pub(super) selectors: Option<&'a [Selector]>,
}

/// Returns the aggregated roles of each role, as indexes in the list; none for plain ones.
pub(super) fn resolve(roles: &[Candidate<'_>]) -> Vec<Vec<usize>> {
    let chosen: Vec<Vec<usize>> = roles.iter().enumerate().map(|(own, role)| choose(roles, own, role)).collect();
    let with_rules: Vec<bool> = roles.iter().map(|role| role.has_rules).collect();
    let touched = reach(&chosen, &with_rules);
    let keeps_own = |(own, touched): (usize, &Set)| {
        let touches_others = touched.members().into_iter().any(|it| it != own);
        roles.get(own).is_some_and(|role| role.selectors.is_some() && role.has_rules) && !touches_others
    };
    let keeps_own: Vec<bool> = touched.iter().enumerate().map(keeps_own).collect();
    let sources: Vec<bool> =
        roles.iter().zip(&keeps_own).map(|(role, keeps_own)| role.selectors.is_none() || *keeps_own).collect();
    let mut reached = reach(&chosen, &sources);
    for (own, (reached, keeps_own)) in reached.iter_mut().zip(keeps_own).enumerate() {
        if keeps_own {
            reached.insert(own);
        }
    }
    reached.iter().map(Set::members).collect()
}

/// The sources that each role chooses, itself or through others.
fn reach(chosen: &[Vec<usize>], is_source: &[bool]) -> Vec<Set> {
    let mut reached: Vec<Set> = chosen.iter().map(|_| Set::of(chosen.len())).collect();
    for (reached, choices) in reached.iter_mut().zip(chosen) {
        for choice in choices.iter().filter(|it| is_source.get(**it) == Some(&true)) {
            reached.insert(*choice);
        }
    }
    let aggregated: Vec<usize> = (0..chosen.len()).filter(|it| !chosen.get(*it).is_none_or(Vec::is_empty)).collect();
    // Each round hands on what is known by one step; circles end when nothing is new.
    let mut changed = true;
    while changed {
        changed = false;
        for &of in &aggregated {
            for &choice in chosen.get(of).into_iter().flatten().filter(|it| **it != of) {
                let Some(more) = reached.get(choice).filter(|it| !it.is_empty()).cloned() else { continue };
                changed |= reached.get_mut(of).is_some_and(|it| it.extend(&more));
            }
        }
    }
    reached
}

/// The roles that an aggregated one chooses, itself not.
fn choose(roles: &[Candidate<'_>], own: usize, role: &Candidate<'_>) -> Vec<usize> {
    let Some(selectors) = role.selectors else { return Vec::new() };
    let all = roles.iter().enumerate().filter(|(index, _)| *index != own);
    all.filter(|(_, it)| selectors.iter().any(|selector| selector.matches(it.labels))).map(|(index, _)| index).collect()
}

/// A set of small numbers.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn of(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn insert(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number.wrapping_div(64)) {
            *word |= 1_u64.rotate_left(u32::try_from(number % 64).unwrap_or_default());
        }
    }

    /// Takes all of another set; whether any was new.
    fn extend(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            changed |= *more & !*own != 0;
            *own |= more;
        }
        changed
    }

    fn members(&self) -> Vec<usize> {
        let has = |number: &usize| {
            let word = self.0.get(number.wrapping_div(64)).copied().unwrap_or_default();
            word & 1_u64.rotate_left(u32::try_from(number % 64).unwrap_or_default()) != 0
        };
        (0..self.0.len().saturating_mul(64)).filter(has).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles are given as labels and, behind `<`, the labels of the roles that they aggregate. Plain ones have
    /// rules, and so have those that begin with `!`.
    #[track_caller]
    fn check(roles: &[&str], expected: &[&[usize]]) {
        let parsed: Vec<(Object, bool, Option<Vec<Selector>>)> = roles
            .iter()
            .map(|role| {
                let has_rules = role.starts_with('!') || !role.contains('<');
                let role = &role.trim_start_matches('!');
                let (labels, selectors) = role.split_once('<').map_or((*role, None), |(own, of)| (own, Some(of)));
                let labels = labels.split(' ').filter(|it| !it.is_empty()).map(|it| (it, "true")).collect();
                let parse = |of: &str| of.split(' ').map(|it| Selector::parse(it).unwrap()).collect();
                (labels, has_rules, selectors.map(parse))
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = parsed
            .iter()
            .map(|(labels, has_rules, selectors)| Candidate {
                labels,
                has_rules: *has_rules,
                selectors: selectors.as_deref(),
            })
            .collect();
        assert_eq!(resolve(&candidates), expected);
    }

    #[test]
    fn aggregated_roles_hold_the_plain_ones_below_them() {
        check(&["a", "b", "<a", "<a b"], &[&[], &[], &[0], &[0, 1]]);
        // Through another one, and not through itself.
        check(&["a", "b<a", "<b", "c<c"], &[&[], &[0], &[0], &[]]);
    }

    #[test]
    fn one_that_reaches_no_rules_keeps_its_own() {
        check(&["!x<a", "y<x"], &[&[0], &[0]]);
        // Others get them, too; one that reaches rules loses its own.
        check(&["!x<a", "!<x", "x"], &[&[0], &[0, 2], &[]]);
        check(&["!<x", "!x<y", "y<z"], &[&[1], &[1], &[]]);
        // In a cycle the result would be undefined: no rules.
        check(&["!x<y", "!y<x"], &[&[], &[]]);
    }

    #[test]
    fn circles_end() {
        check(&["a", "x<y a", "y<z", "z<x"], &[&[], &[0], &[0], &[0]]);
        check(&["x<y", "y<x"], &[&[], &[]]);
    }

    #[test]
    fn many_that_choose_each_other_are_no_trouble() {
        let all: Vec<&str> = std::iter::once("x").chain(std::iter::repeat_n("x<x", 300)).collect();
        let mut expected: Vec<&[usize]> = vec![&[]];
        expected.extend(std::iter::repeat_n(&[0_usize][..], 300));
        check(&all, &expected);
    }
}
