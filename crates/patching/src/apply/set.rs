//! Sets of paths: ownership and changes.
//!
//! A set is a tree in which every step records whether the path that ends there is a member. Follows
//! `fieldpath.Set` of structured-merge-diff, which keeps members and children apart; here they share a node.

use std::cmp::Ordering;

use super::element::Element;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// INVARIANT: sorted by element, no element twice; each node is a member or has children.
    nodes: Vec<Node>,
}

/// A step, and the part of the set at and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The step.
    pub element: Element,
    /// Whether the path that ends here is a member.
    pub member: bool,
    /// The members below.
    pub children: FieldSet,
}

impl FieldSet {
    /// No path.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// One path.
    #[must_use]
    pub fn of_path(path: &[Element]) -> Self {
        let mut set = Self::new();
        set.insert(path);
        set
    }

    /// Paths of field names.
    #[must_use]
    pub fn of_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::from(*name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Builds a set of nodes in any order.
    pub(super) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| node.member || !node.children.is_empty());
        if !nodes.is_sorted_by(|left, right| left.element < right.element) {
            nodes.sort_by(|left, right| left.element.cmp(&right.element));
            if nodes.is_sorted_by(|left, right| left.element < right.element) {
                return Self { nodes };
            }
            let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
            for node in nodes {
                match merged.last_mut() {
                    Some(last) if last.element == node.element => {
                        last.member |= node.member;
                        last.children = std::mem::take(&mut last.children).union(node.children);
                    }
                    _ => merged.push(node),
                }
            }
            return Self { nodes: merged };
        }
        Self { nodes }
    }

    /// The steps at the top, in order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether there is no path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn position(&self, element: &Element) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// The part of the set at and below a step.
    #[must_use]
    pub fn get(&self, element: &Element) -> Option<&Node> {
        self.nodes.get(self.position(element).ok()?)
    }

    /// Like [`FieldSet::get`], for a field.
    #[must_use]
    pub fn get_field(&self, name: &str) -> Option<&Node> {
        let position = self.nodes.binary_search_by(|node| match &node.element {
            Element::Field(it) => it.as_str().cmp(name),
            _ => Ordering::Greater,
        });
        self.nodes.get(position.ok()?)
    }

    /// Adds a path. The empty path is nowhere.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let position = match self.position(first) {
            Ok(position) => position,
            Err(position) => {
                let node = Node { element: first.clone(), member: false, children: FieldSet::new() };
                self.nodes.insert(position, node);
                position
            }
        };
        let Some(node) = self.nodes.get_mut(position) else { return };
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Whether a path is a member.
    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        match self.get(first) {
            Some(node) if rest.is_empty() => node.member,
            Some(node) => node.children.has(rest),
            None => false,
        }
    }

    /// Calls `visit` with every member, those at the top first.
    pub fn for_each(&self, visit: &mut impl FnMut(&[Element])) {
        self.visit(&mut Vec::new(), visit);
    }

    fn visit(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            path.push(node.element.clone());
            node.children.visit(path, visit);
            path.pop();
        }
    }

    /// Union.
    #[must_use]
    pub fn union(self, other: FieldSet) -> FieldSet {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().saturating_add(other.nodes.len()));
        let mut right = other.nodes.into_iter().peekable();
        for mut node in self.nodes {
            while let Some(before) = right.next_if(|it| it.element < node.element) {
                nodes.push(before);
            }
            if let Some(equal) = right.next_if(|it| it.element == node.element) {
                node.member |= equal.member;
                node.children = node.children.union(equal.children);
            }
            nodes.push(node);
        }
        nodes.extend(right);
        FieldSet { nodes }
    }

    /// Union of many sets, two by two: adding each to the union of those before takes time in proportion to their square.
    #[must_use]
    pub fn union_of(mut sets: Vec<FieldSet>) -> FieldSet {
        while sets.len() > 1 {
            let mut pairs = std::mem::take(&mut sets).into_iter();
            while let Some(left) = pairs.next() {
                sets.push(left.union(pairs.next().unwrap_or_default()));
            }
        }
        sets.pop().unwrap_or_default()
    }

    /// Intersection.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut nodes = Vec::new();
        self.pairs(other, |node, other| {
            let Some(other) = other else { return };
            let member = node.member && other.member;
            let children = node.children.intersection(&other.children);
            if member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), member, children });
            }
        });
        FieldSet { nodes }
    }

    /// Difference.
    #[must_use]
    pub fn difference(self, other: &FieldSet) -> FieldSet {
        self.without(other, false)
    }

    /// Removes the members of the other set and everything below them.
    #[must_use]
    pub fn recursive_difference(self, other: &FieldSet) -> FieldSet {
        self.without(other, true)
    }

    fn without(self, other: &FieldSet, recursive: bool) -> FieldSet {
        if other.is_empty() || self.is_empty() {
            return self;
        }
        let mut right = other.nodes.iter().peekable();
        let mut nodes = self.nodes;
        nodes.retain_mut(|node| {
            while right.next_if(|it| it.element < node.element).is_some() {}
            let Some(other) = right.next_if(|it| it.element == node.element) else { return true };
            if other.member {
                node.member = false;
                if recursive {
                    return false;
                }
            }
            node.children = std::mem::take(&mut node.children).without(&other.children, recursive);
            node.member || !node.children.is_empty()
        });
        FieldSet { nodes }
    }

    /// Walks two sets side by side; `visit` gets every node of this one with the other's.
    fn pairs<'a>(&'a self, other: &'a FieldSet, mut visit: impl FnMut(&'a Node, Option<&'a Node>)) {
        let mut right = other.nodes.iter().peekable();
        for node in &self.nodes {
            while right.next_if(|it| it.element < node.element).is_some() {}
            visit(node, right.next_if(|it| it.element == node.element));
        }
    }

    /// Replaces each node; those without member or children go.
    pub(super) fn map(&self, mut change: impl FnMut(&Node) -> (bool, FieldSet)) -> FieldSet {
        let nodes = self.nodes.iter().map(|node| {
            let (member, children) = change(node);
            Node { element: node.element.clone(), member, children }
        });
        FieldSet { nodes: nodes.filter(|node| node.member || !node.children.is_empty()).collect() }
    }
}

#[cfg(test)]
mod tests;
