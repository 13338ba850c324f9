//! Pod Security: recorded decisions about pods and templates, configuration, and the check of existing pods.
//!
//! The API server replays the same file over HTTP; here it covers the rules alone.

use api::features::Features;
use api::json::{self, Value};
use registry::admit;
use registry::expressions::Environments;
use registry::pipeline::Rules as _;
use registry::pod_security::{Configuration, Level, LevelVersion, Policy, Survey, Version, evaluate, template};
use registry::resources;
use registry::strategy::Context;

/// Drops the prefix of a `Warning` header and its quotes.
fn header_text(header: &str) -> String {
    let quoted = header.strip_prefix("299 - ").unwrap();
    quoted[1..quoted.len() - 1].replace("\\\"", "\"").replace("\\\\", "\\")
}

fn check(case: &Value, environments: &Environments) -> Option<String> {
    let labels = case.get("namespaceLabels")?;
    let body = case.get("request")?.get("body")?;
    let resource = resources::find_by_api_version(body.str_at(&["apiVersion"])?, body.str_at(&["kind"])?).unwrap();
    let context = Context {
        features: Features::default(),
        expressions: environments,
        namespace: "n",
        now: "2000-01-01T00:00:00Z",
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    };
    let mut object = admit::read(resource, body, context.now).unwrap().object;
    admit::BuiltIn { resource, context }.prepare(&mut object, None);
    let expected = case.get("expect").unwrap();
    if expected.get("code") == Some(&Value::Int(422)) {
        return None;
    }
    let namespace = api::json!({"metadata": {"labels": (labels.clone())}});
    let (policy, errors) = Policy::default().of_namespace(&namespace);
    assert!(errors.is_empty());
    let is_pod = resource.plural == "pods";
    let pod = if is_pod { &object } else { template(resource.plural, &object).unwrap() };
    let decision = evaluate(&Configuration::default(), &policy, None, pod, is_pod);
    let name = object.str_at(&["metadata", "name"]).unwrap();
    let denial = decision.denial.map(|it| format!("{} \"{name}\" is forbidden: {it}", resource.plural));
    if denial.as_deref() != expected.str_at(&["body", "message"]) {
        return Some(format!("{denial:?}\nexpected {expected}"));
    }
    let warnings = expected.get("warnings").and_then(Value::as_array).unwrap_or_default();
    let warnings: Vec<String> = warnings.iter().map(|it| header_text(it.as_str().unwrap())).collect();
    let warnings: Vec<String> = warnings.into_iter().filter(|it| it.starts_with("would violate")).collect();
    (decision.warnings != warnings).then(|| format!("{:?}\nexpected {warnings:?}", decision.warnings))
}

#[test]
fn pods_and_templates_are_decided_as_recorded() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let environments = Environments::new().unwrap();
    for line in include_str!("data/pod_security.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        count += usize::from(case.get("namespaceLabels").is_some());
        if let Some(difference) = check(&case, &environments) {
            wrong.push(format!("{}: {difference}", case.str_at(&["id"]).unwrap()));
        }
    }
    assert!(count > 600, "{count} cases");
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn standard(level: Level, version: Version) -> LevelVersion {
    LevelVersion { level, version }
}

fn policy_of(labels: Value) -> (Policy, String) {
    let (policy, errors) = Policy::default().of_namespace(&api::json!({"metadata": {"labels": labels}}));
    (policy, if errors.is_empty() { String::new() } else { errors.message() })
}

#[test]
fn unreadable_enforce_label_means_restricted_without_warnings() {
    let (policy, errors) = policy_of(api::json!({
        "pod-security.kubernetes.io/enforce": "strict",
        "pod-security.kubernetes.io/enforce-version": "v1.07",
        "pod-security.kubernetes.io/audit": "x"
    }));
    assert_eq!(policy.enforce, standard(Level::Restricted, Version::Latest));
    assert_eq!(policy.audit.level, Level::Privileged);
    assert_eq!(policy.warn.level, Level::Privileged);
    assert_eq!(
        errors,
        "[metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"v1.07\": must be \"latest\" or \"v1.x\", metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"x\": must be one of privileged, baseline, restricted]"
    );
}

#[test]
fn warn_follows_enforce_but_keeps_its_own_version() {
    let (policy, _) = policy_of(api::json!({
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/enforce-version": "v1.20",
        "pod-security.kubernetes.io/warn-version": "v1.30"
    }));
    assert_eq!(policy.warn, standard(Level::Baseline, Version::Minor(30)));
}

#[test]
fn versions_are_minor_numbers_without_leading_zeros() {
    for good in ["v1.0", "v1.9", "v1.10", "v1.9223372036854775807"] {
        assert_eq!(Version::parse(good).unwrap().to_string(), good);
    }
    for bad in ["v1.", "v1.00", "v1.-1", "v2.0", "1.20", "v1.20.1", "v1.9223372036854775808", "Latest", ""] {
        assert!(Version::parse(bad).is_err(), "{bad}");
    }
}

fn read(document: Value) -> Result<Configuration, String> {
    Configuration::read(&document)
}

#[test]
fn configuration_sets_defaults_and_exemptions() {
    let configuration = read(api::json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "audit": "restricted"},
        "exemptions": {"usernames": ["root"], "namespaces": ["kube-system"], "runtimeClasses": ["kata"]}
    }))
    .unwrap();
    assert_eq!(configuration.defaults.enforce, standard(Level::Baseline, Version::Minor(30)));
    assert_eq!(configuration.defaults.warn, standard(Level::Privileged, Version::Latest));
    assert!(configuration.exempts_user("root") && !configuration.exempts_user(""));
    let pod = api::json!({"spec": {"hostPID": true, "runtimeClassName": "kata"}});
    let decision = evaluate(&configuration, &configuration.defaults, None, &pod, true);
    assert_eq!(decision.denial, None);
    assert_eq!(decision.annotations, [("exempt", "runtimeClass".to_owned())]);
}

#[test]
fn invalid_configuration_is_rejected_with_every_error() {
    let header = |rest: &str| {
        let text = format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",{rest}}}"#
        );
        read(json::parse(text.as_bytes()).unwrap()).unwrap_err()
    };
    assert_eq!(
        header(
            r#""defaults":{"enforce":"x","warn-version":"1"},"exemptions":{"namespaces":["a","a","B"],"usernames":[""]}"#
        ),
        "[defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted, defaults.warn-version: Invalid value: \"1\": must be \"latest\" or \"v1.x\", exemptions.namespaces[1]: Duplicate value: \"a\", exemptions.namespaces[2]: Invalid value: \"B\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), exemptions.usernames[0]: Invalid value: \"\": username must not be empty]"
    );
    assert_eq!(header(r#""defaults":{"enforced":"x"}"#), "strict decoding error: unknown field \"defaults.enforced\"");
    assert_eq!(header(r#""exemptions":{"usernames":"x"}"#), "field \"exemptions.usernames\" has the wrong type");
    assert_eq!(
        read(api::json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err(),
        "expected PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1, got \"Pod\" of \"v1\""
    );
}

fn pod(name: &str, controller: &str, is_bad: bool) -> (String, Value) {
    let pod = api::json!({
        "metadata": {"name": name},
        "spec": {"hostPID": is_bad, "containers": [{"name": "c"}]}
    });
    (controller.to_owned(), pod)
}

#[test]
fn existing_pods_are_grouped_and_bounded() {
    let survey = Survey { namespace: "n", enforce: standard(Level::Baseline, Version::Latest), max_pods: 4 };
    let pods =
        vec![pod("b", "1", true), pod("a", "1", true), pod("c", "1", true), pod("d", "", false), pod("e", "", true)];
    assert_eq!(
        survey.warnings(pods.clone(), Value::clone, || false),
        [
            "new PodSecurity enforce level only checked against the first 4 of 5 existing pods",
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 2 other pods): host namespaces",
        ]
    );
    // One pod per controller comes first: b, d and e before a and c.
    let mut calls = 0;
    let expired = survey.warnings(pods, Value::clone, || {
        calls += 1;
        calls == 3
    });
    assert_eq!(expired[0], "new PodSecurity enforce level only checked against the first 3 of 5 existing pods");
    assert_eq!(expired[2], "b (and 1 other pod): host namespaces");
}

#[test]
fn only_raised_enforcement_checks_existing_pods() {
    let of = |level, version| Policy { enforce: standard(level, version), ..Policy::default() };
    let baseline = of(Level::Baseline, Version::Latest);
    assert!(baseline.is_stricter_than(&Policy::default()));
    assert!(of(Level::Baseline, Version::Minor(20)).is_stricter_than(&of(Level::Restricted, Version::Latest)));
    assert!(!baseline.is_stricter_than(&of(Level::Restricted, Version::Latest)));
    assert!(!baseline.is_stricter_than(&baseline));
    assert!(!of(Level::Privileged, Version::Minor(3)).is_stricter_than(&baseline));
}
