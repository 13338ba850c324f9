//! Every typed view names only fields that the type has, with the types they have; objects survive the round trip.

use api::json::{self, ConvertError, Value};
use api::meta::v1::Object;
use api::types::{self, Kind};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Decodes values by the table of types: requests every field of each struct, all of which must exist.
#[derive(Clone, Copy)]
struct Probe {
    kind: Kind,
    /// Whether this is inside a schema: schemas are recursive, and the second level ends it.
    in_schema: bool,
}

impl Probe {
    fn inner(self, kind: Kind) -> Probe {
        let in_schema = self.in_schema || matches!(self.kind, Kind::Struct(it) if it.name == "JSONSchemaProps");
        Probe { kind, in_schema }
    }

    fn mismatch(self, asked: &str) -> ConvertError {
        de::Error::custom(format!("asked for {asked}, the type has {:?}", short(self.kind)))
    }
}

fn short(kind: Kind) -> String {
    match kind {
        Kind::Struct(it) => it.go_type(),
        Kind::List(inner) => format!("[]{}", short(*inner)),
        Kind::Map(inner) => format!("map of {}", short(*inner)),
        other => format!("{other:?}"),
    }
}

struct Fields {
    probe: Probe,
    names: std::vec::IntoIter<(String, Kind)>,
    current: Option<(String, Kind)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = ConvertError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConvertError> {
        self.current = self.names.next();
        let Some((name, _)) = &self.current else { return Ok(None) };
        seed.deserialize(de::value::StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConvertError> {
        let (name, kind) = self.current.take().unwrap();
        seed.deserialize(self.probe.inner(kind)).map_err(|error| de::Error::custom(format!("{name}.{error}")))
    }
}

struct One(Option<Probe>);

impl<'de> SeqAccess<'de> for One {
    type Error = ConvertError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ConvertError> {
        self.0.take().map(|probe| seed.deserialize(probe)).transpose()
    }
}

macro_rules! numbers {
    ($($method:ident $pattern:pat,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
            match self.kind {
                $pattern => visitor.visit_i64(1),
                _ => Err(self.mismatch(stringify!($method))),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Probe {
    type Error = ConvertError;

    numbers! {
        deserialize_i8 Kind::Int32,
        deserialize_i16 Kind::Int32,
        deserialize_i32 Kind::Int32,
        deserialize_i64 Kind::Int64,
        deserialize_u8 Kind::Int32,
        deserialize_u16 Kind::Int32,
        deserialize_u32 Kind::Int32,
        deserialize_u64 Kind::Int64,
        deserialize_f32 Kind::Float64,
        deserialize_f64 Kind::Float64,
    }

    serde::forward_to_deserialize_any! { char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier i128 u128 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::Quantity | Kind::String => visitor.visit_str("1"),
            Kind::IntOrString => visitor.visit_i64(1),
            Kind::SchemaOrBool => visitor.visit_bool(true),
            Kind::SchemaOrList => visitor.visit_seq(One(None)),
            _ => visitor.visit_str("any"),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::Bool => visitor.visit_bool(true),
            _ => Err(self.mismatch("bool")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::String | Kind::Bytes => visitor.visit_str("text"),
            Kind::Time | Kind::MicroTime => visitor.visit_str("2020-01-02T03:04:05Z"),
            Kind::Duration => visitor.visit_str("1s"),
            _ => Err(self.mismatch("string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::Quantity => visitor.visit_str("1"),
            _ => Err(self.mismatch("newtype")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::List(inner) => visitor.visit_seq(One(Some(self.inner(*inner)))),
            _ => Err(self.mismatch("list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.kind {
            Kind::Map(inner) => {
                let names = vec![("key".to_owned(), *inner)];
                visitor.visit_map(Fields { probe: self, names: names.into_iter(), current: None })
            }
            _ => Err(self.mismatch("map")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        let Kind::Struct(it) = self.kind else { return Err(self.mismatch("struct")) };
        let mut names = Vec::new();
        for name in fields {
            let field =
                it.field(name).ok_or_else(|| de::Error::custom(format!("{name}: no such field in {}", it.name)))?;
            names.push(((*name).to_owned(), field.kind));
        }
        if self.in_schema && it.name == "JSONSchemaProps" {
            names.clear();
        }
        visitor.visit_map(Fields { probe: self, names: names.into_iter(), current: None })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        visitor.visit_unit()
    }
}

fn check<T: Object + PartialEq + std::fmt::Debug>() {
    let it = types::by_kind(T::GROUP, T::VERSION, T::KIND).unwrap_or_else(|| panic!("no kind {}", T::KIND));
    let view = T::deserialize(Probe { kind: Kind::Struct(it), in_schema: false });
    let view = view.unwrap_or_else(|error| panic!("{}: {error}", T::KIND));
    let value = json::to_value(&view).unwrap();
    assert_eq!(json::from_value::<T>(&value).unwrap(), view, "{}", T::KIND);
}

#[test]
fn views_fit_their_types() {
    check::<api::core::v1::Pod>();
    check::<api::core::v1::Binding>();
    check::<api::core::v1::Node>();
    check::<api::core::v1::Namespace>();
    check::<api::core::v1::Event>();
    check::<api::core::v1::PersistentVolume>();
    check::<api::core::v1::PersistentVolumeClaim>();
    check::<api::apps::v1::Deployment>();
    check::<api::apps::v1::ReplicaSet>();
    check::<api::apps::v1::DaemonSet>();
    check::<api::apps::v1::StatefulSet>();
    check::<api::batch::v1::Job>();
    check::<api::batch::v1::CronJob>();
    check::<api::scheduling::v1::PriorityClass>();
    check::<api::storage::v1::StorageClass>();
    check::<api::storage::v1::CSINode>();
    check::<api::storage::v1::CSIStorageCapacity>();
    check::<api::coordination::v1::Lease>();
    check::<api::policy::v1::PodDisruptionBudget>();
    check::<api::apiextensions::v1::CustomResourceDefinition>();
    check::<api::resource::v1::DeviceClass>();
    check::<api::resource::v1::ResourceSlice>();
    check::<api::resource::v1::ResourceClaim>();
    check::<api::resource::v1::ResourceClaimTemplate>();
}

#[test]
fn new_fields_are_read_and_written() {
    let value = json::parse(
        br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"affinity":{"nodeAffinity":{
            "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchCELExpressions":["true"]}]}}},
            "tolerations":[{"tolerationSeconds":0,"expression":"taint.key == 'a'"}]}}"#,
    )
    .unwrap();
    let pod: api::core::v1::Pod = json::from_value(&value).unwrap();
    assert_eq!(pod.spec.tolerations[0].expression, "taint.key == 'a'");
    assert_eq!(pod.spec.tolerations[0].toleration_seconds, Some(0));
    assert_eq!(json::to_value(&pod).unwrap(), value);
    let unknown: Value = json::to_value(&api::core::v1::Pod::default()).unwrap();
    assert_eq!(json::to_string(&unknown), "{}");
}
