//! Plugins that wake a waiting pod after a change.

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::{Node, Pod};
use api::json::{Value, from_value};
use scheduling::cluster::{NodeObject, PodInfo, Shapes, changes_of_pod};
use scheduling::framework::{Action, Change, Event, Hint, Resource};

use super::{pod_info, run_all, same, scheduler, strings};

#[test]
fn queueing_hints() {
    run_all("queueing_hints.jsonl", |case| {
        let scheduler = scheduler(case);
        let cluster = scheduler.cluster();
        let pod = pod_info(case.get("pod").unwrap(), &scheduler);
        let (old, new) = (case.get("old"), case.get("new"));
        let matcher = &cluster.matcher;
        let set = match (old, new) {
            (None, _) => Action::ADD,
            (_, None) => Action::DELETE,
            _ => Action::UPDATE,
        };
        macro_rules! plain {
            ($resource:ident, $change:ident) => {{
                let (old, new) = (old.map(|it| from_value(it).unwrap()), new.map(|it| from_value(it).unwrap()));
                let change = Change::$change { old: old.as_ref(), new: new.as_ref() };
                check(&scheduler, case, &pod, Event::new(Resource::$resource, set), change)
            }};
        }
        match case.str_at(&["kind"]).unwrap() {
            "Node" => {
                let node = |it: &Value| NodeObject::new(&from_value::<Node>(it).unwrap(), matcher);
                let (old, new) = (old.map(node), new.map(node));
                let action = match (&old, &new) {
                    (Some(old), Some(new)) => old.changes(new),
                    _ => set,
                };
                let change = Change::Node { old: old.as_ref(), new: new.as_ref() };
                check(&scheduler, case, &pod, Event::new(Resource::Node, action), change)
            }
            "Pod" => {
                let mut shapes = Shapes::default();
                let mut info = |it: &Value| PodInfo::new(&from_value::<Pod>(it).unwrap(), &mut shapes, matcher);
                let is_target = case.get("target").is_some();
                let old = old.map(&mut info);
                let new = if is_target { Some(pod.clone()) } else { new.map(&mut info) };
                let action = match (&old, &new) {
                    (Some(old), Some(new)) => changes_of_pod(old, new),
                    _ => set,
                };
                let is_placed = new.as_ref().or(old.as_ref()).is_some_and(|it| {
                    // Room that was kept for a deleted pod is free, too.
                    !it.node_name.is_empty() || (set == Action::DELETE && !it.nominated_node.is_empty())
                });
                let resource = match (is_target, is_placed) {
                    (true, _) => Resource::TargetPod,
                    (false, true) => Resource::AssignedPod,
                    // No plugin receives the event.
                    (false, false) => return same("events", strings(case.at(&["expect", "events"])), Vec::new()),
                };
                let change = Change::Pod { old: old.as_ref(), new: new.as_ref() };
                check(&scheduler, case, &pod, Event::new(resource, action), change)
            }
            "PersistentVolume" => plain!(PersistentVolume, Volume),
            "PersistentVolumeClaim" => plain!(PersistentVolumeClaim, Claim),
            "StorageClass" => plain!(StorageClass, StorageClass),
            "CSINode" => plain!(CSINode, CsiNode),
            "CSIDriver" => plain!(CSIDriver, CsiDriver),
            "CSIStorageCapacity" => plain!(CSIStorageCapacity, CsiStorageCapacity),
            "VolumeAttachment" => plain!(VolumeAttachment, VolumeAttachment),
            "DeviceClass" => plain!(DeviceClass, DeviceClass),
            other => Err(format!("kind {other}")),
        }
    });
}

fn check(
    scheduler: &scheduling::Scheduler,
    case: &Value,
    pod: &PodInfo,
    event: Event,
    change: Change<'_>,
) -> Result<(), String> {
    let expected = case.get("expect").unwrap();
    let events = event.action.singles().map(|single| format!("{}/{single}", event.resource.name()));
    // Kubernetes reports each kind of change in turn, and taints and cordons as the same kind.
    let recorded: BTreeSet<String> = strings(expected.get("events")).into_iter().collect();
    same("events", recorded, events.collect())?;
    let profile = scheduler.profile(pod).unwrap();
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for enabled in profile.listeners(event) {
        // Each part of a change is judged; one that may help is enough.
        let hint = match enabled.plugin.hint(pod, event, change, scheduler.cluster()) {
            Hint::Queue => "Queue",
            Hint::Skip => "QueueSkip",
        };
        found.insert(enabled.name().to_owned(), hint.to_owned());
    }
    let recorded = expected.get("plugins").and_then(Value::as_object).unwrap().iter();
    let recorded = recorded.map(|(name, hint)| (name.to_owned(), hint.as_str().unwrap().to_owned())).collect();
    same("plugins", recorded, found)
}
