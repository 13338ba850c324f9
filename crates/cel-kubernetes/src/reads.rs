//! Static analysis of the parts of its input that an expression reads.
//!
//! Callers evaluate once per distinct projection of the input onto the parts that are read: once per
//! combination of the labels that an expression names, instead of once per node. Comprehensions over lists are
//! analyzed: the reads from an element are reported under the step [`ELEMENT`]. If the analysis is undecided,
//! it reports that everything is read.

use std::collections::BTreeSet;

use cel::checker::{Reference, TypedAst};
use cel::syntax::ast::{Comprehension, ExprId, ExprKind, ListElement, Literal, Name, operator};
use cel::types::Type;

/// The step from a list to any of its elements. Reads of the list's length, or iteration over it, are not
/// reported.
pub const ELEMENT: &str = "[]";

/// Parts of the variables that an expression reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    paths: BTreeSet<Vec<Box<str>>>,
}

/// Keys of a map that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys<'r> {
    /// These keys, whether they exist or not.
    Some(BTreeSet<&'r str>),
    /// Any of them can matter.
    All,
}

impl Reads {
    /// Returns the reads of a checked expression.
    pub fn of(typed: &TypedAst) -> Reads {
        let mut reader = Reader { typed, locals: Vec::new(), reads: Reads::default() };
        reader.visit(typed.ast().root());
        reader.reads
    }

    /// The paths that are read, each with everything below it: variable, then fields and keys.
    pub fn paths(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.paths.iter().map(Vec::as_slice)
    }

    /// Returns the keys that are read at a path, such as `["node", "labels"]`.
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

type Path = Vec<Box<str>>;

/// Meaning of a comprehension variable.
enum LocalVariable {
    /// A part of the input.
    Part(Path),
    /// A list of parts of the input.
    Parts(Path),
    /// Any other value.
    Other,
}

struct Reader<'t> {
    typed: &'t TypedAst,
    /// Innermost last.
    locals: Vec<(&'t Name, LocalVariable)>,
    reads: Reads,
}

impl<'t> Reader<'t> {
    fn local(&self, name: &str) -> Option<&LocalVariable> {
        self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, local)| local)
    }

    fn visit(&mut self, id: ExprId) {
        let mut keys = Vec::new();
        if let Some(path) = self.path_of(id, &mut keys) {
            self.reads.paths.insert(path);
            keys.into_iter().for_each(|key| self.visit(key));
            return;
        }
        // An expression that uses a list of parts as a value can read all of them.
        if let Some(path) = self.parts_of(id) {
            self.reads.paths.insert(path);
            self.visit_list(id);
            return;
        }
        let typed = self.typed;
        match &typed.ast()[id].kind {
            ExprKind::Comprehension(it) => self.visit_comprehension(it),
            ExprKind::Call { function, target, args } if function == "size" => {
                for list in target.iter().chain(args) {
                    if self.parts_of(*list).is_some() { self.visit_list(*list) } else { self.visit(*list) }
                }
            }
            _ => typed.ast().children(id).for_each(|child| self.visit(child)),
        }
    }

    /// Visits a list that is only iterated: its elements are read elsewhere.
    fn visit_list(&mut self, id: ExprId) {
        let mut keys = Vec::new();
        if self.path_of(id, &mut keys).is_some() {
            keys.into_iter().for_each(|key| self.visit(key));
            return;
        }
        let typed = self.typed;
        match &typed.ast()[id].kind {
            ExprKind::Comprehension(it) => self.visit_comprehension(it),
            ExprKind::Ident(_) => {}
            _ => self.visit(id),
        }
    }

    fn visit_comprehension(&mut self, comprehension: &'t Comprehension) {
        let depth = self.locals.len();
        if self.is_binding(comprehension) {
            let local = self.what_is(comprehension.init);
            if let LocalVariable::Other = local {
                self.visit(comprehension.init);
            } else {
                self.visit_list(comprehension.init);
            }
            self.locals.push((&comprehension.accumulator, local));
            self.visit(comprehension.result);
            self.locals.truncate(depth);
            return;
        }
        let element = match self.parts_of(comprehension.range) {
            Some(path) => {
                self.visit_list(comprehension.range);
                LocalVariable::Part(path)
            }
            None => {
                self.visit(comprehension.range);
                LocalVariable::Other
            }
        };
        self.visit(comprehension.init);
        self.locals.push((&comprehension.accumulator, LocalVariable::Other));
        match &comprehension.second_variable {
            Some(second) => {
                self.locals.push((&comprehension.variable, LocalVariable::Other));
                self.locals.push((second, element));
            }
            None => self.locals.push((&comprehension.variable, element)),
        }
        self.visit(comprehension.condition);
        match self.kept(comprehension) {
            // The kept elements are read where the resulting list is read.
            Some(condition) => condition.into_iter().for_each(|condition| self.visit(condition)),
            None => self.visit(comprehension.step),
        }
        self.visit(comprehension.result);
        self.locals.truncate(depth);
    }

    /// Whether a comprehension is `cel.bind`: a loop that never runs names its first value.
    fn is_binding(&self, comprehension: &Comprehension) -> bool {
        matches!(&self.typed.ast()[comprehension.range].kind, ExprKind::List(elements) if elements.is_empty())
    }

    fn what_is(&self, id: ExprId) -> LocalVariable {
        match (self.path_of(id, &mut Vec::new()), self.parts_of(id)) {
            (Some(path), _) => LocalVariable::Part(path),
            (None, Some(path)) => LocalVariable::Parts(path),
            (None, None) => LocalVariable::Other,
        }
    }

    /// The path of the elements of a list, if these are parts of the input.
    fn parts_of(&self, id: ExprId) -> Option<Path> {
        if let Some(mut path) = self.path_of(id, &mut Vec::new()) {
            path.push(ELEMENT.into());
            return matches!(self.typed.type_of(id), Type::List(_)).then_some(path);
        }
        match &self.typed.ast()[id].kind {
            ExprKind::Ident(name) => match self.local(name) {
                Some(LocalVariable::Parts(path)) => Some(path.clone()),
                _ => None,
            },
            ExprKind::Comprehension(it) if self.kept(it).is_some() => self.parts_of(it.range),
            _ => None,
        }
    }

    /// Recognizes `filter`: a loop that keeps elements as they are. Answers its condition.
    fn kept(&self, comprehension: &Comprehension) -> Option<Option<ExprId>> {
        let ast = self.typed.ast();
        let element = comprehension.second_variable.as_ref().unwrap_or(&comprehension.variable);
        let is_kept = |id: ExprId| match &ast[id].kind {
            ExprKind::Call { function, args, .. } if *function == operator::ADD => match args.as_slice() {
                [_, list] => match &ast[*list].kind {
                    ExprKind::List(elements) => matches!(elements.as_slice(), [ListElement { value, optional: false }]
                        if matches!(&ast[*value].kind, ExprKind::Ident(name) if name == element)),
                    _ => false,
                },
                _ => false,
            },
            _ => false,
        };
        match &ast[comprehension.step].kind {
            ExprKind::Call { function, args, .. } if *function == operator::CONDITIONAL => match args.as_slice() {
                [condition, kept, _] if is_kept(*kept) => Some(Some(*condition)),
                _ => None,
            },
            _ => is_kept(comprehension.step).then_some(None),
        }
    }

    /// The path from a variable that a node is, if it is one; keys that are expressions are put on the list.
    fn path_of(&self, id: ExprId, keys: &mut Vec<ExprId>) -> Option<Path> {
        let typed = self.typed;
        let ast = typed.ast();
        let mut steps: Path = Vec::new();
        let mut pending = Vec::new();
        let mut at = id;
        // `'key' in map` reads one key of the map.
        if let ExprKind::Call { function, args, .. } = &ast[at].kind
            && *function == operator::IN
            && let [key, map] = args.as_slice()
            && let Some(key) = literal_text(typed, *key)
            && matches!(typed.type_of(*map), Type::Map(_))
        {
            steps.push(key);
            at = *map;
        }
        loop {
            if let ExprKind::Ident(name) = &ast[at].kind
                && let Some(local) = self.local(name)
            {
                let LocalVariable::Part(path) = local else { return None };
                steps.extend(path.iter().rev().cloned());
                steps.reverse();
                keys.append(&mut pending);
                return Some(steps);
            }
            if let Reference::Variable { name, .. } = typed.reference(at)
                && typed.env().variable(name).is_some()
            {
                steps.push(name.as_str().into());
                steps.reverse();
                keys.append(&mut pending);
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
                        None if matches!(typed.type_of(*operand), Type::List(_)) => {
                            steps.push(ELEMENT.into());
                            pending.push(*key);
                        }
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
