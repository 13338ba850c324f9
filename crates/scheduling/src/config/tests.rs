//! Configurations that are read, resolved and refused.

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
    profile.at(point).map(|enabled| enabled.plugin.name()).collect()
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
fn a_point_overrides_what_holds_for_all() {
    let text = r#"{"schedulerName": "mine", "percentageOfNodesToScore": 20, "plugins": {
        "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}], "disabled": [{"name": "ImageLocality"}]},
        "multiPoint": {"disabled": [{"name": "TaintToleration"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}
    }}"#;
    let all = profiles(text).unwrap();
    let scores: Vec<_> = all[0].at(Point::Score).map(|it| (it.plugin.name(), it.weight)).collect();
    assert_eq!(&scores[..2], [("NodeAffinity", 7), ("NodeResourcesFit", 5)]);
    assert!(!scores.iter().any(|(name, _)| ["ImageLocality", "TaintToleration"].contains(name)));
    assert!(!names(&all[0], Point::Filter).contains(&"TaintToleration"));
    assert!(names(&all[0], Point::Filter).contains(&"NodeAffinity"));
    assert_eq!(all[0].percentage_of_nodes_to_score, Some(20));
}

#[test]
fn everything_can_be_turned_off_but_what_is_needed() {
    let some = r#"{"plugins": {"multiPoint": {"disabled": [{"name": "*"}],
        "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "NodeName"}]}}}"#;
    assert_eq!(names(&profiles(some).unwrap()[0], Point::Filter), ["NodeName"]);
    let none = r#"{"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}}}"#;
    refused(profiles(none), "at least one bind plugin is needed");
}

#[test]
fn what_is_not_known_is_named() {
    refused(read(r#", "profile": []"#), "unknown field `profile`");
    refused(read(r#", "leaderElection": {"leaderElected": true}"#), "unknown field `leaderElected`");
    refused(
        profiles(r#"{"plugins": {"filter": {"enabled": [{"name": "NodeLabel"}]}}}"#),
        "\"NodeLabel\" does not exist",
    );
    refused(profiles(r#"{"pluginConfig": [{"name": "NodeLabel"}]}"#), "\"NodeLabel\" does not exist");
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
    let weight = r#"{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]}"#;
    refused(profiles(weight), "not in valid range [0, 100]");
}

#[test]
fn what_is_written_can_be_read() {
    let configuration =
        read(r#", "podMaxBackoffSeconds": 30, "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]"#);
    let configuration = configuration.unwrap();
    assert_eq!(Configuration::read(&configuration.write().unwrap()).unwrap(), configuration);
    assert_eq!(configuration.backoff().max, Duration::from_secs(30));
}

#[test]
fn what_is_written_out_means_the_same() {
    let given = [
        "",
        r#", "profiles": [{"schedulerName": "mine", "plugins": {
            "multiPoint": {"disabled": [{"name": "TaintToleration"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]},
            "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}]}}}, {}]"#,
    ];
    for given in given {
        let read_once = read(given).unwrap();
        let written = read_once.with_defaults().write().unwrap();
        let read_again = Configuration::read(&written).unwrap();
        let (before, after) =
            (read_once.make_profiles(&matcher()).unwrap(), read_again.make_profiles(&matcher()).unwrap());
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.scheduler_name, after.scheduler_name);
            for point in
                [Point::PreEnqueue, Point::Filter, Point::PostFilter, Point::Score, Point::Reserve, Point::Bind]
            {
                let all = |profile: &Profile| -> Vec<(&'static str, i64)> {
                    profile.at(point).map(|it| (it.plugin.name(), it.weight)).collect()
                };
                assert_eq!(all(before), all(after), "{point:?}");
            }
        }
    }
}
