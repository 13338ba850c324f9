//! Assignability of types, and the binding of type variables.
//!
//! The rules are those of cel-go's checker: `dyn` and failed expressions are compatible with everything, null
//! with nullable types, a wrapper with its primitive. A failed attempt leaves no bindings.

use crate::syntax::ast::Name;
use crate::types::{OpaqueType, Primitive, Type};

/// A type, or a part of a generic signature whose variables are counted from `base`.
///
/// So a signature is compared with operands without being copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'t> {
    of: &'t Type,
    base: u32,
}

impl<'t> View<'t> {
    /// A type whose variables are the checker's own.
    pub(super) fn plain(of: &'t Type) -> Self {
        View { of, base: 0 }
    }

    /// A part of a generic signature.
    pub(super) fn generic(of: &'t Type, base: u32) -> Self {
        View { of, base }
    }

    fn part(self, of: &'t Type) -> Self {
        View { of, base: self.base }
    }

    fn is_variable(self) -> bool {
        matches!(self.of, Type::Var(_) | Type::Param(_))
    }

    /// The type on its own, with the checker's variables.
    fn to_type(self) -> Type {
        if self.base == 0 {
            return self.of.clone();
        }
        rebuild(self, &mut |variable| match variable.of {
            Type::Var(number) => Type::Var(number.saturating_add(variable.base)),
            other => other.clone(),
        })
    }
}

/// A type variable: one of the checker's, or a type parameter in the type of a declared variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Numbered(u32),
    Named(usize),
}

/// Types that are bound to type variables so far.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    numbered: Vec<Option<Type>>,
    named: Vec<(Name, Option<Type>)>,
    /// Previous contents of the slots that were written since the attempt began.
    trail: Vec<(Slot, Option<Type>)>,
    next: u32,
}

impl Bindings {
    /// Takes this many new variables; answers the first one's number.
    pub(super) fn fresh(&mut self, count: u32) -> u32 {
        let first = self.next;
        self.next = first.saturating_add(count);
        first
    }

    /// A new variable.
    pub(super) fn fresh_variable(&mut self) -> Type {
        Type::Var(self.fresh(1))
    }

    /// Whether the first type is assignable to the second; binds type variables as needed.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable([(View::plain(from), View::plain(to))])
    }

    /// Whether each first type is assignable to the second one; binds type variables as needed.
    pub(super) fn all_assignable<'t>(&mut self, pairs: impl IntoIterator<Item = (View<'t>, View<'t>)>) -> bool {
        let assignable = pairs.into_iter().all(|(from, to)| self.unify(from, to));
        if assignable {
            self.trail.clear();
        } else {
            while let Some((slot, earlier)) = self.trail.pop() {
                if let Some(held) = self.slot_mut(slot) {
                    *held = earlier;
                }
            }
        }
        assignable
    }

    fn unify(&mut self, from: View<'_>, to: View<'_>) -> bool {
        if to.is_variable() || from.is_variable() {
            return self.unify_variable(from, to);
        }
        match (from.of, to.of) {
            (Type::Dyn | Type::Any | Type::Error, _) | (_, Type::Dyn | Type::Any | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) | (Type::Duration, Type::Duration) | (Type::Timestamp, Type::Timestamp) => {
                true
            }
            (Type::Object(a), Type::Object(b)) => a == b,
            (Type::List(a), Type::List(b)) => self.unify(from.part(a), to.part(b)),
            (Type::Map(a), Type::Map(b)) => {
                self.unify(from.part(&a.0), to.part(&b.0)) && self.unify(from.part(&a.1), to.part(&b.1))
            }
            (Type::Opaque(a), Type::Opaque(b)) => {
                let (first, second) = (&a.parameters, &b.parameters);
                a.name == b.name
                    && first.len() == second.len()
                    && first.iter().zip(second).all(|(a, b)| self.unify(from.part(a), to.part(b)))
            }
            (a, b) => primitive(a).is_some_and(|a| primitive(b) == Some(a)),
        }
    }

    fn unify_variable(&mut self, from: View<'_>, to: View<'_>) -> bool {
        if let Some(slot) = self.slot(to) {
            match self.substitutes(from, to, slot) {
                Substitution::Valid => return true,
                Substitution::Conflict => return false,
                Substitution::Cyclic => {}
            }
        }
        match self.slot(from) {
            Some(slot) => self.substitutes(to, from, slot) == Substitution::Valid,
            // Only the second is a variable, and it would contain itself.
            None => false,
        }
    }

    /// Checks that `variable`, or the type bound to it, is compatible with `other`.
    fn substitutes(&mut self, other: View<'_>, variable: View<'_>, slot: Slot) -> Substitution {
        if is_exact(other, variable) {
            return Substitution::Valid;
        }
        if let Some(bound) = self.bound(slot).cloned() {
            let bound = View::plain(&bound);
            if is_exact(other, bound) {
                return Substitution::Valid;
            }
            if !self.unify(other, bound) {
                return Substitution::Conflict;
            }
            let general = most_general(other, bound);
            if !self.occurs(variable, general) {
                self.bind(slot, general.to_type());
            }
            return Substitution::Valid;
        }
        if self.occurs(variable, other) {
            return Substitution::Cyclic;
        }
        self.bind(slot, other.to_type());
        Substitution::Valid
    }

    /// Whether the variable is part of the type, directly or through bound types.
    fn occurs(&self, variable: View<'_>, within: View<'_>) -> bool {
        if is_exact(variable, within) {
            return true;
        }
        match within.of {
            Type::Var(_) | Type::Param(_) => self
                .known_slot(within)
                .and_then(|slot| self.bound(slot))
                .is_some_and(|bound| self.occurs(variable, View::plain(bound))),
            Type::List(element) => self.occurs(variable, within.part(element)),
            Type::Map(entry) => {
                self.occurs(variable, within.part(&entry.0)) || self.occurs(variable, within.part(&entry.1))
            }
            Type::Type(Some(of)) => self.occurs(variable, within.part(of)),
            Type::Opaque(opaque) => opaque.parameters.iter().any(|part| self.occurs(variable, within.part(part))),
            _ => false,
        }
    }

    /// The type with all that is bound filled in; other variables stay.
    pub(super) fn substitute(&self, view: View<'_>) -> Type {
        rebuild(view, &mut |variable| match self.known_slot(variable).and_then(|slot| self.bound(slot)) {
            Some(bound) => self.substitute(View::plain(bound)),
            None => variable.to_type(),
        })
    }

    /// The type with all that is bound filled in, and `dyn` for other variables.
    pub(super) fn substitute_or_dyn(&self, value_type: &Type) -> Type {
        rebuild(View::plain(value_type), &mut |variable| match self
            .known_slot(variable)
            .and_then(|slot| self.bound(slot))
        {
            Some(bound) => self.substitute_or_dyn(bound),
            None => Type::Dyn,
        })
    }

    fn slot(&mut self, view: View<'_>) -> Option<Slot> {
        let known = self.known_slot(view);
        match view.of {
            Type::Param(name) if known.is_none() => {
                self.named.push((name.clone(), None));
                self.known_slot(view)
            }
            _ => known,
        }
    }

    fn known_slot(&self, view: View<'_>) -> Option<Slot> {
        match view.of {
            Type::Var(number) => Some(Slot::Numbered(number.saturating_add(view.base))),
            Type::Param(name) => self.named.iter().position(|(known, _)| known == name).map(Slot::Named),
            _ => None,
        }
    }

    fn bound(&self, slot: Slot) -> Option<&Type> {
        match slot {
            Slot::Numbered(number) => self.numbered.get(number as usize)?.as_ref(),
            Slot::Named(index) => self.named.get(index)?.1.as_ref(),
        }
    }

    fn slot_mut(&mut self, slot: Slot) -> Option<&mut Option<Type>> {
        match slot {
            Slot::Numbered(number) => self.numbered.get_mut(number as usize),
            Slot::Named(index) => self.named.get_mut(index).map(|(_, held)| held),
        }
    }

    fn bind(&mut self, slot: Slot, to: Type) {
        if let Slot::Numbered(number) = slot
            && self.numbered.len() <= number as usize
        {
            // Most expressions that need any variable need a few.
            let length = (number as usize).saturating_add(1);
            self.numbered.reserve(length.max(16).saturating_sub(self.numbered.len()));
            self.numbered.resize(length, None);
        }
        if let Some(held) = self.slot_mut(slot) {
            let earlier = held.replace(to);
            self.trail.push((slot, earlier));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Substitution {
    /// The types agree; the variable is bound to the more general one.
    Valid,
    /// The variable is bound to another type.
    Conflict,
    /// The variable is part of the other type.
    Cyclic,
}

/// The type with its variables replaced; parts without variables are shared.
fn rebuild(view: View<'_>, replace: &mut dyn FnMut(View<'_>) -> Type) -> Type {
    if !has_variable(view.of) {
        return view.of.clone();
    }
    match view.of {
        Type::List(element) => Type::list(rebuild(view.part(element), replace)),
        Type::Map(entry) => {
            let key = rebuild(view.part(&entry.0), replace);
            Type::map(key, rebuild(view.part(&entry.1), replace))
        }
        Type::Type(Some(of)) => Type::type_of(rebuild(view.part(of), replace)),
        Type::Opaque(opaque) => {
            let parameters = opaque.parameters.iter().map(|part| rebuild(view.part(part), replace)).collect();
            Type::Opaque(OpaqueType { name: opaque.name.clone(), parameters }.into())
        }
        _ => replace(view),
    }
}

/// Whether a part of the type is a variable.
pub(super) fn has_variable(of: &Type) -> bool {
    match of {
        Type::Var(_) | Type::Param(_) => true,
        Type::List(element) => has_variable(element),
        Type::Map(entry) => has_variable(&entry.0) || has_variable(&entry.1),
        Type::Type(Some(of)) => has_variable(of),
        Type::Opaque(opaque) => opaque.parameters.iter().any(has_variable),
        _ => false,
    }
}

/// The more general of two types that go together.
pub(super) fn more_general<'t>(first: &'t Type, second: &'t Type) -> &'t Type {
    most_general(View::plain(first), View::plain(second)).of
}

fn most_general<'t>(first: View<'t>, second: View<'t>) -> View<'t> {
    if is_as_general(first, second) { first } else { second }
}

fn is_as_general(first: View<'_>, second: View<'_>) -> bool {
    if first.of.is_dyn() || first.is_variable() {
        return true;
    }
    if second.of.is_dyn() || second.is_variable() {
        return false;
    }
    match (first.of, second.of) {
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(a), Type::List(b)) => is_as_general(first.part(a), second.part(b)),
        (Type::Map(a), Type::Map(b)) => {
            is_as_general(first.part(&a.0), second.part(&b.0)) && is_as_general(first.part(&a.1), second.part(&b.1))
        }
        (Type::Opaque(a), Type::Opaque(b)) => {
            let (one, other) = (&a.parameters, &b.parameters);
            a.name == b.name
                && one.len() == other.len()
                && one.iter().zip(other).all(|(a, b)| is_as_general(first.part(a), second.part(b)))
        }
        _ => is_exact(first, second),
    }
}

/// Whether the types are the same, ignoring whether a primitive may be null.
pub(super) fn is_same(first: &Type, second: &Type) -> bool {
    is_exact(View::plain(first), View::plain(second))
}

fn is_exact(first: View<'_>, second: View<'_>) -> bool {
    match (first.of, second.of) {
        (Type::Var(a), Type::Var(b)) => a.saturating_add(first.base) == b.saturating_add(second.base),
        (Type::Param(a), Type::Param(b)) | (Type::Object(a), Type::Object(b)) => a == b,
        (Type::List(a), Type::List(b)) => is_exact(first.part(a), second.part(b)),
        (Type::Map(a), Type::Map(b)) => {
            is_exact(first.part(&a.0), second.part(&b.0)) && is_exact(first.part(&a.1), second.part(&b.1))
        }
        (Type::Type(a), Type::Type(b)) => match (a, b) {
            (Some(a), Some(b)) => is_exact(first.part(a), second.part(b)),
            (a, b) => a.is_none() && b.is_none(),
        },
        (Type::Opaque(a), Type::Opaque(b)) => {
            let (one, other) = (&a.parameters, &b.parameters);
            a.name == b.name
                && one.len() == other.len()
                && one.iter().zip(other).all(|(a, b)| is_exact(first.part(a), second.part(b)))
        }
        (Type::Dyn, Type::Dyn)
        | (Type::Any, Type::Any)
        | (Type::Error, Type::Error)
        | (Type::Null, Type::Null)
        | (Type::Duration, Type::Duration)
        | (Type::Timestamp, Type::Timestamp) => true,
        (a, b) => primitive(a).is_some_and(|a| primitive(b) == Some(a)),
    }
}

/// The primitive, whether it may be null or not.
fn primitive(value_type: &Type) -> Option<Primitive> {
    Some(match value_type {
        Type::Bool => Primitive::Bool,
        Type::Int => Primitive::Int,
        Type::Uint => Primitive::Uint,
        Type::Double => Primitive::Double,
        Type::String => Primitive::String,
        Type::Bytes => Primitive::Bytes,
        Type::Wrapper(primitive) => *primitive,
        _ => return None,
    })
}

fn is_nullable(value_type: &Type) -> bool {
    matches!(
        value_type,
        Type::Null | Type::Wrapper(_) | Type::Opaque(_) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(notation: &str) -> Type {
        Type::parse(notation).unwrap()
    }

    #[track_caller]
    fn check(from: &str, to: &str, assignable: bool) {
        assert_eq!(Bindings::default().assignable(&parse(from), &parse(to)), assignable, "{from} to {to}");
    }

    #[test]
    fn null_is_assignable_to_nullable_types() {
        check("null", "timestamp", true);
        check("duration", "null", true);
        check("wrapper(int)", "null", true);
        check("null", "kubernetes.Node", true);
        check("null", "optional(int)", true);
        check("null", "int", false);
        check("list(int)", "null", false);
    }

    #[test]
    fn wrappers_go_with_their_primitive_both_ways() {
        check("wrapper(int)", "int", true);
        check("int", "wrapper(int)", true);
        check("uint", "wrapper(int)", false);
    }

    #[test]
    fn containers_go_with_their_like() {
        check("list(dyn)", "list(int)", true);
        check("map(string, int)", "map(string, string)", false);
        check("optional(int)", "optional(string)", false);
        check("type(int)", "type", true);
        check("opaque(net.IP)", "net.IP", false);
    }

    #[test]
    fn a_failed_attempt_leaves_nothing_behind() {
        let mut bindings = Bindings::default();
        let variable = bindings.fresh_variable();
        let pair = Type::map(variable.clone(), variable.clone());
        assert!(!bindings.assignable(&parse("map(int, string)"), &pair));
        assert_eq!(bindings.substitute(View::plain(&variable)), variable);
        assert!(bindings.assignable(&parse("map(int, int)"), &pair));
        assert_eq!(bindings.substitute(View::plain(&pair)), parse("map(int, int)"));
    }

    #[test]
    fn a_variable_cannot_contain_itself() {
        let mut bindings = Bindings::default();
        let variable = bindings.fresh_variable();
        assert!(!bindings.assignable(&Type::list(variable.clone()), &variable));
    }

    #[test]
    fn the_more_general_type_is_kept() {
        let mut bindings = Bindings::default();
        let variable = bindings.fresh_variable();
        assert!(bindings.assignable(&variable, &Type::Int));
        assert!(bindings.assignable(&variable, &Type::Dyn));
        assert_eq!(bindings.substitute(View::plain(&variable)), Type::Dyn);
    }
}
