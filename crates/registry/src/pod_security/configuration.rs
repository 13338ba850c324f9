//! Defaults and exemptions, read from a `PodSecurityConfiguration`.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::policy::{Level, LevelVersion, Policy, Version};

const GROUP: &str = "pod-security.admission.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "PodSecurityConfiguration";

/// Defaults and exemptions. The default is privileged in all modes, without exemptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The policy of namespaces without labels.
    pub defaults: Policy,
    users: HashSet<String>,
    namespaces: HashSet<String>,
    runtime_classes: HashSet<String>,
}

impl Configuration {
    /// Reads and validates a document.
    ///
    /// # Errors
    /// The document has another kind, an unknown field, a field of the wrong type, or invalid values.
    pub fn read(document: &Value) -> Result<Self, String> {
        let (api_version, kind) = (document.text("apiVersion"), document.text("kind"));
        let is_known = VERSIONS.iter().any(|version| api_version.strip_prefix(GROUP) == Some(&format!("/{version}")));
        if !is_known || kind != KIND {
            return Err(format!("expected {KIND} of {GROUP}/v1, got {kind:?} of {api_version:?}"));
        }
        check_fields(document)?;
        let mut errors = Errors::new();
        let defaults = read_defaults(document.field("defaults"), &mut errors);
        let exemptions = document.field("exemptions");
        let namespaces = read_names(exemptions, "namespaces", names::dns1123_label, &mut errors);
        let runtime_classes = read_names(exemptions, "runtimeClasses", names::dns1123_subdomain, &mut errors);
        let users = read_names(exemptions, "usernames", non_empty, &mut errors);
        if !errors.is_empty() {
            return Err(errors.message());
        }
        Ok(Configuration { defaults, users, namespaces, runtime_classes })
    }

    /// Whether requests of this user are not evaluated.
    #[must_use]
    pub fn exempts_user(&self, name: &str) -> bool {
        self.users.contains(name)
    }

    /// Whether pods in this namespace are not evaluated.
    #[must_use]
    pub fn exempts_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// Whether some runtime class is exempt.
    #[must_use]
    pub fn has_exempt_runtime_classes(&self) -> bool {
        !self.runtime_classes.is_empty()
    }

    /// Whether pods with this runtime class are not evaluated.
    #[must_use]
    pub fn exempts_runtime_class(&self, name: &str) -> bool {
        self.runtime_classes.contains(name)
    }
}

/// The type of a field in the configuration.
enum Shape {
    Text,
    Texts,
    Fields(&'static [(&'static str, Shape)]),
}

static FIELDS: [(&str, Shape); 4] = [
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "defaults",
        Shape::Fields(&[
            ("enforce", Shape::Text),
            ("enforce-version", Shape::Text),
            ("audit", Shape::Text),
            ("audit-version", Shape::Text),
            ("warn", Shape::Text),
            ("warn-version", Shape::Text),
        ]),
    ),
    (
        "exemptions",
        Shape::Fields(&[("usernames", Shape::Texts), ("namespaces", Shape::Texts), ("runtimeClasses", Shape::Texts)]),
    ),
];

fn check_fields(document: &Value) -> Result<(), String> {
    check_shape(document, &Shape::Fields(&FIELDS), "")
}

fn check_shape(value: &Value, shape: &Shape, at: &str) -> Result<(), String> {
    let fits = match (shape, value) {
        (_, Value::Null) | (Shape::Text, Value::String(_)) => true,
        (Shape::Texts, Value::Array(items)) => items.iter().all(|it| matches!(it, Value::String(_))),
        (Shape::Fields(known), Value::Object(fields)) => {
            for (name, value) in fields.iter() {
                let path = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
                let Some((_, shape)) = known.iter().find(|(it, _)| *it == name) else {
                    return Err(format!("strict decoding error: unknown field \"{path}\""));
                };
                check_shape(value, shape, &path)?;
            }
            true
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("field \"{at}\" has the wrong type")) }
}

fn read_defaults(defaults: &Value, errors: &mut Errors) -> Policy {
    let at = Path::new("defaults");
    let mut read = |mode: &str| -> LevelVersion {
        let version_field = format!("{mode}-version");
        let (level, version) = (defaults.text(mode), defaults.text(&version_field));
        let mut standard = Policy::default().enforce;
        if !level.is_empty() {
            match Level::parse(level) {
                Ok(level) => standard.level = level,
                Err(detail) => errors.invalid(at.child(mode), level, detail),
            }
        }
        if !version.is_empty() {
            match Version::parse(version) {
                Ok(version) => standard.version = version,
                Err(detail) => errors.invalid(at.child(&version_field), version, detail),
            }
        }
        standard
    };
    let (enforce, warn, audit) = (read("enforce"), read("warn"), read("audit"));
    Policy { enforce, audit, warn }
}

fn non_empty(name: &str) -> Vec<String> {
    if name.is_empty() { vec!["username must not be empty".to_owned()] } else { Vec::new() }
}

fn read_names(
    exemptions: &Value,
    list: &str,
    check: impl Fn(&str) -> Vec<String>,
    errors: &mut Errors,
) -> HashSet<String> {
    let at = Path::new("exemptions");
    let at = at.child(list);
    let mut names = HashSet::new();
    for (index, name) in exemptions.texts(list).enumerate() {
        let complaints = check(name);
        if !complaints.is_empty() {
            errors.invalid(at.index(index), name, complaints.join(", "));
        } else if !names.insert(name.to_owned()) {
            errors.duplicate(at.index(index), name);
        }
    }
    names
}
