//! Connection of the server to node agents, which hold the output of containers.
//!
//! The server uses only this trait: whether they share its process or are behind a network is decided where it
//! is started.

use std::collections::HashMap;
use std::pin::Pin;

use api::json::Value;
use bytes::Bytes;
use http::{HeaderMap, Response};
use hyper::upgrade::OnUpgrade;
use tokio::sync::mpsc;

use super::usage::{ContainerUsage, Usage};
use crate::outbound::forward::Stream;

/// Node agents that can be reached.
pub trait Kubelets: Send + Sync {
    /// Returns the output of a container.
    fn logs(&self, wanted: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>>;

    /// Streams the output of a container, also while it is written. `None` for agents that only support
    /// [`Kubelets::logs`]: those are polled.
    fn follow(&self, _wanted: Logs, _follows: bool) -> FollowFuture {
        Box::pin(async { Ok(None) })
    }

    /// The reason why nothing can connect to the containers of a node, for nodes whose containers are simulated.
    fn no_streams(&self, _node: Option<&Value>, name: &str) -> Option<String> {
        Some(format!("containers of node {name} cannot be connected to"))
    }

    /// The usage of a pod whose containers are simulated in this process; none of other pods, and if nothing runs in it.
    fn simulated_pod(&self, _namespace: &str, _name: &str) -> Option<Vec<ContainerUsage>> {
        None
    }

    /// The usage of all nodes that are simulated in this process, by name.
    fn simulated_nodes(&self) -> HashMap<String, Usage> {
        HashMap::new()
    }

    /// Connects to the agent of a node.
    fn connect(&self, _node: Option<Value>, name: String) -> ConnectFuture {
        let why = format!("the kubelet of node {name} cannot be connected to");
        Box::pin(async { Err(StreamFailure::Refused(why)) })
    }

    /// Lets an agent upgrade a connection into a pod. The answer is for the client; once it has a 101, bytes flow.
    fn stream(&self, wanted: Streams) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, StreamFailure>> + Send>> {
        let why = format!("containers of node {} cannot be connected to", wanted.node_name);
        Box::pin(async { Err(StreamFailure::Refused(why)) })
    }
}

/// A connection to a node agent, ready for requests.
pub type ConnectFuture = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, StreamFailure>> + Send>>;

/// Output that arrives piece by piece.
pub type FollowFuture = Pin<Box<dyn Future<Output = Result<Option<mpsc::Receiver<Bytes>>, LogsFailure>> + Send>>;

/// A connection into a pod that changes its protocol.
#[derive(Debug)]
pub struct Streams {
    /// The pod's node; `None` if it was deleted.
    pub node: Option<Value>,
    /// The name of that node.
    pub node_name: String,
    /// The agent's path with its query.
    pub path: String,
    /// Headers of the client's request.
    pub headers: HeaderMap,
    /// The client's connection, once the client has the answer.
    pub client: OnUpgrade,
}

/// The reason why there is no connection into a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamFailure {
    /// The node agent must not be contacted.
    Refused(String),
    /// The node agent cannot be reached.
    Unreachable(String),
}

/// A request for logs.
#[derive(Debug, Clone)]
pub struct Logs {
    /// The pod's node; `None` if it was deleted.
    pub node: Option<Value>,
    /// The name of that node.
    pub node_name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Name of a container of the pod.
    pub container: String,
    /// Options of the client, by the names of `PodLogOptions`.
    pub options: Vec<(&'static str, String)>,
}

/// A reason why there are no logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogsFailure {
    /// The node agent has none, with its reason.
    Refused(String),
    /// The node agent cannot be reached.
    Unreachable(String),
}
