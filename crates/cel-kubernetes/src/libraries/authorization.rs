//! Authorization checks in expressions: `authorizer.group('').resource('pods').check('get').allowed()`.
//!
//! Only admission declares the variable `authorizer`. The caller hands in the [`Authorizer`] that decides; expressions build
//! a [`Question`] step by step. Follows Kubernetes `apiserver/pkg/cel/library/authz.go`.

use api::well_known::GROUP_SERVICE_ACCOUNTS;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cel::cost::{Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

use super::{library, native, opaque, price, text};

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The unique identifier, often empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// More about the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// An authorization check of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question<'q> {
    /// A path that is not a resource.
    Path {
        /// The path.
        path: &'q str,
        /// The method in small letters.
        verb: &'q str,
    },
    /// A resource.
    Resource {
        /// The resource.
        check: &'q ResourceCheck,
        /// The verb.
        verb: &'q str,
    },
}

/// The resource of an authorization check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceCheck {
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource, empty for the resource itself.
    pub subresource: String,
    /// The namespace, empty for all.
    pub namespace: String,
    /// The name, empty for all.
    pub name: String,
    /// The field selector, empty if there is none.
    pub field_selector: String,
    /// The label selector, empty if there is none.
    pub label_selector: String,
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The reason, which may be empty.
    pub reason: String,
    /// The error of a check that could not be made.
    pub error: Option<String>,
}

/// Decides authorization checks of expressions.
pub trait Authorizer: Send + Sync {
    /// Decides whether a user may do something.
    fn authorize(&self, user: &User, question: Question<'_>) -> Decision;
}

/// The value of the variable `authorizer`.
#[must_use]
pub fn authorizer_value(authorizer: Arc<dyn Authorizer>, user: Arc<User>) -> Value<'static> {
    Value::opaque(Subject { authorizer, user })
}

/// The value of the variable `authorizer.requestResource`.
#[must_use]
pub fn request_resource_value(
    authorizer: Arc<dyn Authorizer>,
    user: Arc<User>,
    check: ResourceCheck,
) -> Value<'static> {
    Value::opaque(Resource(Subject { authorizer, user }, check))
}

/// The functions that call an authorizer.
pub fn authorization() -> Library {
    library("kubernetes.authz", 0, OVERLOADS)
}

/// The functions that narrow such a question to selectors.
pub fn authorization_selectors() -> Library {
    library("kubernetes.authzSelectors", 0, SELECTOR_OVERLOADS)
}

/// Allows for two checks in an expression.
const CHECK: Price = Price::Fixed(350_000);

static OVERLOADS: &[Overload] = &[
    native(
        "authorizer_path",
        "kubernetes.authorization.Authorizer.path(string) -> kubernetes.authorization.PathCheck",
        Price::ONE,
        |operands| {
            let (subject, path) = (subject(operands)?, text(operands, 1)?);
            if path.trim().is_empty() {
                return Err(EvalError::other("path must not be empty"));
            }
            Ok(Value::opaque(Path(subject.clone(), path.to_owned())))
        },
    ),
    native(
        "authorizer_group",
        "kubernetes.authorization.Authorizer.group(string) -> kubernetes.authorization.GroupCheck",
        Price::ONE,
        |operands| Ok(Value::opaque(Group(subject(operands)?.clone(), text(operands, 1)?.to_owned()))),
    ),
    native(
        "authorizer_serviceaccount",
        "kubernetes.authorization.Authorizer.serviceAccount(string, string) -> kubernetes.authorization.Authorizer",
        Price::ONE,
        service_account,
    ),
    native(
        "groupcheck_resource",
        "kubernetes.authorization.GroupCheck.resource(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
        |operands| {
            let (Group(subject, group), resource) = (opaque::<Group>(operands, 0)?, text(operands, 1)?);
            if resource.trim().is_empty() {
                return Err(EvalError::other("resource must not be empty"));
            }
            let (group, resource) = (group.clone(), resource.to_owned());
            Ok(Value::opaque(Resource(subject.clone(), ResourceCheck { group, resource, ..ResourceCheck::default() })))
        },
    ),
    native(
        "resourcecheck_subresource",
        "kubernetes.authorization.ResourceCheck.subresource(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
        |operands| narrow(operands, |check, text| check.subresource = text),
    ),
    native(
        "resourcecheck_namespace",
        "kubernetes.authorization.ResourceCheck.namespace(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
        |operands| narrow(operands, |check, text| check.namespace = text),
    ),
    native(
        "resourcecheck_name",
        "kubernetes.authorization.ResourceCheck.name(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
        |operands| narrow(operands, |check, text| check.name = text),
    ),
    native(
        "pathcheck_check",
        "kubernetes.authorization.PathCheck.check(string) -> kubernetes.authorization.Decision",
        CHECK,
        |operands| {
            let (Path(subject, path), verb) = (opaque::<Path>(operands, 0)?, text(operands, 1)?);
            Ok(subject.ask(Question::Path { path, verb }))
        },
    ),
    native(
        "resourcecheck_check",
        "kubernetes.authorization.ResourceCheck.check(string) -> kubernetes.authorization.Decision",
        CHECK,
        |operands| {
            let (Resource(subject, check), verb) = (opaque::<Resource>(operands, 0)?, text(operands, 1)?);
            Ok(subject.ask(Question::Resource { check, verb }))
        },
    ),
    native("decision_errored", "kubernetes.authorization.Decision.errored() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(opaque::<Answer>(operands, 0)?.0.error.is_some()))
    }),
    native("decision_error", "kubernetes.authorization.Decision.error() -> string", Price::ONE, |operands| {
        let error = opaque::<Answer>(operands, 0)?.0.error.as_deref();
        Ok(Value::string(error.unwrap_or_default()))
    }),
    native("decision_allowed", "kubernetes.authorization.Decision.allowed() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(opaque::<Answer>(operands, 0)?.0.allowed))
    }),
    native("decision_reason", "kubernetes.authorization.Decision.reason() -> string", Price::ONE, |operands| {
        Ok(Value::string(opaque::<Answer>(operands, 0)?.0.reason.as_str()))
    }),
];

static SELECTOR_OVERLOADS: &[Overload] = &[
    native(
        "authorizer_fieldselector",
        "kubernetes.authorization.ResourceCheck.fieldSelector(string) -> kubernetes.authorization.ResourceCheck",
        SELECTOR,
        |operands| narrow(operands, |check, text| check.field_selector = text),
    ),
    native(
        "authorizer_labelselector",
        "kubernetes.authorization.ResourceCheck.labelSelector(string) -> kubernetes.authorization.ResourceCheck",
        SELECTOR,
        |operands| narrow(operands, |check, text| check.label_selector = text),
    ),
];

/// The text is read into a list of requirements, of which the shortest takes two characters.
const SELECTOR: Price = Price::Sized {
    estimate: |site| selector(site.size(1)).into(),
    actual: |operands, _| selector(Size::exactly(price::size(operands, 1))).max,
    when_dynamic: true,
};

fn selector(text: Size) -> Cost {
    const LIST: u64 = 10;
    const REQUIREMENT: f64 = 50.0;
    let requirements = text.times_factor(0.5).times_factor(REQUIREMENT);
    Cost::exactly(LIST).plus(text.times_factor(STRING_TRAVERSAL_FACTOR)).plus(requirements)
}

/// The user whose permissions are checked, and the authorizer that checks them.
#[derive(Clone)]
struct Subject {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<User>,
}

impl Subject {
    fn ask<'v>(&self, question: Question<'_>) -> Value<'v> {
        Value::opaque(Answer(self.authorizer.authorize(&self.user, question)))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subject").field(&self.user.name).finish()
    }
}

#[derive(Debug)]
struct Path(Subject, String);

#[derive(Debug)]
struct Group(Subject, String);

#[derive(Debug)]
struct Resource(Subject, ResourceCheck);

#[derive(Debug)]
struct Answer(Decision);

/// Values that have functions only: they are equal to nothing.
macro_rules! receiver {
    ($of:ty, $name:literal) => {
        impl HostValue for $of {
            fn type_of(&self) -> Type {
                Type::object(concat!("kubernetes.authorization.", $name))
            }

            fn equals(&self, _: &dyn HostValue) -> bool {
                false
            }

            fn text(&self) -> String {
                concat!("kubernetes.authorization.", $name).to_owned()
            }
        }
    };
}

receiver!(Subject, "Authorizer");
receiver!(Path, "PathCheck");
receiver!(Group, "GroupCheck");
receiver!(Resource, "ResourceCheck");
receiver!(Answer, "Decision");

fn subject<'o>(operands: &'o [Value<'_>]) -> Result<&'o Subject, EvalError> {
    opaque(operands, 0)
}

fn service_account<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (subject, namespace, name) = (subject(operands)?, text(operands, 1)?, text(operands, 2)?);
    if !api::names::dns1123_subdomain(name).is_empty() {
        return Err(EvalError::other("Invalid service account name"));
    }
    if !api::names::dns1123_label(namespace).is_empty() {
        return Err(EvalError::other("Invalid service account namespace"));
    }
    let groups = vec![GROUP_SERVICE_ACCOUNTS.to_owned(), format!("system:serviceaccounts:{namespace}")];
    let user = User { name: format!("system:serviceaccount:{namespace}:{name}"), groups, ..User::default() };
    Ok(Value::opaque(Subject { authorizer: subject.authorizer.clone(), user: Arc::new(user) }))
}

fn narrow<'v>(operands: &[Value<'v>], change: impl FnOnce(&mut ResourceCheck, String)) -> Result<Value<'v>, EvalError> {
    let (Resource(subject, check), text) = (opaque::<Resource>(operands, 0)?, text(operands, 1)?);
    let mut check = check.clone();
    change(&mut check, text.to_owned());
    Ok(Value::opaque(Resource(subject.clone(), check)))
}
