//! An object in other versions than the stored one, kept with it.
//!
//! A conversion webhook is called once per object and version: the result is shared by lists and watches, and
//! dropped with the object.

use locks::Mutex;
use std::sync::{Arc, OnceLock};

use crate::stored::ServedObject;

/// More versions of an object are not kept.
const VERSIONS_MAX: usize = 16;

/// The converted forms of an object.
#[derive(Debug, Default)]
pub(crate) struct Conversions {
    kept: OnceLock<Box<Mutex<Vec<Conversion>>>>,
    /// Whether the object itself is the result of a conversion.
    is_result: bool,
}

#[derive(Debug)]
struct Conversion {
    /// The state of the definition that it was made under.
    edition: u64,
    version: Box<str>,
    object: Arc<ServedObject>,
}

impl Conversions {
    /// Those of an object that is the result of a conversion.
    pub(crate) fn of_result() -> Self {
        Self { is_result: true, ..Self::default() }
    }

    pub(crate) fn is_result(&self) -> bool {
        self.is_result
    }

    pub(crate) fn get(&self, edition: u64, version: &str) -> Option<Arc<ServedObject>> {
        let kept = self.kept.get()?.lock();
        let found = kept.iter().find(|it| it.edition == edition && *it.version == *version);
        found.map(|it| it.object.clone())
    }

    pub(crate) fn keep(&self, edition: u64, version: &str, object: Arc<ServedObject>) {
        let kept = self.kept.get_or_init(Box::default);
        let mut kept = kept.lock();
        kept.retain(|it| it.edition == edition && *it.version != *version);
        if kept.len() < VERSIONS_MAX {
            kept.push(Conversion { edition, version: version.into(), object });
        }
    }
}

/// A copy starts without converted forms.
impl Clone for Conversions {
    fn clone(&self) -> Self {
        Self { kept: OnceLock::new(), is_result: self.is_result }
    }
}

/// Objects are equal whatever forms are kept of them.
impl PartialEq for Conversions {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Conversions {}
