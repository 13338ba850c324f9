//! Names and ages answer as the reference implementation does, on its recorded answers.

use api::age::human_duration;
use api::names::{self, Complaints};
use serde_json::Value;

use crate::scalars::scalar_cases;

/// Kinds of names with more rules than a format: the server's tests check them.
const ASKED_OF_THE_SERVER: [&str; 3] = ["domainPrefixedPath", "fieldManager", "fqdn"];

fn rule(kind: &str) -> Option<fn(&str) -> Complaints> {
    Some(match kind {
        "cIdentifier" => names::c_identifier,
        "configMapKey" => names::config_map_key,
        "dns1035Label" => names::dns1035_label,
        "dns1123Label" => names::dns1123_label,
        "dns1123LabelPrefix" => |name| names::as_prefix(names::dns1123_label, name),
        "dns1123Subdomain" => names::dns1123_subdomain,
        "dns1123SubdomainPrefix" => |name| names::as_prefix(names::dns1123_subdomain, name),
        "envVarName" => names::env_var_name,
        "httpHeaderName" => names::http_header_name,
        "labelValue" => names::label_value,
        "pathSegment" => names::path_segment,
        "portName" => names::port_name,
        "qualifiedName" => names::qualified_name,
        "relaxedEnvVarName" => names::relaxed_env_var_name,
        "wildcardSubdomain" => names::wildcard_dns1123_subdomain,
        _ => return None,
    })
}

#[test]
fn names_are_complained_about() {
    let mut asked = 0;
    for case in scalar_cases("name") {
        let text = |index: usize| case["input"]["args"][index].as_str().unwrap();
        let Some(rule) = rule(text(0)) else {
            assert!(ASKED_OF_THE_SERVER.contains(&text(0)), "{case}");
            continue;
        };
        let expected: Vec<&str> =
            case["expected"]["errors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(rule(text(1)), expected, "{case}");
        asked += 1;
    }
    assert_eq!(asked, 390);
}

#[test]
fn ages_are_shown_in_units_that_fit() {
    for case in scalar_cases("humanDuration") {
        let nanoseconds: i64 = case["input"]["args"][0].as_str().unwrap().parse().unwrap();
        assert_eq!(human_duration(nanoseconds / 1_000_000_000), case["expected"]["human"], "{case}");
    }
}
