//! Objects in the client's version, where a webhook converts them.
//!
//! For all other resources nothing happens here: their objects are converted where they are shown.

use std::sync::Arc;

use api::json::Value;
use bytes::Bytes;
use cache::stored::{self, ServedObject};
use cache::{Entry, FoundObjects, View};
use store::Revision;

use super::Call;
use crate::custom::converted::UnconvertibleObject;
use crate::custom::serving::ServedVersion;
use crate::wire::answer::Answer;
use crate::wire::request::Verb;
use crate::wire::status::{Failure, Result};

impl Call<'_> {
    /// The version of a definition that the request is about, if a webhook converts its objects.
    pub(super) fn webhook(&self) -> Option<&Arc<ServedVersion>> {
        self.custom().filter(|custom| custom.has_webhook())
    }

    /// A stored object in the client's version, converted now.
    pub(super) async fn converted(&self, object: &Arc<ServedObject>) -> Result<Arc<ServedObject>> {
        let Some(custom) = self.webhook() else { return Ok(object.clone()) };
        custom.converted(object).await.map_err(|why| self.undecodable(object, &why))
    }

    /// A stored object in the client's version, from which a change starts. Kubernetes: what is deleted comes from the
    /// store, what is changed from the cache of the version.
    pub(super) async fn old(&self, object: &Arc<ServedObject>) -> Result<Value> {
        let Some(custom) = self.webhook() else { return Ok(self.decode(object)) };
        let deletes = matches!(self.target.verb, Some(Verb::Delete | Verb::DeleteCollection));
        let converted = if deletes { custom.converted(object).await } else { custom.shared(object).await };
        let converted = converted.map_err(|why| self.undecodable(object, &why))?;
        Ok(self.decode(&converted))
    }

    /// Found objects in the client's version. With `is_lenient` those that cannot be converted are left out.
    pub(super) async fn all_converted(&self, found: FoundObjects, is_lenient: bool) -> Result<FoundObjects> {
        if self.webhook().is_none() {
            return Ok(found);
        }
        let entries = self.entries_converted(found.objects.iter().cloned().collect(), is_lenient).await?;
        Ok(FoundObjects { revision: found.revision, objects: View::of(entries) })
    }

    /// As [`Call::all_converted`], for entries of the cache or the store.
    pub(super) async fn entries_converted(&self, entries: Vec<Entry>, is_lenient: bool) -> Result<Vec<Entry>> {
        let Some(custom) = self.webhook() else { return Ok(entries) };
        let cache = self.cache();
        // The cache's own instance holds what was converted before.
        let known = |(key, object): Entry| {
            let cached = cache.get(&key).filter(|cached| cached.revision == object.revision);
            (key, cached.unwrap_or(object))
        };
        let entries = entries.into_iter().map(known).collect();
        custom.all_converted(entries, is_lenient).await.map_err(|it| self.unreadable(&it))
    }

    /// An object for the store.
    pub(super) async fn encoded(&self, object: &mut Value) -> Result<Bytes> {
        let encoded = match self.custom() {
            Some(custom) => custom.encoded(object).await.map_err(Failure::unclassified)?,
            None => stored::encode(object),
        };
        encoded.ok_or_else(|| Failure::internal("the object has no metadata"))
    }

    /// Fails as a write would, if the object cannot be converted to the stored version.
    pub(super) async fn check_encoding(&self, object: &Value) -> Result<()> {
        if self.webhook().is_some() {
            self.encoded(&mut object.clone()).await?;
        }
        Ok(())
    }

    /// The answer that shows one stored object in the form that was asked for.
    pub(super) async fn answer_stored(&self, code: u16, object: &Arc<ServedObject>) -> Result<Answer> {
        let converted = self.converted(object).await?;
        self.answer(code, &converted)
    }

    /// As [`Call::answer_stored`], or as the object was converted before.
    pub(super) async fn answer_shared(&self, code: u16, object: &Arc<ServedObject>) -> Result<Answer> {
        let Some(custom) = self.webhook() else { return self.answer(code, object) };
        let converted = custom.shared(object).await.map_err(|why| self.undecodable(object, &why))?;
        self.answer(code, &converted)
    }

    /// Converts an object that was just written to the other versions in the background.
    pub(super) fn warm(&self, key: String, revision: Revision) {
        if self.webhook().is_none() {
            return;
        }
        let servings = self.server.customs.snapshot().versions(self.resource.group, self.resource.plural);
        let (cache, resource) = (self.server.cache.clone(), self.cache());
        ServedVersion::warm(servings, async move {
            cache.reach(revision).await.ok()?;
            resource.get(&key)
        });
    }

    /// The failure of a request for one object.
    fn undecodable(&self, object: &ServedObject, why: &str) -> Box<Failure> {
        let key = self.key();
        let key = key.strip_prefix("/registry").unwrap_or(&key);
        Failure::internal(corrupt(key, object.revision, why))
    }

    /// The failure of a request for many objects.
    fn unreadable(&self, UnconvertibleObject { key, revision, why }: &UnconvertibleObject) -> Box<Failure> {
        let why = corrupt(key, *revision, why);
        let message = format!("failed to read one or more {} from the storage: {why}", self.resource.qualified());
        let cause = api::json!({"reason": "UnexpectedServerResponse", "message": why, "field": (&**key)});
        Failure::new(500, "StorageReadError", message)
            .with_detail("name", "list")
            .with_detail("group", self.resource.group)
            .with_detail("kind", self.resource.plural)
            .with_detail("causes", Value::Array(vec![cause]))
    }
}

fn corrupt(key: &str, revision: Revision, why: &str) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {why}"
    )
}
