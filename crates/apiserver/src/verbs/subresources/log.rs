//! Output of a container: the server finds its node, and forwards the text of the node agent.
//!
//! Follows `LogLocation` in Kubernetes `pkg/registry/core/pod/strategy.go`.

use std::sync::Arc;

use api::json::Value;
use bytes::Bytes;

use super::super::Call;
use crate::resources;
use crate::state::{Kubelets, Logs, LogsFailure, log_tails};
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::status::{Failure, Result};
use api::metadata;

/// The `PodLogOptions` that are passed to node agents.
const OPTIONS: [&str; 6] = ["previous", "timestamps", "tailLines", "limitBytes", "sinceSeconds", "sinceTime"];
const NUMBERS: [&str; 3] = ["tailLines", "limitBytes", "sinceSeconds"];

/// Maximum number of reads of a growing log until two of them agree.
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
    let node_name = pod.text_at(&["spec", "nodeName"]);
    if node_name.is_empty() {
        return Ok(Answer::bytes(204, "", ""));
    }
    let Some(kubelets) = call.server.kubelets() else {
        let name = metadata::name(&pod);
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
    let follows = call.query.flag("follow") && !call.query.flag("previous");
    if let Some(pieces) = kubelets.follow(wanted.clone(), follows).await.map_err(failed)? {
        return Ok(Answer::bytes(200, "text/plain", Body::Stream(pieces)));
    }
    if !follows {
        let text = kubelets.logs(wanted).await.map_err(failed)?;
        return Ok(Answer::bytes(200, "text/plain", text));
    }
    follow(call, &pod, kubelets.clone(), wanted).await.map_err(|failure| match failure {
        FollowFailure::Logs(failure) => failed(failure),
        FollowFailure::Answer(failure) => failure,
    })
}

/// A reason why a log cannot be followed.
enum FollowFailure {
    Logs(LogsFailure),
    Answer(Box<Failure>),
}

impl From<LogsFailure> for FollowFailure {
    fn from(failure: LogsFailure) -> Self {
        Self::Logs(failure)
    }
}

impl From<Box<Failure>> for FollowFailure {
    fn from(failure: Box<Failure>) -> Self {
        Self::Answer(failure)
    }
}

/// The log of a container until it ends.
async fn follow(
    call: &Call<'_>,
    pod: &Value,
    kubelets: Arc<dyn Kubelets>,
    wanted: Logs,
) -> std::result::Result<Answer, FollowFailure> {
    let user = call.user.name.as_str();
    let too_many = || {
        let failure = Failure::new(429, "TooManyRequests", "too many logs are followed, please try again later");
        failure.with_detail("retryAfterSeconds", 1_i64)
    };
    let charge = call.server.budgets.take(user, log_tails::FOLLOWER_BYTES).ok_or_else(too_many)?;
    let mut all = wanted.clone();
    all.options.retain(|(option, _)| *option == "timestamps");
    let is_whole = wanted.options.iter().all(|(option, _)| matches!(*option, "timestamps" | "limitBytes"));
    let (first, position) = if is_whole {
        // One look shows whether there is a log at all.
        kubelets.logs(all.clone()).await?;
        (Bytes::new(), 0)
    } else {
        begin_within(&*kubelets, &all, &wanted).await?
    };
    // A long beginning counts as well; the client may never read it.
    let charge = match call.server.budgets.take(user, first.len()) {
        Some(more) => charge.and(more),
        None => return Err(too_many().into()),
    };
    let limit = call.query.number("limitBytes")?.and_then(|it| usize::try_from(it).ok());
    let tail = log_tails::Tail {
        kubelets,
        wanted: all,
        pods: call.cache(),
        key: call.key(),
        uid: metadata::text(pod, "uid").to_owned(),
        stopping: call.server.stopping(),
    };
    Ok(log_tails::Follower { first, position, limit, charge }.begin(&call.server.tails, tail))
}

/// Returns the requested part of the existing text, and the position behind it.
async fn begin_within(
    kubelets: &dyn Kubelets,
    all: &Logs,
    wanted: &Logs,
) -> std::result::Result<(Bytes, usize), LogsFailure> {
    let mut known = kubelets.logs(all.clone()).await?.len();
    let mut first = kubelets.logs(wanted.clone()).await?;
    // What is written between two looks would be passed on twice.
    for _ in 0..READS_MAX {
        let again = kubelets.logs(all.clone()).await?.len();
        if again == known {
            break;
        }
        known = again;
        first = kubelets.logs(wanted.clone()).await?;
    }
    Ok((first, known))
}

pub(super) fn node(call: &Call<'_>, name: &str) -> Option<Value> {
    let nodes = resources::NODES;
    let found = call.server.cache.resource(&nodes.prefix()).get(&nodes.key("", name));
    found.map(|node| node.decode())
}

/// Returns the named container, or the only one.
pub(super) fn container(pod: &Value, wanted: &str) -> std::result::Result<String, String> {
    let names = |field: &str| -> Vec<&str> {
        let list = pod.list_at(&["spec", field]);
        list.iter().filter_map(|it| it.str_at(&["name"])).collect()
    };
    let (main, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let name = metadata::name(pod);
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
