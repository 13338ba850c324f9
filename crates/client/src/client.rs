//! A connection to the API server, and one request on it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower_service::Service;

use crate::decoded::Decoded;
use crate::document::Kept;
use crate::election::Leadership;
use crate::error::{Error, Status};
use crate::kubeconfig::Kubeconfig;
use crate::objects::Objects;
use crate::resources::Resource;
use crate::transport::{AnyError, Body, InProcess, Network, Transport};

/// A server that asks to come back later than this is answered with the error: the caller's queue knows better.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// What is asked for.
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
    /// Sent with each request: who speaks, and for whom.
    headers: Arc<[(HeaderName, HeaderValue)]>,
    /// What others have decoded of the same server's objects.
    pub(crate) decoded: Option<Arc<Decoded>>,
    /// Only who holds this may write.
    leadership: Leadership,
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
        Self { transport, headers: Arc::new([(USER_AGENT, agent)]), decoded: None, leadership }
    }

    /// Speaks to a service in this process, which knows who asks: the server's own, given an identity.
    ///
    /// `component` is sent as the user agent, whose first part owns what is written.
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

    /// The same connection, whose informers share what they decode with all others that are given the same `decoded`.
    ///
    /// All of them must speak to the same server: uid and version tell its objects apart.
    #[must_use]
    pub fn sharing(mut self, decoded: &Arc<Decoded>) -> Self {
        self.decoded = Some(decoded.clone());
        self
    }

    /// The same connection, on which nothing is written any more once a leadership is lost: the next leader acts alone, also
    /// while this process, which may have been paused, has not noticed.
    #[must_use]
    pub fn while_leading(mut self, leadership: &Leadership) -> Self {
        self.leadership = leadership.clone();
        self
    }

    /// Speaks to the server that a kubeconfig names, with its current context unless another is given.
    ///
    /// # Errors
    /// What is wrong with the file, or with the certificates in it.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>, component: &str) -> Result<Self, AnyError> {
        Self::configured(Kubeconfig::read(path, context)?, component).await
    }

    /// Speaks to the server of a kubeconfig.
    ///
    /// # Errors
    /// What is wrong with the certificates in it.
    pub async fn configured(kubeconfig: Kubeconfig, component: &str) -> Result<Self, AnyError> {
        Ok(Self::new(Arc::new(Network::new(kubeconfig).await?), component))
    }

    /// The same connection, on which the server is asked to act as another user, as far as this one may.
    ///
    /// # Errors
    /// A name that cannot stand in a header.
    pub fn impersonating(&self, user: &str, groups: &[&str]) -> Result<Self, Error> {
        let mut headers = self.headers.to_vec();
        headers.push((HeaderName::from_static("impersonate-user"), header(user)?));
        for group in groups {
            headers.push((HeaderName::from_static("impersonate-group"), header(group)?));
        }
        Ok(Self { headers: headers.into(), ..self.clone() })
    }

    /// All objects of a kind, read as `T`: a typed view, or a [`Document`](crate::Document) of it.
    #[must_use]
    pub fn objects<T: Kept>(&self) -> Objects<T> {
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

    /// Hands the body of a good answer on piece by piece.
    ///
    /// # Errors
    /// [`Error`], also for what `each` could not do.
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

    /// The document at a path in a form that has to be asked for, such as a table.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Bytes, Error> {
        let call = Call { method: Method::GET, path, accept, content_type: "", body: Bytes::new() };
        let body = self.call(&call).await?.into_body().collect().await.map_err(Error::Transport)?;
        Ok(body.to_bytes())
    }

    /// All requests go through here. A server that has too much to do says when to come back: that is done once.
    /// The future is boxed, so that it is compiled here and not in every crate that sends something.
    fn call<'c>(
        &'c self,
        call: &'c Call<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + 'c>> {
        Box::pin(async move {
            match self.attempt(call).await {
                Err((error, Some(after))) if after <= RETRY_AFTER_MAX => {
                    tracing::debug!(method = %call.method, path = call.path, err = %error, "Waiting to ask again");
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
