//! Properties of all sets of fields.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use super::*;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn random_path(numbers: &mut Numbers) -> Vec<Element> {
    let length = numbers.below(3) + 1;
    (0..length)
        .map(|_| match numbers.below(5) {
            0 => Element::Key(vec![("k".into(), api::json::Value::Int(i64::try_from(numbers.below(2)).unwrap()))]),
            1 => Element::Value(["a", "b"][usize::try_from(numbers.below(2)).unwrap()].into()),
            n => Element::from(["x", "y", "z"][usize::try_from(n - 2).unwrap()]),
        })
        .collect()
}

fn random_set(numbers: &mut Numbers) -> FieldSet {
    let mut set = FieldSet::new();
    for _ in 0..numbers.below(8) {
        set.insert(&random_path(numbers));
    }
    set
}

fn paths(set: &FieldSet) -> Vec<Vec<Element>> {
    let mut paths = Vec::new();
    set.for_each(&mut |path| paths.push(path.to_vec()));
    paths
}

#[test]
fn algebra_agrees_with_lists_of_paths() {
    let mut numbers = Numbers(1);
    for _ in 0..3000 {
        let (a, b) = (random_set(&mut numbers), random_set(&mut numbers));
        let (union, both) = (a.clone().union(b.clone()), a.intersection(&b));
        let (only, below) = (a.clone().difference(&b), a.clone().recursive_difference(&b));
        for path in paths(&a).iter().chain(&paths(&b)) {
            let (in_a, in_b) = (a.has(path), b.has(path));
            assert_eq!(union.has(path), in_a || in_b);
            assert_eq!(both.has(path), in_a && in_b);
            assert_eq!(only.has(path), in_a && !in_b);
            let covered = (1..=path.len()).any(|end| b.has(&path[..end]));
            assert_eq!(below.has(path), in_a && !covered);
        }
        assert_eq!(paths(&union).len(), paths(&a).len() + paths(&b).len() - paths(&both).len());
        assert_eq!(paths(&only).len(), paths(&a).len() - paths(&both).len());
        assert!(paths(&below).len() <= paths(&only).len());
        assert_eq!(only.clone().union(both.clone()), a);
        assert_eq!(union, b.clone().union(a.clone()));
        assert_eq!(both, b.intersection(&a));
        assert!(a.clone().difference(&a).is_empty());
        assert_eq!(a.clone().union(a.clone()), a);
        assert_eq!(a.clone().difference(&b).intersection(&b), FieldSet::new());
    }
}

#[test]
fn nodes_in_any_order_make_one_set() {
    let node = |name: &str, member| Node { element: name.into(), member, children: FieldSet::of_names(&[&["c"]]) };
    let set = FieldSet::from_nodes(vec![node("b", true), node("a", false), node("b", false)]);
    assert_eq!(set, FieldSet::of_names(&[&["a", "c"], &["b"], &["b", "c"]]));
}
