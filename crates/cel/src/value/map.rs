//! Maps: built by an expression, or kept by the host.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::host::{HostData, HostMap, HostObject, MapShape};
use super::{ErrorKind, EvalError, Value};

/// A map of values.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Borrowed, for instance a constant of the program.
    Borrowed(&'a BTreeMap<Key<'a>, Value<'a>>),
    /// Shared.
    Shared(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// Kept by the host.
    Host(&'a dyn HostMap),
    /// A part of the host's data, and how to read it.
    Shaped(&'a HostData, &'a dyn MapShape),
}

/// A value that can be a map's key, ordered by kind and then by value.
///
/// Keys of different numeric kinds are different keys, as in cel-go; finding one looks across kinds.
#[derive(Clone, Debug)]
pub struct Key<'a>(Value<'a>);

impl<'a> Key<'a> {
    /// The value as a key that can be looked for; lists, maps, octets and the like are none.
    pub fn new(value: Value<'a>) -> Result<Self, EvalError> {
        match value {
            // Zero has two signs, but is one key.
            Value::Double(number) => Ok(Key(Value::Double(number + 0.0))),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::String(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::Type(_) => Ok(Key(value)),
            Value::Error(error) => Err(error),
            Value::Unknown(_) => Err(EvalError::undetermined()),
            Value::Bytes(_) => Err(EvalError::new(ErrorKind::Aborted, "internal error: octets are not a key of a map")),
            other => Err(EvalError::other(format!("unsupported key type: {}", other.type_name()))),
        }
    }

    /// The value as the key of an entry. As in cel-go, lists, maps and their like can stand there, but are never found again.
    pub fn of_entry(value: Value<'a>) -> Result<Self, EvalError> {
        match value {
            Value::List(_) | Value::Map(_) | Value::Optional(_) | Value::Object(_) | Value::Opaque(_) => Ok(Key(value)),
            other => Key::new(other),
        }
    }

    /// The key as a value.
    pub fn value(&self) -> &Value<'a> {
        &self.0
    }

    fn rank(&self) -> u8 {
        match self.0 {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::Uint(_) => 3,
            Value::Double(_) => 4,
            Value::String(_) => 5,
            Value::Duration(_) => 6,
            Value::Timestamp(_) => 7,
            Value::Type(_) => 8,
            _ => 9,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => a.total_cmp(b),
            (Value::String(a), Value::String(b)) => a.as_str().cmp(b.as_str()),
            (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::Type(a), Value::Type(b)) => a.name().cmp(b.name()),
            // What is never found needs some order only, and always the same.
            (a, b) if self.rank() == 9 && other.rank() == 9 => a.to_string().cmp(&b.to_string()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl<'a> Map<'a> {
    /// A map of the given entries; of equal keys the last wins.
    pub fn from_entries(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Result<Self, EvalError> {
        let mut map = BTreeMap::new();
        for (key, value) in entries {
            map.insert(Key::of_entry(key)?, value);
        }
        Ok(Map::Shared(Arc::new(map)))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Borrowed(map) => map.len(),
            Map::Shared(map) => map.len(),
            Map::Host(map) => map.len(),
            Map::Shaped(data, shape) => shape.len(*data),
        }
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a key; numbers are found across numeric kinds.
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match self {
            Map::Borrowed(map) => find(map, key).cloned(),
            Map::Shared(map) => find(map, key).cloned(),
            Map::Host(map) => map.get(key),
            Map::Shaped(data, shape) => shape.get(*data, key),
        }
    }

    /// The key is there; nothing where that is not known.
    pub fn contains(&self, key: &Value<'_>) -> Option<bool> {
        match self {
            Map::Borrowed(map) => presence(find(map, key)),
            Map::Shared(map) => presence(find(map, key)),
            Map::Host(map) if map.is_partial() => presence(map.get(key).as_ref()),
            Map::Host(map) => Some(map.contains(key)),
            Map::Shaped(data, shape) => Some(shape.contains(*data, key)),
        }
    }

    /// Whether some entries are unknown.
    pub fn is_partial(&self) -> bool {
        let is_unknown = |value: &Value<'_>| matches!(value, Value::Unknown(_));
        match self {
            Map::Borrowed(map) => map.values().any(is_unknown),
            Map::Shared(map) => map.values().any(is_unknown),
            Map::Host(map) => map.is_partial(),
            Map::Shaped(..) => false,
        }
    }

    /// Calls `visit` for each key and value, until it breaks.
    pub fn for_each(&self, mut visit: impl FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>) {
        match self {
            Map::Borrowed(map) => visit_all(map, &mut visit),
            Map::Shared(map) => visit_all(map, &mut visit),
            Map::Host(map) => map.for_each(&mut visit),
            Map::Shaped(data, shape) => shape.for_each(*data, &mut visit),
        }
    }

    /// All keys and values.
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        let mut entries = Vec::with_capacity(self.len());
        self.for_each(|key, value| {
            entries.push((key, value));
            ControlFlow::Continue(())
        });
        entries
    }

    /// Adds entries, in place if the map is not shared. Fails with the key that already exists.
    pub fn insert_all(
        self,
        entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>,
    ) -> Result<Result<Map<'a>, Value<'a>>, EvalError> {
        let mut shared = match self {
            Map::Shared(shared) => shared,
            Map::Borrowed(map) => Arc::new(map.clone()),
            Map::Host(_) | Map::Shaped(..) => match Map::from_entries(self.entries())? {
                Map::Shared(shared) => shared,
                other => return Ok(Ok(other)),
            },
        };
        let map = Arc::make_mut(&mut shared);
        for (key, value) in entries {
            match find(map, &key) {
                Some(Value::Unknown(_)) => return Err(EvalError::undetermined()),
                Some(_) => return Ok(Err(key)),
                None => {}
            }
            map.insert(Key::of_entry(key)?, value);
        }
        Ok(Ok(Map::Shared(shared)))
    }

    pub(super) fn into_owned(self) -> Map<'static> {
        owned(self.entries().into_iter())
    }

    pub(super) fn from_object(object: &dyn HostObject) -> Map<'static> {
        let mut fields = Vec::new();
        object.for_each(&mut |field, value| {
            fields.push((Value::string(field), value));
            ControlFlow::Continue(())
        });
        owned(fields.into_iter())
    }
}

fn presence(found: Option<&Value<'_>>) -> Option<bool> {
    match found {
        Some(Value::Unknown(_)) => None,
        found => Some(found.is_some()),
    }
}

fn owned<'a>(entries: impl Iterator<Item = (Value<'a>, Value<'a>)>) -> Map<'static> {
    let map =
        entries.filter_map(|(key, value)| Some((Key::of_entry(key.into_owned()).ok()?, value.into_owned()))).collect();
    Map::Shared(Arc::new(map))
}

fn visit_all<'a>(map: &BTreeMap<Key<'a>, Value<'a>>, visit: &mut impl FnMut(Value<'a>, Value<'a>) -> ControlFlow<()>) {
    for (key, value) in map {
        if visit(key.0.clone(), value.clone()).is_break() {
            return;
        }
    }
}

/// Finds a key, then the same number as another numeric kind. As in cel-go, an integer does not find a double.
fn find<'m, 'a>(map: &'m BTreeMap<Key<'a>, Value<'a>>, key: &Value<'_>) -> Option<&'m Value<'a>> {
    // A tree's keys outlive the key that is looked for; comparing them needs one lifetime for both.
    let map: &'m BTreeMap<Key<'_>, Value<'a>> = map;
    let exact = |key: Value<'_>| find_exact(map, &key);
    match key {
        Value::Int(number) => exact(Value::Int(*number))
            .or_else(|| u64::try_from(*number).ok().and_then(|number| exact(Value::Uint(number)))),
        Value::Uint(number) => exact(Value::Uint(*number))
            .or_else(|| i64::try_from(*number).ok().and_then(|number| exact(Value::Int(number)))),
        Value::Double(number) => exact(Value::Double(*number))
            .or_else(|| super::order::double_to_int_lossless(*number).and_then(|number| exact(Value::Int(number))))
            .or_else(|| super::order::double_to_uint_lossless(*number).and_then(|number| exact(Value::Uint(number)))),
        other => find_exact(map, other),
    }
}

fn find_exact<'m, 'a>(map: &'m BTreeMap<Key<'a>, Value<'a>>, key: &Value<'_>) -> Option<&'m Value<'a>> {
    // A scan is faster than a tree walk for the few entries that maps in expressions have, and compares borrowed keys.
    let key = Key::new(key.clone()).ok()?;
    if map.len() <= 8 {
        return map.iter().find(|(candidate, _)| compare(candidate, &key) == Ordering::Equal).map(|(_, value)| value);
    }
    let owned: Key<'static> = Key(key.0.into_owned());
    map.get(&owned)
}

fn compare(a: &Key<'_>, b: &Key<'_>) -> Ordering {
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: Value<'static>, b: Value<'static>, are_equal: bool) {
        let single = |key| Value::map([(key, Value::str("a"))]).unwrap();
        assert_eq!(single(a).equals(&single(b)), Ok(are_equal));
    }

    #[test]
    fn an_integer_does_not_find_a_double() {
        check(Value::Int(1), Value::Double(1.0), false);
        check(Value::Uint(1), Value::Double(1.0), false);
        check(Value::Double(1.0), Value::Int(1), true);
        check(Value::Double(1.0), Value::Uint(1), true);
        check(Value::Int(1), Value::Uint(1), true);
        check(Value::Uint(1), Value::Int(1), true);
    }
}
