//! Reports in the status of a ValidatingAdmissionPolicy whether its expressions fit the types of the selected
//! objects.
//!
//! It watches policies. A new generation is checked against each kind that its rules name (`kinds`), whose types are
//! those of the server's OpenAPI documents (`schemas`). Follows Kubernetes `pkg/controller/validatingadmissionpolicystatus`.

mod kinds;
mod schemas;

use api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec};
use api::json::Value;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::policy::{Checker, Params};
use cel_kubernetes::schema::TypedSchema;
use client::Client;
use client::controller::{Controller, Next, own};
use client::informer::Key;
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::error;

use self::kinds::GroupVersionKind;
use self::schemas::Schemas;
use crate::machinery::executor::Failure;
use crate::manager::Context;

/// Field manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";
const WORKERS: usize = 5;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let policies = context.informers.all::<ValidatingAdmissionPolicy>();
    let runner = Controller::new(context.name, &context.runtime).watch(&policies, own).workers(WORKERS);
    let client = context.client.clone();
    runner
        .run(move |key: Key| {
            let (policies, client) = (policies.clone(), client.clone());
            async move {
                let policy = policies.store().get_key(&key);
                let Some(policy) = policy.filter(|it| it.metadata.generation > it.status.observed_generation) else {
                    return Ok::<_, Failure>(Next::Done);
                };
                let kinds = kinds::named(&policy.spec, &client.discover().await?);
                let types = Types::read(&client, kinds, &policy.spec).await?;
                let status = status(policy.metadata.generation, types.warnings(&policy.spec));
                let fields = api::json!({
                    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                    "metadata": {"name": (key.name.clone())}, "status": status,
                });
                let documents = client.documents(ValidatingAdmissionPolicy::RESOURCE);
                documents.apply("", &key.name, "status", &fields, MANAGER, true).await?;
                Ok(Next::Done)
            }
        })
        .await;
}

fn status(generation: i64, warnings: Vec<Value>) -> Value {
    let mut checked = api::json!({});
    if !warnings.is_empty() {
        checked.set_at(&["expressionWarnings"], warnings);
    }
    api::json!({"observedGeneration": generation, "typeChecking": checked})
}

/// The types that the expressions of a policy are about.
#[derive(Default)]
struct Types {
    /// The kinds of objects; one without a usable schema can be anything.
    objects: Vec<(GroupVersionKind, Option<TypedSchema>)>,
    has_params: bool,
    params: Option<TypedSchema>,
}

impl Types {
    /// Reads the schemas from the server. Kinds without one are not checked.
    async fn read(
        client: &Client,
        kinds: Vec<GroupVersionKind>,
        spec: &ValidatingAdmissionPolicySpec,
    ) -> Result<Self, client::Error> {
        let mut schemas = Schemas::new(client);
        let mut types = Self::default();
        for kind in kinds {
            if let Some(schema) = schemas.find(&kind).await? {
                let typed = TypedSchema::new(&schema, true, &kind.kind);
                types.objects.push((kind, typed));
            }
        }
        if let Some(kind) = spec.param_kind.as_ref().and_then(GroupVersionKind::of_params) {
            types.has_params = true;
            let schema = schemas.find(&kind).await?;
            // Objects of the same kind name may be something else.
            types.params = schema.and_then(|it| TypedSchema::new(&it, true, &format!("params.{}", kind.kind)));
        }
        Ok(types)
    }

    /// Returns the errors of all expressions, in the form of the status.
    fn warnings(&self, spec: &ValidatingAdmissionPolicySpec) -> Vec<Value> {
        let checkers = self.checkers(spec);
        let mut warnings = Vec::new();
        for (index, validation) in spec.validations.iter().enumerate() {
            let fields =
                [("expression", &validation.expression), ("messageExpression", &validation.message_expression)];
            for (field, expression) in fields {
                // The message is optional.
                if field == "messageExpression" && expression.is_empty() {
                    continue;
                }
                let found = checkers.iter().filter_map(|(kind, checker)| {
                    checker.issues(expression).map(|issues| format!("{kind}: {issues}\n"))
                });
                let warning = found.collect::<Vec<String>>().join("\n");
                if !warning.is_empty() {
                    let field_ref = format!("spec.validations[{index}].{field}");
                    warnings.push(api::json!({"fieldRef": field_ref, "warning": warning}));
                }
            }
        }
        warnings
    }

    fn checkers(&self, spec: &ValidatingAdmissionPolicySpec) -> Vec<(&GroupVersionKind, Checker)> {
        let params = match &self.params {
            Some(schema) => Params::Typed(schema),
            None if self.has_params => Params::Untyped,
            None => Params::None,
        };
        let made = Dialect::KUBERNETES.language().and_then(|language| {
            let mut checkers = Vec::new();
            for (kind, object) in &self.objects {
                let mut checker = Checker::new(&language, object.as_ref(), params)?;
                for variable in &spec.variables {
                    checker = checker.with_variable(&variable.name, &variable.expression)?;
                }
                checkers.push((kind, checker));
            }
            Ok(checkers)
        });
        made.unwrap_or_else(|failure| {
            error!(err = %chain(&failure), "Expressions of a policy cannot be checked");
            Vec::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(fields: &str, name: &str) -> Option<TypedSchema> {
        let text = format!(r#"{{"type":"object","properties":{{{fields}}}}}"#);
        let document = api::json::parse(text.as_bytes()).unwrap();
        TypedSchema::new(&api::structural_schema::Schema::from_value(&document).unwrap(), true, name)
    }

    fn kind(group: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: group.into(), version: "v1".into(), kind: kind.into() }
    }

    fn spec(validations: Value) -> ValidatingAdmissionPolicySpec {
        let spec = api::json!({"validations": validations, "variables": [{"name": "a", "expression": "object.foo"}]});
        api::json::from_value(&spec).unwrap()
    }

    #[test]
    fn warnings_name_each_kind_and_expression() {
        let text = r#""foo":{"type":"string"}"#;
        let objects = vec![
            (kind("", "Pod"), typed(text, "Pod")),
            (kind("apps", "Deployment"), typed(text, "Deployment")),
            (kind("example.com", "Anything"), None),
        ];
        let types = Types { objects, ..Types::default() };
        let found = types.warnings(&spec(api::json!([
            {"expression": "object.foo == 'a'", "messageExpression": "variables.a + 1"},
            {"expression": "object.bar"},
        ])));
        let message = "ERROR: <input>:1:13: found no matching overload for '_+_' applied to '(string, int)'\n | variables.a + 1\n | ............^";
        let field = "ERROR: <input>:1:7: undefined field 'bar'\n | object.bar\n | ......^";
        let both = |issue: &str| format!("/v1, Kind=Pod: {issue}\n\napps/v1, Kind=Deployment: {issue}\n");
        assert_eq!(
            found,
            [
                api::json!({"fieldRef": "spec.validations[0].messageExpression", "warning": (both(message))}),
                api::json!({"fieldRef": "spec.validations[1].expression", "warning": (both(field))}),
            ]
        );
        assert_eq!(status(3, Vec::new()), api::json!({"observedGeneration": 3, "typeChecking": {}}));
        assert_eq!(
            status(3, vec![Value::Null]),
            api::json!({"observedGeneration": 3, "typeChecking": {"expressionWarnings": [null]}})
        );
    }
}
