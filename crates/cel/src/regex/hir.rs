//! Tree → HIR, the form from which `regex-automata` builds its engines.

use regex_syntax::hir::{Capture, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, Repetition};

use super::tree::{ClassItem, NodeId, NodeKind, Tree};
use super::unicode::{self, Properties};

/// Translates the node `root`. Without `captures`, groups only group.
///
/// Groups keep their numbers but not their names: Go allows the same name twice, the engines do not.
pub(super) fn build(tree: &Tree, root: NodeId, captures: bool) -> Hir {
    // Children precede their parents, so that one pass without recursion finds all children ready.
    let mut properties = Properties::default();
    let mut ready: Vec<Option<Hir>> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let mut take = |id: NodeId| ready.get_mut(id).and_then(Option::take).unwrap_or_else(Hir::fail);
        let hir = match node.kind {
            NodeKind::Absorbed => None,
            NodeKind::Empty => Some(Hir::empty()),
            NodeKind::Never => Some(Hir::fail()),
            NodeKind::Literal { start, end, fold } => {
                let text = tree.literals.get(start..end).unwrap_or_default();
                Some(if fold {
                    Hir::concat(text.chars().map(|c| Hir::class(Class::Unicode(fold_character(c)))).collect())
                } else {
                    Hir::literal(text.as_bytes())
                })
            }
            NodeKind::AnyChar => Some(Hir::dot(Dot::AnyChar)),
            NodeKind::AnyCharNotNewline => Some(Hir::dot(Dot::AnyCharExceptLF)),
            NodeKind::Class { start, end, negated, fold } => {
                let items = tree.items.get(start..end).unwrap_or_default();
                Some(Hir::class(Class::Unicode(class(items, negated, fold, &mut properties))))
            }
            NodeKind::Look(look) => Some(Hir::look(look)),
            NodeKind::Repeat { sub, min, max, greedy } => {
                Some(Hir::repetition(Repetition { min, max, greedy, sub: Box::new(take(sub)) }))
            }
            NodeKind::Capture { sub, index } if captures => {
                Some(Hir::capture(Capture { index, name: None, sub: Box::new(take(sub)) }))
            }
            NodeKind::Capture { sub, .. } => Some(take(sub)),
            NodeKind::Concat { first, .. } => Some(Hir::concat(tree.siblings(first).map(take).collect())),
            NodeKind::Alternate { first, .. } => Some(Hir::alternation(tree.siblings(first).map(take).collect())),
        };
        ready.push(hir);
    }
    ready.get_mut(root).and_then(Option::take).unwrap_or_else(Hir::fail)
}

/// A character in either case.
pub(super) fn fold_character(c: char) -> ClassUnicode {
    fold_if(ClassUnicode::new([ClassUnicodeRange::new(c, c)]), true)
}

fn fold_if(mut class: ClassUnicode, fold: bool) -> ClassUnicode {
    if fold {
        class.case_fold_simple();
    }
    class
}

/// The characters of a class.
pub(super) fn class(items: &[ClassItem], negated: bool, fold: bool, properties: &mut Properties) -> ClassUnicode {
    let mut class = ClassUnicode::empty();
    for item in items {
        // Fold before negating: `(?i)\W` has neither `s` nor `ſ`.
        let (mut part, negated) = match *item {
            ClassItem::Range(low, high) => (fold_if(code_points(low, high), fold), false),
            ClassItem::Ascii { ranges, negated } => {
                let ranges = ranges.iter().map(|&(low, high)| ClassUnicodeRange::new(low.into(), high.into()));
                (fold_if(ClassUnicode::new(ranges), fold), negated)
            }
            ClassItem::Unicode { property, negated } => (properties.class(property, fold), negated),
        };
        if negated {
            unicode::negate(&mut part);
        }
        class.union(&part);
    }
    if negated {
        unicode::negate(&mut class);
    }
    class
}

/// The characters from `low` to `high`, without the surrogates.
fn code_points(low: u32, high: u32) -> ClassUnicode {
    let surrogates = 0xd800..=0xdfff;
    let low = if surrogates.contains(&low) { 0xe000 } else { low };
    let high = if surrogates.contains(&high) { 0xd7ff } else { high };
    let range = char::from_u32(low).zip(char::from_u32(high)).filter(|(low, high)| low <= high);
    ClassUnicode::new(range.map(|(low, high)| ClassUnicodeRange::new(low, high)))
}
