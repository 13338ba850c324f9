//! Failures on demand, for tests of clients against a server in the same process.

use locks::Mutex;

use crate::wire::request::Target;
use crate::wire::status::Failure;

/// Requests to reject, and the answer to them. Empty fields match everything.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Verb as in RBAC: `create`, `update`, `list` …
    pub verb: String,
    /// Plural name, with the subresource after a slash: `pods`, `pods/status`.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Status code of the answer.
    pub code: u16,
    /// Reason in the answer, such as `ServiceUnavailable`.
    pub reason: &'static str,
    /// Number of requests to reject; `None` for all.
    pub times: Option<u32>,
}

/// The refusals in force. The first that matches a request answers it.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Refusal>>);

impl Faults {
    /// Adds a refusal.
    pub fn refuse(&self, refusal: Refusal) {
        self.0.lock().push(refusal);
    }

    /// Removes all refusals.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the failure for a request, if one is to be rejected, and counts it.
    pub(crate) fn take(&self, verb: &str, target: &Target) -> Option<Box<Failure>> {
        let mut refusals = self.0.lock();
        let index = refusals.iter().position(|refusal| refusal.matches(verb, target))?;
        let refusal = refusals.get_mut(index)?;
        let failure = Failure::new(refusal.code, refusal.reason, "rejected by a test");
        if let Some(times) = &mut refusal.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                refusals.remove(index);
            }
        }
        Some(failure)
    }
}

impl Refusal {
    fn matches(&self, verb: &str, target: &Target) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.verb, verb)
            && (resource.is_empty() || (resource == target.resource && subresource == target.subresource))
            && is(&self.namespace, &target.namespace)
            && is(&self.name, &target.name)
    }
}
