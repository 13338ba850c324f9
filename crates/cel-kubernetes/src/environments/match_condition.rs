//! `matchConditions[].expression`: whether a policy of admission, or a webhook, is asked about a request.
//!
//! Follows `mustBuildEnvs` of Kubernetes' `apiserver/pkg/admission/plugin/cel/compile.go`: objects can be anything.

use cel::env::EnvError;
use cel::types::Type;

use super::Language;
use super::policy::{namespace, request};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::declared::Declared;

/// Only requests are limited in size, and expressions come with them.
const LIMITS: ExpressionLimits =
    ExpressionLimits { text_bytes: usize::MAX, estimated_cost: None, runtime_cost: 1_000_000 };

/// The environment of conditions; those of policies may have parameters.
pub fn environment_in(language: &Language, has_params: bool) -> Result<Environment, EnvError> {
    let anything = || Declared::scalar(Type::Dyn, 0, 0);
    let variables =
        [("namespaceObject", namespace()), ("request", request()), ("object", anything()), ("oldObject", anything())];
    let mut environment = super::with_variables(language, variables, ResultRule::Condition, LIMITS)?;
    let mut builder = environment.env.extend();
    if has_params {
        builder = builder.variable("params", Type::Dyn);
    }
    let of = |name: &str| Type::object(format!("kubernetes.authorization.{name}"));
    builder = builder.variable("authorizer", of("Authorizer"));
    builder = builder.variable("authorizer.requestResource", of("ResourceCheck"));
    environment.env = builder.build()?;
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::Dialect;

    #[track_caller]
    fn check(expression: &str, has_params: bool, wanted: &str) {
        let environment = environment_in(&Dialect::KUBERNETES.language().unwrap(), has_params).unwrap();
        let found = environment.compile(expression).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.starts_with(wanted) && found.is_empty() == wanted.is_empty(), "{expression}: {found}");
    }

    #[test]
    fn conditions_see_the_request_its_objects_and_who_may_do_what() {
        for has_params in [false, true] {
            check("!has(object.metadata.labels) || oldObject == null", has_params, "");
            check(
                "request.namespace == namespaceObject.metadata.name && request.operation == 'CREATE'",
                has_params,
                "",
            );
            check("authorizer.requestResource.check('delete').allowed()", has_params, "");
            check("authorizer.group('').resource('pods').namespace('a').check('list').allowed()", has_params, "");
            check("request.nothing == ''", has_params, "compilation failed: ERROR: <input>:1:8: undefined field");
            check("variables.a", has_params, "compilation failed: ERROR: <input>:1:1: undeclared reference");
            check("object.metadata.name", has_params, "must evaluate to bool");
        }
        check("params.a == 1", true, "");
        check("params.a == 1", false, "compilation failed: ERROR: <input>:1:1: undeclared reference");
        check("... [] bad expression", false, "compilation failed: ERROR: <input>:1:2: Syntax error");
    }
}
