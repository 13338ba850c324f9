//! Typed views decoded from a value.
//!
//! As in Go's decoder, `null` leaves a field at its default: it counts as missing in a struct, and as the zero value
//! of a string, number, list or map.

use serde::de::{
    self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{ConvertError, Object, Text, Value};

/// Decodes a typed view; strings may be borrowed from the value.
///
/// # Errors
/// The first part of the value that does not fit the type.
pub fn from_value<'de, T: de::Deserialize<'de>>(value: &'de Value) -> Result<T, ConvertError> {
    T::deserialize(value)
}

/// A newtype of this name is offered the text of a number as it was read.
pub(crate) const NUMBER_TEXT: &str = "$celplane::NumberText";

impl Value {
    fn mismatch(&self, expected: &dyn de::Expected) -> ConvertError {
        let found = match self {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Int(value) => Unexpected::Signed(*value),
            Value::Float(value) => Unexpected::Float(value.get()),
            Value::String(value) => Unexpected::Str(value),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        de::Error::invalid_type(found, expected)
    }
}

macro_rules! deserialize_number {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
            match self {
                Value::Null => visitor.visit_i64(0),
                Value::Int(value) => visitor.visit_i64(*value),
                Value::Float(value) => visitor.visit_f64(value.get()),
                _ => Err(self.mismatch(&visitor)),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for &'de Value {
    type Error = ConvertError;

    deserialize_number! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    forward_to_deserialize_any! { i128 u128 char unit unit_struct identifier }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(value.get()),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Object(fields) => visitor.visit_map(Fields::new(fields, false)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(value) => visitor.visit_borrowed_str(value),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self {
            Value::Int(value) if name == NUMBER_TEXT => visitor.visit_string(value.to_string()),
            Value::Float(value) if name == NUMBER_TEXT => visitor.visit_string(value.text()),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_seq(Items([].iter())),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_map(Fields::new(&EMPTY, false)),
            Value::Object(fields) => visitor.visit_map(Fields::new(fields, false)),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self {
            Value::Null => visitor.visit_map(Fields::new(&EMPTY, true)),
            Value::Object(fields) => visitor.visit_map(Fields::new(fields, true)),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Object(fields) if fields.len() == 1 => match fields.entry_at(0) {
                Some((name, content)) => visitor.visit_enum(Variant { name, content }),
                None => Err(self.mismatch(&visitor)),
            },
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        visitor.visit_unit()
    }
}

static EMPTY: Object = Object::new();

struct Items<'de>(std::slice::Iter<'de, Value>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ConvertError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ConvertError> {
        self.0.next().map(|item| seed.deserialize(item)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Fields<'de> {
    object: &'de Object,
    next: usize,
    skip_null: bool,
}

impl<'de> Fields<'de> {
    fn new(object: &'de Object, skip_null: bool) -> Self {
        Self { object, next: 0, skip_null }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = ConvertError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConvertError> {
        while let Some((key, value)) = self.object.entry_at(self.next) {
            if !(self.skip_null && value.is_null()) {
                return seed.deserialize(de::value::BorrowedStrDeserializer::new(key)).map(Some);
            }
            self.next = self.next.saturating_add(1);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConvertError> {
        let entry = self.object.entry_at(self.next);
        self.next = self.next.saturating_add(1);
        let (key, value) = entry.ok_or_else(|| ConvertError("value without key".into()))?;
        seed.deserialize(value).map_err(|error| ConvertError(prefixed(key, &error.0)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.object.len().saturating_sub(self.next))
    }
}

/// Prefixes a message with the key, so that a decode error names its field.
fn prefixed(key: &str, message: &str) -> String {
    // The text before the first colon is a path, unless it contains a space and is serde's.
    let is_path = message.split_once(": ").is_some_and(|(path, _)| !path.contains(' '));
    let separator = if is_path { "." } else { ": " };
    format!("{key}{separator}{message}")
}

struct Variant<'de> {
    name: &'de str,
    content: &'de Value,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = ConvertError;
    type Variant = &'de Value;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, &'de Value), ConvertError> {
        let name = seed.deserialize(de::value::BorrowedStrDeserializer::new(self.name))?;
        Ok((name, self.content))
    }
}

impl<'de> VariantAccess<'de> for &'de Value {
    type Error = ConvertError;

    fn unit_variant(self) -> Result<(), ConvertError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ConvertError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ConvertError> {
        de::Deserializer::deserialize_seq(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, ConvertError> {
        de::Deserializer::deserialize_map(self, visitor)
    }
}

impl<'de> IntoDeserializer<'de, ConvertError> for &'de Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("any JSON value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
                deserializer.deserialize_any(self)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(super::ser::value_from_u64(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut out = Vec::new();
                while let Some(item) = items.next_element()? {
                    out.push(item);
                }
                Ok(Value::Array(out))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
                let mut out = Object::new();
                while let Some((key, value)) = fields.next_entry::<std::borrow::Cow<'_, str>, Value>()? {
                    out.insert(Text::from(key), value);
                }
                Ok(Value::Object(out))
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}
