//! Calls to a container runtime.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::messages as m;

/// The longest response that is read.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Time limit of a call that does not wait for containers.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of pulling an image.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Time that a call gets beside the time that its request names.
const MARGIN: Duration = Duration::from_secs(30);
/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An endpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The endpoint is not a Unix socket.
    #[error("`{0}` is not a Unix socket such as unix:///run/containerd/containerd.sock")]
    Form(String),
    /// The connection failed.
    #[error("cannot use `{0}`")]
    Transport(String, #[source] tonic::transport::Error),
}

/// A call to a runtime that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedCall {
    /// The name of the method, such as `run_pod_sandbox`.
    pub method: &'static str,
    /// Its duration.
    pub duration: Duration,
    /// Whether it failed.
    pub is_error: bool,
}

/// A function that is called after each call to a runtime.
#[derive(Clone)]
struct Observer(Arc<dyn Fn(EndedCall) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A connection to a runtime or a driver on a Unix socket. It connects with the first call, and again after a failure.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    observer: Option<Observer>,
}

impl Client {
    /// A client of the runtime at `unix:///path`.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn new(endpoint: &str) -> Result<Self, EndpointError> {
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| EndpointError::Form(endpoint.to_owned()))?;
        let failed = |error| EndpointError::Transport(endpoint.to_owned(), error);
        let endpoint = Endpoint::from_shared(format!("unix://{path}")).map_err(failed)?;
        Ok(Self { channel: endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy(), observer: None })
    }

    /// Calls a function after each call to a runtime.
    #[must_use]
    pub fn observed(self, observer: impl Fn(EndedCall) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Observer(Arc::new(observer))), ..self }
    }

    /// A client of the server at `http://address:port`, for health checks.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn at_address(address: std::net::SocketAddr) -> Result<Self, EndpointError> {
        let url = format!("http://{address}");
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|error| EndpointError::Transport(url, error))?;
        Ok(Self { channel: endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy(), observer: None })
    }

    /// Sends one message and returns the answer.
    ///
    /// # Errors
    /// The status that the server returns, or `DeadlineExceeded`.
    pub async fn call<Q, A>(&self, method: &'static str, request: Q, timeout: Duration) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX);
        let answer = async {
            client.ready().await.map_err(|error| Status::unavailable(cause(&error)))?;
            client.unary(Request::new(request), PathAndQuery::from_static(method), ProstCodec::default()).await
        };
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
        }
    }
}

/// The innermost cause of a failure, which names the socket's fault.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// One method for each call: its name, path, messages, and the time limit as a function of the request.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($path:literal, $request:ident) -> $answer:ident within $timeout:expr;)*) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The status that the runtime returns, or `DeadlineExceeded`.
                pub async fn $name(&self, request: m::$request) -> Result<m::$answer, Status> {
                    let timeout: fn(&m::$request) -> Duration = $timeout;
                    let timeout = timeout(&request);
                    let begun = Instant::now();
                    let answer = self.call(concat!("/runtime.v1.", $path), request, timeout).await;
                    if let Some(Observer(observe)) = &self.observer {
                        let (duration, is_error) = (begun.elapsed(), answer.is_err());
                        observe(EndedCall { method: stringify!($name), duration, is_error });
                    }
                    answer
                }
            )*
        }
    };
}

fn with_margin(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_add(MARGIN)
}

calls! {
    /// Returns the runtime's name and version.
    version("RuntimeService/Version", VersionRequest) -> VersionResponse within |_| TIMEOUT;
    /// Returns whether the runtime and its network are ready.
    status("RuntimeService/Status", StatusRequest) -> StatusResponse within |_| TIMEOUT;
    /// Returns the runtime's cgroup driver; older runtimes do not implement this.
    runtime_config("RuntimeService/RuntimeConfig", RuntimeConfigRequest) -> RuntimeConfigResponse within |_| TIMEOUT;
    /// Creates and starts a sandbox.
    run_pod_sandbox("RuntimeService/RunPodSandbox", RunPodSandboxRequest) -> RunPodSandboxResponse within |_| TIMEOUT.saturating_mul(2);
    /// Stops a sandbox and what runs in it.
    stop_pod_sandbox("RuntimeService/StopPodSandbox", StopPodSandboxRequest) -> StopPodSandboxResponse within |_| TIMEOUT;
    /// Removes a sandbox and its containers.
    remove_pod_sandbox("RuntimeService/RemovePodSandbox", RemovePodSandboxRequest) -> RemovePodSandboxResponse within |_| TIMEOUT;
    /// Returns the state and addresses of a sandbox.
    pod_sandbox_status("RuntimeService/PodSandboxStatus", PodSandboxStatusRequest) -> PodSandboxStatusResponse within |_| TIMEOUT;
    /// Lists sandboxes.
    list_pod_sandbox("RuntimeService/ListPodSandbox", ListPodSandboxRequest) -> ListPodSandboxResponse within |_| TIMEOUT;
    /// Creates a container in a sandbox.
    create_container("RuntimeService/CreateContainer", CreateContainerRequest) -> CreateContainerResponse within |_| TIMEOUT;
    /// Starts a created container.
    start_container("RuntimeService/StartContainer", StartContainerRequest) -> StartContainerResponse within |_| TIMEOUT;
    /// Stops a container: with SIGTERM, and with SIGKILL after the timeout.
    stop_container("RuntimeService/StopContainer", StopContainerRequest) -> StopContainerResponse within |it| with_margin(it.timeout);
    /// Removes a container.
    remove_container("RuntimeService/RemoveContainer", RemoveContainerRequest) -> RemoveContainerResponse within |_| TIMEOUT;
    /// Lists containers.
    list_containers("RuntimeService/ListContainers", ListContainersRequest) -> ListContainersResponse within |_| TIMEOUT;
    /// Returns the state of a container.
    container_status("RuntimeService/ContainerStatus", ContainerStatusRequest) -> ContainerStatusResponse within |_| TIMEOUT;
    /// Changes the resources of a running container.
    update_container_resources("RuntimeService/UpdateContainerResources", UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse within |_| TIMEOUT;
    /// Makes the runtime reopen the log file after a rotation.
    reopen_container_log("RuntimeService/ReopenContainerLog", ReopenContainerLogRequest) -> ReopenContainerLogResponse within |_| TIMEOUT;
    /// Runs a command in a container and returns its output and exit code.
    exec_sync("RuntimeService/ExecSync", ExecSyncRequest) -> ExecSyncResponse within |it| with_margin(it.timeout);
    /// Returns the address at which a command is run with streams.
    exec("RuntimeService/Exec", ExecRequest) -> ExecResponse within |_| TIMEOUT;
    /// Returns the address at which a container's streams are attached to.
    attach("RuntimeService/Attach", AttachRequest) -> AttachResponse within |_| TIMEOUT;
    /// Returns the address at which ports of a sandbox are forwarded.
    port_forward("RuntimeService/PortForward", PortForwardRequest) -> PortForwardResponse within |_| TIMEOUT;
    /// Lists what containers use.
    list_container_stats("RuntimeService/ListContainerStats", ListContainerStatsRequest) -> ListContainerStatsResponse within |_| TIMEOUT;
    /// Lists images.
    list_images("ImageService/ListImages", ListImagesRequest) -> ListImagesResponse within |_| TIMEOUT;
    /// Returns an image, if it is present.
    image_status("ImageService/ImageStatus", ImageStatusRequest) -> ImageStatusResponse within |_| TIMEOUT;
    /// Pulls an image.
    pull_image("ImageService/PullImage", PullImageRequest) -> PullImageResponse within |_| PULL_TIMEOUT;
    /// Removes an image.
    remove_image("ImageService/RemoveImage", RemoveImageRequest) -> RemoveImageResponse within |_| TIMEOUT;
    /// Returns how much room images take.
    image_fs_info("ImageService/ImageFsInfo", ImageFsInfoRequest) -> ImageFsInfoResponse within |_| TIMEOUT;
}
