//! Failure and success policies of jobs: rules about exit codes, conditions and indexes.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::meta::{self, invalid, non_negative};
use crate::seen::SeenKeys;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
const OPERATORS: &[&str] = &["In", "NotIn"];

/// Values as Go's `%q` shows a list.
fn listed(values: &[&str]) -> String {
    let quoted: Vec<_> = values.iter().map(|it| api::go_text::quote(it)).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

/// The name of what runs a job: a path behind a domain.
pub(super) fn validate_manager(manager: &str, at: Path<'_>, errors: &mut Errors) {
    meta::validate_domain_prefixed_path(manager, at, errors);
    if manager.len() > 63 {
        errors.too_long(at, 63);
    }
}

/// `podFailurePolicy`.
pub(super) fn validate_failure(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let rules = spec.field("podFailurePolicy").list("rules");
    let list = at.child("rules");
    if rules.len() > 20 {
        errors.too_many(list, Some(rules.len()), 20);
    }
    let pod = spec.field("template").field("spec");
    let containers: Vec<&str> =
        ["containers", "initContainers"].iter().flat_map(|kind| pod.list(kind)).map(|it| it.text("name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        let here = list.index(index);
        match rule.text("action") {
            "" => errors.required(here.child("action"), listed(ACTIONS)),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(here.child("action"), "FailIndex", detail);
            }
            action if !ACTIONS.contains(&action) => errors.not_supported(here.child("action"), action, ACTIONS),
            _ => {}
        }
        let conditions = rule.list("onPodConditions");
        if let Some(codes) = rule.optional("onExitCodes") {
            validate_exit_codes(codes, &containers, &here.child("onExitCodes"), errors);
        }
        validate_conditions(conditions, &here.child("onPodConditions"), errors);
        let detail = match (rule.has("onExitCodes"), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.invalid(here, BadValue::Omitted, detail);
    }
}

fn validate_conditions(conditions: &[Value], at: &Path<'_>, errors: &mut Errors) {
    if conditions.len() > 20 {
        errors.too_many(*at, Some(conditions.len()), 20);
    }
    for (index, condition) in conditions.iter().enumerate() {
        let here = at.index(index);
        let kind = condition.text("type");
        invalid(names::qualified_name(kind), kind, here.child("type"), errors);
        match condition.text("status") {
            "" => errors.required(here.child("status"), listed(STATUSES)),
            status if !STATUSES.contains(&status) => errors.not_supported(here.child("status"), status, STATUSES),
            _ => {}
        }
    }
}

fn validate_exit_codes(codes: &Value, containers: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let operator = codes.text("operator");
    if operator.is_empty() {
        errors.required(at.child("operator"), listed(OPERATORS));
    } else if !OPERATORS.contains(&operator) {
        errors.not_supported(at.child("operator"), operator, OPERATORS);
    }
    if let Some(name) = codes.optional_text("containerName").filter(|it| !containers.contains(it)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(at.child("containerName"), name, detail);
    }
    let values: Vec<i64> = codes.list("values").iter().filter_map(Value::as_i64).collect();
    let list = at.child("values");
    let shown = || match codes.field("values") {
        Value::Null => BadValue::Rendered("null".to_owned()),
        values => values.clone().into(),
    };
    if values.is_empty() {
        errors.invalid(list, shown(), "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(list, Some(values.len()), 255);
    }
    let mut seen = SeenKeys::default();
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(list.index(index), 0_i64, "must not be 0 for the In operator");
        }
        if !seen.insert(*value) {
            errors.duplicate(list.index(index), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(list, shown(), "must be ordered");
    }
}

/// `successPolicy` of an indexed job.
pub(super) fn validate_success(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let rules = spec.field("successPolicy").list("rules");
    let list = at.child("rules");
    if rules.is_empty() {
        errors.required(list, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        errors.too_many(list, Some(rules.len()), 20);
    }
    let completions = spec.int("completions");
    for (index, rule) in rules.iter().enumerate() {
        let here = list.index(index);
        let (count, indexes) = (rule.optional_int("succeededCount"), rule.optional_text("succeededIndexes"));
        if count.is_none() && indexes.is_none() {
            errors.required(here, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0_i64;
        if let Some(indexes) = indexes {
            let here = here.child("succeededIndexes");
            if indexes.len() > 64 * 1024 {
                errors.too_long(here, 64 * 1024);
            }
            match count_indexes(indexes, completions) {
                Ok(count) => total = count,
                Err(error) => {
                    errors.invalid(here, indexes, format!("error parsing succeededIndexes: {error}"));
                }
            }
        }
        if let Some(count) = count {
            let here = here.child("succeededCount");
            non_negative(count, here, errors);
            if count > completions {
                let detail =
                    format!("must be less than or equal to {completions} (the number of specified completions)");
                errors.invalid(here, count, detail);
            }
            if indexes.is_some() && count > total {
                let detail = format!(
                    "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                );
                errors.invalid(here, count, detail);
            }
        }
    }
}

/// Number of indexes in a list such as `1,3-5`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let parse = |part: &str| {
        let quoted = api::go_text::quote(part);
        let number: i64 = part.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if number >= completions {
            return Err(format!("too large index: {quoted}"));
        }
        Ok(number)
    };
    let mut last: Option<i64> = None;
    let mut total = 0_i64;
    for interval in text.split(',') {
        let mut limits = interval.split('-');
        let first = limits.next().unwrap_or_default();
        let second = limits.next();
        if limits.next().is_some() {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                api::go_text::quote(interval)
            ));
        }
        let start = parse(first)?;
        if let Some(last) = last.filter(|last| *last >= start) {
            return Err(format!("non-increasing order, previous: {last}, current: {start}"));
        }
        let end = match second {
            Some(text) => {
                let end = parse(text)?;
                if start >= end {
                    return Err(format!("non-increasing order, previous: {start}, current: {end}"));
                }
                end
            }
            None => start,
        };
        total = total.saturating_add(end.saturating_sub(start)).saturating_add(1);
        last = Some(end);
    }
    Ok(total)
}
