//! Configurations that are read, resolved and refused.

use api::well_known::DEFAULT_SCHEDULER;
use std::num::NonZeroUsize;
use std::sync::Arc;

use matching::Features;

use super::*;

fn matcher() -> Matcher {
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    Matcher::new(NonZeroUsize::new(8).unwrap(), clock, Features::ALL).unwrap()
}

fn read(rest: &str) -> Result<Configuration, ConfigError> {
    let text = format!(r#"{{"apiVersion": "{API_VERSION}", "kind": "{KIND}"{rest}}}"#);
    Configuration::read(&api::json::parse(text.as_bytes()).unwrap())
}

fn profiles(rest: &str) -> Result<Vec<Profile>, ConfigError> {
    read(&format!(r#", "profiles": [{rest}]"#))?.make_profiles(&matcher())
}

fn names(profile: &Profile, point: Point) -> Vec<&'static str> {
    profile.at(point).map(|enabled| enabled.name()).collect()
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, ConfigError>, text: &str) {
    let error = result.unwrap_err();
    let source = std::error::Error::source(&error).map(|it| format!(": {it}")).unwrap_or_default();
    assert!(format!("{error}{source}").contains(text), "{error}{source}");
}

#[test]
fn the_default_is_kubernetes_profile() {
    let all = Configuration::default().make_profiles(&matcher()).unwrap();
    let expected = crate::plugins::default_profile(&matcher()).unwrap();
    assert_eq!((all.len(), all[0].scheduler_name.as_str()), (1, DEFAULT_SCHEDULER));
    for point in [Point::PreEnqueue, Point::Filter, Point::PostFilter, Point::Score, Point::Reserve, Point::Bind] {
        assert_eq!(names(&all[0], point), names(&expected, point));
    }
    let weights = |profile: &Profile| profile.at(Point::Score).map(|it| it.weight).collect::<Vec<_>>();
    assert_eq!(weights(&all[0]), weights(&expected));
}

#[test]
fn extension_point_overrides_multi_point() {
    let text = r#"{"schedulerName": "mine", "percentageOfNodesToScore": 20, "plugins": {
        "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}], "disabled": [{"name": "ImageLocality"}]},
        "multiPoint": {"disabled": [{"name": "TaintToleration"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}
    }}"#;
    let all = profiles(text).unwrap();
    let scores: Vec<_> = all[0].at(Point::Score).map(|it| (it.name(), it.weight)).collect();
    assert_eq!(&scores[..2], [("NodeAffinity", 7), ("NodeResourcesFit", 5)]);
    assert!(!scores.iter().any(|(name, _)| ["ImageLocality", "TaintToleration"].contains(name)));
    assert!(!names(&all[0], Point::Filter).contains(&"TaintToleration"));
    assert!(names(&all[0], Point::Filter).contains(&"NodeAffinity"));
    assert_eq!(all[0].percentage_of_nodes_to_score, Some(20));
}

#[test]
fn all_but_required_plugins_can_be_disabled() {
    let some = r#"{"plugins": {"multiPoint": {"disabled": [{"name": "*"}],
        "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "NodeName"}]}}}"#;
    assert_eq!(names(&profiles(some).unwrap()[0], Point::Filter), ["NodeName"]);
    let none = r#"{"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}}}"#;
    refused(profiles(none), "at least one bind plugin is needed");
}

#[test]
fn unknown_fields_are_named() {
    refused(read(r#", "profile": []"#), "unknown field `profile`");
    refused(read(r#", "leaderElection": {"leaderElected": true}"#), "unknown field `leaderElected`");
    refused(
        profiles(r#"{"plugins": {"filter": {"enabled": [{"name": "NodeLabel"}]}}}"#),
        "\"NodeLabel\" does not exist",
    );
    refused(profiles(r#"{"pluginConfig": [{"name": "NodeLabel"}]}"#), "\"NodeLabel\" does not exist");
    let disabled = r#"{"plugins": {"score": {"disabled": [{"name": "NodeLabel"}]}}}"#;
    refused(profiles(disabled), "\"NodeLabel\" does not exist");
    let args = r#"{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardWeight": 1}}]}"#;
    refused(profiles(args), "\"InterPodAffinity\": unknown field `hardWeight`");
    refused(profiles(r#"{"plugins": {"score": {"enabled": [{"name": "NodeName"}]}}}"#), "does not extend Score");
    let text = br#"{"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "KubeSchedulerConfiguration"}"#;
    refused(Configuration::read(&api::json::parse(text).unwrap()), "v1beta3");
}

#[test]
fn values_out_of_range_are_refused() {
    refused(read(r#", "percentageOfNodesToScore": 101"#), "not in valid range [0-100]");
    refused(read(r#", "podInitialBackoffSeconds": 20"#), "podMaxBackoffSeconds");
    refused(read(r#", "profiles": [{}, {"schedulerName": "default-scheduler"}]"#), "the same name");
    refused(read(r#", "leaderElection": {"resourceLock": "endpoints"}"#), "resourceLock value must be \"leases\"");
    refused(read(r#", "clientConnection": {"burst": -1}"#), "clientConnection.burst: Invalid value: -1");
    let groups = r#"{"plugins": {"podGroupPostFilter": {"enabled": [{"name": "DefaultPreemption"}]}}}"#;
    refused(profiles(groups), "pod groups are not supported");
    assert!(profiles(r#"{"plugins": {"placementScore": {}}}"#).is_ok());
}

#[test]
fn arguments_out_of_range_are_refused() {
    let check = |plugin: &str, args: &str, text: &str| {
        let given = format!(r#"{{"pluginConfig": [{{"name": "{plugin}", "args": {args}}}]}}"#);
        refused(profiles(&given), text);
    };
    check("InterPodAffinity", r#"{"hardPodAffinityWeight": 101}"#, "Invalid value: 101: not in valid range [0, 100]");
    check(
        "DefaultPreemption",
        r#"{"minCandidateNodesPercentage": -1}"#,
        "minCandidateNodesPercentage: Invalid value: -1",
    );
    check(
        "DefaultPreemption",
        r#"{"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}"#,
        "[minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, \
         minCandidateNodesAbsolute: Invalid value: 0: cannot be zero",
    );
    let fit = |args: &str, text: &str| check("NodeResourcesFit", args, text);
    fit(r#"{"ignoredResources": ["a b"]}"#, "ignoredResources[0]: Invalid value: \"a b\"");
    fit(r#"{"ignoredResourceGroups": ["a/b"]}"#, "resource group name can't contain '/'");
    let strategies = "supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"";
    fit(
        r#"{"scoringStrategy": {"type": "Best"}}"#,
        &format!("scoringStrategy.type: Unsupported value: \"Best\": {strategies}"),
    );
    // Kubernetes gives a type only where there is no strategy at all.
    fit(r#"{"scoringStrategy": {"resources": [{"name": "cpu"}]}}"#, "scoringStrategy.type: Unsupported value: \"\"");
    let least = |more: &str| format!(r#"{{"scoringStrategy": {{"type": "LeastAllocated"{more}}}}}"#);
    let weight = least(r#", "resources": [{"name": "cpu", "weight": 1}, {"name": "gpu", "weight": 101}]"#);
    fit(
        &weight,
        "scoringStrategy.resources[1].weight: Invalid value: 101: resource weight of gpu not in valid range (0, 100]",
    );
    let shape = least(r#", "requestedToCapacityRatio": {"shape": []}"#);
    fit(&shape, "requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio");
    let ratio = |more: &str| format!(r#"{{"scoringStrategy": {{"type": "RequestedToCapacityRatio"{more}}}}}"#);
    fit(&ratio(""), "Required value: must be specified when type is RequestedToCapacityRatio");
    let shape = |points: &str| ratio(&format!(r#", "requestedToCapacityRatio": {{"shape": [{points}]}}"#));
    fit(&shape(""), "shape: Required value: at least one point must be specified");
    let points = r#"{"utilization": 50, "score": 11}, {"utilization": 50, "score": 1}"#;
    fit(&shape(points), "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order");
    fit(&shape(points), "shape[0].score: Invalid value: 11: not in valid range [0, 10]");
    let balanced = |args: &str, text: &str| check("NodeResourcesBalancedAllocation", args, text);
    balanced(r#"{"resources": [{"name": "cpu", "weight": 2}]}"#, "resources[0].weight: Invalid value: 2: must be 1");
    balanced(r#"{"resources": [{"name": "a"}, {"name": "a"}]}"#, "resources[1].name: Duplicate value: \"a\"");
    let spread = |args: &str, text: &str| check("PodTopologySpread", args, text);
    spread(
        r#"{"defaultingType": "Mine"}"#,
        "defaultingType: Unsupported value: \"Mine\": supported values: \"System\", \"List\"",
    );
    let soft = r#"{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}"#;
    spread(
        &format!(r#"{{"defaultConstraints": [{soft}]}}"#),
        "Invalid value: \"System\": when .defaultConstraints are not empty",
    );
    let list = |constraints: &str| format!(r#"{{"defaultingType": "List", "defaultConstraints": [{constraints}]}}"#);
    spread(&list(&format!("{soft}, {soft}")), "defaultConstraints[1]: Duplicate value: \"{z, ScheduleAnyway}\"");
    let odd = r#"{"maxSkew": 0, "topologyKey": "a b", "whenUnsatisfiable": "Maybe", "labelSelector": {}}"#;
    spread(&list(odd), "maxSkew: Invalid value: 0: not in valid range (0, inf)");
    spread(&list(odd), "topologyKey: Invalid value: \"a b\"");
    spread(&list(odd), "supported values: \"DoNotSchedule\", \"ScheduleAnyway\"");
    spread(&list(odd), "labelSelector: Forbidden: constraint must not define a selector");
    check("VolumeBinding", r#"{"bindTimeoutSeconds": -1}"#, "should not be a negative value");
    check("VolumeBinding", r#"{"shape": [{"utilization": 101}]}"#, "shape[0].utilization: Invalid value: 101");
    check(
        "DynamicResources",
        r#"{"bindingTimeout": "10ms"}"#,
        "bindingTimeout: Invalid value: \"10ms\": must be at least 1 second",
    );
    check(
        "DynamicResources",
        r#"{"filterTimeout": "-1s"}"#,
        "filterTimeout: Invalid value: \"-1s\": must be zero or positive",
    );
    let affinity = r#"{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}}"#;
    check("NodeAffinity", affinity, "operator: Unsupported value: \"Near\"");
    let required = |term: &str| {
        format!(
            r#"{{"addedAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution": {{"nodeSelectorTerms": [{term}]}}}}}}"#
        )
    };
    let expression = |text: &str| required(&format!(r#"{{"matchCELExpressions": ["{text}"]}}"#));
    check("NodeAffinity", &expression("node.labels["), "addedAffinity: nodeSelectorTerms[0].matchCELExpressions[0]: ");
    check("NodeAffinity", &expression("node.labels['a']"), "must evaluate to bool");
    let version = required(r#"{"matchExpressions": [{"key": "v", "operator": "SemverGt", "values": ["x.y"]}]}"#);
    check(
        "NodeAffinity",
        &version,
        "addedAffinity: nodeSelectorTerms[0].matchExpressions: the value for v is not a version",
    );
    let terms: Vec<String> = (0..65).map(|it| format!(r#"{{"matchCELExpressions": ["'{it}' == 'a'"]}}"#)).collect();
    let affinity = format!(
        r#"{{"addedAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution": {{"nodeSelectorTerms": [{}]}}}}}}"#,
        terms.join(",")
    );
    check("NodeAffinity", &affinity, "addedAffinity: must have at most 64 expressions in total, has 65");
    // Each is within the limit of one expression; six together are not.
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let search = format!("!'{}'.contains('y')", "x".repeat(8000));
    let costly = format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, {search})))");
    let terms: Vec<String> =
        (0..6).map(|it| format!(r#"{{"matchCELExpressions": ["{costly} && {it} >= 0"]}}"#)).collect();
    check("NodeAffinity", &required(&terms.join(",")), "addedAffinity: estimated costs of 6 expressions add up to ");
}

#[test]
fn written_configuration_can_be_read() {
    let configuration =
        read(r#", "podMaxBackoffSeconds": 30, "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]"#);
    let configuration = configuration.unwrap();
    assert_eq!(Configuration::read(&configuration.write().unwrap()).unwrap(), configuration);
    assert_eq!(configuration.backoff().max, Duration::from_secs(30));
}

#[test]
fn arguments_are_written_out_with_their_defaults() {
    let given = r#", "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy":
        {"type": "MostAllocated", "resources": [{"name": "cpu"}]}}}]}]"#;
    let written = read(given).unwrap().with_defaults().unwrap();
    let args = |plugin: &str| {
        let found = written.profiles[0].plugin_config.iter().find(|it| it.name == plugin).unwrap();
        let mut args = found.args.clone();
        let Value::Object(fields) = &mut args else { panic!("{args:?}") };
        assert_eq!(fields.remove("kind"), Some(format!("{plugin}Args").as_str().into()));
        assert_eq!(fields.remove("apiVersion"), Some(API_VERSION.into()));
        args
    };
    let cpu = api::json!({"name": "cpu", "weight": 1});
    let only = cpu.clone();
    let strategy = api::json!({"type": "MostAllocated", "resources": [only]});
    assert_eq!(args("NodeResourcesFit"), api::json!({"scoringStrategy": strategy}));
    let memory = api::json!({"name": "memory", "weight": 1});
    assert_eq!(args("NodeResourcesBalancedAllocation"), api::json!({"resources": [cpu, memory]}));
    assert_eq!(args("PodTopologySpread"), api::json!({"defaultingType": "System"}));
    assert_eq!(args("DefaultPreemption").get("minCandidateNodesAbsolute"), Some(&100.into()));
    assert_eq!(args("InterPodAffinity").get("hardPodAffinityWeight"), Some(&1.into()));
    assert_eq!(args("VolumeBinding").get("bindTimeoutSeconds"), Some(&600.into()));
    assert_eq!(args("DynamicResources").get("bindingTimeout"), Some(&"10m0s".into()));
    assert_eq!(args("NodeAffinity"), api::json!({}));
}

#[test]
fn explicit_defaults_are_equivalent() {
    let given = [
        "",
        r#", "profiles": [{"schedulerName": "mine", "plugins": {
            "multiPoint": {"disabled": [{"name": "TaintToleration"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]},
            "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}]}}}, {}]"#,
    ];
    for given in given {
        let read_once = read(given).unwrap();
        let written = read_once.with_defaults().unwrap().write().unwrap();
        assert!(!api::json::to_string(&written).contains("null"));
        let read_again = Configuration::read(&written).unwrap();
        assert_eq!(read_again.with_defaults().unwrap(), read_again);
        let (before, after) =
            (read_once.make_profiles(&matcher()).unwrap(), read_again.make_profiles(&matcher()).unwrap());
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.scheduler_name, after.scheduler_name);
            for point in
                [Point::PreEnqueue, Point::Filter, Point::PostFilter, Point::Score, Point::Reserve, Point::Bind]
            {
                let all = |profile: &Profile| -> Vec<(&'static str, i64)> {
                    profile.at(point).map(|it| (it.name(), it.weight)).collect()
                };
                assert_eq!(all(before), all(after), "{point:?}");
            }
        }
    }
}
