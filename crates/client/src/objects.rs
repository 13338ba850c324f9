//! Reading and writing objects of one resource, as typed views or as plain documents.

use std::fmt::Write as _;
use std::marker::PhantomData;

use api::json::{Value, from_value, to_value};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::Error;
use crate::resources::{Resource, encode};

/// Which objects of a collection are meant.
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

/// How a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, which knows the keys of lists.
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Json => "application/json-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::StrategicMerge => "application/strategic-merge-patch+json",
            Patch::Apply => "application/apply-patch+yaml",
        }
    }
}

/// How an object is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// How long the object may take to end.
    pub grace_period_seconds: Option<i64>,
    /// Delete only this one, not another of the same name.
    pub uid: Option<String>,
    /// Delete only this version.
    pub resource_version: Option<String>,
    /// What happens to what the object owns: `Background`, `Foreground` or `Orphan`.
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
    /// Where a watch can go on.
    pub resource_version: String,
}

/// The objects of one resource.
#[derive(Debug, Clone)]
pub struct Objects<T> {
    client: Client,
    resource: Resource,
    form: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Objects<T> {
    pub(crate) fn new(client: Client, resource: Resource) -> Self {
        Self { client, resource, form: PhantomData }
    }

    async fn answer(&self, method: Method, path: &str, content_type: &str, body: String) -> Result<Value, Error> {
        Ok(api::json::parse(&self.client.send(method, path, content_type, body).await?)?)
    }

    async fn write(&self, method: Method, path: &str, object: &T) -> Result<T, Error> {
        let mut body = to_value(object)?;
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion", self.resource.api_version());
            fields.insert("kind", &*self.resource.kind);
        }
        let answer = self.answer(method, path, "application/json", api::json::to_string(&body)).await?;
        Ok(from_value(&answer)?)
    }

    /// The object of this name.
    ///
    /// # Errors
    /// [`Error::is_not_found`] and others.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<T, Error> {
        let path = self.resource.path(namespace, name, "");
        Ok(from_value(&self.answer(Method::GET, &path, "", String::new()).await?)?)
    }

    /// All objects that are selected, as they are now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list(&self, selection: &Selection) -> Result<List<T>, Error> {
        let path = self.resource.path(&selection.namespace, "", "");
        let selectors = selection.query();
        let query = selectors.strip_prefix('&').map(|query| format!("?{query}")).unwrap_or_default();
        let answer = self.answer(Method::GET, &format!("{path}{query}"), "", String::new()).await?;
        let items = answer.get("items").and_then(Value::as_array).unwrap_or_default();
        Ok(List {
            items: items.iter().map(from_value).collect::<Result<_, _>>()?,
            resource_version: answer.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned(),
        })
    }

    /// Creates an object.
    ///
    /// # Errors
    /// [`Error::is_already_exists`] and others.
    pub async fn create(&self, namespace: &str, object: &T) -> Result<T, Error> {
        self.write(Method::POST, &self.resource.path(namespace, "", ""), object).await
    }

    /// Replaces an object. A typed view knows only some fields: the others are lost, so prefer [`patch`](Self::patch).
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the object has changed since it was read, and others.
    pub async fn update(&self, namespace: &str, name: &str, object: &T) -> Result<T, Error> {
        self.write(Method::PUT, &self.resource.path(namespace, name, ""), object).await
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_status(&self, namespace: &str, name: &str, object: &T) -> Result<T, Error> {
        self.write(Method::PUT, &self.resource.path(namespace, name, "status"), object).await
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
        Ok(from_value(&answer)?)
    }

    /// Posts to what stands below an object, such as `binding` or `eviction`.
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
        let path = self.resource.path(namespace, name, "");
        let body = api::json::to_string(&how.body());
        self.client.send(Method::DELETE, &path, "application/json", body).await?;
        Ok(())
    }
}
