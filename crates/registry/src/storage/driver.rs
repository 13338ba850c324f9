//! `CSIDriver`: capabilities and settings of a storage driver.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::pod::prepare::count_generation;
use crate::document::same;
use crate::meta;
use crate::seen::SeenKeys;
use crate::strategy::{PLAIN, Strategy};

const LIFECYCLE_MODES: &[&str] = &["Persistent", "Ephemeral"];
const FS_GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

pub(crate) const DRIVER: Strategy = Strategy {
    validate_create: |driver, _, errors| {
        meta::validate(driver, false, names::dns1123_subdomain, errors);
        validate_spec(driver.field("spec"), errors);
    },
    prepare_update: |driver, old, _| count_generation(driver, old),
    validate_update: |driver, old, _, errors| {
        meta::validate_update(driver, old, errors);
        let (spec, old, at) = (driver.field("spec"), old.field("spec"), Path::new("spec"));
        validate_spec(spec, errors);
        // Kubernetes: the path is `attachedRequired`, the field is `attachRequired`.
        for (name, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            meta::immutable(spec.field(name), old.field(name), at.child(shown), errors);
        }
    },
    warn: |driver, old, _| {
        let requests = |driver: &Value| driver.field("spec").field("tokenRequests").clone();
        let asks = !driver.field("spec").list("tokenRequests").is_empty();
        let is_new = old.is_none_or(|old| !same(&requests(old), &requests(driver)));
        if asks && is_new && !driver.field("spec").has("serviceAccountTokenInSecrets") {
            vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()]
        } else {
            Vec::new()
        }
    },
    ..PLAIN
};

fn validate_spec(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    if let Some(policy) = spec.optional_text("fsGroupPolicy").filter(|it| !FS_GROUP_POLICIES.contains(it)) {
        errors.not_supported(at.child("fsGroupPolicy"), policy, FS_GROUP_POLICIES);
    }
    validate_token_requests(spec.list("tokenRequests"), &at.child("tokenRequests"), errors);
    for mode in spec.texts("volumeLifecycleModes").filter(|it| !LIFECYCLE_MODES.contains(it)) {
        errors.not_supported(at.child("volumeLifecycleModes"), mode, LIFECYCLE_MODES);
    }
    let name = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.optional_int(name).filter(|it| *it < 10) {
        errors.invalid(at.child(name), seconds, "must be greater than or equal to 10 seconds");
    }
    let name = "serviceAccountTokenInSecrets";
    if spec.has(name) && spec.list("tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(at.child(name), spec.flag(name), detail);
    }
}

fn validate_token_requests(requests: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, request) in requests.iter().enumerate() {
        let here = at.index(index);
        let audience = request.text("audience");
        if !seen.insert(audience) {
            errors.duplicate(here.child("audience"), audience);
            continue;
        }
        let complaint = match request.optional_int("expirationSeconds") {
            Some(..TOKEN_SECONDS_MIN) => "may not specify a duration less than 10 minutes",
            Some(seconds) if seconds > TOKEN_SECONDS_MAX => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        errors.invalid(here.child("expirationSeconds"), request.int("expirationSeconds"), complaint);
    }
}
