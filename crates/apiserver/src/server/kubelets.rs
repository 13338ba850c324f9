//! How the server reaches node agents. They hold what containers have written, which the server passes on.
//!
//! The server knows them by this trait alone: whether they share its process or are behind a network is decided where it
//! is started.

use std::pin::Pin;

use api::json::Value;
use bytes::Bytes;

/// Node agents that can be reached.
pub trait Kubelets: Send + Sync {
    /// What a container has written.
    fn logs(&self, wanted: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>>;

    /// Why no command can be run in the containers of a node, and no connection made to them: a sentence.
    fn no_streams(&self, node: &str) -> String;
}

/// Whose logs are wanted.
#[derive(Debug, Clone)]
pub struct Logs {
    /// The pod's node; nothing if it is gone.
    pub node: Option<Value>,
    /// The name of that node.
    pub node_name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// One of its containers.
    pub container: String,
    /// What the client wants of it, by the names of `PodLogOptions`.
    pub options: Vec<(&'static str, String)>,
}

/// Why there are no logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogsFailure {
    /// The node agent has none, and says why.
    Refused(String),
    /// The node agent cannot be reached.
    Unreachable(String),
}
