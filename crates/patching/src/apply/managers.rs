//! `metadata.managedFields`: ownership of fields by manager, operation, version and time.
//!
//! Follows `managedfields/internal/managedfields.go` and `capmanagers.go` of apimachinery.

use std::collections::BTreeMap;

use api::json::{Object, Value};
use api::time::Timestamp;

use super::fields_v1;
use super::set::FieldSet;

/// Maximum number of separate managers with updates; the oldest ones are merged.
const UPDATERS_MAX: usize = 10;

/// Manager that collects the fields of the oldest managers.
const ANCIENT: &str = "ancient-changes";

/// Operation by which a manager owns its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// One manager and its fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Manager {
    /// The name that the client chose.
    pub name: String,
    /// Operation of the manager.
    pub operation: Operation,
    /// Through which part of the object, empty for the whole.
    pub subresource: String,
    /// The version that the fields are of. Belongs to the identity of managers that update.
    pub api_version: String,
    /// Since when.
    pub time: Option<String>,
    /// Owned fields.
    pub fields: FieldSet,
    /// The entry as written, if it is not decoded yet: then `fields` is empty.
    pub(super) raw: Option<Box<Value>>,
}

impl Manager {
    /// Whether it owns anything.
    pub(super) fn owns_any(&self) -> bool {
        self.raw.is_some() || !self.fields.is_empty()
    }

    /// Whether both are entries of the same manager.
    #[must_use]
    pub fn is_same(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Sets the time of the last write.
    pub(super) fn set_time(&mut self, time: &str) {
        self.time = Some(time.to_owned());
        if let Some(written) = self.raw.as_mut().and_then(|raw| raw.get_mut("time")) {
            *written = Value::from(time);
        }
    }

    /// Decodes the owned fields, if not done yet.
    pub(super) fn look_into(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.fields = raw.get("fieldsV1").and_then(|fields| fields_v1::decode(fields).ok()).unwrap_or_default();
        }
    }

    /// The identity as text, by which managers are ordered.
    fn identifier(&self) -> String {
        let mut entry = Object::new();
        if !self.name.is_empty() {
            entry.insert("manager", self.name.as_str());
        }
        entry.insert("operation", operation_text(self.operation));
        if self.operation == Operation::Update {
            entry.insert("apiVersion", self.api_version.as_str());
        }
        if !self.subresource.is_empty() {
            entry.insert("subresource", self.subresource.as_str());
        }
        api::json::to_string(&Value::Object(entry))
    }

    fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| Timestamp::parse(time).ok());
        time.map_or(0, |time| time.unix_nanos().div_euclid(1_000_000_000))
    }

    /// The manager as messages about conflicts name it.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = api::go_text::quote(&self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {}", api::go_text::quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

fn operation_text(operation: Operation) -> &'static str {
    match operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    }
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Managers(pub Vec<Manager>);

impl Managers {
    /// Reads the entries of an object; an object without them has no managers.
    ///
    /// # Errors
    /// The first entry that cannot be understood.
    pub fn decode(entries: Option<&Value>) -> Result<Self, String> {
        Self::decode_if(entries, |_, _| true)
    }

    /// Reads the entries, and looks into those for which `is_concerned` holds: it gets the manager without fields, and
    /// the fields as they are written.
    pub(super) fn decode_if(
        entries: Option<&Value>,
        mut is_concerned: impl FnMut(&Manager, &Value) -> bool,
    ) -> Result<Self, String> {
        let entries = entries.and_then(Value::as_array).unwrap_or_default();
        let mut managers = Self(Vec::with_capacity(entries.len().saturating_add(1)));
        for (index, entry) in entries.iter().enumerate() {
            let manager = decode_entry(entry, index, &mut is_concerned)?;
            match managers.find(&manager) {
                Some(same) => *same = manager,
                None => managers.0.push(manager),
            }
        }
        Ok(managers)
    }

    /// The entry of the same manager.
    pub fn find(&mut self, manager: &Manager) -> Option<&mut Manager> {
        self.0.iter_mut().find(|it| it.is_same(manager))
    }

    /// Removes and gives back the entry of the same manager.
    pub fn take(&mut self, manager: &Manager) -> Option<Manager> {
        let at = self.0.iter().position(|it| it.is_same(manager))?;
        Some(self.0.swap_remove(at))
    }

    /// Writes the entries in order; none if there is no manager.
    #[must_use]
    pub fn encode(mut self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|left, right| {
            let key = |it: &Manager| (it.operation, it.seconds());
            key(left).cmp(&key(right)).then_with(|| {
                (&left.name, &left.api_version, &left.subresource).cmp(&(
                    &right.name,
                    &right.api_version,
                    &right.subresource,
                ))
            })
        });
        Some(Value::Array(self.0.into_iter().map(encode_entry).collect()))
    }

    /// The managers in the order of their identities.
    pub(super) fn sort_by_identity(&mut self) {
        self.0.sort_by_cached_key(Manager::identifier);
    }

    /// Merges the oldest managers that update into one per version, if there are too many.
    pub fn cap(&mut self) {
        let updates = |it: &&Manager| it.operation == Operation::Update;
        let mut count = self.0.iter().filter(updates).count();
        if count <= UPDATERS_MAX {
            return;
        }
        let (mut updaters, appliers): (Vec<Manager>, Vec<Manager>) =
            std::mem::take(&mut self.0).into_iter().partition(|it| updates(&it));
        for manager in &mut updaters {
            manager.look_into();
        }
        updaters.sort_by_cached_key(|it| (it.seconds(), it.identifier()));
        let mut kept: Vec<Manager> = Vec::with_capacity(updaters.len());
        // The first manager of each version, before it is merged with others.
        let mut firsts: Vec<(String, Manager)> = Vec::new();
        // Fields that are merged into a kept manager, by its index.
        let mut merged: BTreeMap<usize, Vec<FieldSet>> = BTreeMap::new();
        for manager in updaters {
            if count <= UPDATERS_MAX {
                kept.push(manager);
                continue;
            }
            let version = manager.api_version.clone();
            let Some(first) = firsts.iter().position(|(it, _)| *it == version) else {
                firsts.push((version, manager.clone()));
                kept.push(manager);
                continue;
            };
            let bucket = Manager {
                name: ANCIENT.to_owned(),
                subresource: String::new(),
                fields: FieldSet::new(),
                ..manager.clone()
            };
            if !kept.iter().any(|it| it.is_same(&bucket)) {
                // The first one becomes the bucket.
                if let Some((_, first)) = firsts.get(first)
                    && let Some(entry) = kept.iter_mut().find(|it| it.is_same(first))
                {
                    entry.name = ANCIENT.to_owned();
                    entry.subresource = String::new();
                }
            }
            let index = kept.iter().position(|it| it.is_same(&bucket));
            if let Some((index, entry)) = index.and_then(|index| Some((index, kept.get_mut(index)?))) {
                merged.entry(index).or_default().push(manager.fields);
                entry.time = manager.time;
                count = count.saturating_sub(1);
            }
        }
        for (index, mut sets) in merged {
            if let Some(entry) = kept.get_mut(index) {
                sets.push(std::mem::take(&mut entry.fields));
                entry.fields = FieldSet::union_of(sets);
            }
        }
        self.0 = appliers;
        self.0.extend(kept);
    }
}

fn decode_entry(
    entry: &Value,
    index: usize,
    is_concerned: &mut impl FnMut(&Manager, &Value) -> bool,
) -> Result<Manager, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => {
            return Err(format!("invalid fieldsType {} in managed fields entry {index}", api::go_text::quote(other)));
        }
    }
    let mut manager = Manager {
        name: text("manager").to_owned(),
        operation,
        subresource: text("subresource").to_owned(),
        api_version: text("apiVersion").to_owned(),
        time: entry.get("time").and_then(Value::as_str).map(ToOwned::to_owned),
        fields: FieldSet::new(),
        raw: None,
    };
    match entry.get("fieldsV1") {
        None | Some(Value::Null) => {}
        Some(fields) if is_concerned(&manager, fields) => {
            manager.fields = fields_v1::decode(fields)
                .map_err(|why| format!("error decoding versioned set from entry {index}: error decoding set: {why}"))?;
        }
        Some(_) => manager.raw = Some(Box::new(entry.clone())),
    }
    Ok(manager)
}

fn encode_entry(manager: Manager) -> Value {
    if let Some(raw) = manager.raw {
        return *raw;
    }
    let mut entry = Object::with_capacity(7);
    if !manager.name.is_empty() {
        entry.insert("manager", manager.name.as_str());
    }
    entry.insert("operation", operation_text(manager.operation));
    entry.insert("apiVersion", manager.api_version.as_str());
    if let Some(time) = &manager.time {
        entry.insert("time", time.as_str());
    }
    entry.insert("fieldsType", "FieldsV1");
    entry.insert("fieldsV1", fields_v1::encode(&manager.fields));
    if !manager.subresource.is_empty() {
        entry.insert("subresource", manager.subresource.as_str());
    }
    Value::Object(entry)
}
