//! Refusals of the webhook and of the policy.

use super::Report;
use super::cluster::Cluster;
use anyhow::{Result, ensure};

const APPLY: [&str; 3] = ["apply", "-f", "-"];
const TOLERATIONS: &str = "placement.celplane.dev/tolerations";

fn pod(name: &str, scheduler: &str, annotation: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    {annotation}: \"{value}\"\n\
         spec: {{schedulerName: {scheduler}, containers: [{{name: c, image: example.com/i}}]}}\n"
    )
}

/// Objects that are refused: a name, a manifest, a part of the message.
fn refused() -> Vec<(&'static str, String, &'static str)> {
    let valid = "[{expression: 'true'}]";
    vec![
        (
            "expression that does not compile",
            pod("a", "celplane", TOLERATIONS, "[{expression: taint.nope}]"),
            "metadata.annotations[placement.celplane.dev/tolerations][0].expression: Invalid value: \"taint.nope\": compilation failed",
        ),
        (
            "unknown field",
            pod("a", "celplane", TOLERATIONS, "[{expresion: 'true'}]"),
            "metadata.annotations[placement.celplane.dev/tolerations]",
        ),
        (
            "unknown annotation",
            pod("a", "celplane", "placement.celplane.dev/toleration", "[]"),
            "metadata.annotations[placement.celplane.dev/toleration]",
        ),
        ("other scheduler", pod("a", "other", TOLERATIONS, valid), "spec.schedulerName: Invalid value: \"other\""),
        (
            "annotation beside the template",
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a, annotations: {{{TOLERATIONS}: \"{valid}\"}}}}\n\
                 spec:\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    \
                 spec: {{containers: [{{name: c, image: example.com/i}}]}}\n"
            ),
            "metadata.annotations[placement.celplane.dev/tolerations]",
        ),
        (
            "constraint beside the template of a claim",
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: a\n  annotations:\n    \
             placement.celplane.dev/device-constraints: \"[{requests: [r], cel: {expression: 'true'}}]\"\n\
             spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}\n"
                .to_owned(),
            "metadata.annotations[placement.celplane.dev/device-constraints]",
        ),
    ]
}

pub(crate) fn play(cluster: &Cluster, report: &mut Report) -> Result<()> {
    for (name, manifest, message) in refused() {
        report.story(&format!("webhook: {name}"), || {
            cluster.refused(&APPLY, &manifest, message)?;
            Ok("rejected".to_owned())
        });
    }
    report.story("webhook: change after binding", || {
        let affinity =
            "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchCELExpressions: ['true']}]}}";
        cluster.apply(&pod("bound", "celplane", "placement.celplane.dev/node-affinity", affinity))?;
        let node = ["get", "pod", "bound", "-o", "jsonpath={.spec.nodeName}"];
        cluster.until("the pod is bound", || Ok(!cluster.kubectl(&node, "")?.is_empty()))?;
        let change = ["annotate", "--overwrite", "pod", "bound", "placement.celplane.dev/node-affinity={}"];
        cluster.refused(&change, "", "metadata.annotations[placement.celplane.dev/node-affinity]: Forbidden")?;
        Ok("rejected".to_owned())
    });
    report.story("webhook: default scheduler", || {
        cluster.apply(&pod("assigned", "default-scheduler", TOLERATIONS, "[{expression: 'true'}]"))?;
        let name = cluster.kubectl(&["get", "pod", "assigned", "-o", "jsonpath={.spec.schedulerName}"], "")?;
        ensure!(name == "celplane", "the scheduler is {name}");
        Ok("replaced by `celplane`".to_owned())
    });
    policy(cluster, report);
    Ok(())
}

fn policy(cluster: &Cluster, report: &mut Report) {
    let account = "--as=system:serviceaccount:celplane-system:celplane-toleration-resolver";
    let patch = |kind, patch| ["patch", "pod", "bound", account, kind, "-p", patch];
    for (name, change, message) in [
        ("a label", r#"{"metadata":{"labels":{"a":"b"}}}"#, "metadata may not be changed"),
        (
            "an image",
            r#"{"spec":{"containers":[{"name":"c","image":"example.com/other"}]}}"#,
            "only tolerations may be changed",
        ),
    ] {
        report.story(&format!("policy: the resolver's account changes {name}"), || {
            cluster.refused(&patch("--type=strategic", change), "", message)?;
            Ok("rejected".to_owned())
        });
    }
    report.story("policy: the resolver's account adds a toleration of everything", || {
        let change = r#"[{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}]"#;
        cluster.refused(&patch("--type=json", change), "", "only tolerations of one NoExecute taint may be added")?;
        Ok("rejected".to_owned())
    });
}
