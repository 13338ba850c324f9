//! Validation of the objects of a file.

use std::sync::atomic::{AtomicUsize, Ordering};

use api::features::Features;
use api::field::{ErrorType, Errors, Path};
use api::json::{Position, Value};
use api::types::{self, Mismatch};
use cel::cost::Cost;
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::devices;
use cel_kubernetes::libraries::authorization::User;
use cel_kubernetes::prospect::Prospect;
use registry::admit::{self, AcceptedObject, AdmitError};
use registry::annotations;
use registry::conversion;
use registry::expressions::{Environments, Expressions as _, Place, Refusal};
use registry::resources;
use registry::strategy::Context;

use super::definitions::{DefinitionMatch, Definitions, column_warnings};
use super::policies::{Policies, Row, Verdict};
use super::removed;
use crate::gated_uses::{self, Field, Use};
use crate::manifests::{self, Manifest, Manifests, Source};

/// Decides about manifests.
pub(super) struct Judge {
    features: Features,
    environments: Environments,
    definitions: Definitions,
    policies: Option<Policies>,
    with_costs: bool,
}

/// Progress of the work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of checked files.
    pub(super) files: AtomicUsize,
    /// Number of objects found so far.
    pub(super) found: AtomicUsize,
    /// Number of objects checked so far.
    pub(super) judged: AtomicUsize,
}

/// Fewer objects of a file are not worth more threads.
const OBJECTS_MIN: usize = 64;

/// Result of a file.
#[derive(Debug)]
pub(super) struct FileReport {
    /// The file.
    pub(super) name: String,
    /// Error that prevented reading it completely.
    pub(super) unreadable: Option<(Option<Position>, String)>,
    /// Objects of the file.
    pub(super) objects: Vec<ObjectReport>,
}

/// Result of an object.
#[derive(Debug)]
pub(super) struct ObjectReport {
    /// Kind and name.
    pub(super) title: String,
    /// Start of the object.
    pub(super) position: Position,
    /// Errors.
    pub(super) findings: Vec<Finding>,
    /// Warnings of the server.
    pub(super) warnings: Vec<Warning>,
    /// Expressions and their estimated costs.
    pub(super) costs: Vec<(Position, String, Cost)>,
    /// Policies that could not be evaluated, and why.
    pub(super) unevaluated: Vec<String>,
    /// Search strategies of device constraints.
    pub(super) searches: Vec<(Position, String, String)>,
    /// Only gated fields were checked: the registry does not know the kind.
    pub(super) is_partial: bool,
}

impl ObjectReport {
    /// Adds warnings, each at the field that it names.
    fn warn(&mut self, messages: impl IntoIterator<Item = String>, find: &dyn Fn(&str) -> Position) {
        let of_object = self.position;
        let warning = |message: String| {
            let position = named_field(&message).map_or(of_object, |field| find(&field));
            Warning { position, message }
        };
        self.warnings.extend(messages.into_iter().map(warning));
    }

    /// Makes an error of an object that could not be validated as a whole.
    pub(super) fn refuse_doubts(&mut self) {
        let position = self.position;
        if self.is_partial {
            let message = "not validated: no schema of this kind is known".to_owned();
            self.findings.push(Finding { position, path: String::new(), reason: "NotValidated", message });
        }
    }
}

/// The field that a warning of the server is about: most begin with it, as in `spec.externalIPs is deprecated …`.
fn named_field(message: &str) -> Option<String> {
    if let Some(rest) = message.strip_prefix("annotation \"") {
        return Some(format!("metadata.annotations[{}]", rest.split('"').next().unwrap_or_default()));
    }
    // Errors of Go's `crypto/tls`, which Kubernetes prints as they are.
    if message.starts_with("tls: ") || message.starts_with("x509: ") {
        return Some(if message.contains("key") { "data[tls.key]" } else { "data[tls.crt]" }.to_owned());
    }
    let field = message.split(' ').next().unwrap_or_default().trim_end_matches(':');
    field.contains(['.', '[']).then(|| field.to_owned())
}

/// A warning.
#[derive(Debug)]
pub(super) struct Warning {
    /// Position of the field; of the object if the warning concerns it as a whole.
    pub(super) position: Position,
    /// Text of the warning.
    pub(super) message: String,
}

/// An error at a field.
#[derive(Debug)]
pub(super) struct Finding {
    /// Position of the error.
    pub(super) position: Position,
    /// Path of the field; empty if the error concerns the whole object.
    pub(super) path: String,
    /// The machine-readable reason.
    pub(super) reason: &'static str,
    /// Text of the error.
    pub(super) message: String,
}

impl Judge {
    pub(super) fn new(features: Features, definitions: Definitions, with_costs: bool) -> anyhow::Result<Self> {
        Ok(Judge { features, environments: Environments::new()?, definitions, policies: None, with_costs })
    }

    /// Adds policies, which are applied to every object of a kind that is known.
    pub(super) fn set_policies(
        &mut self,
        policies: &[Manifest],
        beside: &[Manifest],
        user: User,
    ) -> anyhow::Result<()> {
        let compiler = self.environments.policies().ok_or_else(|| anyhow::anyhow!("policies cannot be compiled"))?;
        let policies = Policies::new(policies.iter(), beside.iter(), compiler, user);
        anyhow::ensure!(policies.len() > 0, "no policy with a binding is in the files of --policies");
        self.policies = Some(policies);
        Ok(())
    }

    /// Reads a file and judges its objects, on this many threads.
    pub(super) fn file(&self, source: &Source, threads: usize, progress: &Progress) -> FileReport {
        let manifests = match source.read() {
            Ok(manifests) => manifests,
            Err(error) => {
                let name = match source {
                    Source::File(path) => path.display().to_string(),
                    Source::StandardInput => "<stdin>".to_owned(),
                };
                return FileReport { name, unreadable: Some((None, format!("{error:#}"))), objects: Vec::new() };
            }
        };
        let mut own = Definitions::default();
        if *source == Source::StandardInput {
            own.add(&manifests);
        }
        let objects = self.objects(&manifests, &own, threads, progress);
        let error = manifests.error.as_ref();
        let unreadable = error.map(|error| (Some(manifests.position(error.offset)), error.message.clone()));
        FileReport { name: manifests.name, unreadable, objects }
    }

    /// Judges all objects of a file; the reports come in their order.
    fn objects(&self, file: &Manifests, own: &Definitions, threads: usize, progress: &Progress) -> Vec<ObjectReport> {
        progress.found.fetch_add(file.objects.len(), Ordering::Relaxed);
        let judge = |objects: &[Manifest]| -> Vec<ObjectReport> {
            let one = |manifest: &Manifest| {
                let mut report = self.object(file, own, manifest);
                report.findings.sort_by_key(|finding| (finding.position.line, finding.position.column));
                progress.judged.fetch_add(1, Ordering::Relaxed);
                report
            };
            objects.iter().map(one).collect()
        };
        if threads < 2 || file.objects.len() < OBJECTS_MIN {
            return judge(&file.objects);
        }
        let part = file.objects.len().div_ceil(threads);
        std::thread::scope(|scope| {
            let parts: Vec<_> = file.objects.chunks(part).map(|objects| scope.spawn(|| judge(objects))).collect();
            // A panic of a part is ours.
            let join = |part: std::thread::ScopedJoinHandle<'_, Vec<ObjectReport>>| {
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            parts.into_iter().flat_map(join).collect()
        })
    }

    fn object(&self, file: &Manifests, own: &Definitions, manifest: &Manifest) -> ObjectReport {
        let mut report = ObjectReport {
            title: manifest.title(),
            position: file.position(manifest.start()),
            findings: Vec::new(),
            warnings: Vec::new(),
            costs: Vec::new(),
            unevaluated: Vec::new(),
            searches: Vec::new(),
            is_partial: false,
        };
        for (path, offset) in &manifest.duplicates {
            report.findings.push(Finding {
                position: file.position(*offset),
                path: path.clone(),
                reason: "BadRequest",
                message: format!("duplicate field {path:?}"),
            });
        }
        let find = |path: &str| file.position_of(manifest, path);
        let contents = match manifest.is_built_in() {
            true => annotations::contents(manifest.kind(), &manifest.value),
            false => Vec::new(),
        };
        let mut uses = gated_uses::find(&manifest.value);
        uses.extend(contents.iter().flat_map(gated_uses::find_in));
        if manifest.kind().is_empty() || manifest.api_version().is_empty() {
            let message = "Object 'Kind' or 'apiVersion' is missing".to_owned();
            report.findings.push(Finding { position: find(""), path: String::new(), reason: "BadRequest", message });
            return report;
        }
        let (api_version, kind) = (manifest.api_version(), manifest.kind());
        let defined = match own.find(api_version, kind) {
            DefinitionMatch::Nothing => self.definitions.find(api_version, kind),
            found => found,
        };
        let is_off = |resource: &resources::Resource<'_>| {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            !resources::RuntimeConfig::default().serves(resource.group, version)
        };
        let built_in = resources::find_by_api_version(api_version, kind);
        match (built_in.filter(|resource| !is_off(resource)), defined) {
            (Some(resource), _) => {
                let context = self.context(manifest, resource.namespaced);
                let mut value = manifest.value.clone();
                // Fields in annotations are checked as the fields are, and with them.
                if let Err(errors) = annotations::merge(kind, &mut value, &context) {
                    report.findings.extend(findings(&errors, &find));
                }
                let of = types::by_api_version(api_version, kind);
                let taken = of.map(|of| types::take_mismatches(of, &mut value)).unwrap_or_default();
                let shown = |mut object: Value| {
                    let version = api_version.rsplit('/').next().unwrap_or_default();
                    conversion::from_stored(resource, version, &mut object);
                    object
                };
                let row = Row { plural: resource.plural, namespaced: resource.namespaced };
                let create = |document: &Value| admit::create(resource, document, &context);
                self.admit(&value, row, &create, &shown, &find, &mut report);
                let version = api_version.rsplit('/').next().unwrap_or_default();
                if let Some(message) = resource.deprecation(version) {
                    report.warnings.push(Warning { position: find("apiVersion"), message });
                }
                add_mismatches(taken, &find, &mut report);
                if kind == "CustomResourceDefinition" {
                    let at = |(path, message): (String, String)| Warning { position: find(&path), message };
                    report.warnings.extend(column_warnings(&manifest.value, &self.environments).into_iter().map(at));
                }
            }
            (None, DefinitionMatch::Meaning(meaning, plural, is_namespaced)) => {
                let context = self.context(manifest, is_namespaced);
                let row = Row { plural, namespaced: is_namespaced };
                let create = |document: &Value| meaning.create(document, &context);
                self.admit(&manifest.value, row, &create, &|object| object, &find, &mut report);
            }
            (None, defined) => {
                // Versions that servers do not serve by default are missing, too.
                let is_missing = built_in.is_some()
                    || matches!(defined, DefinitionMatch::OtherVersion)
                    || types::by_api_version(api_version, kind).is_none() && is_kubernetes_group(api_version);
                if is_missing {
                    // The first part is kubectl's.
                    let advice = removed::advice(api_version, kind);
                    let message = format!("no matches for kind {kind:?} in version {api_version:?}{advice}");
                    let path = "kind".to_owned();
                    report.findings.push(Finding { position: find(&path), path, reason: "NotFound", message });
                    return report;
                }
                self.check_uses(manifest, &uses, &find, &mut report);
            }
        }
        if self.with_costs {
            for it in &uses {
                let Some((place, schema)) = place(it.field) else { continue };
                let Ok(compiled) = self.environments.compile(place, schema, it.text) else { continue };
                report.costs.push((find(&it.path), it.path.clone(), compiled.cost()));
                if place == Place::DeviceConstraint {
                    report.searches.push((find(&it.path), it.path.clone(), search(&compiled)));
                }
            }
        }
        report
    }

    /// Validates an object and applies the policies to it: mutations before, validations after.
    fn admit(
        &self,
        document: &Value,
        row: Row<'_>,
        create: &dyn Fn(&Value) -> Result<AcceptedObject, AdmitError>,
        shown: &dyn Fn(Value) -> Value,
        find: &dyn Fn(&str) -> Position,
        report: &mut ObjectReport,
    ) {
        let mut admitted = create(document);
        if let Err(AdmitError::Invalid { errors, .. }) = &admitted {
            let hints = registry::hints::of_errors(document, errors, self.features, &self.environments);
            report.warn(hints.into_iter().map(|(field, hint)| format!("{field}: {hint}")), find);
        }
        let Some(policies) = &self.policies else { return admit(admitted, find, report) };
        let base = match &admitted {
            Ok(accepted) => shown(accepted.object.clone()),
            Err(_) => document.clone(),
        };
        let mutated = policies.mutate(&base, row);
        let object = mutated.object.clone();
        add_verdict(mutated, find, report);
        if let Some(object) = object {
            let strict_errors = admitted.map(|accepted| accepted.strict_errors).unwrap_or_default();
            admitted = create(&object).map(|accepted| AcceptedObject { strict_errors, ..accepted });
        }
        if let (Ok(accepted), true) = (&admitted, report.findings.is_empty()) {
            let verdict = policies.validate(&shown(accepted.object.clone()), row);
            admit(admitted, find, report);
            add_verdict(verdict, find, report);
        } else {
            admit(admitted, find, report);
        }
    }

    /// Returns the server's context of a request for the object.
    fn context<'c>(&'c self, manifest: &'c Manifest, is_namespaced: bool) -> Context<'c> {
        let namespace = manifest.value.str_at(&["metadata", "namespace"]).unwrap_or("default");
        Context {
            features: self.features,
            expressions: &self.environments,
            namespace: if is_namespaced { namespace } else { "" },
            now: "2000-01-01T00:00:00Z",
            uid: "00000000-0000-4000-8000-000000000001",
            name_suffix: "bcdfg",
            namespace_allows_admin_access: false,
        }
    }

    /// Checks kinds without validation rules: their fields, and their gated fields.
    fn check_uses(
        &self,
        manifest: &Manifest,
        uses: &[Use<'_>],
        find: &dyn Fn(&str) -> Position,
        report: &mut ObjectReport,
    ) {
        report.is_partial = true;
        if let Some(of) = types::by_api_version(manifest.api_version(), manifest.kind()) {
            let mut value = manifest.value.clone();
            let taken = types::take_mismatches(of, &mut value);
            let (paths, error) = match types::decode(of, &value) {
                Ok(decoded) => (decoded.unknown_fields, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            let unknown = paths.into_iter().map(|path| (format!("unknown field {path:?}"), path));
            for (message, path) in unknown.chain(error.map(|error| (error, String::new()))) {
                report.findings.push(Finding { position: find(&path), path, reason: "BadRequest", message });
            }
            add_mismatches(taken, find, report);
        }
        let mut errors = Errors::new();
        for it in uses {
            let path = shown_path(it, &manifest.value);
            let at = Path::new(&path);
            if !it.needs.are_met(self.features) {
                gate_off(it, at, &mut errors);
            } else if let Some((place, schema)) = place(it.field)
                && let Err(refusal) = self.environments.compile(place, schema, it.text)
            {
                refuse(it, refusal, at, &mut errors);
            }
        }
        report.findings.extend(findings(&errors, find));
    }
}

/// Adds the results of policies.
fn add_verdict(verdict: Verdict, find: &dyn Fn(&str) -> Position, report: &mut ObjectReport) {
    for (reason, message) in verdict.denials {
        report.findings.push(Finding { position: find(""), path: String::new(), reason, message });
    }
    report.warn(verdict.warnings, find);
    report.unevaluated.extend(verdict.unknown);
}

/// Describes the search strategy of a device constraint.
fn search(compiled: &CompiledExpression) -> String {
    let Prospect { depends_on_order, conditions, judged_early, opaque } =
        Prospect::of(compiled.typed(), devices::VARIABLE);
    let order = if depends_on_order {
        "sets are tried in name order"
    } else {
        "sets are tried in the order of the attributes that it reads"
    };
    if conditions == 0 {
        return "it does not read the devices".to_owned();
    }
    let past: Vec<String> = opaque.iter().map(|name| format!("`{name}`")).collect();
    match judged_early {
        0 => format!("no condition can be evaluated before the set is complete, because of {}", past.join(", ")),
        all if all == conditions => format!("pruned by {all} of {conditions} conditions; {order}"),
        some => format!(
            "pruned by {some} of {conditions} conditions, the others require the complete set because of {}; {order}",
            past.join(", ")
        ),
    }
}

/// Whether only Kubernetes can have a group of this name, so that a kind in it is known or does not exist: its own groups,
/// and names without a dot, which definitions cannot have.
fn is_kubernetes_group(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    !group.contains('.') || apiserver::resources::groups().iter().any(|(it, _)| *it == group)
}

/// Adds type errors, and drops validation errors that are caused by them.
fn add_mismatches(taken: Vec<Mismatch>, find: &dyn Fn(&str) -> Position, report: &mut ObjectReport) {
    if taken.is_empty() {
        return;
    }
    let is_around = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    report.findings.retain(|finding| {
        let concerns = |it: &Mismatch| is_around(&it.path, &finding.path) || is_around(&finding.path, &it.path);
        finding.path.is_empty() || !taken.iter().any(concerns)
    });
    if let Some(first) = taken.iter().find(|it| it.is_bool_for_text) {
        report.warnings.push(Warning { position: find(&first.path), message: manifests::BOOLEANS.to_owned() });
    }
    report.findings.extend(taken.into_iter().map(|it| Finding {
        position: find(&it.path),
        path: it.path,
        reason: "BadRequest",
        message: it.message,
    }));
}

/// Adds the server's result.
fn admit(admitted: Result<AcceptedObject, AdmitError>, find: &dyn Fn(&str) -> Position, report: &mut ObjectReport) {
    let mut plain = |message: String| {
        let path = message.split('"').nth(1).unwrap_or_default().to_owned();
        report.findings.push(Finding { position: find(&path), path, reason: "BadRequest", message });
    };
    match admitted {
        Ok(accepted) => {
            accepted.strict_errors.into_iter().for_each(&mut plain);
            report.warn(accepted.warnings, find);
        }
        Err(AdmitError::Invalid { errors, strict_errors, .. }) => {
            strict_errors.into_iter().for_each(&mut plain);
            report.findings.extend(findings(&errors, find));
        }
        Err(other) => plain(other.to_string()),
    }
    let hint = |finding: &Finding| {
        let message = manifests::hint(&finding.message)?.to_owned();
        Some(Warning { position: finding.position, message })
    };
    let hint = report.findings.iter().find_map(hint);
    report.warnings.extend(hint);
}

/// The path as Kubernetes prints it: columns of a definition with one version stand without the version.
fn shown_path(gated_use: &Use<'_>, object: &Value) -> String {
    let versions = object.list_at(&["spec", "versions"]);
    match (gated_use.field, versions) {
        (Field::PrinterColumn(_), [_]) => gated_use.path.replacen("versions[0].", "", 1),
        _ => gated_use.path.clone(),
    }
}

fn findings(errors: &Errors, find: &dyn Fn(&str) -> Position) -> Vec<Finding> {
    let finding = |error: &api::field::Error| Finding {
        position: find(&error.field),
        path: error.field.clone(),
        reason: error.error_type.reason(),
        message: error.body(),
    };
    errors.iter().map(finding).collect()
}

/// Returns the validation error of a rejected expression.
fn refuse(gated_use: &Use<'_>, refusal: Refusal, at: Path<'_>, errors: &mut Errors) {
    match (gated_use.field, refusal) {
        (_, Refusal::TooLong { max }) => errors.too_long(at, max),
        // In Kubernetes, a compile error of a column is an internal error of the whole column.
        (Field::PrinterColumn(_), Refusal::Invalid(detail) | Refusal::Internal(detail)) => {
            let column = at.to_string();
            let column = Path::new(column.trim_end_matches(".expression"));
            errors.internal(column, format!("CEL compilation failed for {} rules: {detail}", gated_use.text));
        }
        (_, Refusal::Invalid(detail)) => errors.invalid(at, gated_use.text, detail),
        (_, Refusal::TooCostly { detail, .. }) => errors.forbidden(at, detail),
        (_, Refusal::Internal(detail)) => errors.internal(at, detail),
        (_, _) => errors.internal(at, "the expression cannot be used"),
    }
}

/// Returns the validation error of a field whose gate is disabled.
fn gate_off(gated_use: &Use<'_>, at: Path<'_>, errors: &mut Errors) {
    let gate = gated_use.needs.0.first().map_or("", |gate| gate.name());
    let what = match gated_use.field {
        Field::TolerationExpression => "toleration CEL expressions require",
        Field::AffinityExpression => "node affinity CEL expressions require",
        Field::DeviceConstraint => "device constraint CEL expressions require",
        Field::PrinterColumn(_) => "CEL printer columns require",
        Field::TolerationOperator => {
            errors.not_supported(at, gated_use.text, &["Equal", "Exists"]);
            return;
        }
        Field::AffinityOperator => {
            errors.push(api::field::Error::new(ErrorType::Invalid, &at, gated_use.text, "not a valid selector operator"));
            return;
        }
    };
    errors.forbidden(at, format!("{what} feature gate {gate}"));
}

/// The place of a field, and the schema that types `self` there.
fn place(field: Field<'_>) -> Option<(Place, Option<&Value>)> {
    static NO_SCHEMA: Value = Value::Null;
    Some(match field {
        Field::TolerationExpression => (Place::Toleration, None),
        Field::AffinityExpression => (Place::NodeAffinity, None),
        Field::DeviceConstraint => (Place::DeviceConstraint, None),
        Field::PrinterColumn(schema) => (Place::PrinterColumn, Some(schema.unwrap_or(&NO_SCHEMA))),
        Field::TolerationOperator | Field::AffinityOperator => return None,
    })
}
