//! Typed views encoded into a value.

use serde::ser::{self, Serialize};

use super::{ConvertError, Float, Object, Text, Value};

/// Encodes anything that serde can, fields in the order of their declaration.
///
/// # Errors
/// A map whose keys are not strings.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ConvertError> {
    value.serialize(Encoder)
}

pub(super) fn value_from_u64(value: u64) -> Value {
    match i64::try_from(value) {
        Ok(value) => Value::Int(value),
        Err(_) => Float::parse(&value.to_string()).map_or(Value::Null, Value::Float),
    }
}

struct Encoder;

struct ItemsEncoder {
    items: Vec<Value>,
    variant: Option<&'static str>,
}

struct FieldsEncoder {
    fields: Object,
    key: Option<Text>,
    variant: Option<&'static str>,
}

impl FieldsEncoder {
    fn finish(self) -> Value {
        wrap(self.variant, Value::Object(self.fields))
    }
}

fn wrap(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Value::Object(Object::from_iter([(name, value)])),
        None => value,
    }
}

macro_rules! encode_int {
    ($($method:ident: $type:ty)*) => {
        $(fn $method(self, value: $type) -> Result<Value, ConvertError> {
            Ok(Value::Int(i64::from(value)))
        })*
    };
}

impl ser::Serializer for Encoder {
    type Ok = Value;
    type Error = ConvertError;
    type SerializeSeq = ItemsEncoder;
    type SerializeTuple = ItemsEncoder;
    type SerializeTupleStruct = ItemsEncoder;
    type SerializeTupleVariant = ItemsEncoder;
    type SerializeMap = FieldsEncoder;
    type SerializeStruct = FieldsEncoder;
    type SerializeStructVariant = FieldsEncoder;

    encode_int! {
        serialize_i8: i8 serialize_i16: i16 serialize_i32: i32 serialize_i64: i64
        serialize_u8: u8 serialize_u16: u16 serialize_u32: u32
    }

    fn serialize_u64(self, value: u64) -> Result<Value, ConvertError> {
        Ok(value_from_u64(value))
    }

    fn serialize_bool(self, value: bool) -> Result<Value, ConvertError> {
        Ok(Value::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, ConvertError> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<Value, ConvertError> {
        Ok(Value::Float(Float::new(value)))
    }

    fn serialize_char(self, value: char) -> Result<Value, ConvertError> {
        Ok(Value::String(value.to_string().into()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, ConvertError> {
        Ok(Value::String(value.into()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, ConvertError> {
        Ok(Value::Array(value.iter().map(|byte| Value::Int(i64::from(*byte))).collect()))
    }

    fn serialize_none(self) -> Result<Value, ConvertError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, ConvertError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, ConvertError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, ConvertError> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, ConvertError> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, ConvertError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, ConvertError> {
        Ok(wrap(Some(variant), to_value(value)?))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<ItemsEncoder, ConvertError> {
        Ok(ItemsEncoder { items: Vec::with_capacity(length.unwrap_or(0)), variant: None })
    }

    fn serialize_tuple(self, length: usize) -> Result<ItemsEncoder, ConvertError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<ItemsEncoder, ConvertError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<ItemsEncoder, ConvertError> {
        Ok(ItemsEncoder { items: Vec::with_capacity(length), variant: Some(variant) })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<FieldsEncoder, ConvertError> {
        Ok(FieldsEncoder { fields: Object::with_capacity(length.unwrap_or(0)), key: None, variant: None })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<FieldsEncoder, ConvertError> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<FieldsEncoder, ConvertError> {
        Ok(FieldsEncoder { fields: Object::with_capacity(length), key: None, variant: Some(variant) })
    }
}

macro_rules! encode_items {
    ($($trait:ident $method:ident)*) => {
        $(impl ser::$trait for ItemsEncoder {
            type Ok = Value;
            type Error = ConvertError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
                self.items.push(to_value(value)?);
                Ok(())
            }

            fn end(self) -> Result<Value, ConvertError> {
                Ok(wrap(self.variant, Value::Array(self.items)))
            }
        })*
    };
}

encode_items! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! encode_fields {
    ($($trait:ident)*) => {
        $(impl ser::$trait for FieldsEncoder {
            type Ok = Value;
            type Error = ConvertError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), ConvertError> {
                self.fields.insert(key, to_value(value)?);
                Ok(())
            }

            fn end(self) -> Result<Value, ConvertError> {
                Ok(self.finish())
            }
        })*
    };
}

encode_fields! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for FieldsEncoder {
    type Ok = Value;
    type Error = ConvertError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ConvertError> {
        match to_value(key)? {
            Value::String(key) => self.key = Some(key),
            Value::Int(key) => self.key = Some(key.to_string().into()),
            _ => return Err(ConvertError("map keys must be strings".into())),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
        let key = self.key.take().ok_or_else(|| ConvertError("value without key".into()))?;
        self.fields.insert(key, to_value(value)?);
        Ok(())
    }

    fn end(self) -> Result<Value, ConvertError> {
        Ok(self.finish())
    }
}

impl Serialize for Value {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Float(value) => serializer.serialize_f64(value.get()),
            Value::String(value) => serializer.serialize_str(value),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Object(fields) => serializer.collect_map(fields.iter()),
        }
    }
}
