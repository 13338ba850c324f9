//! Estimated size of a pattern's automaton, from the tree alone.

use super::tree::{ClassItem, NodeId, NodeKind, Tree};

/// A character outside ASCII is up to four bytes, with a state for each.
const CHARACTER_WEIGHT: u64 = 10;

/// `\pL` takes 300 states, most properties fewer.
const PROPERTY_WEIGHT: u64 = 300;

/// About the number of states of an automaton over bytes.
pub(super) fn weight(tree: &Tree, root: NodeId) -> u64 {
    // Children precede their parents.
    let mut weights: Vec<u64> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let of = |id: NodeId| weights.get(id).copied().unwrap_or_default();
        let weight = match node.kind {
            NodeKind::Absorbed => 0,
            NodeKind::Empty | NodeKind::Never | NodeKind::Look(_) => 1,
            NodeKind::Literal { start, end, .. } => u64::try_from(end.saturating_sub(start)).unwrap_or(u64::MAX),
            NodeKind::AnyChar | NodeKind::AnyCharNotNewline => CHARACTER_WEIGHT,
            NodeKind::Class { start, end, negated, .. } => {
                let items = tree.items.get(start..end).unwrap_or_default();
                let weight = items.iter().fold(1, |sum: u64, item| sum.saturating_add(item_weight(item)));
                if negated { weight.saturating_add(CHARACTER_WEIGHT) } else { weight }
            }
            NodeKind::Repeat { sub, min, max, .. } => {
                let copies = max.unwrap_or(min).max(1);
                of(sub).saturating_add(1).saturating_mul(copies.into())
            }
            NodeKind::Capture { sub, .. } => of(sub).saturating_add(2),
            NodeKind::Concat { first, .. } | NodeKind::Alternate { first, .. } => {
                tree.siblings(first).fold(1, |sum: u64, id| sum.saturating_add(of(id)))
            }
        };
        weights.push(weight);
    }
    weights.get(root).copied().unwrap_or_default()
}

fn item_weight(item: &ClassItem) -> u64 {
    match item {
        ClassItem::Range(_, high) if *high < 0x80 => 0,
        ClassItem::Ascii { negated: false, .. } => 0,
        ClassItem::Range(..) | ClassItem::Ascii { .. } => CHARACTER_WEIGHT,
        ClassItem::Unicode { .. } => PROPERTY_WEIGHT,
    }
}
