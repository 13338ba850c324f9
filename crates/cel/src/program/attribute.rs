//! Variables with their selections and indices: one step of the plan, priced as cel-go prices attributes.

use std::mem;

use super::machine::{EvalResult, Machine, put};
use super::node::{
    Attribute, AttributeStrategy, Base, CollectNode, ConditionalNode, Kind, Node, Qualifier, QualifierKey,
};
use super::trace::Tracer;
use crate::value::{ErrorKind, EvalError, HostData, Map, MapShape, Str, UnknownValue, Value};

/// The kind of lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookupKind {
    /// The value; it is an error if there is none.
    Value,
    /// The value, if there is one.
    Maybe,
    /// The presence of the value.
    Presence,
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// Evaluates an attribute as an independent part of the expression: a variable or selection costs 1.
    pub(super) fn eval_attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let mut value = Value::Null;
        self.eval_attribute_into(attribute, &mut value)?;
        Ok(value)
    }

    /// Evaluates an attribute into the place of its result.
    #[inline]
    pub(super) fn eval_attribute_into(
        &mut self,
        attribute: &'a Attribute,
        out: &mut Value<'a>,
    ) -> Result<(), EvalError> {
        match (attribute.way, &attribute.base) {
            (AttributeStrategy::Local, Base::Local(slot)) => {
                self.charge(1)?;
                match self.slot(*slot) {
                    // The commonest variables are keys and elements that borrow their text.
                    Some(Value::String(Str::Borrowed(text))) => put(out, Value::str(text)),
                    Some(Value::Error(error)) => return Err(error.clone()),
                    Some(value) => put(out, value.clone()),
                    None => {}
                }
                Ok(())
            }
            (AttributeStrategy::Field | AttributeStrategy::Path | AttributeStrategy::Variable, _) => {
                if let Some(path) = attribute.text_path() {
                    if self.read_shaped(attribute, |data, shape| shape.read_path(data, path, out)) == Some(true)
                        && !matches!(out, Value::Error(_) | Value::Unknown(_))
                        && self.try_charge(attribute.path_cost())
                    {
                        return Ok(());
                    }
                    // The value that was read is discarded.
                    *out = Value::Null;
                }
                match self.walk(attribute) {
                    Some(value) if self.try_charge(attribute.path_cost()) => put(out, value),
                    _ => put(out, self.eval_any_attribute(attribute)?),
                }
                Ok(())
            }
            _ => {
                put(out, self.eval_any_attribute(attribute)?);
                Ok(())
            }
        }
    }

    /// The text that an operand borrows, paid for; nothing has happened where it is anything else.
    #[inline(always)]
    pub(super) fn read_text(&mut self, node: &'a Node) -> Option<&'a str> {
        let Kind::Attribute(attribute) = &node.kind else { return None };
        let (text, cost) = match (attribute.way, &attribute.base) {
            (AttributeStrategy::Local, Base::Local(slot)) => match self.slot(*slot)? {
                Value::String(Str::Borrowed(text)) => (*text, 1),
                _ => return None,
            },
            (AttributeStrategy::Field, Base::Variable(name)) => {
                match (self.input.object(name), attribute.qualifiers.first()) {
                    (Some(object), Some(Qualifier { key: QualifierKey::Constant(Value::String(field)), .. })) => {
                        (object.text(field)?, 2)
                    }
                    _ => return None,
                }
            }
            (AttributeStrategy::Path, _) => (self.walk_to_text(attribute)?, attribute.path_cost()),
            _ => return None,
        };
        self.try_charge(cost).then_some(text)
    }

    /// Reads from the base of an attribute, if that is a part of the host's data.
    #[inline(always)]
    fn read_shaped<R>(
        &self,
        attribute: &'a Attribute,
        read: impl FnOnce(&'a HostData, &'a dyn MapShape) -> R,
    ) -> Option<R> {
        match &attribute.base {
            Base::Variable(name) => match &self.input.resolve(name) {
                Some(Value::Map(Map::Shaped(data, shape))) => Some(read(*data, *shape)),
                _ => None,
            },
            Base::Local(slot) => match self.slot(*slot) {
                Some(Value::Map(Map::Shaped(data, shape))) => Some(read(*data, *shape)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The text at the end of a path.
    #[inline(never)]
    fn walk_to_text(&self, attribute: &'a Attribute) -> Option<&'a str> {
        if let Some(path) = attribute.text_path()
            && let Some(text) = self.read_shaped(attribute, |data, shape| shape.text_at(data, path))
        {
            return text;
        }
        match self.walk(attribute)? {
            Value::String(Str::Borrowed(text)) => Some(text),
            _ => None,
        }
    }

    /// The value at the end of a path, if no part of the path is missing or special.
    #[inline(always)]
    fn walk(&self, attribute: &'a Attribute) -> Option<Value<'a>> {
        let mut qualifiers = attribute.qualifiers.iter();
        let mut value = match (&attribute.base, qualifiers.next()) {
            (Base::Variable(name), None) => self.input.resolve(name),
            (Base::Variable(name), Some(first)) => self.step(self.input.resolve(name).as_ref()?, first),
            (Base::Local(slot), Some(first)) => self.step(self.slot(*slot)?, first),
            _ => return None,
        };
        for qualifier in qualifiers {
            value = self.step(value.as_ref()?, qualifier);
        }
        if matches!(value, Some(Value::Error(_) | Value::Unknown(_))) { None } else { value }
    }

    #[inline(always)]
    fn step(&self, value: &Value<'a>, qualifier: &'a Qualifier) -> Option<Value<'a>> {
        let key = match &qualifier.key {
            QualifierKey::Constant(key) => key,
            QualifierKey::Attribute(Attribute { base: Base::Local(slot), .. }) => self.slot(*slot)?,
            QualifierKey::Attribute(_) => return None,
        };
        match (value, key) {
            (Value::Object(object), Value::String(field)) => object.get(field),
            (Value::Map(map), Value::String(_) | Value::Int(_)) => map.get(key),
            (Value::List(list), Value::Int(index)) => list.get(usize::try_from(*index).ok()?),
            _ => None,
        }
    }

    #[inline(never)]
    fn eval_any_attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let result = self.resolve(attribute);
        if let Err(error) = &result
            && error.is_fatal()
        {
            return result;
        }
        if attribute.presence_test {
            // Reading costs 1, a conditional nothing, and the test takes 1 back unless it has a price of its own.
            let reading = u64::from(!matches!(attribute.base, Base::Conditional(_)));
            let testing = u64::from(!self.program.presence_test_has_cost);
            self.refund(testing.saturating_sub(reading));
            self.charge(reading.saturating_sub(testing))?;
            return match result? {
                Value::Optional(value) => Ok(Value::Bool(value.is_some())),
                other => Ok(other),
            };
        }
        if !matches!(attribute.base, Base::Conditional(_)) {
            self.charge(1)?;
        }
        result
    }

    /// The value of an attribute, as a branch of a conditional or as a key: only its qualifiers cost.
    pub(super) fn resolve(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        if let (Base::Value(Node { kind: Kind::Collect(collect), .. }), Some(index), false) =
            (&attribute.base, attribute.first_index(), T::ENABLED)
        {
            return self.resolve_picked(collect, index, attribute);
        }
        let object = match &attribute.base {
            Base::Variable(name) => match self.input.resolve(name) {
                Some(value) => value,
                None => return Err(no_such_attribute(name)),
            },
            Base::Local(slot) => self.slot(*slot).cloned().unwrap_or(Value::Null),
            Base::LazyLocal { slot, init } => self.read_lazy(*slot, *init)?,
            Base::Value(node) => self.eval(node)?,
            Base::Conditional(conditional) => self.resolve_conditional(conditional)?,
        };
        let object = match object {
            Value::Error(error) => return Err(error),
            Value::Unknown(unknown) if matches!(attribute.base, Base::Variable(_)) => self.as_seen_here(unknown),
            object => object,
        };
        if attribute.qualifiers.is_empty() { Ok(object) } else { self.qualify_all(object, attribute) }
    }

    /// `list.filter(…)[index]`: the list is not built. The cost is the same as with one.
    fn resolve_picked(&mut self, collect: &'a CollectNode, index: usize, attribute: &'a Attribute) -> EvalResult<'a> {
        match self.pick(collect, index) {
            Ok(found) => {
                self.charge(1)?;
                let element = found.ok_or_else(|| index_out_of_bounds(index))?;
                self.qualify_from(1, element, false, attribute)
            }
            Err(Ok(unknown)) => self.qualify_all(unknown, attribute),
            Err(Err(error)) => Err(error),
        }
    }

    fn read_lazy(&mut self, slot: usize, init: usize) -> EvalResult<'a> {
        if let Some(value) = self.slot(slot) {
            return Ok(value.clone());
        }
        let program = self.program;
        // The cached value outlives the loops in which it is first read, so it must not depend on their
        // variables.
        let drawn = self.tracer().recall().map(|recall| mem::take(&mut recall.drawn));
        let value = match program.lazies.get(init).map(|node| self.eval(node)) {
            Some(Ok(value)) => value,
            Some(Err(fatal)) if fatal.is_fatal() => return Err(fatal),
            Some(Err(error)) => Value::Error(error),
            None => Value::Null,
        };
        if let (Some(recall), Some(drawn)) = (self.tracer().recall(), drawn) {
            recall.drawn = drawn;
        }
        self.set_slot(slot, value.clone());
        Ok(value)
    }

    fn resolve_conditional(&mut self, conditional: &'a ConditionalNode) -> EvalResult<'a> {
        match self.eval(&conditional.condition)? {
            Value::Bool(true) => self.resolve(&conditional.truthy),
            Value::Bool(false) => self.resolve(&conditional.falsy),
            Value::Unknown(unknown) => self.resolve_either(conditional, &unknown),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn qualify_all(&mut self, object: Value<'a>, attribute: &'a Attribute) -> EvalResult<'a> {
        match object {
            Value::Optional(Some(value)) => self.qualify_from(0, Value::clone(&value), true, attribute),
            absent @ Value::Optional(None) => Ok(absent),
            other => self.qualify_from(0, other, false, attribute),
        }
    }

    /// Follows the qualifiers from one on.
    fn qualify_from(
        &mut self,
        first: usize,
        mut object: Value<'a>,
        mut optional: bool,
        attribute: &'a Attribute,
    ) -> EvalResult<'a> {
        let last = attribute.qualifiers.len().saturating_sub(1);
        for (index, qualifier) in attribute.qualifiers.iter().enumerate().skip(first) {
            optional |= qualifier.optional;
            let tests_presence = attribute.presence_test && index == last;
            let ask = match (tests_presence, optional) {
                (true, _) => LookupKind::Presence,
                (false, true) => LookupKind::Maybe,
                (false, false) => LookupKind::Value,
            };
            let found = self.qualify(&object, qualifier, ask);
            match (&found, optional) {
                (Err(fatal), _) if fatal.is_fatal() => {}
                // In a chain of optionals, only present values cost.
                (Ok(Some(_)), true) | (_, false) => self.charge(1)?,
                _ => {}
            }
            object = match found? {
                Some(Value::Error(error)) => return Err(error),
                Some(unknown @ Value::Unknown(_)) if tests_presence => {
                    return Ok(if optional { unknown.blurred() } else { unknown });
                }
                Some(_) if tests_presence && !optional => Value::Bool(true),
                None if tests_presence && !optional => Value::Bool(false),
                Some(value) => value,
                None => return Ok(Value::Optional(None)),
            };
        }
        match object {
            unknown @ Value::Unknown(_) if optional => Ok(unknown.blurred()),
            value if optional && !matches!(value, Value::Unknown(_)) => Ok(Value::some(value)),
            value => Ok(value),
        }
    }

    fn qualify(
        &mut self,
        object: &Value<'a>,
        qualifier: &'a Qualifier,
        ask: LookupKind,
    ) -> Result<Option<Value<'a>>, EvalError> {
        match &qualifier.key {
            QualifierKey::Constant(key) => self.look_up(object, key, ask),
            QualifierKey::Attribute(attribute) => {
                let key = self.resolve(attribute)?;
                match key {
                    Value::Unknown(key) => self.look_up_keys(object, &key, ask),
                    Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                        self.look_up(object, &key, ask)
                    }
                    other => Err(EvalError::other(format!("invalid qualifier type: {}", other.go_type_name()))),
                }
            }
        }
    }

    /// Looks up a key that is unknown.
    #[cold]
    fn look_up_keys(
        &self,
        object: &Value<'a>,
        key: &UnknownValue<'a>,
        ask: LookupKind,
    ) -> Result<Option<Value<'a>>, EvalError> {
        Self::look_up_unknown(key, None, ask == LookupKind::Presence, |key| match key {
            Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                self.look_up(object, key, ask)
            }
            _ => Err(EvalError::no_such_overload()),
        })
    }

    fn look_up(&self, object: &Value<'a>, key: &Value<'_>, ask: LookupKind) -> Result<Option<Value<'a>>, EvalError> {
        let found = match object {
            Value::Map(map) => map.get(key),
            Value::Object(object) => match key {
                Value::String(field) if ask == LookupKind::Presence => object.has(field).then_some(Value::Bool(true)),
                Value::String(field) => object.get(field),
                _ => return Err(EvalError::no_such_overload()),
            },
            Value::List(list) => {
                let index = index_of(key)?;
                return match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                    None if ask == LookupKind::Value => Err(index_out_of_bounds(key)),
                    found => Ok(found),
                };
            }
            Value::Unknown(unknown) => {
                let index = index_of(key).ok().and_then(|index| usize::try_from(index).ok());
                return Self::look_up_unknown(unknown, index, ask == LookupKind::Presence, |object| {
                    self.look_up(object, key, ask)
                });
            }
            Value::Error(error) => return Err(error.clone()),
            Value::Optional(_) if ask != LookupKind::Value => return Ok(None),
            _ if ask != LookupKind::Value && !self.program.error_on_bad_presence_test => return Ok(None),
            _ => return Err(EvalError::no_such_key(key)),
        };
        if found.is_none() && ask == LookupKind::Value { Err(EvalError::no_such_key(key)) } else { Ok(found) }
    }
}

/// A list's index: an integer, or another number that is one.
fn index_of(key: &Value<'_>) -> Result<i64, EvalError> {
    let index = match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) => crate::value::double_to_int_lossless(*index),
        other => {
            return Err(EvalError::other(format!("unsupported index type '{}' in list", other.type_name())));
        }
    };
    index.ok_or_else(|| EvalError::other(format!("unsupported index value {key} in list")))
}

#[cold]
fn index_out_of_bounds(index: impl std::fmt::Display) -> EvalError {
    EvalError::new(ErrorKind::NoSuchIndex, format!("index out of bounds: {index}"))
}

#[cold]
fn no_such_attribute(name: &str) -> EvalError {
    EvalError::new(ErrorKind::NoSuchAttribute, format!("no such attribute(s): {name}"))
}
