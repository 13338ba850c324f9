//! The texts of annotations, read as strictly as the API server reads the fields.

use api::annotations::{COLUMNS, PLACEMENT, POSITIONS};
use api::field::{BadValue, Errors, Path};
use api::json::{Object, Value};
use api::{types, yaml};

/// Maximum length of one annotation. All annotations of an object together may have 256 KiB in Kubernetes.
const BYTES_MAX: usize = 128 << 10;
/// Bytes of an annotation that an error shows.
const SHOWN_BYTES: usize = 256;

/// Whether a map of annotations has one of the domains of this module.
pub(super) fn has_any(annotations: &Object) -> bool {
    annotations.keys().any(|name| name.starts_with(PLACEMENT) || name.starts_with(COLUMNS))
}

/// Whether an object has an annotation about placement that the old object lacks or has with another value.
pub(super) fn has_other(object: &Value, old: &Value) -> bool {
    let before = old.field("metadata").map("annotations");
    let mut placing =
        object.field("metadata").map("annotations").iter().filter(|(name, _)| name.starts_with(PLACEMENT));
    placing.any(|(name, text)| before.get(name) != Some(text))
}

/// The value of a text within the bounds.
pub(super) fn read(text: &str) -> Option<Value> {
    (text.len() <= BYTES_MAX).then(|| yaml::parse_without_aliases(text).ok()).flatten().map(|document| document.value)
}

/// Rejects annotations about placement where they have no effect; `place` is where they belong.
pub(super) fn reject_all(annotations: &Object, place: &str, errors: &mut Errors) {
    let at = Path::new("metadata.annotations");
    for name in annotations.keys().filter(|name| name.starts_with(PLACEMENT)) {
        errors.forbidden(at.key(name), format!("has no effect here, set it in {place}"));
    }
}

/// The annotations of one object, taken from it.
pub(super) struct Texts<'p> {
    texts: Vec<(String, Value)>,
    at: &'p Path<'p>,
}

impl<'p> Texts<'p> {
    /// Takes the annotations that start with `domain` from `object.metadata.annotations`; those that are not `known` are
    /// rejected.
    pub(super) fn take(
        object: &mut Value,
        known: &[&str],
        domain: &str,
        at: &'p Path<'p>,
        errors: &mut Errors,
    ) -> Self {
        let mut texts = Vec::new();
        if let Some(Value::Object(annotations)) = object.get_mut("metadata").and_then(|it| it.get_mut("annotations")) {
            annotations.retain(|name, text| {
                let is_ours = name.starts_with(domain);
                if is_ours {
                    texts.push((name.to_owned(), text.take()));
                }
                !is_ours
            });
        }
        for (name, _) in &texts {
            let field = name.strip_suffix(POSITIONS).unwrap_or(name);
            if !known.contains(&field) {
                errors.not_supported(at.key(name), name.as_str(), known);
            } else if field != name && !texts.iter().any(|(other, _)| other == field) {
                errors.forbidden(at.key(name), format!("needs the annotation {field}"));
            }
        }
        Self { texts, at }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.texts.iter().any(|(other, _)| other == name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(other, _)| other == name).map(|(_, text)| text.as_str().unwrap_or_default())
    }

    /// The entries of a list, each in the normal form of its type.
    pub(super) fn list(&self, name: &str, package: &str, type_name: &str, errors: &mut Errors) -> Vec<Value> {
        let Some(value) = self.parse(name, errors) else { return Vec::new() };
        let at = self.at.key(name);
        let Value::Array(items) = value else {
            errors.invalid(at, shown(self.text(name).unwrap_or_default()), "must be a list");
            return Vec::new();
        };
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            read.extend(decode(item, package, type_name, &at.index(index), errors));
        }
        read
    }

    /// The one value of an annotation, in the normal form of its type.
    pub(super) fn one(&self, name: &str, package: &str, type_name: &str, errors: &mut Errors) -> Option<Value> {
        let value = self.parse(name, errors)?;
        decode(value, package, type_name, &self.at.key(name), errors)
    }

    fn parse(&self, name: &str, errors: &mut Errors) -> Option<Value> {
        let text = self.text(name)?;
        let at = self.at.key(name);
        if text.len() > BYTES_MAX {
            errors.too_long(at, BYTES_MAX);
            return None;
        }
        match yaml::parse_without_aliases(text) {
            Ok(document) => {
                if let Some(duplicate) = document.duplicates.first() {
                    errors.invalid(at, shown(text), format!("duplicate field \"{}\"", duplicate.path));
                    return None;
                }
                Some(document.value)
            }
            Err(error) => {
                errors.invalid(at, shown(text), error.message);
                None
            }
        }
    }

    /// Rejects positions for an annotation that is no list.
    pub(super) fn no_positions(&self, name: &str, errors: &mut Errors) {
        let positions = format!("{name}{POSITIONS}");
        if self.contains(&positions) {
            errors.forbidden(self.at.key(&positions), format!("{name} is not a list"));
        }
    }

    /// Puts entries into the list of a field: behind its own, or at the positions that another annotation gives.
    pub(super) fn merge_list(
        &self,
        name: &str,
        entries: Vec<Value>,
        object: &mut Value,
        field: &str,
        errors: &mut Errors,
    ) {
        let key = format!("{name}{POSITIONS}");
        let positions = match self.text(&key) {
            None => None,
            Some(text) => match parse_positions(text, entries.len()) {
                Ok(positions) => Some(positions),
                Err(detail) => return errors.invalid(self.at.key(&key), shown(text), detail),
            },
        };
        if entries.is_empty() {
            return;
        }
        if !matches!(object.get(field), Some(Value::Array(_))) {
            object.set(field, Vec::<Value>::new());
        }
        let Some(list) = object.get_mut(field).and_then(Value::as_array_mut) else { return };
        for (index, entry) in entries.into_iter().enumerate() {
            let position = positions.as_ref().and_then(|it| it.get(index).copied()).unwrap_or(usize::MAX);
            list.insert(position.min(list.len()), entry);
        }
    }
}

/// Ascending indexes, one for each of `count` entries.
fn parse_positions(text: &str, count: usize) -> Result<Vec<usize>, String> {
    let positions: Result<Vec<usize>, _> = text.split(',').map(|it| it.trim().parse::<usize>()).collect();
    let positions = positions.map_err(|_| "must be indexes, separated by commas".to_owned())?;
    if positions.len() != count {
        return Err(format!("must have one index for each of the {count} entries"));
    }
    if !positions.is_sorted_by(|left, right| left < right) {
        return Err("must be in ascending order".to_owned());
    }
    Ok(positions)
}

fn decode(value: Value, package: &str, type_name: &str, at: &Path<'_>, errors: &mut Errors) -> Option<Value> {
    let of = types::by_name(package, type_name)?;
    if !matches!(value, Value::Object(_)) {
        errors.invalid(*at, BadValue::Value(value), format!("must be a {type_name}"));
        return None;
    }
    match types::decode(of, &value) {
        Ok(decoded) => {
            for path in &decoded.unknown_fields {
                errors.invalid(*at, BadValue::Value(value.clone()), format!("unknown field \"{path}\""));
            }
            Some(decoded.value)
        }
        Err(error) => {
            errors.invalid(*at, BadValue::Value(value), error);
            None
        }
    }
}

/// The start of a text, as errors show it.
fn shown(text: &str) -> String {
    let mut end = text.len().min(SHOWN_BYTES);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let start = text.get(..end).unwrap_or_default();
    if end < text.len() { format!("{start}...") } else { start.to_owned() }
}
