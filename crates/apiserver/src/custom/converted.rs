//! Objects of a definition with a conversion webhook, in the version that clients ask for.
//!
//! Lists and watches share what has been converted: the result is kept with the object in the cache. A single object is
//! converted by a new call, as in Kubernetes, where only lists and watches come from a cache per version.

use std::sync::Arc;

use api::json::Value;
use api::metadata;
use bytes::Bytes;
use cache::Entry;
use cache::stored::{self, ServedObject};
use registry::custom_resource::canonicalize;
use store::Revision;
use tokio::sync::Mutex;

use super::conversion::ConversionError;
use super::serving::ServedVersion;

/// Maximum number of objects in one review.
const BATCH_OBJECTS: usize = 100;
/// Number of bytes after which no further object is added to a review.
const BATCH_BYTES: usize = 2 << 20;
/// Number of locks, chosen by the revision of the object.
const LOCKS: usize = 16;

/// Locks under which an object is converted once for all who wait for it.
#[derive(Default)]
pub(super) struct Locks([Mutex<LastFailure>; LOCKS]);

/// The last conversion under a lock that failed: its object, the number of failures so far, and the text.
#[derive(Default)]
struct LastFailure {
    revision: Revision,
    count: u64,
    why: String,
}

impl Locks {
    fn of(&self, revision: Revision) -> Option<&Mutex<LastFailure>> {
        let at = revision.checked_rem(u64::try_from(LOCKS).unwrap_or(1)).unwrap_or_default();
        self.0.get(usize::try_from(at).unwrap_or_default())
    }
}

/// An object that cannot be shown in a version.
#[derive(Debug)]
pub(crate) struct UnconvertibleObject {
    pub(crate) key: Arc<str>,
    pub(crate) revision: Revision,
    pub(crate) why: String,
}

impl ServedVersion {
    /// Whether a webhook converts between the versions of the definition.
    pub(crate) fn has_webhook(&self) -> bool {
        self.converter.is_some()
    }

    /// Whether a stored object can only be shown once the webhook has converted it.
    fn needs_webhook(&self, object: &ServedObject) -> bool {
        self.has_webhook()
            && !object.is_converted()
            && !self.is_plain(object.revision)
            && object.text_at(&["apiVersion"]).as_deref() != Some(&*self.api_version())
    }

    fn api_version(&self) -> String {
        self.row().api_version(self.version())
    }

    /// A stored object in this version, converted now.
    ///
    /// # Errors
    /// The text of a failed conversion.
    pub(crate) async fn converted(&self, object: &Arc<ServedObject>) -> Result<Arc<ServedObject>, String> {
        if !self.needs_webhook(object) {
            return Ok(object.clone());
        }
        let mut converted = self.convert_stored(&[object], false).await?;
        Ok(converted.pop().unwrap_or_else(|| object.clone()))
    }

    /// As [`ServedVersion::converted`], or as it was converted before.
    ///
    /// # Errors
    /// The text of a failed conversion.
    pub(crate) async fn shared(&self, object: &Arc<ServedObject>) -> Result<Arc<ServedObject>, String> {
        if !self.needs_webhook(object) {
            return Ok(object.clone());
        }
        if let Some(kept) = object.conversion(self.edition, self.version()) {
            return Ok(kept);
        }
        let Some(lock) = self.locks.of(object.revision) else { return self.converted(object).await };
        let before = lock.try_lock().map(|last| last.count).ok();
        let mut last = lock.lock().await;
        if let Some(kept) = object.conversion(self.edition, self.version()) {
            return Ok(kept);
        }
        // The caller that was waited for has just failed with the same object.
        if before.is_none() && last.count > 0 && last.revision == object.revision {
            return Err(last.why.clone());
        }
        match self.convert_stored(&[object], true).await {
            Ok(mut converted) => Ok(converted.pop().unwrap_or_else(|| object.clone())),
            Err(why) => {
                let count = last.count.saturating_add(1);
                *last = LastFailure { revision: object.revision, count, why: why.clone() };
                Err(why)
            }
        }
    }

    /// Many objects in this version, as they were converted before or in batches now.
    ///
    /// # Errors
    /// The first object that cannot be converted. With `is_lenient` such objects are left out instead.
    pub(crate) async fn all_converted(
        &self,
        entries: Vec<Entry>,
        is_lenient: bool,
    ) -> Result<Vec<Entry>, UnconvertibleObject> {
        let mut missing: Vec<&Arc<ServedObject>> = Vec::new();
        let mut bytes = 0_usize;
        for (_, object) in &entries {
            if !self.needs_webhook(object) || object.conversion(self.edition, self.version()).is_some() {
                continue;
            }
            missing.push(object);
            bytes = bytes.saturating_add(object.json.len());
            if missing.len() >= BATCH_OBJECTS || bytes >= BATCH_BYTES {
                self.convert_batch(&missing).await;
                (missing, bytes) = (Vec::new(), 0);
            }
        }
        self.convert_batch(&missing).await;
        let mut converted = Vec::with_capacity(entries.len());
        for (key, object) in entries {
            // What a batch did not yield is converted alone: the error then names the object.
            match self.shared(&object).await {
                Ok(object) => converted.push((key, object)),
                Err(_) if is_lenient => {}
                Err(why) => return Err(UnconvertibleObject { key, revision: object.revision, why }),
            }
        }
        Ok(converted)
    }

    /// Converts objects in one call and keeps the results. An error is not reported: each is tried alone later.
    async fn convert_batch(&self, objects: &[&Arc<ServedObject>]) {
        if objects.len() > 1 {
            let _ = self.convert_stored(objects, true).await;
        }
    }

    /// Converts stored objects in one call, and may keep the results with them.
    async fn convert_stored(
        &self,
        objects: &[&Arc<ServedObject>],
        keeps: bool,
    ) -> Result<Vec<Arc<ServedObject>>, String> {
        let originals = objects.iter().map(|object| self.as_stored(object)).collect::<Result<Vec<_>, _>>()?;
        let (converted, is_called) = self.convert_values(originals, &self.api_version()).await?;
        let mut results = Vec::with_capacity(converted.len());
        for (object, mut value) in objects.iter().zip(converted) {
            self.order(&mut value);
            let result = stored::encode(&mut value).and_then(|it| ServedObject::of_conversion(&it, object.revision));
            let result = Arc::new(result.ok_or("the converted object has no metadata")?);
            if keeps && is_called {
                object.keep_conversion(self.edition, self.version(), result.clone());
            }
            results.push(result);
        }
        Ok(results)
    }

    /// A stored object as a webhook is sent it: as its own version has it today, without its revision.
    fn as_stored(&self, object: &ServedObject) -> Result<Value, String> {
        let mut value = object.decode();
        metadata::remove(&mut value, "resourceVersion");
        let api_version = value.text("apiVersion");
        let stored_in = api_version.split_once('/').map_or("", |(_, it)| it);
        let Some(meaning) = self.meaning_of(stored_in) else {
            return Err(format!("request to convert CR from an invalid group/version: {api_version}"));
        };
        meaning.refresh(&mut value);
        Ok(value)
    }

    /// Documents in other versions, converted to one, named `group/version`; whether a webhook did it.
    async fn convert_values(&self, originals: Vec<Value>, to: &str) -> Result<(Vec<Value>, bool), String> {
        let Some(converter) = &self.converter else { return Ok((originals, false)) };
        let outcome = converter.convert(originals.clone(), to).await;
        let is_called = outcome != Err(ConversionError::Simulated);
        let version = to.rsplit('/').next().unwrap_or_default();
        let mut converted = match outcome {
            Ok(converted) => converted,
            Err(ConversionError::Failed(why)) => return Err(why),
            Err(ConversionError::Simulated) => {
                let mut values = originals;
                values.iter_mut().for_each(|value| self.set_version(value, version));
                values
            }
        };
        if let Some(meaning) = self.meaning_of(version) {
            converted.iter_mut().for_each(|value| meaning.prune(value));
        }
        Ok((converted, is_called))
    }

    /// A document in another version, named `group/version`.
    ///
    /// # Errors
    /// The text of a failed conversion.
    pub(crate) async fn converted_to(&self, value: Value, to: &str) -> Result<Value, String> {
        let (converted, _) = self.convert_values(vec![value], to).await?;
        converted.into_iter().next().ok_or_else(|| "the webhook returned no object".to_owned())
    }

    /// A document of any version in this one.
    ///
    /// # Errors
    /// The text of a failed conversion.
    pub(crate) async fn converted_value(&self, mut value: Value) -> Result<Value, String> {
        let is_own = value.str_at(&["apiVersion"]) == Some(&*self.api_version());
        if is_own || !self.has_webhook() {
            self.refresh(&mut value);
            return Ok(value);
        }
        self.converted_to(value, &self.api_version()).await
    }

    /// As [`ServedVersion::encode`]: an object of this version as it is stored.
    ///
    /// # Errors
    /// The text of a failed conversion.
    pub(crate) async fn encoded(&self, object: &mut Value) -> Result<Option<Bytes>, String> {
        let storage = self.storage_version();
        if !self.has_webhook() || storage == self.version() {
            return Ok(self.encode(object));
        }
        canonicalize(object);
        let mut original = object.clone();
        metadata::remove(&mut original, "resourceVersion");
        let mut converted = self.converted_to(original, &self.row().api_version(storage)).await?;
        self.order(&mut converted);
        Ok(stored::encode(&mut converted))
    }

    /// Converts an object that was just written to the other versions in the background, as long as few are waiting.
    pub(crate) fn warm(
        servings: Vec<Arc<Self>>,
        read: impl Future<Output = Option<Arc<ServedObject>>> + Send + 'static,
    ) {
        let Some(shared) = servings.iter().find_map(|it| it.converter.as_ref()).map(|it| it.shared().clone()) else {
            return;
        };
        let Ok(permit) = shared.warming.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _permit = permit;
            let Some(object) = read.await else { return };
            for serving in servings {
                // A failure is reported to those who ask for the object.
                let _ = serving.shared(&object).await;
            }
        });
    }
}
