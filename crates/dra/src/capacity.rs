//! Capacity that a request takes from a device, and its availability.
//!
//! Follows `consumable_capacity.go`: a request is rounded up to an amount that the policy allows; without a
//! request, the policy's default applies, or the whole capacity. Amounts that cannot be represented are errors
//! and are never changed.

use std::collections::BTreeMap;

use api::go_text::quote;
use api::json::Text;
use api::quantity::Quantity;
use api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, DeviceCapacity};

/// Amounts by name.
pub(crate) type Amounts = BTreeMap<Text, Quantity>;

/// Returns the amounts that a request takes from a device; `None` if the device lacks a requested capacity.
///
/// # Errors
/// An amount cannot be computed with, or is negative.
pub(crate) fn consumed(
    asked: Option<&CapacityRequirements>,
    capacity: &BTreeMap<Text, DeviceCapacity>,
    fractions: bool,
) -> Result<Option<Amounts>, String> {
    if asked.is_some_and(|asked| asked.requests.keys().any(|name| !capacity.contains_key(name))) {
        return Ok(None);
    }
    let mut consumed = Amounts::new();
    for (name, capacity) in capacity {
        let asked = asked.and_then(|asked| asked.requests.get(name));
        let amount = consumed_of(asked, capacity, fractions);
        let amount = amount.map_err(|problem| format!("capacity {}: {problem}", quote(name)))?;
        if amount.sign() < 0 {
            return Err(format!("capacity {}: capacity value is negative", quote(name)));
        }
        consumed.insert(name.clone(), amount);
    }
    Ok(Some(consumed))
}

/// Whether amounts are allowed, and fit in addition to those in use.
pub(crate) fn fits<'u>(
    consumed: &Amounts,
    capacity: &BTreeMap<Text, DeviceCapacity>,
    in_use: impl Iterator<Item = &'u Amounts> + Clone,
    fractions: bool,
) -> bool {
    consumed.iter().all(|(name, amount)| {
        let Some(capacity) = capacity.get(name) else { return false };
        let mut total = amount.clone();
        for used in in_use.clone() {
            if let Some(used) = used.get(name) {
                total.add(used);
            }
        }
        !violates(amount, capacity.request_policy.as_ref(), fractions) && total <= capacity.value
    })
}

fn consumed_of(asked: Option<&Quantity>, capacity: &DeviceCapacity, fractions: bool) -> Result<Quantity, String> {
    let policy = capacity.request_policy.as_ref();
    let Some(asked) = asked else {
        return Ok(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value).clone());
    };
    match policy {
        Some(CapacityRequestPolicy { valid_range: Some(range), .. }) if range.min.is_some() => {
            round_up(asked, range, fractions)
        }
        Some(CapacityRequestPolicy { valid_values, .. }) => {
            Ok(valid_values.iter().find(|valid| asked <= *valid).unwrap_or(asked).clone())
        }
        None => Ok(asked.clone()),
    }
}

/// Returns the next step at or above the requested amount.
fn round_up(asked: &Quantity, range: &CapacityRequestPolicyRange, fractions: bool) -> Result<Quantity, String> {
    let not_representable =
        |why: String| Err(format!("capacity request cannot be represented in the device's range arithmetic: {why}"));
    let Some(min) = &range.min else { return Ok(asked.clone()) };
    if asked < min {
        return Ok(min.clone());
    }
    let Some(step) = &range.step else { return Ok(asked.clone()) };
    if counts_in_thousandths(range, fractions) {
        let Some(thousandths) = thousandths(asked) else {
            return not_representable(format!("request {asked} is not a representable milli value"));
        };
        return match next_step(thousandths, min.milli_value(), step.milli_value()) {
            None => {
                not_representable(format!("rounding request {asked} up to the next step passes the milli-value range"))
            }
            Some(rounded) if rounded.wrapping_rem(1000) == 0 => {
                Ok(Quantity::new(rounded.wrapping_div(1000), step.format()))
            }
            Some(rounded) => Ok(Quantity::new_milli(rounded, step.format())),
        };
    }
    if asked.cmp_i64(i64::MAX).is_gt() {
        return not_representable(format!("request {asked} exceeds MaxInt64"));
    }
    match next_step(asked.value(), min.value(), step.value()) {
        None => not_representable(format!("rounding request {asked} up to the next step passes MaxInt64")),
        Some(rounded) => Ok(Quantity::new(rounded, step.format())),
    }
}

fn next_step(asked: i64, min: i64, step: i64) -> Option<i64> {
    let above = asked.checked_sub(min)?;
    let partial = above.checked_rem(step)? != 0;
    let steps = above.checked_div(step)?.checked_add(i64::from(partial))?;
    step.checked_mul(steps)?.checked_add(min)
}

fn violates(amount: &Quantity, policy: Option<&CapacityRequestPolicy>, fractions: bool) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref().is_some_and(|default| default == amount && default.format() == amount.format()) {
        return false;
    }
    match &policy.valid_range {
        Some(range) => violates_range(amount, range, fractions),
        None => !policy.valid_values.is_empty() && !policy.valid_values.contains(amount),
    }
}

fn violates_range(amount: &Quantity, range: &CapacityRequestPolicyRange, fractions: bool) -> bool {
    if range.max.as_ref().is_some_and(|max| amount > max) {
        return true;
    }
    let Some(step) = &range.step else { return false };
    // A step without a beginning is not a step.
    let Some(min) = &range.min else { return true };
    let parts = if counts_in_thousandths(range, fractions) {
        thousandths(amount).map(|amount| (amount, min.milli_value(), step.milli_value()))
    } else {
        Some((amount.value(), min.value(), step.value()))
    };
    let remainder = parts.and_then(|(amount, min, step)| amount.wrapping_sub(min).checked_rem(step));
    remainder != Some(0)
}

/// Whether amounts are counted in thousandths. Whole numbers are used if a bound has no exact number of
/// thousandths.
fn counts_in_thousandths(range: &CapacityRequestPolicyRange, fractions: bool) -> bool {
    let exact = |bound: &Option<Quantity>| bound.as_ref().is_none_or(|bound| thousandths(bound).is_some());
    let step_counts = range.step.as_ref().is_none_or(|step| thousandths(step).is_some_and(|step| step >= 1));
    fractions && exact(&range.min) && exact(&range.max) && step_counts
}

/// The exact number of thousandths.
fn thousandths(amount: &Quantity) -> Option<i64> {
    let thousandths = amount.milli_value();
    (Quantity::new_milli(thousandths, amount.format()) == *amount).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[track_caller]
    fn check(asked: &str, [min, max, step]: [&str; 3], rounded: &str, allowed: bool) {
        let bound = |text: &str| (!text.is_empty()).then(|| quantity(text));
        let range = CapacityRequestPolicyRange { min: bound(min), max: bound(max), step: bound(step) };
        let found = round_up(&quantity(asked), &range, true).unwrap();
        assert_eq!((found.to_string(), !violates_range(&found, &range, true)), (rounded.to_owned(), allowed));
    }

    #[test]
    fn requests_are_rounded_up_to_the_next_step_above_the_minimum() {
        check("1", ["2", "8", "3"], "2", true);
        check("3", ["2", "8", "3"], "5", true);
        check("8", ["2", "9", "3"], "8", true);
        check("9", ["2", "9", "3"], "11", false);
        check("1.3", ["0.5", "2", "0.25"], "1500m", true);
        check("7", ["2", "", ""], "7", true);
    }

    #[test]
    fn unrepresentable_amount_is_an_error() {
        let range = CapacityRequestPolicyRange { min: Some(quantity("1")), max: None, step: Some(quantity("7")) };
        let problem = round_up(&quantity("9223372036854775807"), &range, false).unwrap_err();
        assert!(problem.ends_with("passes MaxInt64"), "{problem}");
        let nothing = CapacityRequestPolicyRange { step: Some(quantity("0")), ..range };
        assert!(round_up(&quantity("5"), &nothing, false).is_err());
        assert!(violates_range(&quantity("5"), &nothing, false));
    }
}
