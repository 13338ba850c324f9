//! A connection to the API server, and one request on it.

use std::path::Path;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower_service::Service;

use crate::error::{Error, Status};
use crate::objects::Objects;
use crate::resources::{Resource, Served};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A connection to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Speaks to a service in this process, which knows who asks: the server's own, given an identity.
    ///
    /// `component` is sent as the user agent, whose first part owns what is written. Needs a Tokio runtime.
    #[must_use]
    pub fn in_process<S, B>(service: S, component: &str) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<AnyError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        let agent = HeaderValue::from_str(component).unwrap_or(HeaderValue::from_static("celplane"));
        Self { kube: kube::Client::new(Named { service, agent }, "default") }
    }

    /// Speaks to the server that a kubeconfig names, with its current context unless another is given.
    ///
    /// # Errors
    /// What is wrong with the file, or with the certificates in it.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>, component: &str) -> Result<Self, AnyError> {
        let file = Kubeconfig::read_from(path)?;
        let options = KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(file, &options).await?;
        config.headers.push((USER_AGENT, HeaderValue::from_str(component)?));
        Ok(Self { kube: kube::Client::try_from(config)? })
    }

    /// The connection as kube-rs knows it.
    #[must_use]
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// All objects of a kind that there is a typed view for.
    #[must_use]
    pub fn objects<T: Served>(&self) -> Objects<T> {
        Objects::new(self.clone(), T::RESOURCE)
    }

    /// All objects of a resource, as plain documents.
    #[must_use]
    pub fn documents(&self, resource: Resource) -> Objects<api::json::Value> {
        Objects::new(self.clone(), resource)
    }

    /// Sends a request and gives back the body of a good answer.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: String) -> Result<Bytes, Error> {
        let response = self.open(method, path, content_type, body).await?;
        let body = response.into_body().collect().await.map_err(Error::Transport)?;
        Ok(body.to_bytes())
    }

    /// Sends a request and gives back a good answer whose body is still to be read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<Response<Body>, Error> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(Bytes::from(body)))?;
        let response = self.kube.send(request).await.map_err(Error::Transport)?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await.map_err(Error::Transport)?;
        Err(Error::Refused(Status::read(code.as_u16(), &body.to_bytes())))
    }
}

/// A service whose requests say which component sends them.
struct Named<S> {
    service: S,
    agent: HeaderValue,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Named<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> S::Future {
        request.headers_mut().insert(USER_AGENT, self.agent.clone());
        self.service.call(request)
    }
}
