//! Reading and writing the objects of one resource.
//!
//! Reads return the form that the caller [keeps](KeptForm): a typed view, a [`Document`](crate::Document), or the
//! plain document. Writes require a [complete](CompleteObject) object; a view is not, so it cannot be written by
//! mistake.

use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;

use api::core::v1::Pod;
use api::json::{ConvertError, Value};

use http::Method;

use crate::client::Client;
use crate::document::{CompleteObject, HasMetadata, KeptForm};
use crate::error::Error;
use crate::resources::{Resource, encode};

/// Selects objects of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// The namespace; empty means all.
    pub namespace: String,
    /// A label selector; empty means all.
    pub labels: String,
    /// A field selector; empty means all.
    pub fields: String,
}

impl Selection {
    /// Describes a selection for logs.
    pub(crate) fn describe(&self, resource: &Resource) -> String {
        let mut text = resource.plural.to_string();
        if !resource.group.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, ".{}", resource.group);
        }
        for (what, value) in [("namespace", &self.namespace), ("labels", &self.labels), ("fields", &self.fields)] {
            if !value.is_empty() {
                let _ = write!(text, " ({what} {value})");
            }
        }
        text
    }

    /// The selectors as parameters of a URL, each with `&` in front.
    pub(crate) fn query(&self) -> String {
        let mut query = String::new();
        for (name, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                // Writing to a string does not fail.
                let _ = write!(query, "&{name}={}", encode(value));
            }
        }
        query
    }
}

/// Type of a patch. Server-side apply is [`Objects::apply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch, which uses the keys of lists.
    StrategicMerge,
}

const APPLY: &str = "application/apply-patch+yaml";

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Json => "application/json-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::StrategicMerge => "application/strategic-merge-patch+json",
        }
    }
}

/// Options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Grace period of the deletion.
    pub grace_period_seconds: Option<i64>,
    /// Delete only this one, not another of the same name.
    pub uid: Option<String>,
    /// Delete only this version.
    pub resource_version: Option<String>,
    /// Policy for dependents: `Background`, `Foreground` or `Orphan`.
    pub propagation_policy: Option<&'static str>,
}

impl Deletion {
    fn body(&self) -> Value {
        let mut body = api::json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        let mut preconditions = Value::object();
        if let (Some(fields), Some(conditions)) = (body.as_object_mut(), preconditions.as_object_mut()) {
            if let Some(seconds) = self.grace_period_seconds {
                fields.insert("gracePeriodSeconds", seconds);
            }
            if let Some(policy) = self.propagation_policy {
                fields.insert("propagationPolicy", policy);
            }
            for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
                if let Some(value) = value {
                    conditions.insert(name, value);
                }
            }
            if !conditions.is_empty() {
                fields.insert("preconditions", preconditions);
            }
        }
        body
    }
}

/// A list and the version at which it holds.
#[derive(Debug, Clone)]
pub struct List<T> {
    /// The objects.
    pub items: Vec<T>,
    /// Version from which a watch can continue.
    pub resource_version: String,
}

/// Forms in which a response can be read: a [`KeptForm`] form, or the plain document.
pub trait ReadForm: Sized {
    #[doc(hidden)]
    fn read(document: Value) -> Result<Self, ConvertError>;
}

impl<T: KeptForm> ReadForm for T {
    fn read(document: Value) -> Result<Self, ConvertError> {
        T::keep(Arc::new(document))
    }
}

impl ReadForm for Value {
    fn read(document: Value) -> Result<Self, ConvertError> {
        Ok(document)
    }
}

/// The objects of one resource.
#[derive(Debug)]
pub struct Objects<T> {
    client: Client,
    resource: Resource,
    form: PhantomData<fn() -> T>,
}

impl Client {
    /// All objects of a kind, read as `T`: a typed view, or a [`Document`](crate::Document) of it.
    #[must_use]
    pub fn objects<T: KeptForm>(&self) -> Objects<T> {
        Objects::new(self.clone(), T::RESOURCE)
    }

    /// All objects of a resource, as plain documents.
    #[must_use]
    pub fn documents(&self, resource: Resource) -> Objects<Value> {
        Objects::new(self.clone(), resource)
    }
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), resource: self.resource.clone(), form: PhantomData }
    }
}

impl<T: ReadForm> Objects<T> {
    pub(crate) fn new(client: Client, resource: Resource) -> Self {
        Self { client, resource, form: PhantomData }
    }

    async fn answer(&self, method: Method, path: &str, content_type: &str, body: String) -> Result<Value, Error> {
        Ok(api::json::parse(&self.client.send(method, path, content_type, body).await?)?)
    }

    async fn write(&self, method: Method, path: &str, object: &impl CompleteObject) -> Result<T, Error> {
        let body = self.text_of(object)?;
        Ok(T::read(self.answer(method, path, "application/json", body).await?)?)
    }

    /// Serializes an object with its type: objects in lists and templates have none.
    fn text_of(&self, object: &impl CompleteObject) -> Result<String, Error> {
        let whole = object.whole()?;
        if whole.get("kind").is_some() && whole.get("apiVersion").is_some() {
            return Ok(api::json::to_string(&whole));
        }
        let mut whole = whole.into_owned();
        if let Some(fields) = whole.as_object_mut() {
            fields.insert("apiVersion", self.resource.api_version());
            fields.insert("kind", &*self.resource.kind);
        }
        Ok(api::json::to_string(&whole))
    }

    /// The object of this name.
    ///
    /// # Errors
    /// [`Error::is_not_found`] and others.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<T, Error> {
        let path = self.resource.path(namespace, name, "");
        Ok(T::read(self.answer(Method::GET, &path, "", String::new()).await?)?)
    }

    /// All objects that are selected, as they are now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list(&self, selection: &Selection) -> Result<List<T>, Error> {
        let mut answer = self.answer(Method::GET, &self.collection(selection), "", String::new()).await?;
        let resource_version = answer.text_at(&["metadata", "resourceVersion"]).to_owned();
        let items = answer.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        Ok(List { items: items.into_iter().map(T::read).collect::<Result<_, _>>()?, resource_version })
    }

    fn collection(&self, selection: &Selection) -> String {
        let path = self.resource.path(&selection.namespace, "", "");
        match selection.query().strip_prefix('&') {
            Some(query) => format!("{path}?{query}"),
            None => path,
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// [`Error::is_already_exists`] and others.
    pub async fn create(&self, namespace: &str, object: &impl CompleteObject) -> Result<T, Error> {
        self.write(Method::POST, &self.resource.path(namespace, "", ""), object).await
    }

    /// Creates an object without reading the response.
    pub(crate) async fn send_new(&self, namespace: &str, object: &impl CompleteObject) -> Result<(), Error> {
        let (path, body) = (self.resource.path(namespace, "", ""), self.text_of(object)?);
        self.client.send(Method::POST, &path, "application/json", body).await?;
        Ok(())
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the object has changed since it was read, and others.
    pub async fn update(&self, namespace: &str, name: &str, object: &impl CompleteObject) -> Result<T, Error> {
        self.write(Method::PUT, &self.resource.path(namespace, name, ""), object).await
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_status(&self, namespace: &str, name: &str, object: &impl CompleteObject) -> Result<T, Error> {
        self.write(Method::PUT, &self.resource.path(namespace, name, "status"), object).await
    }

    /// Reads a subresource of an object, such as `scale`.
    ///
    /// # Errors
    /// [`Error::is_not_found`] and others.
    pub async fn get_below(&self, namespace: &str, name: &str, subresource: &str) -> Result<Value, Error> {
        let path = self.resource.path(namespace, name, subresource);
        self.answer(Method::GET, &path, "", String::new()).await
    }

    /// Replaces a subresource of an object, such as `finalize`, `approval` or `scale`.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_below(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let path = self.resource.path(namespace, name, subresource);
        self.answer(Method::PUT, &path, "application/json", api::json::to_string(body)).await
    }

    /// Changes parts of an object, or of its `subresource` if that is not empty.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn patch(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        kind: Patch,
        patch: &Value,
    ) -> Result<T, Error> {
        let path = self.resource.path(namespace, name, subresource);
        let answer = self.answer(Method::PATCH, &path, kind.content_type(), api::json::to_string(patch)).await?;
        Ok(T::read(answer)?)
    }

    /// Changes parts of an object without reading the response.
    pub(crate) async fn send_patch(
        &self,
        namespace: &str,
        name: &str,
        kind: Patch,
        patch: &Value,
    ) -> Result<(), Error> {
        let (path, body) = (self.resource.path(namespace, name, ""), api::json::to_string(patch));
        self.client.send(Method::PATCH, &path, kind.content_type(), body).await?;
        Ok(())
    }

    /// Applies the fields that `manager` owns, and creates the object if it does not exist. With `force`,
    /// fields of other managers are taken over; without it they are a conflict.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if others own some of the fields, and others.
    pub async fn apply(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        fields: &Value,
        manager: &str,
        force: bool,
    ) -> Result<T, Error> {
        let path = self.resource.path(namespace, name, subresource);
        let path = format!("{path}?fieldManager={}&force={force}", encode(manager));
        Ok(T::read(self.answer(Method::PATCH, &path, APPLY, self.text_of(fields)?).await?)?)
    }

    /// Posts to a subresource of an object, such as `eviction`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn post(&self, namespace: &str, name: &str, subresource: &str, body: &Value) -> Result<Value, Error> {
        let path = self.resource.path(namespace, name, subresource);
        self.answer(Method::POST, &path, "application/json", api::json::to_string(body)).await
    }

    /// Deletes an object, or begins to.
    ///
    /// # Errors
    /// [`Error::is_not_found`] and others.
    pub async fn delete(&self, namespace: &str, name: &str, how: &Deletion) -> Result<(), Error> {
        self.remove(&self.resource.path(namespace, name, ""), how).await
    }

    /// Deletes all objects that are selected, or begins to.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_collection(&self, selection: &Selection, how: &Deletion) -> Result<(), Error> {
        self.remove(&self.collection(selection), how).await
    }

    async fn remove(&self, path: &str, how: &Deletion) -> Result<(), Error> {
        let body = api::json::to_string(&how.body());
        self.client.send(Method::DELETE, path, "application/json", body).await?;
        Ok(())
    }
}

impl Objects<Pod> {
    /// Binds a pod to a node: this pod, not another of the same name.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the pod is bound already or is another one, and others.
    pub async fn bind(&self, pod: &impl HasMetadata, node: &str) -> Result<(), Error> {
        let metadata = pod.metadata();
        let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
        let binding = api::json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = self.resource.path(namespace, name, "binding");
        self.client.send(Method::POST, &path, "application/json", api::json::to_string(&binding)).await?;
        Ok(())
    }
}
