//! `ServiceCIDR`: ranges that services get their addresses from, one of each family at most.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::addresses;
use crate::generic;
use crate::meta::{self, IMMUTABLE};
use crate::render;
use crate::strategy::Strategy;

pub(crate) const SERVICE_RANGE: Strategy = Strategy {
    validate_create: |range, _, errors| {
        meta::validate(range, false, names::dns1123_subdomain, errors);
        validate_spec(range.field("spec"), errors);
    },
    validate_update: |range, old, _, errors| {
        meta::validate_update(range, old, errors);
        let (spec, at) = (range.field("spec"), Path::new("spec.cidrs"));
        let changed = spec.texts("cidrs").zip(old.field("spec").texts("cidrs")).enumerate();
        let refuse_changed = |errors: &mut Errors| {
            for (index, (range, _)) in changed.clone().filter(|(_, (range, old))| range != old) {
                errors.invalid(at.index(index), range, IMMUTABLE);
            }
        };
        match (old.field("spec").list("cidrs").len(), spec.list("cidrs").len()) {
            (before, now) if before == now => refuse_changed(errors),
            // The other family may be added.
            (1, 2) => {
                refuse_changed(errors);
                validate_spec(spec, errors);
            }
            _ => errors.invalid(at, spec.field("cidrs").clone(), IMMUTABLE),
        }
    },
    ..generic::WITH_STATUS_ALONE
};

fn validate_spec(spec: &Value, errors: &mut Errors) {
    let (ranges, at) = (spec.list("cidrs"), Path::new("spec.cidrs"));
    if ranges.is_empty() {
        errors.required(at, "at least one CIDR required");
        return;
    }
    if ranges.len() > 2 {
        let shown = render::internal("k8s.io/api/networking/v1", "ServiceCIDRSpec", spec);
        errors.invalid(at, shown, "may only hold up to 2 values");
        return;
    }
    for (index, range) in spec.texts("cidrs").enumerate() {
        addresses::validate_canonical_range(range, at.index(index), errors);
    }
    let families = spec.texts("cidrs").map(|range| addresses::parse_range(range).map(|(address, _)| address.is_ipv4()));
    if let [Some(first), Some(second)] = families.collect::<Vec<_>>().as_slice()
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(at, spec.field("cidrs").clone(), detail);
    }
}
