//! Requests and limits of containers and pods.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use api::Quantity;
use api::field::{Error, ErrorType, Errors, Path};
use api::json::Value;
use api::names;

use super::options::Options;
use crate::core::resource_names::{self as resources, amounts, is_huge_page, is_overcommit_allowed};
use crate::meta::invalid;
use crate::seen::SeenKeys;

type NameCheck = fn(&str, Path<'_>, &mut Errors);

/// The resources of a container; `claim_names` are those of the pod.
pub(crate) fn validate_container(
    requirements: &Value,
    claim_names: &BTreeSet<&str>,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    validate(requirements, resources::validate_container_name, claim_names, options, at, errors);
}

fn validate(
    requirements: &Value,
    check_name: NameCheck,
    claim_names: &BTreeSet<&str>,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let (limits_at, requests_at) = (at.child("limits"), at.child("requests"));
    let (mut has_compute, mut has_huge_pages) = (false, false);
    let limits: BTreeMap<&str, Quantity> = amounts(requirements.map("limits")).collect();
    let mut common = |name: &str, amount: &Quantity, here: Path<'_>, errors: &mut Errors| {
        has_compute |= matches!(name, "cpu" | "memory");
        if is_huge_page(name) {
            has_huge_pages = true;
            if !options.allow_indivisible_huge_pages && !resources::is_divisible(name, amount) {
                let detail = format!("{amount} is not positive integer multiple of {name}");
                errors.invalid(here, amount.to_string(), detail);
            }
        }
    };
    for (name, amount) in amounts(requirements.map("limits")) {
        let here = limits_at.key(name);
        check_name(name, here, errors);
        resources::validate_amount(name, &amount, here, errors);
        common(name, &amount, here, errors);
    }
    for (name, amount) in amounts(requirements.map("requests")) {
        let here = requests_at.key(name);
        check_name(name, here, errors);
        resources::validate_amount(name, &amount, here, errors);
        match limits.get(name) {
            Some(limit) if amount.cmp(limit) != Ordering::Equal && !is_overcommit_allowed(name) => {
                errors.invalid(requests_at, amount.to_string(), format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if amount.cmp(limit) == Ordering::Greater => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(requests_at, amount.to_string(), detail);
            }
            None if !is_overcommit_allowed(name) => {
                errors.required(limits_at, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        common(name, &amount, here, errors);
    }
    if !has_compute && has_huge_pages {
        errors.forbidden(*at, "HugePages require cpu or memory");
    }
    validate_claims(requirements.list("claims"), claim_names, &at.child("claims"), errors);
}

fn validate_claims(claims: &[Value], claim_names: &BTreeSet<&str>, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    // How many requests of a claim were named.
    let mut requests: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let here = at.index(index);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(here, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            errors.duplicate(here, name);
        } else {
            if !request.is_empty() {
                invalid(names::dns1123_label(request), request, here.child("request"), errors);
            }
            let count = requests.entry(name).or_default();
            if !seen.insert((name, request)) {
                errors.duplicate(here, format!("{name}/{request}"));
            } else if request.is_empty() {
                for _ in 0..*count {
                    if errors.is_full() {
                        break;
                    }
                    errors.duplicate(here, name);
                }
            }
            *count = count.saturating_add(usize::from(!request.is_empty()));
        }
        if !claim_names.contains(name) && !errors.is_full() {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if claim_names.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let names: Vec<&str> = claim_names.iter().copied().collect();
                detail = format!("{detail}: {}", names.join(", "));
            }
            errors.push(Error::new(ErrorType::NotFound, &here, name, detail));
        }
    }
}

/// Validates the overhead of a pod's runtime.
pub(super) fn validate_overhead(spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if let Some(overhead) = spec.optional("overhead") {
        let requirements = api::json!({"limits": (overhead.clone())});
        validate_container(&requirements, &BTreeSet::new(), options, at, errors);
    }
}

/// The resources of a pod as a whole.
pub(super) fn validate_pod(
    spec: &Value,
    claim_names: &BTreeSet<&str>,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(requirements) = spec.optional("resources") else { return };
    if spec.field("os").text("name") == "windows" {
        errors.forbidden(*at, "may not be set for a windows pod");
        return;
    }
    if requirements.has("claims") {
        errors.forbidden(at.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate(requirements, resources::validate_pod_name, claim_names, options, at, errors);
    let requests_at = at.child("requests");
    for (name, sum) in &aggregate(spec, "requests") {
        if let Some(of_pod) = requirements.field("requests").quantity(name)
            && sum.cmp(&of_pod) == Ordering::Greater
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(requests_at.key(name), of_pod.to_string(), detail);
        }
    }
    let limits_at = at.child("limits");
    for (name, sum) in aggregate(spec, "limits").iter().filter(|(name, _)| is_huge_page(name)) {
        if let Some(of_pod) = requirements.field("limits").quantity(name)
            && sum.cmp(&of_pod) == Ordering::Greater
        {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.invalid(limits_at.key(name), of_pod.to_string(), detail);
        }
    }
    let containers_at = at.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (name, limit) in amounts(container.field("resources").map("limits")) {
            if let Some(of_pod) = requirements.field("limits").quantity(name)
                && limit.cmp(&of_pod) == Ordering::Greater
            {
                let here = containers_at.index(index);
                let here = here.key(name);
                let detail = format!("must be less than or equal to pod limits of {of_pod}");
                errors.invalid(here.child("limits"), limit.to_string(), detail);
            }
        }
    }
}

/// Returns the total resources of a pod's containers: the sum of concurrent ones, or the maximum during
/// startup.
pub(super) fn aggregate(spec: &Value, kind: &str) -> BTreeMap<String, Quantity> {
    let mut sum: BTreeMap<String, Quantity> = BTreeMap::new();
    let add = |sum: &mut BTreeMap<String, Quantity>, name: &str, amount: &Quantity| match sum.get_mut(name) {
        Some(total) => total.add(amount),
        None => {
            sum.insert(name.to_owned(), amount.clone());
        }
    };
    for container in spec.list("containers") {
        for (name, amount) in amounts(container.field("resources").map(kind)) {
            add(&mut sum, name, &amount);
        }
    }
    let mut restartable: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut starting: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in spec.list("initContainers") {
        let is_sidecar = container.text("restartPolicy") == "Always";
        let mut own: BTreeMap<String, Quantity> = BTreeMap::new();
        for (name, amount) in amounts(container.field("resources").map(kind)) {
            if is_sidecar {
                add(&mut sum, name, &amount);
                add(&mut restartable, name, &amount);
            } else {
                own.insert(name.to_owned(), amount);
            }
        }
        let needs = if is_sidecar {
            restartable.clone()
        } else {
            for (name, amount) in &restartable {
                add(&mut own, name, amount);
            }
            own
        };
        raise(&mut starting, &needs);
    }
    raise(&mut sum, &starting);
    sum
}

fn raise(most: &mut BTreeMap<String, Quantity>, other: &BTreeMap<String, Quantity>) {
    for (name, amount) in other {
        match most.get(name) {
            Some(current) if amount.cmp(current) != Ordering::Greater => {}
            _ => {
                most.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// The names of a pod's claims.
pub(super) fn claim_names(spec: &Value) -> BTreeSet<&str> {
    spec.list("resourceClaims").iter().map(|claim| claim.text("name")).filter(|name| !name.is_empty()).collect()
}
