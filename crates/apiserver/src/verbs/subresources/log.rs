//! What a container has written: the server knows where, and passes on what the node agent has.
//!
//! Follows `LogLocation` in Kubernetes `pkg/registry/core/pod/strategy.go`.

mod follow;

use api::json::Value;

use super::super::Call;
use crate::http::answer::Answer;
use crate::http::status::{Failure, Result};
use crate::objects::metadata;
use crate::resources;
use crate::server::{Logs, LogsFailure};

/// What of `PodLogOptions` node agents are told.
const OPTIONS: [&str; 6] = ["previous", "timestamps", "tailLines", "limitBytes", "sinceSeconds", "sinceTime"];
const NUMBERS: [&str; 3] = ["tailLines", "limitBytes", "sinceSeconds"];

/// So often a log that is being written is read until two looks agree.
const READS_MAX: usize = 8;

/// The logs of a pod; one without a node has none.
pub(super) async fn log(call: &Call<'_>) -> Result<Answer> {
    call.wait_for_now().await?;
    let Some(pod) = call.cache().get(&call.key()) else {
        return Err(Failure::not_found(call.resource, &call.target.name));
    };
    let pod = pod.decode();
    for option in NUMBERS {
        call.query.number(option)?;
    }
    let container = container(&pod, call.query.get("container")).map_err(Failure::bad_request)?;
    let node_name = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if node_name.is_empty() {
        return Ok(Answer::bytes(204, "", ""));
    }
    let Some(kubelets) = call.server.kubelets() else {
        let name = metadata::text(&pod, "name");
        let why =
            format!("the logs of pod {name} are with the kubelet of node {node_name}, which this server cannot reach");
        return Err(Failure::internal(why));
    };
    let given = OPTIONS.into_iter().filter(|option| call.query.has(option));
    let wanted = Logs {
        node: node(call, node_name),
        node_name: node_name.to_owned(),
        namespace: call.target.namespace.clone(),
        pod: call.target.name.clone(),
        container,
        options: given.map(|option| (option, call.query.get(option).to_owned())).collect(),
    };
    let failed = |failure| match failure {
        LogsFailure::Refused(why) => Failure::bad_request(why),
        LogsFailure::Unreachable(why) => Failure::internal(why),
    };
    if !call.query.flag("follow") || call.query.flag("previous") {
        let text = kubelets.logs(wanted).await.map_err(failed)?;
        return Ok(Answer::bytes(200, "text/plain", text));
    }
    let mut all = wanted.clone();
    all.options.retain(|(option, _)| *option == "timestamps");
    let mut known = kubelets.logs(all.clone()).await.map_err(failed)?;
    let mut first = kubelets.logs(wanted.clone()).await.map_err(failed)?;
    // What is written between two looks would be passed on twice.
    for _ in 0..READS_MAX {
        let again = kubelets.logs(all.clone()).await.map_err(failed)?;
        if again == known {
            break;
        }
        known = again;
        first = kubelets.logs(wanted.clone()).await.map_err(failed)?;
    }
    let followed = follow::Followed {
        kubelets: kubelets.clone(),
        wanted: all,
        pods: call.cache(),
        key: call.key(),
        uid: metadata::text(&pod, "uid").to_owned(),
        limit: call.query.number("limitBytes")?.and_then(|it| usize::try_from(it).ok()),
        stopping: call.server.stopping(),
    };
    Ok(followed.begin(first, known))
}

fn node(call: &Call<'_>, name: &str) -> Option<Value> {
    let nodes = resources::find("", "v1", "nodes")?;
    let found = call.server.cache.resource(&nodes.prefix()).get(&nodes.key("", name));
    found.map(|node| node.decode())
}

/// The container that is meant: the named one, or the only one.
fn container(pod: &Value, wanted: &str) -> std::result::Result<String, String> {
    let names = |field: &str| -> Vec<&str> {
        let list = pod.at(&["spec", field]).and_then(Value::as_array).unwrap_or_default();
        list.iter().filter_map(|it| it.str_at(&["name"])).collect()
    };
    let (main, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let name = metadata::text(pod, "name");
    if !wanted.is_empty() {
        let is_known = main.iter().chain(&init).chain(&ephemeral).any(|it| *it == wanted);
        return if is_known {
            Ok(wanted.to_owned())
        } else {
            Err(format!("container {wanted} is not valid for pod {name}"))
        };
    }
    if let ([only], true, true) = (main.as_slice(), init.is_empty(), ephemeral.is_empty()) {
        return Ok((*only).to_owned());
    }
    let mut message = format!("a container name must be specified for pod {name}, choose one of: [{}]", main.join(" "));
    for (kind, names) in [("init", init), ("ephemeral", ephemeral)] {
        if !names.is_empty() {
            message.push_str(&format!(" or one of the {kind} containers: [{}]", names.join(" ")));
        }
    }
    Err(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: Value, wanted: &str, found: std::result::Result<&str, &str>) {
        let pod = api::json!({"metadata": {"name": "p"}, "spec": spec});
        assert_eq!(container(&pod, wanted), found.map(ToOwned::to_owned).map_err(ToOwned::to_owned));
    }

    #[test]
    fn the_only_container_need_not_be_named() {
        let one = || api::json!({"containers": [{"name": "a"}]});
        let two = || api::json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(one(), "", Ok("a"));
        check(two(), "i", Ok("i"));
        check(one(), "b", Err("container b is not valid for pod p"));
        let why =
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]";
        check(two(), "", Err(why));
    }
}
