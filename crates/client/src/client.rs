//! A connection to the API server, and one request on it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use telemetry::logs::chain;
use telemetry::metrics::Registry;

use bytes::Bytes;
use clock::Clock;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower_service::Service;

use crate::decoded::DecodedObjects;
use crate::error::{Error, Status};
use crate::kubeconfig::Kubeconfig;
use crate::leadership::Leadership;
use crate::resources::Resource;
use crate::transport::{AnyError, Body, InProcess, Network, Transport};

/// Maximum delay for an automatic retry: for a longer `Retry-After` the error is returned, and the caller's
/// queue retries.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Changes objects that informers receive, before they are decoded.
pub type Rewrite = Arc<dyn Fn(&Resource, &mut api::json::Value) + Send + Sync>;

/// A request.
struct Call<'a> {
    method: Method,
    path: &'a str,
    accept: &'a str,
    content_type: &'a str,
    body: Bytes,
}

/// A connection to the API server. Cheap to clone, and to make for a service in this process.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    /// Headers of every request: the user agent and impersonation.
    headers: Arc<[(HeaderName, HeaderValue)]>,
    /// Shared cache of decoded objects from the same server.
    pub(crate) decoded: Option<Arc<DecodedObjects>>,
    /// Change that informers apply to each object first.
    pub(crate) rewrite: Option<Rewrite>,
    /// Leadership that is required for writes.
    leadership: Leadership,
    /// Time of the component that uses this client.
    clock: Clock,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    fn new(transport: Arc<dyn Transport>, component: &str) -> Self {
        let agent = HeaderValue::from_str(component).unwrap_or(HeaderValue::from_static("celplane"));
        let leadership = Leadership::uncontested();
        let headers = Arc::new([(USER_AGENT, agent)]);
        Self { transport, headers, decoded: None, rewrite: None, leadership, clock: Clock::system() }
    }

    /// Connects to a service in this process, which already has the identity of the caller.
    ///
    /// `component` is the user agent, whose first part is the field manager of writes.
    #[must_use]
    pub fn in_process<S, B>(service: S, component: &str) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<AnyError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        Self::new(Arc::new(InProcess(service)), component)
    }

    /// Returns a client on the same connection, whose informers share decoded objects with all others that use
    /// the same `decoded`.
    ///
    /// All clients of one cache must use the same server: objects are identified by UID and version.
    #[must_use]
    pub fn sharing(mut self, decoded: &Arc<DecodedObjects>) -> Self {
        self.decoded = Some(decoded.clone());
        self
    }

    /// The same connection, whose informers pass each object to `rewrite` before it is decoded. They share nothing that
    /// others have decoded.
    #[must_use]
    pub fn rewriting(mut self, rewrite: Rewrite) -> Self {
        self.decoded = None;
        self.rewrite = Some(rewrite);
        self
    }

    /// Returns a client on the same connection that stops writing once a leadership is lost: the next leader
    /// acts alone, even while this process, which may have been paused, has not noticed.
    #[must_use]
    pub fn while_leading(mut self, leadership: &Leadership) -> Self {
        self.leadership = leadership.clone();
        self
    }

    /// Returns a client on the same connection for a component whose time comes from `clock`.
    #[must_use]
    pub fn with_clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Time of the component that uses this client.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Connects to the server of a kubeconfig, with its current context unless another is given.
    ///
    /// # Errors
    /// The file, or a certificate in it, is invalid.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>, component: &str) -> Result<Self, AnyError> {
        Self::configured(Kubeconfig::read(path, context)?, component).await
    }

    /// Connects to the server of a kubeconfig.
    ///
    /// # Errors
    /// A certificate in it is invalid.
    pub async fn configured(kubeconfig: Kubeconfig, component: &str) -> Result<Self, AnyError> {
        Ok(Self::new(Arc::new(Network::new(kubeconfig).await?), component))
    }

    /// Uses another client certificate, given with its key as PEM, for all further requests of this client and its clones.
    /// Requests and watches that are under way continue on their connections.
    ///
    /// # Errors
    /// The certificate cannot be used, or the client does not connect over a network.
    pub async fn replace_certificate(&self, chain: Vec<u8>, key: Vec<u8>) -> Result<(), AnyError> {
        self.transport.replace_certificate(chain, key).await
    }

    /// Shows in `registry`, which must not have them yet, the metrics of the connections that this client and its clones
    /// share.
    pub fn publish_connections(&self, registry: &Registry) {
        self.transport.publish(registry);
    }

    /// Returns a client on the same connection that impersonates another user, if this one may.
    ///
    /// # Errors
    /// A name is not valid in a header.
    pub fn impersonating(&self, user: &str, groups: &[&str]) -> Result<Self, Error> {
        let mut headers = self.headers.to_vec();
        headers.push((HeaderName::from_static("impersonate-user"), header(user)?));
        for group in groups {
            headers.push((HeaderName::from_static("impersonate-group"), header(group)?));
        }
        Ok(Self { headers: headers.into(), ..self.clone() })
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

    /// Hands the body of a good answer on piece by piece.
    ///
    /// # Errors
    /// [`Error`], also for failures of `each`.
    pub async fn download(&self, path: &str, mut each: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<(), Error> {
        let mut body = self.open(Method::GET, path, "", String::new()).await?.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(Error::Transport)?.into_data() {
                each(&data).map_err(|error| Error::Transport(error.into()))?;
            }
        }
        Ok(())
    }

    /// Sends a request and gives back a good answer whose body is still to be read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<Response<Body>, Error> {
        self.call(&Call { method, path, accept: "application/json", content_type, body: body.into() }).await
    }

    /// Reads the document at a path in a requested form, such as a table.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Bytes, Error> {
        let call = Call { method: Method::GET, path, accept, content_type: "", body: Bytes::new() };
        let body = self.call(&call).await?.into_body().collect().await.map_err(Error::Transport)?;
        Ok(body.to_bytes())
    }

    /// Sends a read and returns the body of a good answer while it arrives: a large list, a watch or a log.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_stream(&self, path: &str, accept: &str) -> Result<Body, Error> {
        let call = Call { method: Method::GET, path, accept, content_type: "", body: Bytes::new() };
        Ok(self.call(&call).await?.into_body())
    }

    /// All requests pass through here. A request that an overloaded server rejects with a delay is retried
    /// once. The future is boxed, so that it is compiled here and not in every crate that sends requests.
    fn call<'c>(
        &'c self,
        call: &'c Call<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + 'c>> {
        Box::pin(async move {
            match self.attempt(call).await {
                Err((error, Some(after))) if after <= RETRY_AFTER_MAX => {
                    tracing::debug!(method = %call.method, path = call.path, err = %chain(&error), "Delayed a retry of the request");
                    tokio::time::sleep(after).await;
                    self.attempt(call).await.map_err(|(error, _)| error)
                }
                answer => answer.map_err(|(error, _)| error),
            }
        })
    }

    /// One request; a refusal comes with the time to wait if the same request is welcome later.
    async fn attempt(&self, call: &Call<'_>) -> Result<Response<Body>, (Error, Option<Duration>)> {
        let final_error = |error| (error, None);
        if call.method != Method::GET && !self.leadership.holds() {
            return Err(final_error(Error::NotLeading));
        }
        let mut request = Request::builder().method(&call.method).uri(call.path).header(ACCEPT, call.accept);
        for (name, value) in self.headers.iter() {
            request = request.header(name, value);
        }
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        let request = request.body(Full::new(call.body.clone())).map_err(|error| final_error(error.into()))?;
        let response = self.transport.send(request).await.map_err(|error| final_error(Error::Transport(error)))?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| final_error(Error::Transport(error)))?.to_bytes();
        let mut status = Status::read(code.as_u16(), &body);
        status.retry_after_seconds = status.retry_after_seconds.or(header);
        let after = status.retry_after_seconds.filter(|_| matches!(status.code, 429 | 503)).map(Duration::from_secs);
        Err((Error::Refused(status), after))
    }
}

fn header(value: &str) -> Result<HeaderValue, Error> {
    Ok(HeaderValue::from_str(value).map_err(http::Error::from)?)
}

#[cfg(test)]
mod tests;
