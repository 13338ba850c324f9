//! ResourceClaims and ResourceClaimTemplates.

use api::features::Gate;
use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use super::{Findings, config, status, validate_full_name, validate_toleration};
use crate::core::volume_claim::validate_template_metadata;
use crate::document::same;
use crate::expressions::{self, Place};
use crate::meta::{self, IMMUTABLE, invalid};
use crate::render;
use crate::strategy::{Context, PLAIN, Part, Strategy};

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub(crate) const CLAIM: Strategy = Strategy {
    prepare_create: |claim, _| {
        claim.set("status", Value::object());
        drop_disabled_fields(claim.make("spec"));
    },
    validate_create: |claim, context, errors| {
        validate_admin_access(claim.field("spec"), context, errors);
        meta::validate(claim, true, names::dns1123_subdomain, errors);
        validate_spec(claim.field("spec"), None, context, &Path::new("spec")).finish(errors);
    },
    prepare_update: |claim, old, _| {
        claim.set("status", old.field("status").clone());
        drop_disabled_fields(claim.make("spec"));
    },
    validate_update: |claim, old, _, errors| {
        meta::validate(claim, true, names::dns1123_subdomain, errors);
        meta::validate_update(claim, old, errors);
        if !same(claim.field("spec"), old.field("spec")) {
            errors.invalid(Path::new("spec"), Value::Null, IMMUTABLE);
        }
    },
    subresources: &[(
        "status",
        Part {
            prepare: |claim, old, _| {
                claim.set("spec", old.field("spec").clone());
                status::reset_metadata(claim, old);
                status::drop_deallocated(claim, old);
            },
            validate: status::validate,
        },
    )],
    warn: |claim, old, context| match old {
        None => warn(claim.field("spec"), context, &Path::new("spec")),
        Some(_) => Vec::new(),
    },
    ..PLAIN
};

pub(crate) const CLAIM_TEMPLATE: Strategy = Strategy {
    prepare_create: |template, _| drop_disabled_fields(template.make("spec").make("spec")),
    validate_create: |template, context, errors| {
        let (spec, at) = (template.field("spec"), Path::new("spec"));
        validate_admin_access(spec.field("spec"), context, errors);
        meta::validate(template, true, names::dns1123_subdomain, errors);
        validate_template_metadata(spec.field("metadata"), &at.child("metadata"), errors);
        validate_spec(spec.field("spec"), None, context, &at.child("spec")).finish(errors);
    },
    prepare_update: |template, _, _| drop_disabled_fields(template.make("spec").make("spec")),
    validate_update: |template, old, context, errors| {
        meta::validate(template, true, names::dns1123_subdomain, errors);
        let (spec, at) = (template.field("spec"), Path::new("spec"));
        validate_template_metadata(spec.field("metadata"), &at.child("metadata"), errors);
        let old_spec = old.field("spec").field("spec");
        let findings = validate_spec(spec.field("spec"), Some(old_spec), context, &at.child("spec"));
        errors.append(findings.written);
        meta::validate_update(template, old, errors);
        if !same(template.field("spec"), old.field("spec")) {
            let package = "k8s.io/api/resource/v1";
            let shown = render::internal(package, "ResourceClaimTemplateSpec", template.field("spec"));
            errors.invalid(Path::new("spec"), shown, IMMUTABLE);
        }
        errors.append(findings.declared);
    },
    warn: |template, old, context| match old {
        None => warn(template.field("spec").field("spec"), context, &Path::new("spec").child("spec")),
        Some(_) => Vec::new(),
    },
    ..PLAIN
};

/// Returns warnings about accepted claims that may not behave as expected.
fn warn(spec: &Value, context: &Context<'_>, at: &Path<'_>) -> Vec<String> {
    let here = at.child("devices");
    let list = here.child("constraints");
    let mut warnings = Vec::new();
    for (index, constraint) in spec.field("devices").list("constraints").iter().enumerate() {
        let Some(cel) = constraint.optional("cel") else { continue };
        let advice = context.expressions.advise(Place::DeviceConstraint, cel.text("expression"));
        let item = list.index(index);
        let cel = item.child("cel");
        warnings.extend(advice.into_iter().map(|it| format!("{}: {it}", cel.child("expression"))));
    }
    warnings
}

/// Drops what belongs to upstream features that are off here.
fn drop_disabled_fields(spec: &mut Value) {
    for request in spec.make("devices").list_mut("requests") {
        if let Some(exactly) = request.get_mut("exactly") {
            exactly.unset("derivedAttributes");
        }
        for sub in request.list_mut("firstAvailable") {
            sub.unset("derivedAttributes");
        }
    }
}

/// Admin access requires a label of the namespace.
fn validate_admin_access(spec: &Value, context: &Context<'_>, errors: &mut Errors) {
    if context.namespace_allows_admin_access {
        return;
    }
    let requests = spec.field("devices").list("requests");
    if let Some(index) = requests.iter().position(|it| it.field("exactly").flag("adminAccess")) {
        // Kubernetes names the first one, and templates' requests as if they were claims'.
        let list = Path::new("spec.devices.requests");
        let detail = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
        errors.forbidden(list.index(index).child("adminAccess"), detail);
    }
}

/// Names of requests, and of their alternatives.
pub(super) struct Requests<'a>(&'a [Value]);

impl<'a> Requests<'a> {
    pub(super) fn new(spec: &'a Value) -> Self {
        Self(spec.field("devices").list("requests"))
    }

    fn has(&self, name: &str) -> bool {
        let (request, sub) = name.split_once('/').map_or((name, None), |(request, sub)| (request, Some(sub)));
        self.0
            .iter()
            .rev()
            .find(|it| it.text("name") == request)
            .is_some_and(|it| sub.is_none_or(|sub| it.list("firstAvailable").iter().any(|it| it.text("name") == sub)))
    }

    /// A reference to a request.
    pub(super) fn validate(&self, name: &str, at: Path<'_>, errors: &mut Errors) {
        if name.matches('/').count() > 1 {
            errors.invalid(at, name, NOT_A_REQUEST);
            return;
        }
        for part in name.split('/') {
            invalid(names::dns1123_label(part), part, at, errors);
        }
        if !self.has(name) {
            errors.invalid(at, name, NOT_A_REQUEST);
        }
    }

    /// A list of references without repetition.
    pub(super) fn validate_list(&self, list: &[Value], at: Path<'_>, findings: &mut Findings) {
        if !findings.fits(list, 32, at) {
            return;
        }
        for (index, name) in list.iter().enumerate() {
            self.validate(name.as_str().unwrap_or_default(), at.index(index), &mut findings.written);
        }
        findings.unique(list, &at, |it| it.as_str().unwrap_or_default());
    }
}

/// Validates the spec of a claim. `old` is the replaced spec, whose features stay permitted.
fn validate_spec(spec: &Value, old: Option<&Value>, context: &Context<'_>, at: &Path<'_>) -> Findings {
    let mut findings = Findings::default();
    let devices = spec.field("devices");
    let at = at.child("devices");
    let names = Requests::new(spec);
    let (requests, list) = (devices.list("requests"), at.child("requests"));
    if findings.fits(requests, 32, list) {
        findings.unique(requests, &list, |it| it.text("name"));
        for (index, request) in requests.iter().enumerate() {
            validate_request(request, context, &list.index(index), &mut findings);
        }
    }
    let uses_cel = |spec: &Value| spec.field("devices").list("constraints").iter().any(|it| it.has("cel"));
    let allow_cel = context.features.enabled(Gate::DRACELDeviceConstraint) || old.is_some_and(uses_cel);
    let (constraints, list) = (devices.list("constraints"), at.child("constraints"));
    if findings.fits(constraints, 32, list) {
        for (index, constraint) in constraints.iter().enumerate() {
            validate_constraint(constraint, allow_cel, &names, context, &list.index(index), &mut findings);
        }
    }
    let (configs, list) = (devices.list("config"), at.child("config"));
    if findings.fits(configs, 32, list) {
        for (index, config) in configs.iter().enumerate() {
            let here = list.index(index);
            names.validate_list(config.list("requests"), here.child("requests"), &mut findings);
            config::validate(config, false, &here, &mut findings);
        }
    }
    findings
}

/// Constraints that are added to those of a claim's spec.
pub(crate) fn validate_added_constraints(
    spec: &Value,
    added: &[Value],
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let (mut findings, names) = (Findings::default(), Requests::new(spec));
    let all = [spec.field("devices").list("constraints"), added].concat();
    if findings.fits(&all, 32, *at) {
        let allow_cel = context.features.enabled(Gate::DRACELDeviceConstraint);
        for (index, constraint) in added.iter().enumerate() {
            validate_constraint(constraint, allow_cel, &names, context, &at.index(index), &mut findings);
        }
    }
    findings.finish(errors);
}

fn validate_request(request: &Value, context: &Context<'_>, at: &Path<'_>, findings: &mut Findings) {
    let name = request.text("name");
    invalid(names::dns1123_label(name), name, at.child("name"), &mut findings.written);
    let subs = request.list("firstAvailable");
    match (request.optional("exactly"), !subs.is_empty()) {
        (None, false) => {
            findings.written.required(*at, "exactly one of `exactly` or `firstAvailable` is required");
        }
        (Some(exactly), true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            findings.written.invalid(*at, Value::Null, detail);
            // Declared rules look at both nevertheless.
            let mut both = Findings::default();
            validate_exact(exactly, context, &at.child("exactly"), &mut both);
            validate_alternatives(subs, context, at.child("firstAvailable"), &mut both);
            findings.declared.append(both.declared);
        }
        (Some(exactly), false) => {
            let at = at.child("exactly");
            let class = exactly.text("deviceClassName");
            if class.is_empty() {
                findings.written.required(at.child("deviceClassName"), "");
            } else {
                let here = at.child("deviceClassName");
                invalid(names::dns1123_subdomain(class), class, here, &mut findings.written);
            }
            validate_exact(exactly, context, &at, findings);
        }
        (None, true) => validate_alternatives(subs, context, at.child("firstAvailable"), findings),
    }
}

fn validate_alternatives(subs: &[Value], context: &Context<'_>, list: Path<'_>, findings: &mut Findings) {
    if !findings.fits(subs, 8, list) {
        return;
    }
    findings.unique(subs, &list, |it| it.text("name"));
    for (index, sub) in subs.iter().enumerate() {
        let here = list.index(index);
        let name = sub.text("name");
        invalid(names::dns1123_label(name), name, here.child("name"), &mut findings.written);
        let class = sub.text("deviceClassName");
        if class.is_empty() {
            findings.declared.required(here.child("deviceClassName"), "");
        } else {
            let here = here.child("deviceClassName");
            invalid(names::long_name(class), class, here, &mut findings.declared);
        }
        validate_exact(sub, context, &here, findings);
    }
}

/// Validates the common part of requests and their alternatives.
fn validate_exact(request: &Value, context: &Context<'_>, at: &Path<'_>, findings: &mut Findings) {
    validate_selectors(request.list("selectors"), false, context, at.child("selectors"), findings);
    let count = request.int("count");
    match request.text("allocationMode") {
        "All" => {
            if count != 0 {
                let detail = "must not be specified when allocationMode is 'All'";
                findings.written.invalid(at.child("count"), count, detail);
            }
        }
        "ExactCount" => {
            if count <= 0 {
                findings.written.invalid(at.child("count"), count, "must be greater than zero");
            }
        }
        other => findings.declared.not_supported(at.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    let list = at.child("tolerations");
    for (index, toleration) in request.list("tolerations").iter().enumerate() {
        validate_toleration(toleration, &list.index(index), findings);
    }
}

/// Selectors of a request or class.
pub(super) fn validate_selectors(
    selectors: &[Value],
    is_stored: bool,
    context: &Context<'_>,
    at: Path<'_>,
    findings: &mut Findings,
) {
    if !findings.fits(selectors, 32, at) {
        return;
    }
    for (index, selector) in selectors.iter().enumerate() {
        let here = at.index(index);
        let here = here.child("cel");
        match selector.optional("cel") {
            None => findings.written.required(here, ""),
            // What was accepted once still runs.
            Some(_) if is_stored => {}
            Some(cel) => expressions::validate(
                context.expressions,
                Place::DeviceSelector,
                cel.text("expression"),
                here.child("expression"),
                &mut findings.written,
            ),
        }
    }
}

fn validate_constraint(
    constraint: &Value,
    allow_cel: bool,
    names: &Requests<'_>,
    context: &Context<'_>,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    names.validate_list(constraint.list("requests"), at.child("requests"), findings);
    let has_attribute = constraint.has("matchAttribute") || constraint.has("distinctAttribute");
    if let Some(cel) = constraint.optional("cel") {
        let here = at.child("cel");
        let here = here.child("expression");
        if !allow_cel {
            let detail = "device constraint CEL expressions require feature gate DRACELDeviceConstraint";
            findings.written.forbidden(here, detail);
        } else if has_attribute {
            let detail = "exactly one of matchAttribute, distinctAttribute or cel must be specified";
            findings.written.invalid(*at, BadValue::Value(constraint.clone()), detail);
        } else {
            let expression = cel.text("expression");
            let place = Place::DeviceConstraint;
            expressions::validate(context.expressions, place, expression, here, &mut findings.written);
        }
        return;
    }
    if !has_attribute {
        let detail =
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        findings.written.required(*at, detail);
    }
    for name in ["matchAttribute", "distinctAttribute"] {
        if let Some(attribute) = constraint.optional_text(name) {
            validate_full_name(attribute, at.child(name), &mut findings.declared);
        }
    }
}
