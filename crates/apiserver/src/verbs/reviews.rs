//! Reviews: queries about users, tokens and permissions in the form of created objects. Nothing is stored.

mod selectors;

use api::field::{Errors, Path};
use api::json;
use api::json::{Object, Value};

use super::{Call, ownership};
use crate::admission::{Attributes, Operation};
use crate::authorization::{Request, Rule, node};
use crate::identity::User;
use crate::wire::answer::Answer;
use crate::wire::payload::{self, FieldValidation};
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

/// Whether objects of this resource are questions.
pub(super) fn is_review(group: &str) -> bool {
    matches!(group, "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a question.
pub(super) async fn review(call: &Call<'_>) -> Result<Answer> {
    if call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let dry_run = call.is_dry_run()?;
    let validation = FieldValidation::from_query(call.query, "CreateOptions")?;
    let (kind, version) = (call.resource.kind, call.target.version.as_str());
    let payload = payload::read(call.headers, &call.body, kind)?;
    let decoded = payload::decode(call.resource, version, payload)?;
    let warnings = payload::check_fields(validation, kind, version, decoded.complaints)?;
    let mut review = decoded.object;
    super::create::check_namespace(call, &mut review)?;
    registry::pipeline::reset_metadata(&mut review);
    for field in ["uid", "creationTimestamp"] {
        metadata::remove(&mut review, field);
    }
    let mut managed_fields = ownership::create(call, &review).await;
    metadata::remove(&mut review, "managedFields");
    let (options, name) = (|| call.options("CreateOptions"), metadata::name(&review).to_owned());
    let attributes = call.attributes(Operation::Create, "", dry_run, &options);
    call.server.admission.admit(&Attributes { name: &name, ..attributes }, Some(&mut review)).await?;
    let status = match kind {
        "TokenReview" => token_review(call, &review).await?,
        "SelfSubjectReview" => {
            managed_fields = None;
            review = json!({"metadata": {"creationTimestamp": (call.now().to_string())}});
            json!({"userInfo": (call.user.to_value())})
        }
        "SelfSubjectRulesReview" => {
            let namespace = review.text_at(&["spec", "namespace"]).to_owned();
            if namespace.is_empty() {
                return Err(Failure::bad_request("no namespace on request"));
            }
            call.server.catch_up().await;
            managed_fields = None;
            review = Value::object();
            let (rules, error) = call.server.authorizer.rules_of(call.user, &namespace);
            rules_status(&rules, node::node_of(call.user).is_some(), error)
        }
        _ => access_review(call, &review, managed_fields.as_ref()).await?,
    };
    if let Some(managed_fields) = managed_fields {
        metadata::set(&mut review, "managedFields", managed_fields);
    }
    if let Some(fields) = review.as_object_mut() {
        fields.insert("kind", kind);
        fields.insert("apiVersion", call.resource.api_version(version));
        fields.insert("status", status);
    }
    let normal = call.resource.object_type(version).and_then(|of| api::types::decode(of, &review).ok());
    let review = normal.map_or(review, |normal| normal.value);
    Ok(Answer::json(201, &review).with_warnings(warnings))
}

async fn token_review(call: &Call<'_>, review: &Value) -> Result<Value> {
    let token = review.text_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    let authenticator = &call.server.authenticator;
    let mut wanted = texts(review.at(&["spec", "audiences"]));
    if wanted.is_empty() {
        wanted = authenticator.service_accounts.audiences().to_vec();
    }
    let mut verified = authenticator.verify(token, &wanted);
    if verified.as_ref().is_err_and(|refused| refused.by_objects) {
        call.server.catch_up().await;
        verified = authenticator.verify(token, &wanted);
    }
    Ok(match verified {
        Ok(verified) => {
            let audiences = verified.audiences.iter().map(|it| it.as_str().into()).collect();
            json!({
                "authenticated": true, "user": (verified.user.to_value()), "audiences": (Value::Array(audiences))
            })
        }
        Err(refused) => json!({"error": (refused.message)}),
    })
}

/// Handles the three kinds of access reviews.
async fn access_review(call: &Call<'_>, review: &Value, managed_fields: Option<&Value>) -> Result<Value> {
    let errors = validate(call, review, managed_fields);
    if !errors.is_empty() {
        // Kubernetes has dropped the kind by now.
        return Err(Failure::invalid(call.resource.group, "", "", &errors));
    }
    let spec = review.get("spec");
    let at = |path: &[&str]| spec.and_then(|spec| spec.str_at(path)).unwrap_or_default();
    let asked_for = if call.resource.kind == "SelfSubjectAccessReview" {
        call.user.clone()
    } else {
        let extra = spec.and_then(|spec| spec.get("extra")).and_then(Value::as_object);
        let extra = extra.into_iter().flat_map(Object::iter);
        User {
            name: at(&["user"]).to_owned(),
            uid: at(&["uid"]).to_owned(),
            groups: texts(spec.and_then(|spec| spec.get("groups"))),
            extra: extra.map(|(key, values)| (key.to_lowercase(), texts(Some(values)))).collect(),
        }
    };
    let selector = |name: &str| spec.and_then(|spec| spec.at(&["resourceAttributes", name])).filter(|it| !it.is_null());
    let fields = selector("fieldSelector").map(selectors::fields_of).unwrap_or_default();
    let labels = selector("labelSelector").map(selectors::labels_of).unwrap_or_default();
    let target = Target {
        verb: None,
        group: at(&["resourceAttributes", "group"]).to_owned(),
        version: at(&["resourceAttributes", "version"]).to_owned(),
        resource: at(&["resourceAttributes", "resource"]).to_owned(),
        namespace: at(&["resourceAttributes", "namespace"]).to_owned(),
        name: at(&["resourceAttributes", "name"]).to_owned(),
        subresource: at(&["resourceAttributes", "subresource"]).to_owned(),
        fields: fields.equalities,
    };
    let of_resource = spec.and_then(|spec| spec.get("resourceAttributes")).filter(|it| !it.is_null());
    let request = if of_resource.is_some() {
        Request::Resource { verb: at(&["resourceAttributes", "verb"]), target: &target }
    } else {
        Request::Path { verb: at(&["nonResourceAttributes", "verb"]), path: at(&["nonResourceAttributes", "path"]) }
    };
    let mut decision = call.server.authorizer.decide(&asked_for, request);
    if !decision.allowed {
        call.server.catch_up().await;
        decision = call.server.authorizer.decide(&asked_for, request);
    }
    let mut status = Object::new();
    status.insert("allowed", decision.allowed);
    if decision.allowed || !decision.reason.is_empty() {
        status.insert("reason", decision.reason);
    }
    let ignored = [("fieldSelector", fields.ignored), ("labelSelector", labels.ignored)];
    let ignored: Vec<String> =
        ignored.into_iter().filter_map(|(name, ignored)| Some(format!("{name} {}", ignored?))).collect();
    if !ignored.is_empty() {
        let texts: Vec<String> = ignored.iter().map(|it| format!("spec.resourceAttributes.{it}")).collect();
        status.insert("evaluationError", texts.join("; "));
    }
    Ok(Value::Object(status))
}

fn validate(call: &Call<'_>, review: &Value, managed_fields: Option<&Value>) -> Errors {
    const EXACTLY_ONE: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    let mut errors = Errors::new();
    let spec = Path::new("spec");
    let given = |field: &str| review.at(&["spec", field]).filter(|value| !value.is_null());
    let (of_resource, of_path) = (given("resourceAttributes"), given("nonResourceAttributes"));
    if of_resource.is_some() == of_path.is_some() {
        errors.invalid(spec, of_path.map(shown_path).unwrap_or_default(), EXACTLY_ONE);
    }
    let is_self = call.resource.kind == "SelfSubjectAccessReview";
    let names_user = !review.text_at(&["spec", "user"]).is_empty();
    if !is_self && !names_user && texts(review.at(&["spec", "groups"])).is_empty() {
        errors.invalid(spec.child("user"), "", "at least one of user or group must be specified");
    }
    if let Some(attributes) = of_resource {
        selectors::validate(attributes, &mut errors);
    }
    let is_local = call.resource.kind == "LocalSubjectAccessReview";
    let mut metadata = review.get("metadata").cloned().unwrap_or_default();
    if let (true, Some(fields)) = (is_local, metadata.as_object_mut()) {
        fields.remove("namespace");
    }
    if metadata.as_object().is_some_and(|fields| !fields.is_empty()) {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        let mut shown = review.get("metadata").cloned().unwrap_or_default();
        if let (Some(fields), Some(managed_fields)) = (shown.as_object_mut(), managed_fields) {
            fields.insert("managedFields", managed_fields.clone());
        }
        errors.invalid(Path::new("metadata"), shown, detail);
    }
    if is_local {
        let namespace = of_resource.map(|it| it.text("namespace"));
        if let Some(namespace) = namespace.filter(|namespace| *namespace != metadata::namespace(review)) {
            errors.invalid(Path::new("spec.resourceAttributes.namespace"), namespace, "must match metadata.namespace");
        }
        if let Some(attributes) = of_path {
            let at = Path::new("spec.nonResourceAttributes");
            errors.invalid(at, shown_path(attributes), "disallowed on this kind of request");
        }
    }
    errors
}

/// A path and what is done with it, as refusals show them.
fn shown_path(attributes: &Value) -> Value {
    let at = |field: &str| attributes.text(field);
    json!({"Path": (at("path")), "Verb": (at("verb"))})
}

fn rules_status(rules: &[Rule], is_incomplete: bool, error: Option<String>) -> Value {
    let list = |list: &[String]| Value::Array(list.iter().map(|it| it.as_str().into()).collect());
    let (mut of_resources, mut of_paths) = (Vec::new(), Vec::new());
    for rule in rules {
        if !rule.resources.is_empty() {
            of_resources.push(json!({
                "verbs": (list(&rule.verbs)), "apiGroups": (list(&rule.groups)), "resources": (list(&rule.resources)),
                "resourceNames": (list(&rule.names))
            }));
        }
        if !rule.paths.is_empty() {
            of_paths.push(json!({"verbs": (list(&rule.verbs)), "nonResourceURLs": (list(&rule.paths))}));
        }
    }
    let mut status = Object::new();
    status.insert("resourceRules", Value::Array(of_resources));
    status.insert("nonResourceRules", Value::Array(of_paths));
    status.insert("incomplete", is_incomplete);
    if let Some(error) = error {
        status.insert("evaluationError", error);
    }
    Value::Object(status)
}

/// The texts of a list. As in Go, `null` is an empty text: treating it as absent would change the meaning of
/// the list.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}
