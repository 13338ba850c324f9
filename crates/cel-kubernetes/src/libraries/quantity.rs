//! `quantity`, `isQuantity`, and arithmetic and comparison of quantities.
//!
//! Quantities are defined in [`api::quantity`]. Follows Kubernetes `apiserver/pkg/cel/library/quantity.go`.

use std::cmp::Ordering;

use api::quantity::{Format, Quantity};
use cel::cost::Price;
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

use super::price::PARSE;
use super::{computed, int, library, native, opaque, opaque_eq, text};

/// The library.
pub fn quantity() -> Library {
    library("kubernetes.quantity", 0, OVERLOADS)
}

/// A quantity as a CEL value.
#[derive(Clone, Debug)]
pub struct QuantityValue(pub Quantity);

static OVERLOADS: &[Overload] = &[
    computed(native("string_to_quantity", "quantity(string) -> kubernetes.Quantity", PARSE, |operands| {
        match Quantity::parse(text(operands, 0)?) {
            Ok(quantity) => Ok(Value::opaque(QuantityValue(quantity))),
            Err(error) => Err(EvalError::other(error.to_string())),
        }
    })),
    computed(native("is_quantity_string", "isQuantity(string) -> bool", PARSE, |operands| {
        Ok(Value::Bool(Quantity::parse(text(operands, 0)?).is_ok()))
    })),
    computed(native("quantity_sign", "sign(kubernetes.Quantity) -> int", Price::ONE, |operands| {
        Ok(Value::Int(i64::from(value(operands, 0)?.sign())))
    })),
    computed(native(
        "quantity_is_greater_than",
        "kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(compare(operands)?.is_gt())),
    )),
    computed(native(
        "quantity_is_less_than",
        "kubernetes.Quantity.isLessThan(kubernetes.Quantity) -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(compare(operands)?.is_lt())),
    )),
    computed(native(
        "quantity_compare_to",
        "kubernetes.Quantity.compareTo(kubernetes.Quantity) -> int",
        Price::ONE,
        |operands| Ok(Value::Int(compare(operands)? as i64)),
    )),
    computed(native(
        "quantity_get_float",
        "kubernetes.Quantity.asApproximateFloat() -> double",
        Price::ONE,
        |operands| Ok(Value::Double(value(operands, 0)?.as_approximate_f64())),
    )),
    computed(native("quantity_get_int", "kubernetes.Quantity.asInteger() -> int", Price::ONE, |operands| {
        let number = value(operands, 0)?.as_i64();
        number.map(Value::Int).ok_or_else(|| EvalError::other("cannot convert value to integer"))
    })),
    computed(native("quantity_is_integer", "kubernetes.Quantity.isInteger() -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(value(operands, 0)?.as_i64().is_some()))
    })),
    computed(native(
        "quantity_add",
        "kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity",
        Price::ONE,
        |operands| changed(operands, value(operands, 1)?, Quantity::add),
    )),
    computed(native(
        "quantity_add_int",
        "kubernetes.Quantity.add(int) -> kubernetes.Quantity",
        Price::ONE,
        |operands| changed(operands, &whole(int(operands, 1)?), Quantity::add),
    )),
    computed(native(
        "quantity_sub",
        "kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity",
        Price::ONE,
        |operands| changed(operands, value(operands, 1)?, Quantity::sub),
    )),
    computed(native(
        "quantity_sub_int",
        "kubernetes.Quantity.sub(int) -> kubernetes.Quantity",
        Price::ONE,
        |operands| changed(operands, &whole(int(operands, 1)?), Quantity::sub),
    )),
];

fn value<'o>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o Quantity, EvalError> {
    opaque::<QuantityValue>(operands, operand).map(|quantity| &quantity.0)
}

fn compare(operands: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(value(operands, 0)?.cmp(value(operands, 1)?))
}

fn whole(number: i64) -> Quantity {
    Quantity::new(number, Format::DecimalExponent)
}

fn changed<'v>(
    operands: &[Value<'v>],
    other: &Quantity,
    change: fn(&mut Quantity, &Quantity),
) -> Result<Value<'v>, EvalError> {
    let mut quantity = value(operands, 0)?.clone();
    change(&mut quantity, other);
    Ok(Value::opaque(QuantityValue(quantity)))
}

impl HostValue for QuantityValue {
    fn type_of(&self) -> Type {
        Type::object("kubernetes.Quantity")
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a.0 == b.0)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn go_type_name(&self) -> &'static str {
        "cel.Quantity"
    }
}
