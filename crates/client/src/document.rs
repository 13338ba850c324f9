//! Objects as components hold them: whole documents, typed views of them, or both.
//!
//! A view has only some fields, so views are read and never written. Writes are complete: a document, or one of
//! the few types with all fields ([`CompleteObject`]).

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use api::json::{ConvertError, Value, to_value};
use api::meta::v1::{Object, ObjectMeta};
use api::shared::Pool;

use crate::decoded::{DecodedObjects, Id};
use crate::resources::{Resource, ServedView};

/// A whole object together with a typed view of it. Clones share both.
///
/// It dereferences to the view; changes start from [`value`](Self::value).
#[derive(Debug)]
pub struct Document<T> {
    value: Arc<Value>,
    view: Arc<T>,
}

impl<T> Clone for Document<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), view: self.view.clone() }
    }
}

impl<T> PartialEq for Document<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || self.value == other.value
    }
}

impl<T> Deref for Document<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.view
    }
}

impl<T> Document<T> {
    /// The whole object.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The whole object, to be changed and written.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::clone(&self.value)
    }

    /// The view, to be kept on its own.
    #[must_use]
    pub fn view(&self) -> &Arc<T> {
        &self.view
    }
}

impl<T: Object> Document<T> {
    /// Reads the view of an object.
    ///
    /// # Errors
    /// Where the object does not fit the view.
    pub fn new(value: impl Into<Arc<Value>>) -> Result<Self, ConvertError> {
        let value = value.into();
        Ok(Self { view: Arc::new(T::read(&value)?), value })
    }

    /// Metadata of the object.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        Object::metadata(&*self.view)
    }
}

/// The form in which a component keeps objects of a kind: a view, a [`Document`], or its own projection.
pub trait KeptForm: Sized + Send + Sync + 'static {
    /// Path of the objects.
    const RESOURCE: Resource;

    /// Converts an object to the kept form.
    ///
    /// # Errors
    /// Where the object does not have the expected form.
    fn keep(document: Arc<Value>) -> Result<Self, ConvertError>;

    /// Like [`keep`](Self::keep), for an object that may be cached, and whose parts may be shared.
    #[doc(hidden)]
    fn keep_sharing(document: Arc<Value>, _others: &DecodeContext<'_>) -> Result<Self, ConvertError> {
        Self::keep(document)
    }
}

/// Context for decoding an object.
pub struct DecodeContext<'a> {
    /// The parts of all objects.
    pub(crate) pool: &'a Pool,
    /// Cached forms of this object.
    pub(crate) decoded: Option<(&'a DecodedObjects, Id)>,
}

impl DecodeContext<'_> {
    /// Reads the view of an object.
    fn view<T: Object>(&self, document: &Value) -> Result<T, ConvertError> {
        let mut view = T::read(document)?;
        self.pool.share(&mut view);
        Ok(view)
    }
}

impl<T: ServedView> KeptForm for T {
    const RESOURCE: Resource = T::RESOURCE;

    fn keep(document: Arc<Value>) -> Result<Self, ConvertError> {
        T::read(&document)
    }

    fn keep_sharing(document: Arc<Value>, others: &DecodeContext<'_>) -> Result<Self, ConvertError> {
        others.view(&document)
    }
}

impl<T: ServedView> KeptForm for Document<T> {
    const RESOURCE: Resource = T::RESOURCE;

    fn keep(document: Arc<Value>) -> Result<Self, ConvertError> {
        Document::new(document)
    }

    fn keep_sharing(value: Arc<Value>, others: &DecodeContext<'_>) -> Result<Self, ConvertError> {
        let view = match others.decoded {
            None => Arc::new(others.view(&value)?),
            Some((decoded, id)) => match decoded.get(id) {
                Some(view) => view,
                None => decoded.put(id, Arc::new(others.view(&value)?)),
            },
        };
        Ok(Self { value, view })
    }
}

/// An object with metadata, whole or as a view.
pub trait HasMetadata {
    /// Metadata of the object.
    fn metadata(&self) -> &ObjectMeta;
}

impl<T: Object> HasMetadata for T {
    fn metadata(&self) -> &ObjectMeta {
        Object::metadata(self)
    }
}

impl<T: Object> HasMetadata for Document<T> {
    fn metadata(&self) -> &ObjectMeta {
        Document::metadata(self)
    }
}

/// An object with all fields, which may be written.
pub trait CompleteObject {
    /// The whole object.
    ///
    /// # Errors
    /// If it cannot be represented in JSON.
    fn whole(&self) -> Result<Cow<'_, Value>, ConvertError>;
}

impl CompleteObject for Value {
    fn whole(&self) -> Result<Cow<'_, Value>, ConvertError> {
        Ok(Cow::Borrowed(self))
    }
}

impl<T> CompleteObject for Document<T> {
    fn whole(&self) -> Result<Cow<'_, Value>, ConvertError> {
        Ok(Cow::Borrowed(self.value()))
    }
}

macro_rules! complete {
    ($($type:ty),* $(,)?) => {
        $(impl CompleteObject for $type {
            fn whole(&self) -> Result<Cow<'_, Value>, ConvertError> {
                to_value(self).map(Cow::Owned)
            }
        })*
    };
}

complete!(api::coordination::v1::Lease, api::core::v1::Event);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use api::core::v1::Pod;
    use api::types::Kind;

    use super::*;

    #[test]
    fn fields_outside_the_view_are_written() {
        let text = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","command":["run"],"unheard":1}]}}"#;
        let document: Document<Pod> = Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(document.metadata().name, "p");
        assert_eq!(document.spec.containers.len(), 1);
        assert_eq!(api::json::to_string(&document.whole().unwrap()), text);
    }

    /// An object in which every field of the type is set.
    fn sample(kind: Kind) -> Value {
        match kind {
            Kind::Bool => true.into(),
            Kind::Int32 | Kind::Int64 => 7.into(),
            Kind::Time => "2026-01-02T03:04:05Z".into(),
            Kind::MicroTime => "2026-01-02T03:04:05.000006Z".into(),
            Kind::List(item) => Value::Array(vec![sample(*item)]),
            Kind::Map(item) => api::json!({"key": (sample(*item))}),
            Kind::Struct(of) => {
                let mut object = api::json::Object::new();
                // `selfLink` is no longer set by anyone.
                for field in of.fields.iter().filter(|field| field.name != "selfLink") {
                    object.insert(field.name, sample(field.kind));
                }
                object.into()
            }
            _ => "text".into(),
        }
    }

    #[test]
    fn the_types_that_are_written_know_all_their_fields() {
        fn check<T: Object + CompleteObject>() {
            let all = sample(Kind::Struct(api::types::by_kind(T::GROUP, T::VERSION, T::KIND).unwrap()));
            let view = T::read(&all).unwrap();
            assert_eq!(*view.whole().unwrap(), all, "{}", T::KIND);
        }
        check::<api::coordination::v1::Lease>();
        check::<api::core::v1::Event>();
    }
}
