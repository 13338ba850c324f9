//! Warnings about pods that violate a stricter policy of their namespace.
//!
//! The check is bounded: [`MAX_PODS`] pods, and the time that the caller allows. One pod of each controller is checked
//! before any of its siblings, so that the bound hides few causes.

use std::collections::{BTreeMap, HashSet};

use api::go_text;
use api::json::Value;

use super::{LevelVersion, violations};

/// Number of pods that are checked at most.
pub const MAX_PODS: usize = 3000;

/// A check of the existing pods of a namespace.
#[derive(Debug)]
pub struct Survey<'a> {
    /// The name of the namespace.
    pub namespace: &'a str,
    /// New standard of the namespace.
    pub enforce: LevelVersion,
    /// Number of pods to check at most, [`MAX_PODS`].
    pub max_pods: usize,
}

/// Pods that share their violations.
struct Group {
    /// The first name in lexical order.
    name: String,
    count: usize,
}

impl Survey<'_> {
    /// Returns the warnings about pods, each of which stands behind the uid of its controller, empty if it has none.
    ///
    /// `read` is called for the pods that are checked only. `is_expired` reports that the time is up; it is called
    /// after each pod.
    pub fn warnings<P>(
        &self,
        pods: Vec<(String, P)>,
        read: impl Fn(&P) -> Value,
        mut is_expired: impl FnMut() -> bool,
    ) -> Vec<String> {
        let pods = prioritize(pods);
        let mut checked = 0_usize;
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for pod in pods.iter().take(self.max_pods) {
            checked = checked.saturating_add(1);
            self.check(&read(pod), &mut groups);
            if is_expired() {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < pods.len() {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {} existing pods",
                pods.len()
            ));
        }
        if !groups.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {} violate the new PodSecurity enforce level {}",
                go_text::quote(self.namespace),
                go_text::quote(&self.enforce.to_string())
            ));
        }
        let mut named: Vec<String> = groups.iter().map(|(reason, group)| group.warning(reason)).collect();
        named.sort();
        warnings.append(&mut named);
        warnings
    }

    fn check(&self, pod: &Value, groups: &mut BTreeMap<String, Group>) {
        let found = violations(self.enforce, pod.field("metadata"), pod.field("spec"));
        if found.is_empty() {
            return;
        }
        let name = pod.field("metadata").text("name");
        let group = groups.entry(found.reason()).or_insert(Group { name: name.to_owned(), count: 0 });
        if name < group.name.as_str() {
            name.clone_into(&mut group.name);
        }
        group.count = group.count.saturating_add(1);
    }
}

/// Moves further pods of a controller behind all others.
fn prioritize<P>(pods: Vec<(String, P)>) -> Vec<P> {
    let mut controllers: HashSet<String> = HashSet::new();
    let (mut first, mut replicas) = (Vec::with_capacity(pods.len()), Vec::new());
    for (controller, pod) in pods {
        if controller.is_empty() || controllers.insert(controller) {
            first.push(pod);
        } else {
            replicas.push(pod);
        }
    }
    first.append(&mut replicas);
    first
}

impl Group {
    fn warning(&self, reason: &str) -> String {
        let name = &self.name;
        match self.count {
            0 | 1 => format!("{name}: {reason}"),
            2 => format!("{name} (and 1 other pod): {reason}"),
            more => format!("{name} (and {} other pods): {reason}", more.saturating_sub(1)),
        }
    }
}
