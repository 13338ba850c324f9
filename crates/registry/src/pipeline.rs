//! The steps of a write, as data: one list for create, one for update.
//!
//! A server and the offline tools run the same lists, so that `celplane check` and the server accept, change and warn
//! alike. A step is a rule of the kind ([`Rules`]) or an operation on metadata that is the same for all kinds. Steps
//! that need the server (admission plugins, allocation) are [`ServerStep`]: the server stops there and performs them,
//! tools skip them. Follows `BeforeCreate` and `BeforeUpdate` of Kubernetes' `registry/rest`.

use api::field::Errors;
use api::json::Value;
use api::types::EmptyPositions;

use crate::seen::SeenKeys;

/// One step of a write. The object is in the stored version and in normal form when the first one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Takes the namespace from the request where the object has none; rejects another one.
    Namespace,
    /// Merges equal owner references, with a warning.
    MergeOwners,
    /// Fills in defaults.
    Default,
    /// Removes metadata that clients may not set in a new object.
    ResetMetadata,
    /// Sets uid, creation time and, if it is generated, the name.
    Identify,
    /// Resets fields that users may not set or change, and drops gated ones.
    Prepare,
    /// Rejects an invalid object.
    Validate,
    /// Makes lists null that were sent empty, as they are after having been stored.
    Settle,
    /// Brings a valid object into the form in which its kind is stored.
    Canonicalize,
    /// Brings the object into normal form.
    Normalize,
    /// Collects the warnings of the kind.
    Warn,
    /// A step of the server.
    Outside(ServerStep),
}

/// A step that only the server can perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerStep {
    /// Keeps metadata of the stored object that an update does not change.
    Keep,
    /// Admission plugins change the object.
    Mutate,
    /// Addresses are allocated, and field managers recorded.
    Complete,
    /// Admission plugins accept or reject the object.
    Admit,
}

/// The steps of creating an object.
const CREATE: &[Step] = &[
    Step::Namespace,
    Step::MergeOwners,
    Step::Default,
    Step::ResetMetadata,
    Step::Outside(ServerStep::Mutate),
    // Plugins may have changed it.
    Step::Namespace,
    Step::Identify,
    Step::Prepare,
    Step::Validate,
    Step::Canonicalize,
    Step::Outside(ServerStep::Complete),
    Step::Warn,
    Step::Outside(ServerStep::Admit),
    // Kubernetes: the form that objects have after having been stored, which validating admission does not see.
    Step::Settle,
    // Fields that preparation left empty, so that the next update does not seem to set them.
    Step::Default,
    Step::Normalize,
];

/// The steps of updating an object or a part of it.
const UPDATE: &[Step] = &[
    Step::Namespace,
    Step::MergeOwners,
    Step::Outside(ServerStep::Keep),
    Step::Default,
    Step::Outside(ServerStep::Mutate),
    Step::Prepare,
    Step::Validate,
    Step::Canonicalize,
    Step::Outside(ServerStep::Complete),
    Step::Warn,
    Step::Outside(ServerStep::Admit),
    Step::Settle,
    Step::Default,
    Step::Normalize,
];

/// The stored object that an update is about.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    /// The object as stored.
    pub old: &'a Value,
    /// The subresource that is written, if it is not the whole object.
    pub subresource: Option<&'a str>,
}

/// The rules of a kind. `update` is missing for a new object.
pub trait Rules {
    /// Fills in defaults.
    fn fill_defaults(&self, object: &mut Value);
    /// Resets fields that users may not set or change, and drops gated ones.
    fn prepare(&self, object: &mut Value, update: Option<Update<'_>>);
    /// The errors of an object.
    fn validate(&self, object: &Value, update: Option<Update<'_>>) -> Errors;
    /// Brings a valid object into the form in which it is stored.
    fn canonicalize(&self, object: &mut Value);
    /// Brings an object into normal form.
    fn normalize(&self, object: &mut Value);
    /// Warnings about an object that is accepted.
    fn warnings(&self, object: &Value, update: Option<Update<'_>>) -> Vec<String>;
}

/// The identity of a new object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity<'a> {
    /// The uid.
    pub uid: &'a str,
    /// The creation time.
    pub now: &'a str,
    /// The end of a generated name; empty for kinds that keep `generateName` as it is.
    pub name_suffix: &'a str,
}

/// An object on its way through the steps.
#[derive(Debug)]
pub struct Write<'a> {
    /// The object.
    pub object: Value,
    /// Places of empty lists and maps in the document that was sent.
    pub given_empty: &'a EmptyPositions,
    /// The stored object; missing for a new one.
    pub update: Option<Update<'a>>,
    /// The namespace of the request; empty for kinds without namespaces.
    pub namespace: &'a str,
    /// The identity of a new object.
    pub identity: Identity<'a>,
    /// Warnings of the steps that have run.
    pub warnings: Vec<String>,
}

/// A reason to reject an object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The object names another namespace than the request.
    #[error("the namespace of the provided object does not match the namespace sent on the request")]
    WrongNamespace,
    /// 422: fields are invalid.
    #[error("the object is invalid")]
    Invalid(Errors),
    /// The caller would skip a step.
    #[error("the step {0:?} was not performed")]
    Skipped(ServerStep),
}

/// The steps that have not run yet.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline {
    rest: &'static [Step],
}

impl Pipeline {
    /// All steps of creating an object.
    #[must_use]
    pub fn create() -> Self {
        Self { rest: CREATE }
    }

    /// All steps of updating an object.
    #[must_use]
    pub fn update() -> Self {
        Self { rest: UPDATE }
    }

    /// The steps after a step of the server, for objects that were made in another way than by the steps before it.
    #[must_use]
    pub fn after(mut self, outside: ServerStep) -> Self {
        while let Some((step, rest)) = self.rest.split_first() {
            self.rest = rest;
            if *step == Step::Outside(outside) {
                break;
            }
        }
        self
    }

    /// Runs the steps before `outside`, which the caller performs next.
    ///
    /// # Errors
    /// The object is rejected; or another step of the server comes first, which the caller would skip.
    pub fn run_until(
        &mut self,
        outside: ServerStep,
        write: &mut Write<'_>,
        rules: &dyn Rules,
    ) -> Result<(), Rejection> {
        while let Some((step, rest)) = self.rest.split_first() {
            self.rest = rest;
            match *step {
                Step::Outside(reached) if reached == outside => return Ok(()),
                Step::Outside(other) => return Err(Rejection::Skipped(other)),
                step => run(step, write, rules)?,
            }
        }
        Err(Rejection::Skipped(outside))
    }

    /// Runs the steps after the last one of the server.
    ///
    /// # Errors
    /// Another step of the server comes first, which the caller would skip.
    pub fn run_rest(self, write: &mut Write<'_>, rules: &dyn Rules) -> Result<(), Rejection> {
        self.rest.iter().try_for_each(|step| match *step {
            Step::Outside(other) => Err(Rejection::Skipped(other)),
            step => run(step, write, rules),
        })
    }

    /// Runs all steps but those of the server.
    ///
    /// # Errors
    /// The object is rejected.
    pub fn run_offline(self, write: &mut Write<'_>, rules: &dyn Rules) -> Result<(), Rejection> {
        self.rest.iter().try_for_each(|step| match *step {
            Step::Outside(_) => Ok(()),
            step => run(step, write, rules),
        })
    }
}

fn run(step: Step, write: &mut Write<'_>, rules: &dyn Rules) -> Result<(), Rejection> {
    let Write { object, given_empty, update, .. } = write;
    match step {
        Step::Namespace => check_namespace(object, write.namespace)?,
        Step::MergeOwners => write.warnings.extend(merge_owners(object, "")),
        Step::Default => rules.fill_defaults(object),
        Step::ResetMetadata => reset_metadata(object),
        Step::Identify => identify(object, write.identity),
        Step::Prepare => rules.prepare(object, *update),
        Step::Validate => {
            let errors = rules.validate(&given_empty.in_place(object), *update);
            if !errors.is_empty() {
                return Err(Rejection::Invalid(errors));
            }
        }
        Step::Settle => given_empty.settle(object),
        Step::Canonicalize => rules.canonicalize(object),
        Step::Normalize => rules.normalize(object),
        Step::Warn => write.warnings.extend(rules.warnings(object, *update)),
        Step::Outside(_) => {}
    }
    Ok(())
}

/// Takes the namespace from the request where the object has none.
///
/// # Errors
/// The object names another one.
pub fn check_namespace(object: &mut Value, expected: &str) -> Result<(), Rejection> {
    let found = object.field("metadata").text("namespace");
    if found == expected {
        return Ok(());
    }
    if !found.is_empty() && !expected.is_empty() {
        return Err(Rejection::WrongNamespace);
    }
    let metadata = object.make("metadata");
    if expected.is_empty() {
        metadata.unset("namespace");
    } else {
        metadata.set("namespace", expected);
    }
    Ok(())
}

/// Merges equal owner references and returns a warning about them; `when` they were found is part of its text.
#[must_use]
pub fn merge_owners(object: &mut Value, when: &str) -> Vec<String> {
    let owners = object.field("metadata").list("ownerReferences");
    let mut seen = SeenKeys::default();
    let is_new: Vec<bool> = owners.iter().map(|owner| seen.insert(identity_of(owner))).collect();
    drop(seen);
    if !is_new.contains(&false) {
        return Vec::new();
    }
    let owners = || owners.iter().zip(&is_new);
    let duplicates: Vec<&str> = owners().filter(|(_, is_new)| !**is_new).map(|(owner, _)| owner.text("uid")).collect();
    let duplicates = duplicates.join(", ");
    let kept: Vec<Value> = owners().filter(|(_, is_new)| **is_new).map(|(owner, _)| owner.clone()).collect();
    object.make("metadata").set("ownerReferences", kept);
    vec![format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {duplicates}"
    )]
}

/// The fields of an owner reference: two with the same fields are duplicates.
fn identity_of(owner: &Value) -> impl Ord {
    let texts = ["apiVersion", "kind", "name", "uid"].map(|name| owner.text(name));
    (texts, owner.optional_flag("controller"), owner.optional_flag("blockOwnerDeletion"))
}

/// Removes metadata that clients may not set in a new object.
pub fn reset_metadata(object: &mut Value) {
    let metadata = object.make("metadata");
    for name in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.unset(name);
    }
}

fn identify(object: &mut Value, identity: Identity<'_>) {
    let metadata = object.make("metadata");
    metadata.set("uid", identity.uid);
    metadata.set("creationTimestamp", identity.now);
    if metadata.text("name").is_empty() && !metadata.text("generateName").is_empty() {
        let name = generate_name(metadata.text("generateName"), identity.name_suffix);
        metadata.set("name", name);
    }
}

/// The name that is generated from a prefix, which is cut so that the whole fits into a label.
fn generate_name(prefix: &str, suffix: &str) -> String {
    if suffix.is_empty() {
        return prefix.to_owned();
    }
    let end = prefix.floor_char_boundary(63_usize.saturating_sub(suffix.len()));
    format!("{}{suffix}", prefix.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Records the calls of the steps; the object is valid unless it has a field `wrong`.
    #[derive(Default)]
    struct Recorder(RefCell<Vec<&'static str>>);

    impl Rules for Recorder {
        fn fill_defaults(&self, _: &mut Value) {
            self.0.borrow_mut().push("default");
        }
        fn prepare(&self, _: &mut Value, update: Option<Update<'_>>) {
            self.0.borrow_mut().push(if update.is_some() { "prepare update" } else { "prepare" });
        }
        fn validate(&self, object: &Value, _: Option<Update<'_>>) -> Errors {
            self.0.borrow_mut().push("validate");
            let mut errors = Errors::new();
            if object.has("wrong") {
                errors.required(api::field::Path::new("right"), "");
            }
            errors
        }
        fn canonicalize(&self, _: &mut Value) {
            self.0.borrow_mut().push("canonicalize");
        }
        fn normalize(&self, _: &mut Value) {
            self.0.borrow_mut().push("normalize");
        }
        fn warnings(&self, _: &Value, _: Option<Update<'_>>) -> Vec<String> {
            self.0.borrow_mut().push("warn");
            vec!["careful".to_owned()]
        }
    }

    fn write<'a>(object: Value, given_empty: &'a EmptyPositions) -> Write<'a> {
        let identity = Identity { uid: "u", now: "2026-01-01T00:00:00Z", name_suffix: "abcde" };
        Write { object, given_empty, update: None, namespace: "default", identity, warnings: Vec::new() }
    }

    #[test]
    fn server_and_tools_run_the_same_steps() {
        let given_empty = EmptyPositions::default();
        let document = api::json!({"metadata": {"generateName": "web-"}});
        let (online, offline) = (Recorder::default(), Recorder::default());
        let mut served = write(document.clone(), &given_empty);
        let mut steps = Pipeline::create();
        for outside in [ServerStep::Mutate, ServerStep::Complete, ServerStep::Admit] {
            steps.run_until(outside, &mut served, &online).unwrap();
        }
        steps.run_rest(&mut served, &online).unwrap();
        let mut checked = write(document, &given_empty);
        Pipeline::create().run_offline(&mut checked, &offline).unwrap();
        assert_eq!(online.0, offline.0);
        assert_eq!(served.object, checked.object);
        assert_eq!(served.warnings, checked.warnings);
        assert_eq!(checked.object.field("metadata").text("name"), "web-abcde");
        let expected = ["default", "prepare", "validate", "canonicalize", "warn", "default", "normalize"];
        assert_eq!(*offline.0.borrow(), expected);
    }

    #[test]
    fn admission_is_the_last_step_of_the_server() {
        for pipeline in [Pipeline::create(), Pipeline::update()] {
            assert_eq!(pipeline.after(ServerStep::Admit).rest, [Step::Settle, Step::Default, Step::Normalize]);
        }
    }

    #[test]
    fn step_of_the_server_cannot_be_skipped() {
        let given_empty = EmptyPositions::default();
        let mut new = write(Value::object(), &given_empty);
        let rules = Recorder::default();
        let skipped = Pipeline::create().run_until(ServerStep::Admit, &mut new, &rules);
        assert_eq!(skipped, Err(Rejection::Skipped(ServerStep::Mutate)));
        assert_eq!(Pipeline::create().run_rest(&mut new, &rules), Err(Rejection::Skipped(ServerStep::Mutate)));
        let mut last = Pipeline::create().after(ServerStep::Admit);
        assert_eq!(last.run_until(ServerStep::Admit, &mut new, &rules), Err(Rejection::Skipped(ServerStep::Admit)));
    }

    #[test]
    fn invalid_object_stops_at_validation() {
        let given_empty = EmptyPositions::default();
        let rules = Recorder::default();
        let mut new = write(api::json!({"wrong": true}), &given_empty);
        let rejected = Pipeline::update().run_offline(&mut new, &rules);
        assert!(matches!(rejected, Err(Rejection::Invalid(errors)) if errors.len() == 1));
        assert_eq!(rules.0.borrow().last(), Some(&"validate"));
        let mut elsewhere = write(api::json!({"metadata": {"namespace": "other"}}), &given_empty);
        let rejected = Pipeline::create().run_offline(&mut elsewhere, &rules);
        assert_eq!(rejected, Err(Rejection::WrongNamespace));
    }

    #[test]
    fn generated_names_fit_into_labels() {
        assert_eq!(generate_name("web-", "abcde"), "web-abcde");
        assert_eq!(generate_name(&"x".repeat(80), "abcde").len(), 63);
        // A letter of two bytes is not cut in half.
        assert_eq!(generate_name(&"é".repeat(40), "abcde"), format!("{}abcde", "é".repeat(29)));
        assert_eq!(generate_name("ip-", ""), "ip-");
    }
}
