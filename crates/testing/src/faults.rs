//! Failures of nodes and of the API server, on demand.

use std::time::Duration;

use controlplane::settings::{Faults, Refusal};
use kube::Api;
use kube::api::{Patch, PatchParams};

use crate::{Cluster, End, Error};

/// A simulated node, by [`Cluster::node`].
#[derive(Debug)]
pub struct Node<'c> {
    cluster: &'c Cluster,
    name: String,
}

impl Node<'_> {
    /// Stops the node: it sends no heartbeat and starts nothing, as a machine without power. Its pods are evicted after the
    /// grace period of the controllers and their own `tolerationSeconds`.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn stop(&self) -> Result<(), Error> {
        self.annotate("heartbeat", Some("stopped")).await
    }

    /// Lets a stopped node continue.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn start(&self) -> Result<(), Error> {
        self.annotate("heartbeat", None).await
    }

    /// Delays the start of containers; zero removes the delay.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn slow_by(&self, delay: Duration) -> Result<(), Error> {
        let seconds = delay.as_secs_f64().to_string();
        self.annotate("slow-seconds", (!delay.is_zero()).then_some(&*seconds)).await
    }

    /// Changes the condition `Ready` after each such period; zero ends that.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn flap_every(&self, period: Duration) -> Result<(), Error> {
        let seconds = period.as_secs_f64().to_string();
        self.annotate("flap-seconds", (!period.is_zero()).then_some(&*seconds)).await
    }

    async fn annotate(&self, name: &str, value: Option<&str>) -> Result<(), Error> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.cluster.client().await?);
        let name = format!("sim.celplane.dev/{name}");
        let patch = serde_json::json!({"metadata": {"annotations": {name: value}}});
        let patched = nodes.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| Error::Client(error.into()))
    }
}

/// The API server of a cluster in this process, by [`Cluster::api`].
#[derive(Debug)]
pub struct ApiServer<'c> {
    faults: &'c Faults,
}

/// Requests to reject: all, or those that the methods select.
#[derive(Debug, Clone)]
#[must_use]
pub struct Requests(Refusal);

impl Requests {
    /// Requests with a verb as in RBAC (`create`, `update`, `patch`, `get`, `list`, `watch`, `delete` …) for a resource, with the
    /// subresource after a slash: `pods`, `deployments/scale`.
    pub fn new(verb: &str, resource: &str) -> Self {
        Self(Refusal {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            code: 503,
            reason: "ServiceUnavailable",
            times: None,
        })
    }

    /// Limits them to a namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.0.namespace);
        self
    }

    /// Limits them to an object.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.0.name);
        self
    }

    /// Rejects the first `count` of them; the others are served.
    pub fn first(mut self, count: u32) -> Self {
        self.0.times = Some(count);
        self
    }

    /// Answers 409 `Conflict` instead of 503 `ServiceUnavailable`.
    pub fn with_conflict(mut self) -> Self {
        (self.0.code, self.0.reason) = (409, "Conflict");
        self
    }

    /// Answers 429 `TooManyRequests` instead of 503 `ServiceUnavailable`.
    pub fn with_too_many_requests(mut self) -> Self {
        (self.0.code, self.0.reason) = (429, "TooManyRequests");
        self
    }

    /// Answers 500 `InternalError` instead of 503 `ServiceUnavailable`.
    pub fn with_internal_error(mut self) -> Self {
        (self.0.code, self.0.reason) = (500, "InternalError");
        self
    }
}

impl ApiServer<'_> {
    /// Rejects requests of all clients, the components' own included, until [`recover`](Self::recover).
    pub fn refuse(&self, requests: Requests) {
        if requests.0.times != Some(0) {
            self.faults.refuse(requests.0);
        }
    }

    /// Serves all requests again.
    pub fn recover(&self) {
        self.faults.clear();
    }
}

impl Cluster {
    /// A simulated node, which can be stopped and slowed down.
    #[must_use]
    pub fn node(&self, name: &str) -> Node<'_> {
        Node { cluster: self, name: name.to_owned() }
    }

    /// The API server, which can be made to reject requests.
    ///
    /// # Errors
    /// [`Error::ChildProcess`]
    pub fn api(&self) -> Result<ApiServer<'_>, Error> {
        match self.running.as_ref().map(|running| &running.end) {
            Some(End::InProcess(server)) => Ok(ApiServer { faults: &server.faults }),
            _ => Err(Error::ChildProcess),
        }
    }
}
