//! Price of `==` on values of Kubernetes' own types.
//!
//! Only the price differs from the standard library's: `==` itself is implemented by the evaluator. Follows the
//! cases of `_==_` in Kubernetes `apiserver/pkg/cel/library/cost.go`.

use cel::cost::{CallEstimate, CallSite, Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::env::{Call, Library, LibraryVersion, Overload, PlanTime};
use cel::types::Type;
use cel::value::Value;

use super::{library, price};

/// Replaces the price of `==`; add it behind the standard library.
pub fn equality() -> Library {
    library("kubernetes.equality", 0, OVERLOADS)
}

static OVERLOADS: &[Overload] = &[Overload {
    id: "equals",
    signature: "_==_(A, A) -> bool",
    since: LibraryVersion(0),
    price: Price::Sized { estimate, actual: |operands, _| actual(operands), when_dynamic: true },
    call: Call::Builtin,
    plan_time: PlanTime::Nothing,
}];

/// The name of a format has at most this size.
const FORMAT_SIZE_MAX: u64 = 64;

fn estimate(site: &dyn CallSite) -> CallEstimate {
    let (left, right) = (site.operand_type(0), site.operand_type(1));
    let own = if left == right { estimate_own_type(&left, site) } else { None };
    let standard = || {
        let max = site.size(0).max.min(site.size(1).max);
        Cost { min: max.min(1), max }.times_factor(STRING_TRAVERSAL_FACTOR)
    };
    own.unwrap_or_else(standard).into()
}

fn estimate_own_type(value_type: &Type, site: &dyn CallSite) -> Option<Cost> {
    let texts = |max: u64| Cost { min: 1, max }.times_factor(STRING_TRAVERSAL_FACTOR);
    match (value_type, value_type.name()) {
        (Type::Opaque(_), "net.IP" | "net.CIDR") => Some(Cost::exactly(1)),
        (Type::Object(_), "kubernetes.Quantity" | "kubernetes.Semver") => Some(Cost::exactly(1)),
        (Type::Object(_), name) if name.starts_with("kubernetes.authorization.") => Some(Cost::exactly(1)),
        (Type::Object(_), "kubernetes.NamedFormat") => Some(texts(FORMAT_SIZE_MAX)),
        (Type::Object(_), "kubernetes.URL") => Some(texts(site.known_size(1).map_or(Size::exactly(1), |it| it).max)),
        _ => None,
    }
}

fn actual(operands: &[Value<'_>]) -> u64 {
    match operands {
        [Value::Opaque(_), _] => 1,
        _ => price::read(price::size(operands, 0).min(price::size(operands, 1))),
    }
}
