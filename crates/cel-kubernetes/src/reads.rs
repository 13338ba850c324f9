//! What an expression reads of its input, known before it runs.
//!
//! Callers evaluate once per distinct projection of the input onto what is read: a node's labels that an expression names,
//! instead of once per node. Where the analysis cannot tell, it says "all of it".

use std::collections::BTreeSet;

use cel::checker::{Reference, TypedAst};
use cel::syntax::ast::{ExprId, ExprKind, Literal, operator};

/// What an expression reads of its variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    paths: BTreeSet<Vec<Box<str>>>,
}

/// Which keys of a map are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys<'r> {
    /// These, whether they are there or not.
    Some(BTreeSet<&'r str>),
    /// Any of them can matter.
    All,
}

impl Reads {
    /// What a checked expression reads.
    pub fn of(typed: &TypedAst) -> Reads {
        let mut reads = Reads::default();
        let mut todo = vec![typed.ast().root()];
        while let Some(id) = todo.pop() {
            match path_of(typed, id, &mut todo) {
                Some(path) => {
                    reads.paths.insert(path);
                }
                None => todo.extend(typed.ast().children(id)),
            }
        }
        reads
    }

    /// The paths that are read, each with everything below it: variable, then fields and keys.
    pub fn paths(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.paths.iter().map(Vec::as_slice)
    }

    /// Which keys are read of what lies at a path, such as `["node", "labels"]`.
    pub fn keys_of(&self, path: &[&str]) -> Keys<'_> {
        let mut keys = BTreeSet::new();
        for read in &self.paths {
            let covers = read.iter().zip(path).all(|(read, step)| read.as_ref() == *step);
            match read.get(path.len()) {
                _ if !covers => {}
                Some(key) => {
                    keys.insert(key.as_ref());
                }
                None => return Keys::All,
            }
        }
        Keys::Some(keys)
    }
}

/// The path from a variable that a node is, if it is one; keys that are expressions are put on the list.
fn path_of(typed: &TypedAst, id: ExprId, todo: &mut Vec<ExprId>) -> Option<Vec<Box<str>>> {
    let ast = typed.ast();
    let mut steps: Vec<Box<str>> = Vec::new();
    let mut pending = Vec::new();
    let mut at = id;
    // `'key' in map` reads one key of the map.
    if let ExprKind::Call { function, args, .. } = &ast[at].kind
        && *function == operator::IN
        && let [key, map] = args.as_slice()
        && let Some(key) = literal_text(typed, *key)
        && matches!(typed.type_of(*map), cel::types::Type::Map(_))
    {
        steps.push(key);
        at = *map;
    }
    loop {
        if let Reference::Variable { name, .. } = typed.reference(at)
            && typed.env().variable(name).is_some()
        {
            steps.push(name.as_str().into());
            steps.reverse();
            todo.append(&mut pending);
            return Some(steps);
        }
        match &ast[at].kind {
            ExprKind::Select { operand, field, .. } => {
                steps.push(field.as_str().into());
                at = *operand;
            }
            ExprKind::Call { function, args, .. } if is_index(function) => {
                let [operand, key] = args.as_slice() else { return None };
                match literal_text(typed, *key) {
                    Some(key) => steps.push(key),
                    None => {
                        // A computed key: everything at and below the map can matter.
                        steps.clear();
                        pending.push(*key);
                    }
                }
                at = *operand;
            }
            _ => return None,
        }
    }
}

fn is_index(function: &str) -> bool {
    [operator::INDEX, operator::OPTIONAL_INDEX, operator::OPTIONAL_SELECT].iter().any(|operator| *operator == function)
}

fn literal_text(typed: &TypedAst, id: ExprId) -> Option<Box<str>> {
    match &typed.ast()[id].kind {
        ExprKind::Literal(Literal::String(text)) => Some(text.as_ref().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
