//! The authorizer's functions, by their types and prices only.
//!
//! Only policies declare the variable `authorizer`, and those are checked and not evaluated; nothing else yields a value of
//! these types: left out is the code that asks an authorizer. What is here makes expressions that name these
//! functions check, or fail to check, as in Kubernetes. Follows Kubernetes `apiserver/pkg/cel/library/authz.go`.

use cel::cost::{Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::env::{Library, Overload};
use cel::value::{EvalError, Value};

use super::{library, native, price};

/// The functions that ask an authorizer.
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
    declared(
        "authorizer_path",
        "kubernetes.authorization.Authorizer.path(string) -> kubernetes.authorization.PathCheck",
        Price::ONE,
    ),
    declared(
        "authorizer_group",
        "kubernetes.authorization.Authorizer.group(string) -> kubernetes.authorization.GroupCheck",
        Price::ONE,
    ),
    declared(
        "authorizer_serviceaccount",
        "kubernetes.authorization.Authorizer.serviceAccount(string, string) -> kubernetes.authorization.Authorizer",
        Price::ONE,
    ),
    declared(
        "groupcheck_resource",
        "kubernetes.authorization.GroupCheck.resource(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
    ),
    declared(
        "resourcecheck_subresource",
        "kubernetes.authorization.ResourceCheck.subresource(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
    ),
    declared(
        "resourcecheck_namespace",
        "kubernetes.authorization.ResourceCheck.namespace(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
    ),
    declared(
        "resourcecheck_name",
        "kubernetes.authorization.ResourceCheck.name(string) -> kubernetes.authorization.ResourceCheck",
        Price::ONE,
    ),
    declared(
        "pathcheck_check",
        "kubernetes.authorization.PathCheck.check(string) -> kubernetes.authorization.Decision",
        CHECK,
    ),
    declared(
        "resourcecheck_check",
        "kubernetes.authorization.ResourceCheck.check(string) -> kubernetes.authorization.Decision",
        CHECK,
    ),
    declared("decision_errored", "kubernetes.authorization.Decision.errored() -> bool", Price::ONE),
    declared("decision_error", "kubernetes.authorization.Decision.error() -> string", Price::ONE),
    declared("decision_allowed", "kubernetes.authorization.Decision.allowed() -> bool", Price::ONE),
    declared("decision_reason", "kubernetes.authorization.Decision.reason() -> string", Price::ONE),
];

static SELECTOR_OVERLOADS: &[Overload] = &[
    declared(
        "authorizer_fieldselector",
        "kubernetes.authorization.ResourceCheck.fieldSelector(string) -> kubernetes.authorization.ResourceCheck",
        SELECTOR,
    ),
    declared(
        "authorizer_labelselector",
        "kubernetes.authorization.ResourceCheck.labelSelector(string) -> kubernetes.authorization.ResourceCheck",
        SELECTOR,
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

const fn declared(id: &'static str, signature: &'static str, price: Price) -> Overload {
    native(id, signature, price, no_authorizer)
}

fn no_authorizer<'v>(_: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Err(EvalError::no_such_overload())
}
