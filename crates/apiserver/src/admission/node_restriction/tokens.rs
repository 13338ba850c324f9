//! Credentials that a node requests on behalf of its pods: tokens of service accounts, and certificates of
//! pods.

use api::go_text::quote;
use api::json::Value;
use api::well_known::ANNOTATION_CONFIG_MIRROR;

use super::{Attempt, Change};
use crate::authorization::Request;
use crate::authorization::node::References;
use crate::resources::{self, Resource};
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

/// A token must be bound to a pod on the node, and have an audience that the pod uses.
pub(super) fn admit(attempt: &Attempt<'_>, node: &str, request: &Value) -> Result<()> {
    let refuse = |why: &str| attempt.refuse(Change::Create(request), why);
    let at = |field: &str| request.text_at(&["spec", "boundObjectRef", field]);
    if (at("apiVersion"), at("kind")) != ("v1", "Pod") || at("name").is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    let uid = at("uid");
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = attempt.object(resources::PODS, attempt.attributes.namespace, at("name"))?;
    if metadata::text(&pod, "uid") != uid {
        return refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if pod.str_at(&["spec", "nodeName"]) != Some(node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audiences = request.list_at(&["spec", "audiences"]);
    let audience = match audiences {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if wants_audience(attempt, &pod, audience) {
        return Ok(());
    }
    if may(attempt, "request-serviceaccounts-token-audience", "", audience, attempt.attributes.name) {
        return Ok(());
    }
    let user = &attempt.attributes.user.name;
    refuse(&format!("{user} is not authorized to request tokens for audience {}", quote(audience)))
}

fn may(attempt: &Attempt<'_>, verb: &str, group: &str, resource: &str, name: &str) -> bool {
    let target = Target::of_check(group, resource, attempt.attributes.namespace, name);
    attempt.cluster.authorizer().allows(attempt.attributes.user, Request::Resource { verb, target: &target })
}

/// Whether a volume of a pod, or the driver of one, uses tokens for an audience.
fn wants_audience(attempt: &Attempt<'_>, pod: &Value, audience: &str) -> bool {
    let of = |source: &Value| source.text("audience") == audience;
    let volumes = pod.list_at(&["spec", "volumes"]);
    let projected = volumes.iter().flat_map(|volume| volume.list_at(&["projected", "sources"]));
    if projected.into_iter().any(|source| source.get("serviceAccountToken").is_some_and(of)) {
        return true;
    }
    let namespace = metadata::namespace(pod);
    let driver_of = |claim: &String| {
        let claim = attempt.object(resources::PERSISTENT_VOLUME_CLAIMS, namespace, claim).ok()?;
        let volume = attempt.object(resources::PERSISTENT_VOLUMES, "", claim.str_at(&["spec", "volumeName"])?).ok()?;
        volume.str_at(&["spec", "csi", "driver"]).map(ToOwned::to_owned)
    };
    let inline = volumes.iter().filter_map(|volume| volume.str_at(&["csi", "driver"])).map(ToOwned::to_owned);
    let names = References::of_pod(pod);
    let drivers = names.volume_claims.iter().filter_map(driver_of).chain(inline);
    let row = resources::CSI_DRIVERS;
    let mut drivers = drivers.filter_map(|driver| attempt.cluster.object(row, "", &driver));
    drivers.any(|driver| driver.list_at(&["spec", "tokenRequests"]).iter().any(of))
}

/// A certificate must be for a pod on the node, and from a signer that the pod names.
pub(super) fn admit_certificate_request(attempt: &Attempt<'_>, node: &str, change: Change<'_>) -> Result<()> {
    let Change::Create(request) = change else {
        return attempt.refuse(change, &format!("unexpected operation {}", change.name()));
    };
    let refuse = |why: &str| attempt.refuse(change, why);
    let at = |field: &str| request.text_at(&["spec", field]);
    if at("nodeName") != node {
        return refuse(&format!(
            "PodCertificateRequest.Spec.NodeName={}, which is not the requesting node {}",
            quote(at("nodeName")),
            quote(node)
        ));
    }
    let namespace = attempt.attributes.namespace;
    let shown = quote(&format!("{namespace}/{}", at("podName")));
    // What may be the fault of a cache that is behind is not a refusal: the node tries again.
    let again = |why: String| Err(Failure::unclassified(why));
    let retrieve = |what: &str, row: &Resource<'_>, namespace: &str, name: &str| {
        let named = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        attempt.object(row, namespace, name).map_err(|failure| {
            let why = &failure.message;
            let text = format!("while retrieving {what} {} named in the PodCertificateRequest: {why}", quote(&named));
            Failure::unclassified(text)
        })
    };
    let own = retrieve("node", resources::NODES, "", node)?;
    if metadata::text(&own, "uid") != at("nodeUID") {
        return again(format!(
            "PodCertificateRequest for pod {shown} names node UID {}, inconsistent with the running node ({})",
            quote(at("nodeUID")),
            quote(metadata::text(&own, "uid"))
        ));
    }
    let pod = retrieve("pod", resources::PODS, namespace, at("podName"))?;
    if metadata::text(&pod, "uid") != at("podUID") {
        return again(format!(
            "PodCertificateRequest for pod {shown} contains pod UID ({}) which differs from running pod {}",
            quote(at("podUID")),
            quote(metadata::text(&pod, "uid"))
        ));
    }
    if pod.str_at(&["spec", "nodeName"]) != Some(node) {
        return refuse(&format!(
            "pod {shown} is not running on node {} named in the PodCertificateRequest",
            quote(node)
        ));
    }
    if pod.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_some() {
        return refuse(&format!("pod {shown} is a mirror pod"));
    }
    let account = pod.text_at(&["spec", "serviceAccountName"]);
    if at("serviceAccountName") != account {
        return refuse(&format!(
            "PodCertificateRequest for pod {shown} contains serviceAccountName ({}) that differs from running pod ({})",
            quote(at("serviceAccountName")),
            quote(account)
        ));
    }
    let found = retrieve("service account", resources::SERVICE_ACCOUNTS, namespace, account)?;
    if metadata::text(&found, "uid") != at("serviceAccountUID") {
        return again(format!(
            "PodCertificateRequest for pod {shown} names service account UID {}, which differs from the running service account ({})",
            quote(at("serviceAccountUID")),
            quote(metadata::text(&found, "uid"))
        ));
    }
    let signer = at("signerName");
    let volumes = pod.list_at(&["spec", "volumes"]);
    let mut sources = volumes.iter().flat_map(|volume| volume.list_at(&["projected", "sources"]));
    if sources.any(|source| source.str_at(&["podCertificate", "signerName"]) == Some(signer)) {
        return Ok(());
    }
    let resource = signer.replace('/', ":");
    let verb = "request-serviceaccounts-podcertificate-signer";
    if may(attempt, verb, "certificates.k8s.io", &resource, at("serviceAccountName")) {
        return Ok(());
    }
    refuse(&format!("pod {shown} does not mount a podCertificate projected volume for signer {}", quote(signer)))
}
