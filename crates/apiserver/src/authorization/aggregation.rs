//! Roles that are made of other roles: which ones, all the way down.
//!
//! Aggregated roles may choose each other, in circles too. What each of them holds is the smallest solution: the rules of
//! all plain roles that can be reached. It is worked out once per change of the roles, for all of them together.

use api::json::Object;
use api::labels::Selector;

/// A role as others choose it.
pub(super) struct Candidate<'a> {
    pub(super) labels: &'a Object,
    /// What it is made of; none for a plain role.
    pub(super) selectors: Option<&'a [Selector]>,
}

/// For each role the plain roles that it is made of, as places in the list; for plain ones that is nothing.
pub(super) fn resolve(roles: &[Candidate<'_>]) -> Vec<Vec<usize>> {
    let chosen: Vec<Vec<usize>> = roles.iter().enumerate().map(|(own, role)| choose(roles, own, role)).collect();
    let mut reached: Vec<Set> = chosen.iter().map(|_| Set::of(roles.len())).collect();
    for (of, choices) in chosen.iter().enumerate() {
        for choice in choices.iter().filter(|it| roles.get(**it).is_some_and(|it| it.selectors.is_none())) {
            if let Some(reached) = reached.get_mut(of) {
                reached.insert(*choice);
            }
        }
    }
    let aggregated: Vec<usize> = (0..roles.len()).filter(|it| !chosen.get(*it).is_none_or(Vec::is_empty)).collect();
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
    reached.iter().map(Set::members).collect()
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

    /// Roles are given as labels and, behind `<`, the labels that they are made of.
    #[track_caller]
    fn check(roles: &[&str], expected: &[&[usize]]) {
        let parsed: Vec<(Object, Option<Vec<Selector>>)> = roles
            .iter()
            .map(|role| {
                let (labels, selectors) = role.split_once('<').map_or((*role, None), |(own, of)| (own, Some(of)));
                let labels = labels.split(' ').filter(|it| !it.is_empty()).map(|it| (it, "true")).collect();
                let parse = |of: &str| of.split(' ').map(|it| Selector::parse(it).unwrap()).collect();
                (labels, selectors.map(parse))
            })
            .collect();
        let candidates: Vec<Candidate<'_>> =
            parsed.iter().map(|(labels, selectors)| Candidate { labels, selectors: selectors.as_deref() }).collect();
        assert_eq!(resolve(&candidates), expected);
    }

    #[test]
    fn aggregated_roles_hold_the_plain_ones_below_them() {
        check(&["a", "b", "<a", "<a b"], &[&[], &[], &[0], &[0, 1]]);
        // Through another one, and not through itself.
        check(&["a", "b<a", "<b", "c<c"], &[&[], &[0], &[0], &[]]);
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
