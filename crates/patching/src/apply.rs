//! Server-side apply, and the ownership of fields after any write.
//!
//! Pure: documents, shapes, a name and a time come in, documents and refusals go out. In reading order:
//!
//! - [`shape`]: permitted values by position, from the table of types, a custom schema, or the value itself.
//! - [`element`], [`set`], [`fields_v1`]: paths, sets of them, and how `managedFields` writes them.
//! - [`walk`]: paths, comparison, merge and removal of documents.
//! - `ownership`, [`managers`], [`reset`]: field ownership after a write.
//! - this file: the effect of a request on an object, with the layers of apimachinery's
//!   `managedfields/internal`.

mod built_in;
mod custom;
pub mod element;
pub mod fields_v1;
mod last_applied;
pub mod managers;
mod ownership;
pub mod reset;
mod scale;
pub mod set;
pub mod shape;
mod values;
pub mod walk;

use std::sync::OnceLock;

use api::json::Value;

pub use self::built_in::{BuiltIn, SingleKind};
pub use self::custom::CustomResourceKind;
pub use self::element::Element;
use self::managers::{Manager, Managers, Operation};
use self::ownership::Ownership;
pub use self::ownership::{Conflict, Versions};
pub use self::reset::Reset;
pub use self::scale::{to_parent, to_scale};
pub use self::set::FieldSet;
pub use self::shape::Shape;
use self::walk::Comparison;
use api::metadata;

/// Manager of the fields that an object had before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager that old versions of `kubectl apply` hand over to.
const KUBECTL: &str = "kubectl";

/// Metadata that the server sets and no manager owns.
fn stripped() -> &'static FieldSet {
    static STRIPPED: OnceLock<FieldSet> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        FieldSet::of_names(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

/// A write, as far as ownership is concerned.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The resource's versions.
    pub versions: &'a dyn Versions,
    /// The version of the client's object, as `apps/v1`.
    pub api_version: &'a str,
    /// The kind of the objects.
    pub kind: &'a str,
    /// The path below the object, empty for the object itself.
    pub subresource: &'a str,
    /// The name that the client gives itself.
    pub manager: &'a str,
    /// The time.
    pub now: &'a str,
}

/// A reason to reject an apply.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The request is wrong.
    BadRequest(String),
    /// Others own fields that would change.
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the schema, or the object is damaged.
    Unfit(String),
}

/// Result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyResult {
    /// The object in the client's version, without managed fields; none if it stays as it is.
    pub object: Option<Value>,
    /// The entries of `metadata.managedFields`.
    pub managed_fields: Option<Value>,
}

impl Write<'_> {
    fn ownership(&self) -> Ownership<'_> {
        Ownership { versions: self.versions, stripped: stripped() }
    }

    fn writer(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: if name.is_empty() { "unknown".to_owned() } else { name.to_owned() },
            operation,
            subresource: self.subresource.to_owned(),
            api_version: self.api_version.to_owned(),
            time: None,
            fields: FieldSet::new(),
            raw: None,
        }
    }

    /// The managed fields of an object after a write that is not an apply.
    ///
    /// Both objects are in the client's version; `new` has the managed fields that the client sent. An object that is
    /// created has the empty object of its type as `live`, without a uid.
    #[must_use]
    pub fn update(&self, live: &Value, new: &Value) -> Option<Value> {
        let live_entries = live.at(&["metadata", "managedFields"]);
        let new_entries = new.at(&["metadata", "managedFields"]).filter(|_| self.subresource.is_empty());
        if new_entries.is_some_and(is_reset) {
            // The client resets the managed fields; ownership is tracked again from the next apply on.
            return self.updated_from(live, new, Some(Managers::default()), None);
        }
        let given = new_entries.filter(|entries| Some(*entries) != live_entries);
        let given = given.and_then(|entries| Managers::decode(Some(entries)).ok());
        match given.filter(|managers| !managers.0.is_empty()) {
            Some(managers) => self.updated_from(live, new, Some(managers), new_entries),
            None => self.updated_from(live, new, None, live_entries),
        }
    }

    /// `managers` are those that the client sent, if it sent others than `entries`, which are the stored ones.
    fn updated_from(
        &self,
        live: &Value,
        new: &Value,
        managers: Option<Managers>,
        entries: Option<&Value>,
    ) -> Option<Value> {
        let is_new = metadata::text(live, "uid").is_empty();
        if let (None, None, false) = (&managers, entries, is_new) {
            // Ownership is not tracked until the first apply.
            return None;
        }
        let Some((shape, comparison)) = self.compare(live, new) else {
            // If an object does not fit the schema, ownership is unchanged.
            return live.at(&["metadata", "managedFields"]).cloned();
        };
        let managers = match (managers, entries) {
            (Some(managers), _) => managers,
            (None, Some(entries)) => {
                let is_built_in = !matches!(shape, Shape::Custom { .. });
                if is_built_in && comparison.is_same() {
                    return Some(entries.clone());
                }
                let writer = self.writer(self.manager, Operation::Update);
                if is_built_in && let Some(same) = self.rewritten(entries, &writer, &comparison) {
                    return Some(same);
                }
                // Only managers that lose or gain fields are decoded.
                let managers = Managers::decode_if(Some(entries), |manager, fields| {
                    let Comparison { removed, modified, added } = &comparison;
                    !is_built_in
                        || manager.api_version != self.api_version
                        || manager.is_same(&writer)
                        || [removed, modified, added].into_iter().any(|set| fields_v1::touches(fields, set))
                });
                managers.unwrap_or_default()
            }
            (None, None) => Managers::default(),
        };
        if managers.0.is_empty() && !is_new {
            return None;
        }
        self.update_managers(live, new, managers, self.manager, comparison).encode()
    }

    /// Returns the entries after a write that changes only fields that its writer already owns exclusively:
    /// only the time changes. `None` for any other write.
    fn rewritten(&self, entries: &Value, writer: &Manager, comparison: &Comparison) -> Option<Value> {
        let Comparison { removed, modified, added } = comparison;
        if !removed.is_empty() || !added.is_empty() {
            return None;
        }
        let mut owns_all = false;
        let mut concerns_others = false;
        let mut managers = Managers::decode_if(Some(entries), |manager, fields| {
            if manager.is_same(writer) {
                owns_all = fields_v1::has_all(fields, modified);
            } else {
                concerns_others |= manager.api_version != self.api_version || fields_v1::touches(fields, modified);
            }
            false
        })
        .ok()?;
        if !owns_all || concerns_others {
            return None;
        }
        managers.find(writer)?.set_time(self.now);
        managers.encode()
    }

    /// Returns the changes of a write; `None` if the objects do not fit their shape.
    fn compare(&self, live: &Value, new: &Value) -> Option<(Shape<'_>, Comparison)> {
        let shape = self.versions.shape(self.api_version)?;
        if let Shape::Custom { .. } = shape {
            // Built-in objects have been decoded into their types; these have not.
            walk::validate(shape, live, walk::Duplicates::Allowed).ok()?;
            walk::validate(shape, new, walk::Duplicates::Allowed).ok()?;
        }
        Some((shape, self.ownership().compare(live, new, self.api_version)?))
    }

    fn update_managers(
        &self,
        live: &Value,
        new: &Value,
        mut managers: Managers,
        manager: &str,
        comparison: Comparison,
    ) -> Managers {
        let ownership = self.ownership();
        ownership.reconcile(&mut managers);
        let fields = ownership.update(live, new, self.api_version, comparison, &mut managers);
        if !fields.is_empty() {
            let mut writer = self.writer(manager, Operation::Update);
            writer.fields = match managers.take(&writer) {
                Some(previous) => previous.fields.union(fields),
                None => fields,
            };
            writer.time = Some(self.now.to_owned());
            managers.0.push(writer);
        }
        managers.cap();
        managers
    }

    /// Applies a configuration to an object, which is the empty object of its type if there is none yet.
    ///
    /// # Errors
    /// Conflicts with other managers (unless `force`), and configurations that do not fit.
    pub fn apply(&self, live: &Value, config: &Value, force: bool) -> Result<ApplyResult, Refusal> {
        let managers = Managers::decode(live.at(&["metadata", "managedFields"]))
            .map_err(|why| Refusal::Unfit(format!("failed to decode managed fields: {why}")))?;
        self.check_kind(config)?;
        let applied = match self.apply_once(live, config, managers.clone(), force) {
            Err(Refusal::Conflicts(conflicts)) if self.manager == KUBECTL => {
                // Fields applied on the client side before belong to the same user.
                let allowed = last_applied::read(live)
                    .and_then(|last| self.ownership().unchanged_since(&last, live, self.api_version));
                let Some(allowed) = allowed else { return Err(Refusal::Conflicts(conflicts)) };
                let left: Vec<Conflict> =
                    conflicts.into_iter().filter(|conflict| !allowed.has(&conflict.path)).collect();
                if !left.is_empty() {
                    return Err(Refusal::Conflicts(left));
                }
                self.apply_once(live, config, managers, true)?
            }
            other => other?,
        };
        if self.manager == KUBECTL {
            return Ok(last_applied::renew(applied, live, config));
        }
        Ok(applied)
    }

    fn check_kind(&self, config: &Value) -> Result<(), Refusal> {
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") == self.api_version && text("kind") == self.kind {
            return Ok(());
        }
        Err(Refusal::BadRequest(format!("invalid object type: {}", kind_text(text("apiVersion"), text("kind")))))
    }

    fn apply_once(
        &self,
        live: &Value,
        config: &Value,
        managers: Managers,
        force: bool,
    ) -> Result<ApplyResult, Refusal> {
        let mut managers = managers;
        if managers.0.is_empty() {
            // Existing fields get an owner, so that they are not lost.
            let empty = self.versions.empty(self.api_version);
            let Some((_, comparison)) = self.compare(&empty, live) else {
                return Err(Refusal::Unfit("failed to create manager for existing fields".to_owned()));
            };
            managers = self.update_managers(&empty, live, managers, BEFORE_FIRST_APPLY, comparison);
        }
        if config.array_at(&["metadata", "managedFields"]).is_some() {
            return Err(Refusal::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let shape = self.versions.shape(self.api_version);
        let shape = shape.ok_or_else(|| Refusal::Unfit(format!("no corresponding type for {}", self.kind)))?;
        walk::validate(shape, config, walk::Duplicates::Refused).map_err(|errors| {
            let name = metadata::name(config);
            let namespace = metadata::namespace(config);
            let kind = kind_text(self.api_version, self.kind);
            Refusal::Unfit(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {errors}"))
        })?;
        let writer = self.writer(self.manager, Operation::Apply);
        let object = self.ownership().apply(live, config, &writer, &mut managers, force).map_err(Refusal::Conflicts)?;
        if let Some(mut entry) = managers.take(&writer) {
            entry.fields = std::mem::take(&mut entry.fields).difference(stripped());
            if object.is_some() {
                entry.time = Some(self.now.to_owned());
            }
            if !entry.fields.is_empty() {
                managers.0.push(entry);
            }
        }
        let object = object.map(|mut object| {
            metadata::remove(&mut object, "managedFields");
            object
        });
        Ok(ApplyResult { object, managed_fields: managers.encode() })
    }
}

/// Whether a client requests a reset of managed fields: an empty list, or one empty entry.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array() {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(api::json::Object::is_empty),
        _ => false,
    }
}

/// Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Takes back the times of a write that changed nothing else, so that it is not a write.
pub fn keep_times(object: &mut Value, old: &Value) {
    let entries = object.array_at(&["metadata", "managedFields"]);
    let before = old.array_at(&["metadata", "managedFields"]);
    let (Some(entries), Some(before)) = (entries, before) else { return };
    if entries.len() != before.len() || entries == before {
        return;
    }
    if !entries.iter().zip(before).all(|(new, old)| without_time(new).eq(without_time(old))) {
        return;
    }
    let mut as_before = object.clone();
    metadata::copy(&mut as_before, old, "managedFields");
    if as_before == *old {
        *object = as_before;
    }
}

fn without_time(entry: &Value) -> impl Iterator<Item = (&str, &Value)> {
    entry.as_object().into_iter().flat_map(|fields| fields.iter()).filter(|(key, _)| *key != "time")
}

/// The message of an apply that failed because others own fields, and its causes.
#[must_use]
pub fn conflict_message(conflicts: &[Conflict]) -> (String, Value) {
    let causes = conflicts.iter().map(|conflict| {
        api::json!({
            "reason": "FieldManagerConflict",
            "message": (format!("conflict with {}", conflict.manager.shown())),
            "field": (element::path_text(&conflict.path)),
        })
    });
    let causes = Value::Array(causes.collect());
    if let [conflict] = conflicts {
        let (manager, path) = (conflict.manager.shown(), element::path_text(&conflict.path));
        return (format!("Apply failed with 1 conflict: conflict with {manager}: {path}"), causes);
    }
    let mut managers = Managers::default();
    for conflict in conflicts {
        if managers.find(&conflict.manager).is_none() {
            managers.0.push(conflict.manager.clone());
        }
    }
    managers.sort_by_identity();
    let mut lines = Vec::new();
    for manager in &managers.0 {
        lines.push(format!("conflicts with {}:", manager.shown()));
        let own = conflicts.iter().filter(|conflict| conflict.manager.is_same(manager));
        lines.extend(own.map(|conflict| format!("- {}", element::path_text(&conflict.path))));
    }
    (format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n")), causes)
}

#[cfg(test)]
mod tests;
