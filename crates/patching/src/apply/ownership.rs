//! Field ownership after a write: conflicts, shared and lost ownership, and the removal of fields that are no
//! longer applied.
//!
//! Independent of metadata, names and times. Follows `merge/update.go` of structured-merge-diff.

use std::borrow::Cow;

use api::json::Value;

use super::element::Element;
use super::managers::{Manager, Managers, Operation};
use super::reset::Reset;
use super::set::FieldSet;
use super::shape::Shape;
use super::values::same;
use super::walk::{self, Comparison};

/// The versions of a resource.
pub trait Versions: Send + Sync {
    /// The shape of objects in a version, none if it is not served.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    /// An object, which names its own version, in another; none if that is not served.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;

    /// The base of created objects: kind, version, and the fields that are never omitted.
    fn empty(&self, api_version: &str) -> Value;

    /// Fields that the write resets.
    fn reset(&self) -> &Reset;
}

/// A field that someone else owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// The owner.
    pub manager: Manager,
    /// The field.
    pub path: Vec<Element>,
}

/// An object in the version that it names.
#[derive(Debug, Clone)]
struct TypedValue<'a> {
    value: Cow<'a, Value>,
    shape: Shape<'a>,
}

/// The engine over the versions of one resource.
pub(super) struct Ownership<'a> {
    pub(super) versions: &'a dyn Versions,
    /// Fields that no write owns.
    pub(super) stripped: &'a FieldSet,
}

impl<'a> Ownership<'a> {
    fn convert<'v>(&self, value: &'v Value, api_version: &str) -> Option<TypedValue<'v>>
    where
        'a: 'v,
    {
        let shape = self.versions.shape(api_version)?;
        let value = if value.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            Cow::Borrowed(value)
        } else {
            Cow::Owned(self.versions.convert(value, api_version)?)
        };
        Some(TypedValue { value, shape })
    }

    /// Returns the changes of a write, limited to fields that can be owned.
    pub(super) fn compare(&self, old: &Value, new: &Value, api_version: &str) -> Option<Comparison> {
        let (old, new) = (self.convert(old, api_version)?, self.convert(new, api_version)?);
        let Comparison { removed, modified, added } = walk::compare(old.shape, &old.value, &new.value);
        let filter = |set: FieldSet| self.versions.reset().filter(set.difference(self.stripped));
        Some(Comparison { removed: filter(removed), modified: filter(modified), added: filter(added) })
    }

    /// Adapts owned fields to the current shape; drops managers of versions that no longer exist.
    pub(super) fn reconcile(&self, managers: &mut Managers) {
        managers.0.retain_mut(|manager| {
            if manager.raw.is_some() {
                return true;
            }
            let Some(shape) = self.versions.shape(&manager.api_version) else { return false };
            if let Some(fields) = walk::reconcile(shape, &manager.fields) {
                manager.fields = fields;
            }
            true
        });
    }

    /// Removes the changed fields from all managers but `writer`.
    ///
    /// Without `force`, changing a field that another manager owns is a conflict.
    fn take_changed(
        &self,
        old: &Value,
        new: &Value,
        managers: &mut Managers,
        writer: Option<&Manager>,
        force: bool,
        known: (&str, &Comparison),
    ) -> Result<(), Vec<Conflict>> {
        let mut comparisons: Vec<(String, Comparison)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut left = Vec::with_capacity(managers.0.len());
        for mut manager in std::mem::take(&mut managers.0) {
            let is_writer = writer.is_some_and(|writer| writer.is_same(&manager));
            if is_writer || manager.raw.is_some() {
                left.push(manager);
                continue;
            }
            let comparison = if manager.api_version == known.0 {
                known.1
            } else {
                if !comparisons.iter().any(|(version, _)| *version == manager.api_version) {
                    let Some(comparison) = self.compare(old, new, &manager.api_version) else { continue };
                    comparisons.push((manager.api_version.clone(), comparison));
                }
                match comparisons.iter().find(|(version, _)| *version == manager.api_version) {
                    Some((_, comparison)) => comparison,
                    None => continue,
                }
            };
            if !force {
                let changed = comparison.modified.clone().union(comparison.added.clone());
                manager.fields.intersection(&changed).for_each(&mut |path| {
                    let owner = Manager { fields: FieldSet::new(), ..manager.clone() };
                    conflicts.push(Conflict { manager: owner, path: path.to_vec() });
                });
            }
            for changed in [&comparison.modified, &comparison.added, &comparison.removed] {
                manager.fields = std::mem::take(&mut manager.fields).difference(changed);
            }
            left.push(manager);
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        left.retain(Manager::owns_any);
        managers.0 = left;
        Ok(())
    }

    /// Processes a write of a whole object; the changed fields now belong to the writer. Returns the writer's
    /// fields.
    pub(super) fn update(
        &self,
        old: &Value,
        new: &Value,
        api_version: &str,
        comparison: Comparison,
        managers: &mut Managers,
    ) -> FieldSet {
        // Without a writer that could be in conflict with others, this does not fail.
        let _ = self.take_changed(old, new, managers, None, true, (api_version, &comparison));
        comparison.modified.union(comparison.added)
    }

    /// A configuration is applied. Gives back the new object, none if nothing changes.
    ///
    /// # Errors
    /// The fields that others own, without `force`.
    pub(super) fn apply(
        &self,
        live: &Value,
        config: &Value,
        writer: &Manager,
        managers: &mut Managers,
        force: bool,
    ) -> Result<Option<Value>, Vec<Conflict>> {
        self.reconcile(managers);
        let version = writer.api_version.as_str();
        let Some(typed_live) = self.convert(live, version) else { return Ok(None) };
        let live = typed_live.value.as_ref();
        let shape = typed_live.shape;
        let merged = walk::merge(shape, live, config);
        let last = managers.take(writer);
        let fields = self.versions.reset().filter(walk::field_set(shape, config));
        managers.0.push(Manager { fields, operation: Operation::Apply, ..writer.clone() });
        let merged = match last.as_ref().filter(|last| !last.fields.is_empty()) {
            Some(last) => self.prune(merged, managers, last, version),
            None => merged,
        };
        let comparison = self.compare(live, &merged, version).unwrap_or_default();
        self.take_changed(live, &merged, managers, Some(writer), force, (version, &comparison))?;
        if let (Some(last), Some(entry)) = (last, managers.find(writer)) {
            entry.time = last.time;
        }
        Ok((!same(live, &merged)).then_some(merged))
    }

    /// Removes the fields that the manager applied last time, does not apply now, and no other manager owns.
    fn prune(&self, merged: Value, managers: &Managers, last: &Manager, version: &str) -> Value {
        let Some(converted) = self.convert(&merged, &last.api_version) else { return merged };
        let shape = Some(converted.shape);
        let last_fields = walk::name_members(shape, &last.fields);
        let mut pruned = walk::remove(converted.shape, &converted.value, &last_fields);
        // Fields with an owner in any version are restored.
        let mut owned: Vec<(&str, FieldSet)> = vec![(&last.api_version, FieldSet::new())];
        for manager in &managers.0 {
            match owned.iter_mut().find(|(version, _)| *version == manager.api_version) {
                Some((_, set)) => *set = std::mem::take(set).union(manager.fields.clone()),
                None => owned.push((&manager.api_version, manager.fields.clone())),
            }
        }
        for (version, owned) in &owned {
            let Some(merged) = self.convert(&merged, version) else { continue };
            let Some(kept) = self.convert(&pruned, version) else { continue };
            let shape = Some(merged.shape);
            let all = walk::name_members(shape, &walk::field_set(merged.shape, &merged.value));
            let kept = walk::name_members(shape, &walk::field_set(merged.shape, &kept.value));
            let owned = walk::name_members(shape, owned);
            let gone = all.difference(&kept.union(owned));
            pruned = walk::remove(merged.shape, &merged.value, &gone);
        }
        // So are fields that were removed along with it and were never applied.
        let Some(kept) = self.convert(&pruned, &last.api_version) else { return merged };
        let all = walk::name_members(shape, &walk::field_set(converted.shape, &converted.value));
        let kept = walk::name_members(shape, &walk::field_set(converted.shape, &kept.value));
        let gone = all.difference(&kept).intersection(&last_fields);
        let pruned = walk::remove(converted.shape, &converted.value, &gone);
        match self.convert(&pruned, version) {
            Some(TypedValue { value: Cow::Owned(value), .. }) => value,
            _ => pruned,
        }
    }

    /// Returns the fields that a client once applied with `kubectl apply` and that are unchanged since:
    /// server-side `kubectl apply` may take them over.
    pub(super) fn unchanged_since(&self, config: &Value, live: &Value, version: &str) -> Option<FieldSet> {
        let live = self.convert(live, version)?;
        let valid = |value| walk::validate(live.shape, value, walk::Duplicates::Refused).is_ok();
        if config.get("apiVersion").and_then(Value::as_str) != Some(version) || !valid(config) || !valid(&live.value) {
            return None;
        }
        let comparison = walk::compare(live.shape, config, &live.value);
        let fields = walk::field_set(live.shape, config);
        Some(fields.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
    }
}
