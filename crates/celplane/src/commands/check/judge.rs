//! What is wrong with the objects of a file.

use std::sync::atomic::{AtomicUsize, Ordering};

use api::features::Features;
use api::field::{ErrorType, Errors, Path};
use api::json::{Position, Value};
use api::types;
use cel::cost::Cost;
use cel_kubernetes::compile::Compiled;
use cel_kubernetes::environments::devices;
use cel_kubernetes::prospect::Prospect;
use registry::admit::{self, Accepted, Refused};
use registry::expressions::{Environments, Place, Refusal};
use registry::resources;
use registry::strategy::Context;

use super::definitions::{Definitions, Found, column_warnings};
use crate::gated_uses::{self, Field, Use};
use crate::manifests::{self, Manifest, Manifests, Source};

/// Decides about manifests.
pub(super) struct Judge {
    features: Features,
    environments: Environments,
    definitions: Definitions,
    with_costs: bool,
}

/// How far the work has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Files that are done.
    pub(super) files: AtomicUsize,
    /// Objects that were found so far,
    pub(super) found: AtomicUsize,
    /// and judged.
    pub(super) judged: AtomicUsize,
}

/// Fewer objects of a file are not worth more threads.
const OBJECTS_MIN: usize = 64;

/// What was found in a file.
#[derive(Debug)]
pub(super) struct FileReport {
    /// The file.
    pub(super) name: String,
    /// Why it could not be read, or not to its end.
    pub(super) unreadable: Option<(Option<Position>, String)>,
    /// Its objects.
    pub(super) objects: Vec<ObjectReport>,
}

/// What was found in an object.
#[derive(Debug)]
pub(super) struct ObjectReport {
    /// Kind and name.
    pub(super) title: String,
    /// Where it starts.
    pub(super) position: Position,
    /// What is wrong.
    pub(super) findings: Vec<Finding>,
    /// What the server would warn about.
    pub(super) warnings: Vec<String>,
    /// Its expressions and what they may cost.
    pub(super) costs: Vec<(Position, String, Cost)>,
    /// How constraints over sets of devices will be searched.
    pub(super) searches: Vec<(Position, String, String)>,
    /// Only gated fields were checked: the registry does not know the kind.
    pub(super) is_partial: bool,
}

/// An error at a field.
#[derive(Debug)]
pub(super) struct Finding {
    /// Where.
    pub(super) position: Position,
    /// The field's path, empty where the error is about the object.
    pub(super) path: String,
    /// The machine-readable reason.
    pub(super) reason: &'static str,
    /// What is wrong.
    pub(super) message: String,
}

impl Judge {
    pub(super) fn new(features: Features, definitions: Definitions, with_costs: bool) -> anyhow::Result<Self> {
        Ok(Judge { features, environments: Environments::new()?, definitions, with_costs })
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
    fn objects(
        &self,
        file: &Manifests,
        own: &Definitions,
        threads: usize,
        progress: &Progress,
    ) -> Vec<ObjectReport> {
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
        let uses = gated_uses::find(&manifest.value);
        let find = |path: &str| file.position_of(manifest, path);
        if manifest.kind().is_empty() || manifest.api_version().is_empty() {
            let message = "Object 'Kind' or 'apiVersion' is missing".to_owned();
            report.findings.push(Finding { position: find(""), path: String::new(), reason: "BadRequest", message });
            return report;
        }
        let (api_version, kind) = (manifest.api_version(), manifest.kind());
        let defined = match own.find(api_version, kind) {
            Found::Nothing => self.definitions.find(api_version, kind),
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
                admit(admit::create(resource, &manifest.value, &context), &find, &mut report);
                if kind == "CustomResourceDefinition" {
                    report.warnings.extend(column_warnings(&manifest.value));
                }
            }
            (None, Found::Meaning(meaning, is_namespaced)) => {
                let context = self.context(manifest, is_namespaced);
                admit(meaning.create(&manifest.value, &context), &find, &mut report);
            }
            (None, defined) => {
                // What servers do not serve unless they are told to is missing, too.
                let is_missing = built_in.is_some()
                    || matches!(defined, Found::OtherVersion)
                    || types::by_api_version(api_version, kind).is_none() && is_built_in_group(api_version);
                if is_missing {
                    // As `kubectl` says it.
                    let message = format!("no matches for kind {kind:?} in version {api_version:?}");
                    let path = "kind".to_owned();
                    report.findings.push(Finding { position: find(&path), path, reason: "NotFound", message });
                    return report;
                }
                self.check_uses(manifest, &uses, &find, &mut report);
            }
        }
        if self.with_costs {
            for it in &uses {
                let Some(place) = place(it.field) else { continue };
                let Ok(compiled) = self.environments.compile(place, it.text) else { continue };
                report.costs.push((find(&it.path), it.path.clone(), compiled.cost()));
                if place == Place::DeviceConstraint {
                    report.searches.push((find(&it.path), it.path.clone(), search(&compiled)));
                }
            }
        }
        report
    }

    /// What a server would know about a request for the object.
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

    /// What can be said of kinds that the registry does not know: their fields, and their gated fields.
    fn check_uses(
        &self,
        manifest: &Manifest,
        uses: &[Use<'_>],
        find: &dyn Fn(&str) -> Position,
        report: &mut ObjectReport,
    ) {
        report.is_partial = true;
        if let Some(of) = types::by_api_version(manifest.api_version(), manifest.kind()) {
            let decoded = types::decode(of, &manifest.value);
            let (paths, error) = match decoded {
                Ok(decoded) => (decoded.unknown_fields, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            let unknown = paths.into_iter().map(|path| (format!("unknown field {path:?}"), path));
            for (message, path) in unknown.chain(error.map(|error| (error, String::new()))) {
                report.findings.push(Finding { position: find(&path), path, reason: "BadRequest", message });
            }
        }
        let mut errors = Errors::new();
        for it in uses {
            let path = shown_path(it, &manifest.value);
            let at = Path::new(&path);
            if !it.needs.are_met(self.features) {
                gate_off(it, at, &mut errors);
            } else if let Some(place) = place(it.field)
                && let Err(refusal) = self.environments.compile(place, it.text)
            {
                refuse(it, refusal, at, &mut errors);
            }
        }
        report.findings.extend(findings(&errors, find));
    }
}

/// How a constraint over a set of devices will be searched.
fn search(compiled: &Compiled) -> String {
    let Prospect { depends_on_order, conditions, judged_early, opaque } =
        Prospect::of(compiled.typed(), devices::VARIABLE);
    let order = if depends_on_order {
        "sets are tried in the order of names only"
    } else {
        "whether there is a set is found out in the order of what it reads"
    };
    if conditions == 0 {
        return "it asks nothing of the devices".to_owned();
    }
    let past: Vec<String> = opaque.iter().map(|name| format!("`{name}`")).collect();
    match judged_early {
        0 => format!("no condition can be judged before the set is whole, because of {}", past.join(", ")),
        all if all == conditions => format!("cut short by {all} of {conditions} conditions; {order}"),
        some => format!(
            "cut short by {some} of {conditions} conditions, the others wait for the whole set because of {}; {order}",
            past.join(", ")
        ),
    }
}

/// Whether Kubernetes has a group of this name, so that a kind in it is known or does not exist.
fn is_built_in_group(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    apiserver::resources::groups().iter().any(|(it, _)| *it == group)
}

/// What the server says to the object.
fn admit(admitted: Result<Accepted, Refused>, find: &dyn Fn(&str) -> Position, report: &mut ObjectReport) {
    let mut plain = |message: String| {
        let path = message.split('"').nth(1).unwrap_or_default().to_owned();
        report.findings.push(Finding { position: find(&path), path, reason: "BadRequest", message });
    };
    match admitted {
        Ok(accepted) => {
            accepted.strict_errors.into_iter().for_each(&mut plain);
            report.warnings = accepted.warnings;
        }
        Err(Refused::Invalid { errors, strict_errors, .. }) => {
            strict_errors.into_iter().for_each(&mut plain);
            report.findings.extend(findings(&errors, find));
        }
        Err(other) => plain(other.to_string()),
    }
    let hint = report.findings.iter().find_map(|finding| manifests::hint(&finding.message));
    report.warnings.extend(hint.map(ToOwned::to_owned));
}

/// The path as Kubernetes prints it: columns of a definition with one version stand without the version.
fn shown_path(it: &Use<'_>, object: &Value) -> String {
    let versions = object.at(&["spec", "versions"]).and_then(Value::as_array).unwrap_or_default();
    match (it.field, versions) {
        (Field::PrinterColumn(_), [_]) => it.path.replacen("versions[0].", "", 1),
        _ => it.path.clone(),
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

/// What validation says to an expression that cannot be used.
fn refuse(it: &Use<'_>, refusal: Refusal, at: Path<'_>, errors: &mut Errors) {
    match (it.field, refusal) {
        (_, Refusal::TooLong { max }) => errors.too_long(at, max),
        // What the compiler says of a column is an internal error of the whole column in Kubernetes.
        (Field::PrinterColumn(_), Refusal::Invalid(detail) | Refusal::Internal(detail)) => {
            let column = at.to_string();
            let column = Path::new(column.trim_end_matches(".expression"));
            errors.internal(column, format!("CEL compilation failed for {} rules: {detail}", it.text));
        }
        (_, Refusal::Invalid(detail)) => errors.invalid(at, it.text, detail),
        (_, Refusal::TooCostly(detail)) => errors.forbidden(at, detail),
        (_, Refusal::Internal(detail)) => errors.internal(at, detail),
        (_, _) => errors.internal(at, "the expression cannot be used"),
    }
}

/// What validation says to a field whose gate is off.
fn gate_off(it: &Use<'_>, at: Path<'_>, errors: &mut Errors) {
    let gate = it.needs.0.first().map_or("", |gate| gate.name());
    let what = match it.field {
        Field::TolerationExpression => "toleration CEL expressions require",
        Field::AffinityExpression => "node affinity CEL expressions require",
        Field::DeviceConstraint => "device constraint CEL expressions require",
        Field::PrinterColumn(_) => "CEL printer columns require",
        Field::TolerationOperator => {
            errors.not_supported(at, it.text, &["Equal", "Exists"]);
            return;
        }
        Field::AffinityOperator => {
            errors.push(api::field::Error::new(ErrorType::Invalid, &at, it.text, "not a valid selector operator"));
            return;
        }
    };
    errors.forbidden(at, format!("{what} feature gate {gate}"));
}

fn place(field: Field<'_>) -> Option<Place<'_>> {
    static NO_SCHEMA: Value = Value::Null;
    Some(match field {
        Field::TolerationExpression => Place::Toleration,
        Field::AffinityExpression => Place::NodeAffinity,
        Field::DeviceConstraint => Place::DeviceConstraint,
        Field::PrinterColumn(schema) => Place::PrinterColumn(schema.unwrap_or(&NO_SCHEMA)),
        Field::TolerationOperator | Field::AffinityOperator => return None,
    })
}
