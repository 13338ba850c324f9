//! Claims of pods, made and released.

use api::core::v1::Pod;
use api::features::{Features, Gate};
use api::metadata;
use api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use client::Document;

use super::pod::{ClaimNeed, Problem, need, reserve, statuses};
use super::release::{OwnerPod, release};
use crate::machinery::action::Action;

fn pod(reported: &str) -> Pod {
    let text = format!(
        r#"{{"metadata": {{"name": "p", "namespace": "a", "uid": "u"}}, "spec": {{"resourceClaims": [{{"name": "dev", "resourceClaimTemplateName": "t"}}]}}, "status": {{"resourceClaimStatuses": [{reported}]}}}}"#
    );
    api::json::from_value(&api::json::parse(text.as_bytes()).expect("JSON")).expect("a pod")
}

fn template(constraint: &str) -> Document<ResourceClaimTemplate> {
    let text = format!(
        r#"{{"metadata": {{"name": "t", "namespace": "a"}}, "spec": {{"metadata": {{"labels": {{"l": "1"}}}}, "spec": {{"devices": {{"constraints": [{constraint}]}}}}}}}}"#
    );
    Document::new(api::json::parse(text.as_bytes()).expect("JSON")).expect("a template")
}

fn ask(
    pod: &Pod,
    claims: &[ResourceClaim],
    template: Option<&Document<ResourceClaimTemplate>>,
) -> Result<ClaimNeed, Problem> {
    need(pod, &pod.spec.resource_claims[0], claims, |_| template.cloned(), Features::none())
}

#[test]
fn claim_is_created_once_and_recorded_in_pod() {
    let made = ask(&pod(""), &[], Some(&template(""))).expect("it can be made");
    let ClaimNeed::Create(mut object) = made else { panic!("{made:?}") };
    assert_eq!(object.str_at(&["metadata", "generateName"]), Some("p-dev-"));
    assert_eq!(metadata::annotation(&object, super::CLAIM_NAME), Some("dev"));
    object.set_at(&["metadata", "name"], "p-dev-x");
    let claim: ResourceClaim = api::json::from_value(&object).expect("a claim");
    let claims = [claim];
    assert_eq!(ask(&pod(""), &claims, None), Ok(ClaimNeed::Tell("p-dev-x".into())));
    let reported = pod(r#"{"name": "dev", "resourceClaimName": "p-dev-x"}"#);
    assert_eq!(ask(&reported, &claims, None), Ok(ClaimNeed::Nothing));
    assert_eq!(ask(&reported, &[], None), Err(Problem::NoTemplate("t".into())), "the claim was deleted");
    let none = pod(r#"{"name": "dev"}"#);
    assert_eq!(ask(&none, &[], None), Ok(ClaimNeed::Nothing));
}

#[test]
fn a_template_that_needs_a_closed_gate_is_refused() {
    let template = template(r#"{"cel": {"expression": "true"}}"#);
    assert!(matches!(ask(&pod(""), &[], Some(&template)), Err(Problem::Gate(_))));
    let open = Features::none().with(Gate::DRACELDeviceConstraint, true);
    let pod = pod("");
    let made = need(&pod, &pod.spec.resource_claims[0], &[], |_| Some(template.clone()), open);
    assert!(matches!(made, Ok(ClaimNeed::Create(_))));
}

#[test]
fn statuses_are_joined_by_name() {
    let pod = pod(r#"{"name": "z", "resourceClaimName": "old"}"#);
    let joined = statuses(&pod, &[("a".into(), "new".into())]);
    assert_eq!(
        joined,
        api::json!([{"name": "a", "resourceClaimName": "new"}, {"name": "z", "resourceClaimName": "old"}])
    );
}

fn claim(reserved: usize, finalizer: bool, deleting: bool) -> Document<ResourceClaim> {
    let consumers: Vec<api::json::Value> = (0..reserved)
        .map(|n| api::json!({"resource": "pods", "name": (n.to_string()), "uid": (n.to_string())}))
        .collect();
    let finalizers = if finalizer { api::json!([(super::FINALIZER)]) } else { api::json!([]) };
    let mut object = api::json!({"metadata": {"name": "c", "namespace": "a", "finalizers": finalizers},
        "status": {"allocation": {"devices": {}}, "reservedFor": consumers}});
    if deleting {
        object.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    }
    Document::new(object).expect("a claim")
}

#[test]
fn the_last_consumer_takes_the_allocation_along() {
    let one_left = release(&claim(2, true, false), |index| index == 1, OwnerPod::None);
    let [Action::UpdateStatus { object, .. }] = one_left.as_slice() else { panic!("{one_left:?}") };
    assert!(object.at(&["status", "allocation"]).is_some());
    let none_left = release(&claim(1, true, false), |_| false, OwnerPod::Done);
    let [Action::UpdateStatus { object, .. }, Action::Update { object: last, .. }, Action::Delete { .. }] =
        none_left.as_slice()
    else {
        panic!("{none_left:?}")
    };
    assert!(object.at(&["status", "allocation"]).is_none());
    assert_eq!(last.at(&["metadata", "finalizers"]), Some(&api::json!([])));
    assert_eq!(release(&claim(1, true, false), |_| true, OwnerPod::Keeps), []);
    assert_eq!(release(&claim(0, true, true), |_| true, OwnerPod::None).len(), 2);
}

#[test]
fn assigned_pod_reserves_allocated_claims() {
    assert!(reserve(&claim(1, true, false), &pod("")).is_some());
    assert!(reserve(&claim(super::MAX_RESERVED, true, false), &pod("")).is_none());
}
