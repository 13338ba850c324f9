//! Preemption: sets the condition of the victims, deletes them, and records events.

use api::core::v1::Pod;
use api::well_known::CONDITION_DISRUPTION_TARGET;
use client::election::Leadership;
use client::events::{Recorder, reference};
use client::objects::Deletion;
use client::{Client, Error};
use telemetry::logs::chain;
use tracing::{info, warn};

use crate::report::{self, ConditionText};

/// Deletes the victims of a preemption on a node; returns whether all were deleted.
pub async fn make_room(
    client: &Client,
    recorder: &Recorder,
    leadership: &Leadership,
    pod: &Pod,
    victims: &[std::sync::Arc<Pod>],
    node: &str,
) -> bool {
    let mut is_done = true;
    for victim in victims {
        if !leadership.holds() {
            return false;
        }
        match delete(client, pod, victim).await {
            Ok(()) => {
                let (name, by) = (victim.metadata.key(), pod.metadata.key());
                info!(pod = %name, by = %by, node, "Preempted pod");
                report::preempted(recorder, victim, reference(pod), node);
            }
            Err(error) if error.is_not_found() => {}
            // The pod is tried again, and then finds what is left.
            Err(error) => {
                warn!(pod = %victim.metadata.key(), err = %chain(&error), "Could not preempt pod");
                is_done = false;
            }
        }
    }
    is_done
}

async fn delete(client: &Client, pod: &Pod, victim: &Pod) -> Result<(), Error> {
    let message = format!("{}: preempting to accommodate a higher priority pod", pod.spec.scheduler_name);
    let said = ConditionText {
        condition: CONDITION_DISRUPTION_TARGET,
        status: "True",
        reason: "PreemptionByScheduler",
        message: &message,
    };
    if let Some(patch) = report::status_patch(victim, said, None, client.clock().now()) {
        report::write_status(client, victim, patch).await?;
    }
    let how = Deletion { uid: Some(victim.metadata.uid.to_string()), ..Deletion::default() };
    client.objects::<Pod>().delete(&victim.metadata.namespace, &victim.metadata.name, &how).await
}
