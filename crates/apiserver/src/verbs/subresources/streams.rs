//! Connections into pods: exec, attach and port-forward. The server finds the node agent and lets it upgrade the
//! connection; what flows through it afterwards is theirs.
//!
//! Follows `ExecLocation`, `AttachLocation` and `PortForwardLocation` in Kubernetes `pkg/registry/core/pod/strategy.go`.

use api::json::Value;
use http::header::{CONNECTION, UPGRADE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::Call;
use super::log;
use crate::state::{StreamFailure, Streams};
use crate::wire::answer::Answer;
use crate::wire::status::{Failure, Result};

const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The feature that node agents declare if they serve websockets.
const WEBSOCKETS_FEATURE: &str = "ExtendWebSocketsToKubelet";

/// Connects a client with a pod. Admission may have changed the options, such as `PodExecOptions`.
pub(super) async fn stream(call: &Call<'_>, options: &Value) -> Result<Answer> {
    call.wait_for_now().await?;
    let Some(pod) = call.cache().get(&call.key()) else {
        return Err(Failure::not_found(call.resource, &call.target.name));
    };
    let pod = pod.decode();
    let name = &call.target.name;
    let container = match call.target.subresource.as_str() {
        "portforward" => String::new(),
        _ => {
            let given = options.text("container");
            log::container(&pod, given).map_err(Failure::bad_request)?
        }
    };
    let node_name = pod.text_at(&["spec", "nodeName"]);
    if node_name.is_empty() {
        return Err(Failure::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let node = log::node(call, node_name);
    if node.is_none() {
        // Kubernetes names the node as if it were a pod.
        return Err(Failure::not_found(call.resource, node_name));
    }
    let Some(kubelets) = call.server.kubelets() else {
        return Err(Failure::internal(format!("the kubelet of node {node_name} cannot be reached from this server")));
    };
    if let Some(why) = kubelets.no_streams(node.as_ref(), node_name) {
        return Err(Failure::bad_request(why));
    }
    let path = path(call, options, &container)?;
    let upgrade = call.headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(client) = call.upgrade.clone().filter(|_| !upgrade.is_empty()) else {
        return Err(Failure::bad_request("Upgrade request required"));
    };
    if upgrade.eq_ignore_ascii_case("websocket") && !takes_websockets(node.as_ref()) {
        // Runtimes do not support the websocket protocol that can end a stream; kubectl falls back to SPDY.
        return Err(Failure::bad_request("unable to upgrade: websockets are not passed to node agents, use SPDY/3.1"));
    }
    let wanted = Streams { node, node_name: node_name.to_owned(), path, headers: call.headers.clone(), client };
    let response = kubelets.stream(wanted).await.map_err(|failure| match failure {
        StreamFailure::Refused(why) => Failure::bad_request(why),
        StreamFailure::Unreachable(why) => Failure::internal(why),
    })?;
    let code = response.status().as_u16();
    if code != 101 {
        let why = String::from_utf8_lossy(response.body()).trim().to_owned();
        return Err(if code >= 500 { Failure::internal(why) } else { Failure::bad_request(why) });
    }
    let mut answer = Answer::bytes(101, "", "");
    for (name, value) in response.headers() {
        if let Ok(value) = value.to_str() {
            answer = answer.with_header(name.clone(), value);
        }
    }
    if !response.headers().contains_key(CONNECTION) {
        answer = answer.with_header(CONNECTION, "Upgrade");
    }
    Ok(answer)
}

/// Whether the agent of a node serves websockets itself. Which of their protocols it supports, it negotiates with the client.
fn takes_websockets(node: Option<&Value>) -> bool {
    let declared = node.and_then(|node| node.at(&["status", "declaredFeatures"])?.as_array()).unwrap_or_default();
    declared.iter().any(|it| it.as_str() == Some(WEBSOCKETS_FEATURE))
}

/// The path of the node agent that stands for a request.
fn path(call: &Call<'_>, options: &Value, container: &str) -> Result<String> {
    let encoded = |text: &str| utf8_percent_encode(text, VALUE).to_string();
    let (namespace, name) = (encoded(&call.target.namespace), encoded(&call.target.name));
    let action = call.target.subresource.as_str();
    if action == "portforward" {
        let ports = options.get("ports").and_then(Value::as_array).unwrap_or_default();
        let ports: Vec<String> = ports.iter().filter_map(Value::as_i64).map(|port| format!("port={port}")).collect();
        let query = if ports.is_empty() { String::new() } else { format!("?{}", ports.join("&")) };
        return Ok(format!("/portForward/{namespace}/{name}{query}"));
    }
    let is_on = |flag: &str| options.get(flag).and_then(Value::as_bool) == Some(true);
    // Pods show their output unless the client requests otherwise.
    let flags = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
    let mut query: Vec<String> =
        flags.into_iter().filter(|(given, _)| is_on(given)).map(|(_, passed)| format!("{passed}=1")).collect();
    if query.is_empty() || query == ["tty=1"] {
        return Err(Failure::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if action == "exec" {
        let command = options.get("command").and_then(Value::as_array).unwrap_or_default();
        let command: Vec<&str> = command.iter().filter_map(Value::as_str).collect();
        if command.is_empty() {
            return Err(Failure::bad_request("you must specify at least one command"));
        }
        query.extend(command.into_iter().map(|word| format!("command={}", encoded(word))));
    }
    Ok(format!("/{action}/{namespace}/{name}/{}?{}", encoded(container), query.join("&")))
}
