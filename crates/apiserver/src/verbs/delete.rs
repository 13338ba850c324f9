//! Deleting objects: at once, after a grace period, or after their finalizers were removed.

use locks::Mutex;
use std::sync::Arc;

use api::field::{Errors, Path};
use api::json::{Object, Value};
use futures::future::BoxFuture;

use super::modify::{Decision, ModifyResult, Proposal, modify};
use super::update::spec_finalizers;
use super::{Call, Selection, create, list};
use crate::admission::{Attributes, Operation};
use crate::resources::{self, Resource};
use crate::wire::answer::Answer;
use crate::wire::deadline;
use crate::wire::payload;
use crate::wire::request::Target;
use crate::wire::status::{self, Failure, Result};
use api::metadata;

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub(super) struct DeleteOptions {
    grace_seconds: Option<i64>,
    propagation: String,
    /// Whether the policy is set, even to an empty value.
    says_propagation: bool,
    uid: Option<String>,
    pub(super) version: Option<String>,
    /// Whether the old and the new way of saying it are both used.
    says_propagation_twice: bool,
    /// The older form of the propagation policy, as it was sent.
    orphans_dependents: Option<bool>,
    pub(super) dry_run: bool,
}

impl DeleteOptions {
    /// Reads body and query.
    pub(super) fn read(call: &Call<'_>) -> Result<Self> {
        let mut options = Self { dry_run: call.is_dry_run()?, ..Self::default() };
        if call.body.is_empty() {
            options.grace_seconds = call.query.number("gracePeriodSeconds")?;
            call.query.get("propagationPolicy").clone_into(&mut options.propagation);
            options.says_propagation = call.query.has("propagationPolicy");
            options.says_propagation_twice = call.query.has("propagationPolicy") && call.query.has("orphanDependents");
            if !options.says_propagation && call.query.has("orphanDependents") {
                let orphan = call.query.flag("orphanDependents");
                options.orphans_dependents = Some(orphan);
                (if orphan { "Orphan" } else { "Background" }).clone_into(&mut options.propagation);
            }
        } else {
            let payload = payload::read(call.headers, &call.body, "DeleteOptions")?;
            options.merge(&payload.value)?;
            return Ok(options);
        }
        options.check(&[])?;
        Ok(options)
    }

    /// Default options, as a dry run or not.
    pub(super) fn dry_run(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Merges the options of a document.
    pub(super) fn merge(&mut self, value: &Value) -> Result<()> {
        let kind = value.str_at(&["kind"]).unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let version = value.str_at(&["apiVersion"]).filter(|it| !it.is_empty()).unwrap_or("v1");
            let scheme = "pkg/apis/meta/internalversion/scheme/register.go:27";
            return Err(Failure::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\""
            )));
        }
        // A precondition that is not understood must not be ignored.
        let of = api::types::by_kind("meta.k8s.io", "v1", kind).ok_or_else(Failure::no_resource)?;
        api::types::decode(of, value).map_err(Failure::bad_request)?;
        self.grace_seconds = value.get("gracePeriodSeconds").and_then(Value::as_i64);
        value.text("propagationPolicy").clone_into(&mut self.propagation);
        self.says_propagation = value.get("propagationPolicy").is_some_and(|it| !it.is_null());
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        self.says_propagation_twice = orphan.is_some() && self.says_propagation;
        self.orphans_dependents = orphan;
        if let (false, Some(orphan)) = (self.says_propagation, orphan) {
            (if orphan { "Orphan" } else { "Background" }).clone_into(&mut self.propagation);
        }
        let precondition = |field: &str| value.str_at(&["preconditions", field]).map(ToOwned::to_owned);
        self.uid = precondition("uid");
        self.version = precondition("resourceVersion");
        let dry = value.get("dryRun").and_then(Value::as_array).unwrap_or_default();
        self.dry_run |= !dry.is_empty();
        self.check(dry)
    }

    /// The options as admission sees them, with the grace period that pods get.
    fn to_value(&self, resource: &Resource<'_>, object: &Value) -> Value {
        let mut options = api::json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let Some(fields) = options.as_object_mut() else { return options };
        let grace =
            if is_graceful(resource) { Some(grace_seconds(resource, self, object)) } else { self.grace_seconds };
        if let Some(grace) = grace {
            fields.insert("gracePeriodSeconds", grace);
        }
        // Kubernetes: a namespace is deleted on the condition that it is still the same.
        let is_namespace = resource.is(resources::NAMESPACES);
        let uid = if is_namespace { Some(metadata::text(object, "uid").to_owned()) } else { None };
        let given = [("uid", &self.uid.clone().or(uid)), ("resourceVersion", &self.version)];
        let given = given.into_iter().filter_map(|(field, value)| Some((field, Value::from(value.as_deref()?))));
        let preconditions: Object = given.collect();
        if !preconditions.is_empty() {
            fields.insert("preconditions", preconditions);
        }
        match self.orphans_dependents {
            Some(orphans) if !self.says_propagation => _ = fields.insert("orphanDependents", orphans),
            _ if !self.propagation.is_empty() => _ = fields.insert("propagationPolicy", self.propagation.as_str()),
            _ => {}
        }
        if self.dry_run {
            fields.insert("dryRun", vec![Value::from("All")]);
        }
        options
    }

    /// Returns warnings for a deletion of objects of a resource.
    fn warnings(&self, resource: &Resource<'_>) -> Vec<String> {
        let orphans = resource.is(resources::JOBS) && self.propagation.is_empty();
        let warning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                       remove them or set propagationPolicy=Orphan to suppress this warning";
        orphans.then(|| warning.to_owned()).into_iter().collect()
    }

    fn check(&self, dry: &[Value]) -> Result<()> {
        let mut errors = Errors::new();
        let (at, policy) = (Path::new("propagationPolicy"), self.propagation.as_str());
        if self.says_propagation_twice {
            errors.invalid(at, policy, "orphanDependents and deletionPropagation cannot be both set");
        }
        if self.says_propagation && !matches!(policy, "Background" | "Foreground" | "Orphan") {
            errors.not_supported(at, policy, &["Foreground", "Background", "Orphan", "nil"]);
        }
        // What is not a dry run would be a deletion: it must be clear.
        if dry.iter().any(|it| it.as_str() != Some("All")) {
            errors.not_supported(Path::new("dryRun"), Value::Array(dry.to_vec()), &["All"]);
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
    }

    pub(super) fn check_preconditions(&self, call: &Call<'_>, object: &Value) -> Result<()> {
        let conditions = [
            ("UID", &self.uid, "uid", "deleted and then recreated"),
            ("ResourceVersion", &self.version, "resourceVersion", "modified"),
        ];
        for (name, wanted, field, perhaps) in conditions {
            let found = metadata::text(object, field);
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "the {name} in the precondition ({wanted}) does not match the {name} in record ({found}). The object might have been {perhaps}"
                );
                return Err(Failure::conflict_of_kind(call.resource, &call.target.name, &why));
            }
        }
        Ok(())
    }
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer> {
    let options = DeleteOptions::read(call)?;
    let warnings = options.warnings(call.resource);
    let done = delete_object(call, &options, Some(&call.target.name)).await?;
    let answer = match done {
        ModifyResult::Deleted(object) if !call.resource.delete_returns_object => {
            let uid = metadata::text(&object, "uid");
            Answer::json(200, &status::success(call.resource, &call.target.name, uid))
        }
        ModifyResult::Deleted(object) | ModifyResult::Dry(object) => call.answer_value(200, &object)?,
        ModifyResult::Stored(object) => call.answer_stored(200, &object).await?,
    };
    Ok(answer.with_warnings(warnings))
}

/// Deletes the object of a call, or starts to. Admission sees the deletion under `name`, if there is one: an eviction has
/// been admitted already.
pub(super) async fn delete_object(
    call: &Call<'_>,
    options: &DeleteOptions,
    name: Option<&str>,
) -> Result<ModifyResult> {
    // Written by this deletion itself: the version that was requested became that.
    let written: Mutex<Option<Value>> = Mutex::new(None);
    modify(call, options.dry_run, |old| {
        let is_own = written.lock().take().is_some_and(|mut written| {
            metadata::copy(&mut written, old, "resourceVersion");
            written == *old
        });
        if !is_own {
            options.check_preconditions(call, old)?;
        }
        Ok(Decision::Admit(Box::new(Deletion { options, name: name.filter(|_| !is_own), written: &written })))
    })
    .await
}

/// A deletion.
struct Deletion<'p> {
    options: &'p DeleteOptions,
    name: Option<&'p str>,
    written: &'p Mutex<Option<Value>>,
}

impl Proposal for Deletion<'_> {
    fn admit<'a>(self: Box<Self>, call: &'a Call<'_>, old: &'a Value) -> BoxFuture<'a, Result<Decision<'a>>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let decision = decide(call, self.options, old)?;
            // Kubernetes: a pod that is being deleted anyway is not admitted again.
            let is_namespace = call.resource.is(resources::NAMESPACES);
            let is_pending = (is_graceful(call.resource) || is_namespace) && matches!(decision, Decision::Keep);
            if let Some(name) = self.name.filter(|_| !is_pending) {
                let options = || self.options.to_value(call.resource, old);
                let attributes = call.attributes(Operation::Delete, "", self.options.dry_run, &options);
                call.server.admission.admit(&Attributes { name, old: Some(old), ..attributes }, None).await?;
            }
            if let Decision::PutThenDelete(object) = &decision {
                *self.written.lock() = Some(object.clone());
            }
            Ok(decision)
        })
    }
}

fn decide(call: &Call<'_>, options: &DeleteOptions, old: &Value) -> Result<Decision<'static>> {
    let resource = call.resource;
    if crate::custom::is_definition(resource) && !metadata::is_deleting(old) {
        let (mut definition, now) = (old.clone(), call.now().to_string());
        metadata::set(&mut definition, "deletionTimestamp", now.as_str());
        registry::definition_status::terminate(&mut definition, &now);
        create::normalize(call, &mut definition);
        return Ok(Decision::Put(definition));
    }
    let finalizers = finalizers_after(resource, options, old);
    let is_namespace = resource.is(resources::NAMESPACES);
    let waits = !finalizers.is_empty() || is_namespace && !spec_finalizers(old).is_empty();
    let grace = grace_seconds(resource, options, old);
    let mut object = old.clone();
    if finalizers != metadata::finalizers(old) {
        let list: Vec<Value> = finalizers.iter().map(Value::from).collect();
        metadata::set(&mut object, "finalizers", list);
    }
    let deleting = metadata::is_deleting(old);
    let grace_before = old.i64_at(&["metadata", "deletionGracePeriodSeconds"]);
    if deleting && (grace > 0 || waits) {
        // A grace period can only be made shorter.
        if grace_before.is_none_or(|before| grace >= before) {
            create::normalize(call, &mut object);
            return Ok(if finalizers == metadata::finalizers(old) { Decision::Keep } else { Decision::Put(object) });
        }
    }
    if grace == 0 && !waits && (!is_graceful(resource) || deleting && grace_before == Some(0)) {
        return Ok(Decision::Delete(object));
    }
    let now = call.now();
    metadata::set(&mut object, "deletionTimestamp", now.plus_seconds(grace).to_string());
    // Kubernetes: how long a namespace takes is not known.
    if !is_namespace {
        metadata::set(&mut object, "deletionGracePeriodSeconds", grace);
    }
    if !deleting {
        let generation = old.i64_at(&["metadata", "generation"]);
        if let Some(generation) = generation.filter(|generation| *generation > 0) {
            metadata::set(&mut object, "generation", generation.saturating_add(1));
        }
    }
    if is_namespace && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("phase", "Terminating");
    }
    create::normalize(call, &mut object);
    if grace == 0 && !waits {
        return Ok(Decision::PutThenDelete(object));
    }
    Ok(Decision::Put(object))
}

fn is_graceful(resource: &Resource<'_>) -> bool {
    resource.is(resources::PODS)
}

/// Grace period of an object.
fn grace_seconds(resource: &Resource<'_>, options: &DeleteOptions, object: &Value) -> i64 {
    if !is_graceful(resource) {
        return 0;
    }
    let unbound = object.text_at(&["spec", "nodeName"]).is_empty();
    let finished = matches!(object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    if unbound || finished {
        return 0;
    }
    let own = object.i64_at(&["spec", "terminationGracePeriodSeconds"]);
    let grace = options.grace_seconds.or(own).unwrap_or(30);
    // Kubernetes: a negative grace period means one second.
    if grace < 0 { 1 } else { grace }
}

/// The finalizers that the way of propagation leaves.
fn finalizers_after(resource: &Resource<'_>, options: &DeleteOptions, object: &Value) -> Vec<String> {
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    let mut finalizers = metadata::finalizers(object);
    // Kubernetes: the pods of a job stay if the request does not say otherwise, which kubectl always does.
    let orphans_by_default = resource.is(resources::JOBS);
    let wanted = match options.propagation.as_str() {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        "Background" => None,
        _ if finalizers.iter().any(|it| it == ORPHAN || it == FOREGROUND) => return finalizers,
        _ => orphans_by_default.then_some(ORPHAN),
    };
    finalizers.retain(|it| it != ORPHAN && it != FOREGROUND);
    finalizers.extend(wanted.map(ToOwned::to_owned));
    finalizers
}

/// Deletes one object of a collection; one that was already deleted is not an error.
async fn delete_one(call: &Call<'_>, key: &str, options: &DeleteOptions) -> Result<()> {
    let name = key.rsplit('/').next().unwrap_or_default().to_owned();
    let target = Target { name, ..call.target.clone() };
    let one = call.about(call.row, call.resource, &target);
    match Box::pin(deadline::with_own_evaluation(delete_object(&one, options, Some("")))).await {
        Err(failure) if failure.code != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// This many objects of a collection are deleted at a time, unless users can refuse it.
const COLLECTION_WIDTH: usize = 64;

pub(super) async fn delete_collection(call: &Call<'_>) -> Result<Answer> {
    let options = DeleteOptions::read(call)?;
    let selection = Selection::from_query(call.query, call.resource)?;
    if call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    call.wait_for_now().await?;
    let found = call.find(&selection).await?;
    let found = call.all_converted(found, false).await?;
    let filter = Arc::new(list::Filter::new(call.range(), selection));
    let snapshot = list::select(call, found, None, &filter).await?;
    let no_options = || api::json::Value::Null;
    let attributes = call.attributes(Operation::Delete, "", options.dry_run, &no_options);
    // Many at a time: those that are under way together become durable together. Kubernetes deletes one after the other and
    // stops at the first refusal, which users notice only where their own policies or webhooks may refuse.
    let width = if call.server.admission.asks_users(&attributes) { 1 } else { COLLECTION_WIDTH };
    for chunk in snapshot.objects.chunks(width) {
        let chunk = chunk.iter().map(|(key, _)| delete_one(call, key, &options));
        futures::future::try_join_all(chunk).await?;
    }
    Ok(list::show(call, snapshot, filter.selection())?.with_warnings(options.warnings(call.resource)))
}
