//! The spec of a definition: group, names, versions, subresources, conversion.

use api::features::Gate;
use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use super::columns::{self, AllowedColumns};
use super::field_path;
use super::schema::{self, Demands};
use super::structural;
use crate::render;
use crate::seen::SeenKeys;
use crate::strategy::Context;
use crate::webhooks;

const PACKAGE: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";

/// The hoisted spec; `old` is what it replaces.
pub(super) fn validate(spec: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let at = Path::new("spec");
    let group = spec.text("group");
    let complaints = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(at.child("group"), "");
    } else if !complaints.is_empty() {
        errors.invalid(at.child("group"), group, complaints.join(","));
    } else if !group.contains('.') {
        errors.invalid(at.child("group"), group, "should be a domain with at least one dot");
    }
    one_of(spec.text("scope"), &["Cluster", "Namespaced"], at.child("scope"), errors);
    let top = spec.field("validation").optional("openAPIV3Schema");
    let demands = Demands::new(spec, old);
    validate_presence(spec, &demands, &at, errors);
    if spec.flag("preserveUnknownFields") && schema::has_defaults(spec) {
        let detail = "must be false in order to use defaults in the schema";
        errors.invalid(at.child("preserveUnknownFields"), true, detail);
    }
    let is_open = context.features.enabled(Gate::CRDAdditionalPrinterColumnCEL);
    let allowed = AllowedColumns::new(is_open, old);
    let versions = spec.list("versions");
    let list = at.child("versions");
    for (index, version) in versions.iter().enumerate() {
        let here = list.index(index);
        let name = version.text("name");
        let complaints = names::dns1035_label(name);
        if !complaints.is_empty() {
            errors.invalid(here.child("name"), name, complaints.join(","));
        }
        let has_status = version.field("subresources").has("status") || spec.field("subresources").has("status");
        validate_version(version, spec, has_status, &demands, &allowed, context, &here, errors);
    }
    let shown = || match spec.field("versions") {
        Value::Null => BadValue::Rendered("null".to_owned()),
        _ => render::list(PACKAGE, "CustomResourceDefinitionVersion", versions),
    };
    if crate::seen::repeats(versions.iter().map(|it| it.text("name"))).next().is_some() {
        errors.invalid(list, shown(), "must contain unique version names");
    }
    if versions.iter().filter(|it| it.flag("storage")).count() != 1 {
        errors.invalid(list, shown(), "must have exactly one version marked as storage version");
    }
    let version = spec.text("version");
    let complaints = names::dns1035_label(version);
    if !version.is_empty() && !complaints.is_empty() {
        errors.invalid(at.child("version"), version, complaints.join(","));
    }
    let here = at.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if spec.field("names").text(name).is_empty() {
            errors.required(here.child(name), "");
        }
    }
    validate_names(spec.field("names"), &here, errors);
    let has_status =
        spec.field("subresources").has("status") || versions.iter().any(|it| it.field("subresources").has("status"));
    schema::validate(spec.field("validation"), has_status, &demands, version, context, &at.child("validation"), errors);
    validate_subresources(spec.field("subresources"), &at.child("subresources"), errors);
    let schemas: Vec<&Value> = match top {
        Some(schema) => vec![schema],
        None => versions.iter().filter_map(|it| it.field("schema").optional("openAPIV3Schema")).collect(),
    };
    let list = at.child("additionalPrinterColumns");
    columns::validate(spec.list("additionalPrinterColumns"), &schemas, &allowed, context, &list, errors);
    let selectable = spec.list("selectableFields");
    if spec.has("validation") {
        require_structural(selectable, top, &at, errors);
        let schema = top.unwrap_or(&Value::Null);
        field_path::validate_selectable(selectable, schema, &at.child("selectableFields"), errors);
    } else if !spec.list("selectableFields").is_empty() {
        let detail = "may only be set when validations.schema is included";
        errors.invalid(at.child("selectableFields"), "", detail);
    }
    validate_conversion(spec, old, &at.child("conversion"), errors);
}

/// Fields can only be selected by if the schema is structural.
fn require_structural(fields: &[Value], schema: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    if let (false, Some(unsupported)) = (fields.is_empty(), schema.and_then(structural::unsupported)) {
        errors.invalid(at.child("schema.openAPIV3Schema"), "", unsupported);
    }
}

fn one_of(value: &str, accepted: &[&str], at: Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        errors.required(at, "");
    } else if !accepted.contains(&value) {
        errors.not_supported(at, value, accepted);
    }
}

/// Every version needs a schema.
fn validate_presence(spec: &Value, demands: &Demands<'_>, at: &Path<'_>, errors: &mut Errors) {
    if spec.field("validation").has("openAPIV3Schema") {
        return;
    }
    let list = at.child("versions");
    for (index, version) in spec.list("versions").iter().enumerate() {
        if version.field("schema").has("openAPIV3Schema") {
            continue;
        }
        let here = list.index(index);
        let here = here.child("schema");
        if demands.schemas {
            errors.required(here.child("openAPIV3Schema"), "");
        } else if !spec.flag("preserveUnknownFields") && version.flag("served") {
            errors.required(here.child("openAPIV3Schema"), "because otherwise all fields are pruned");
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "a version is validated in the light of its spec")]
fn validate_version(
    version: &Value,
    spec: &Value,
    has_status: bool,
    demands: &Demands<'_>,
    allowed: &AllowedColumns<'_>,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(warning) = version.optional_text("deprecationWarning") {
        let here = at.child("deprecationWarning");
        if !version.flag("deprecated") {
            errors.invalid(here, warning, "can only be set for deprecated versions");
        } else {
            if warning.len() > 256 {
                errors.invalid(here, warning, "must be <= 256 characters long");
            }
            if warning.is_empty() {
                errors.invalid(here, warning, "must not be an empty string");
            }
            if let Some((index, _)) = warning.char_indices().find(|(_, it)| !api::go_text::is_printable(*it)) {
                let detail = format!(
                    "must only contain printable UTF-8 characters; non-printable character found at index {index}"
                );
                errors.invalid(here, warning, detail);
            }
        }
    }
    let name = version.text("name");
    schema::validate(version.field("schema"), has_status, demands, name, context, &at.child("schema"), errors);
    validate_subresources(version.field("subresources"), &at.child("subresources"), errors);
    let schema = version.field("schema").optional("openAPIV3Schema");
    let schema = schema.or_else(|| spec.field("validation").optional("openAPIV3Schema"));
    let schemas: Vec<&Value> = schema.into_iter().collect();
    let list = at.child("additionalPrinterColumns");
    columns::validate(version.list("additionalPrinterColumns"), &schemas, allowed, context, &list, errors);
    if let Some(schema) = version.field("schema").optional("openAPIV3Schema") {
        require_structural(version.list("selectableFields"), Some(schema), at, errors);
        field_path::validate_selectable(
            version.list("selectableFields"),
            schema,
            &at.child("selectableFields"),
            errors,
        );
    } else if !version.list("selectableFields").is_empty() {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.invalid(at.child("selectableFields"), "", detail);
    }
}

/// Validates requested or accepted names.
pub(super) fn validate_names(given: &Value, at: &Path<'_>, errors: &mut Errors) {
    let label = |name: &str, at: Path<'_>, errors: &mut Errors| {
        let complaints = names::dns1035_label(name);
        if !complaints.is_empty() {
            errors.invalid(at, name, complaints.join(","));
        }
    };
    for name in ["plural", "singular"] {
        if !given.text(name).is_empty() {
            label(given.text(name), at.child(name), errors);
        }
    }
    for name in ["kind", "listKind"] {
        let text = given.text(name);
        let complaints = names::dns1035_label(&text.to_lowercase());
        if !text.is_empty() && !complaints.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
            errors.invalid(at.child(name), text, detail);
        }
    }
    let list = at.child("shortNames");
    for (index, name) in given.texts("shortNames").enumerate() {
        label(name, list.index(index), errors);
    }
    let kind = given.text("kind");
    if !kind.is_empty() && kind == given.text("listKind") {
        errors.invalid(at.child("listKind"), kind, "kind and listKind may not be the same");
    }
    let list = at.child("categories");
    for (index, name) in given.texts("categories").enumerate() {
        label(name, list.index(index), errors);
    }
}

fn validate_subresources(subresources: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(scale) = subresources.optional("scale") else { return };
    let starts = |path: &str, starts: &[&str]| starts.iter().any(|it| path.starts_with(it));
    for (name, shown, under, required) in [
        ("specReplicasPath", "scale.specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", "scale.statusReplicasPath", &[".status."][..], true),
        ("labelSelectorPath", "scale.labelSelectorPath", &[".spec.", ".status."][..], false),
    ] {
        let path = scale.text(name);
        let here = at.child(shown);
        if path.is_empty() {
            if required {
                errors.required(here, "");
            }
        } else if !path.starts_with('.') {
            errors.invalid(here, path, "must be a simple json path starting with .");
        } else if !starts(path, under) {
            let detail = match under {
                [".spec."] => "should be a json path under .spec",
                [".status."] => "should be a json path under .status",
                _ => "should be a json path under either .spec or .status",
            };
            errors.invalid(here, path, detail);
        }
    }
}

fn validate_conversion(spec: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let Some(conversion) = spec.optional("conversion") else { return };
    let strategy = conversion.text("strategy");
    if strategy != "None" && spec.flag("preserveUnknownFields") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(at.child("strategy"), strategy, detail);
    }
    one_of(strategy, &["None", "Webhook"], at.child("strategy"), errors);
    let webhook = conversion.optional("webhook");
    let config = webhook.and_then(|it| it.optional("clientConfig"));
    let versions: Vec<&str> = webhook.map(|it| it.texts("conversionReviewVersions").collect()).unwrap_or_default();
    let here = at.child("webhookClientConfig");
    let list = at.child("conversionReviewVersions");
    if strategy != "Webhook" {
        if config.is_some() {
            errors.forbidden(here, "should not be set when strategy is not set to Webhook");
        }
        if !versions.is_empty() {
            errors.forbidden(list, "should not be set when strategy is not set to Webhook");
        }
        return;
    }
    match config {
        None => errors.required(here, "required when strategy is set to Webhook"),
        Some(config) => webhooks::validate_client(config, &here, errors),
    }
    if versions.is_empty() {
        errors.required(list, "");
        return;
    }
    let is_known = |it: &str| matches!(it, "v1" | "v1beta1");
    let mut seen = SeenKeys::default();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(*version) {
            errors.invalid(list.index(index), *version, "duplicate version");
            continue;
        }
        for complaint in names::dns1035_label(version) {
            errors.invalid(list.index(index), *version, complaint);
        }
    }
    let old_versions = old.map(|it| it.field("conversion").field("webhook").list("conversionReviewVersions"));
    let demands_known =
        old_versions.is_none_or(|list| list.is_empty() || list.iter().any(|it| it.as_str().is_some_and(is_known)));
    if demands_known && !versions.iter().any(|it| is_known(it)) {
        let shown = webhook.map_or(Value::Null, |it| it.field("conversionReviewVersions").clone());
        errors.invalid(list, shown, "must include at least one of v1, v1beta1");
    }
}
