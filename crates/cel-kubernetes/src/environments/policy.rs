//! `ValidatingAdmissionPolicy`: the environment of its expressions, with the types of the selected objects.
//!
//! Checks types only: the API server accepts the same expressions regardless of their types, and reports the
//! errors found here as warnings. Follows `typechecking.go` of Kubernetes'
//! `apiserver/pkg/admission/plugin/policy/validating`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::env::{Env, EnvError, FieldType, TypeProvider};
use cel::syntax::ast::Name;
use cel::types::Type;

use super::Language;
use crate::declared::{DeclaredType, DeclaredTypes};
use crate::schema::TypedSchema;

pub(super) const VARIABLES_TYPE: &str = "kubernetes.variables";

/// Type of a policy's parameters.
#[derive(Debug, Clone, Copy)]
pub enum Params<'s> {
    /// The policy has no parameters.
    None,
    /// Their kind has no schema that is known.
    Untyped,
    /// Objects of this schema.
    Typed(&'s TypedSchema),
}

/// Checks the expressions of one policy against one kind of objects.
#[derive(Debug)]
pub struct Checker {
    env: Env,
    declared: Arc<DeclaredTypes>,
    variables: BTreeMap<Name, Type>,
}

impl Checker {
    /// Without a schema, objects can be anything.
    pub fn new(language: &Language, object: Option<&TypedSchema>, params: Params<'_>) -> Result<Checker, EnvError> {
        let anything = || Arc::new(DeclaredType::scalar(Type::Dyn, 0, 0));
        let object = object.map_or_else(anything, |schema| schema.declared().clone());
        let mut roots = vec![
            ("namespaceObject", Arc::new(namespace())),
            ("request", Arc::new(request())),
            ("object", object.clone()),
            ("oldObject", object),
        ];
        match params {
            Params::None => {}
            Params::Untyped => roots.push(("params", anything())),
            Params::Typed(schema) => roots.push(("params", schema.declared().clone())),
        }
        let declared = Arc::new(DeclaredTypes::new(roots).with_keywords_as_fields());
        let mut builder = language.builder();
        for (name, of) in declared.variables() {
            builder = builder.variable(name, of.clone());
        }
        // Kubernetes: `authorizer.requestResource` is not declared here, though it is where policies are evaluated.
        builder = builder.variable("authorizer", Type::object("kubernetes.authorization.Authorizer"));
        builder = builder.variable("variables", Type::object(VARIABLES_TYPE));
        let checker = Checker { env: builder.build()?, declared, variables: BTreeMap::new() };
        checker.with_types()
    }

    /// Adds one of the policy's own variables, which those after it may refer to. One that does not check can be anything.
    pub fn with_variable(mut self, name: &str, expression: &str) -> Result<Checker, EnvError> {
        let of = self.env.compile(expression).map_or(Type::Dyn, |typed| plain(typed.result_type()));
        self.variables.insert(name.into(), of);
        self.with_types()
    }

    /// Returns the errors of an expression.
    pub fn issues(&self, expression: &str) -> Option<String> {
        self.env.compile(expression).err().map(|issues| issues.to_string())
    }

    fn with_types(mut self) -> Result<Checker, EnvError> {
        let types = Types { declared: self.declared.clone(), variables: self.variables.clone() };
        self.env = self.env.extend().types(Arc::new(types)).build()?;
        Ok(self)
    }
}

/// The type that a variable takes from its expression: scalars, and lists and maps of them.
pub(super) fn plain(value_type: &Type) -> Type {
    match value_type {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => value_type.clone(),
        Type::List(element) => Type::list(plain(element)),
        Type::Map(entry) => Type::map(plain(&entry.0), plain(&entry.1)),
        _ => Type::Dyn,
    }
}

/// Types of the request and its objects, and of the policy's variables.
#[derive(Debug)]
struct Types {
    declared: Arc<DeclaredTypes>,
    variables: BTreeMap<Name, Type>,
}

impl TypeProvider for Types {
    fn find_type(&self, name: &str) -> Option<Type> {
        if name == VARIABLES_TYPE { Some(Type::object(VARIABLES_TYPE)) } else { self.declared.find_type(name) }
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
        if type_name == VARIABLES_TYPE {
            return self.variables.get(field).map(|of| FieldType { field_type: of.clone() });
        }
        self.declared.find_field(type_name, field)
    }

    fn field_names(&self, type_name: &str) -> Vec<Name> {
        if type_name == VARIABLES_TYPE {
            return self.variables.keys().cloned().collect();
        }
        self.declared.field_names(type_name)
    }
}

fn text() -> DeclaredType {
    DeclaredType::string(0)
}

fn texts() -> DeclaredType {
    DeclaredType::list(text(), 0)
}

fn object<const N: usize>(name: &str, fields: [(&'static str, DeclaredType); N]) -> DeclaredType {
    DeclaredType::object(name, fields.map(|(name, of)| (Name::from_static(name), of)))
}

/// `AdmissionRequest` without the parts that are separate variables.
pub(super) fn request() -> DeclaredType {
    let kind = || object("kubernetes.GroupVersionKind", [("group", text()), ("version", text()), ("kind", text())]);
    let resource =
        || object("kubernetes.GroupVersionResource", [("group", text()), ("version", text()), ("resource", text())]);
    let user = object(
        "kubernetes.UserInfo",
        [("username", text()), ("uid", text()), ("groups", texts()), ("extra", DeclaredType::map(text(), texts(), 0))],
    );
    object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclaredType::scalar(Type::Bool, 0, 0)),
            ("options", DeclaredType::scalar(Type::Dyn, 0, 0)),
        ],
    )
}

/// The namespace of the object, as far as policies see it.
pub(super) fn namespace() -> DeclaredType {
    let time = || DeclaredType::scalar(Type::Timestamp, 0, 0);
    let number = || DeclaredType::scalar(Type::Int, 0, 0);
    let pairs = || DeclaredType::map(text(), text(), 0);
    let condition = object(
        "kubernetes.NamespaceCondition",
        [("status", text()), ("type", text()), ("lastTransitionTime", time()), ("message", text()), ("reason", text())],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", pairs()),
            ("annotations", pairs()),
            // Kubernetes writes it so.
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let status =
        object("kubernetes.NamespaceStatus", [("conditions", DeclaredType::list(condition, 0)), ("phase", text())]);
    object(
        "kubernetes.Namespace",
        [
            ("metadata", metadata),
            ("spec", object("kubernetes.NamespaceSpec", [("finalizers", texts())])),
            ("status", status),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::Dialect;

    fn schema(fields: &str, name: &str) -> TypedSchema {
        let text = format!(r#"{{"type":"object","properties":{{{fields}}}}}"#);
        let document = api::json::parse(text.as_bytes()).unwrap();
        let schema = api::structural_schema::Schema::from_value(&document).unwrap();
        TypedSchema::new(&schema, true, name).unwrap()
    }

    fn checker(fields: &str) -> Checker {
        let language = Dialect::KUBERNETES.language().unwrap();
        Checker::new(&language, Some(&schema(fields, "Thing")), Params::None).unwrap()
    }

    #[track_caller]
    fn check(checker: &Checker, expression: &str, wanted: &str) {
        let found = checker.issues(expression).unwrap_or_default();
        assert!(found.contains(wanted) && found.is_empty() == wanted.is_empty(), "{expression}: {found}");
    }

    const FOO: &str = r#""foo":{"type":"string"},"size":{"type":"integer"}"#;

    #[test]
    fn fields_have_the_types_of_the_schema() {
        let checker = checker(FOO);
        check(&checker, "object.foo == 'bar' && oldObject.size < 3", "");
        check(&checker, "object.bar == 'foo'", "undefined field 'bar'");
        check(&checker, "object.size == 'foo'", "found no matching overload for '_==_' applied to '(int, string)'");
        check(&checker, "object.metadata.name", "");
        check(&checker, "params == null", "undeclared reference to 'params'");
    }

    #[test]
    fn the_request_its_namespace_and_the_authorizer_are_known() {
        let checker = checker(FOO);
        check(&checker, "request.userInfo.groups.exists(it, it == request.namespace)", "");
        check(&checker, "request.options.anything", "");
        check(&checker, "request.object", "undefined field 'object'");
        check(&checker, "namespaceObject.metadata.labels['a'] == namespaceObject.status.phase", "");
        check(&checker, "authorizer.group('').resource('endpoints').check('create').allowed()", "");
        check(
            &checker,
            "authorizer.allowed()",
            "found no matching overload for 'allowed' applied to 'kubernetes.authorization.Authorizer.()'",
        );
    }

    #[test]
    fn variables_have_the_types_of_their_expressions() {
        let with = |expression: &str| checker(FOO).with_variable("it", expression).unwrap();
        check(&with("true"), "variables.it", "");
        check(&with("true"), "variables.other", "undefined field 'other'");
        check(&with("'text'"), "variables.it == object.size", "'_==_' applied to '(string, int)'");
        check(&with("[object.size]"), "variables.it[0] == 'text'", "'_==_' applied to '(int, string)'");
        // Objects, and parts that do not type-check, can be anything.
        check(&with("object"), "variables.it.nothing", "");
        check(&with("object.size == 'text'"), "variables.it == object.size", "");
        let both = with("1").with_variable("next", "variables.it + 1").unwrap();
        check(&both, "variables.next == 'text'", "'_==_' applied to '(int, string)'");
    }

    #[test]
    fn parameters_can_have_a_type_or_none() {
        let language = Dialect::KUBERNETES.language().unwrap();
        let (object, params) = (schema(FOO, "Thing"), schema(FOO, "params.Thing"));
        let typed = Checker::new(&language, Some(&object), Params::Typed(&params)).unwrap();
        check(&typed, "object.foo == params.bar", "undefined field 'bar'");
        let untyped = Checker::new(&language, None, Params::Untyped).unwrap();
        check(&untyped, "object.foo == params.bar", "");
    }
}
