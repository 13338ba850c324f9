//! The log endpoint of a fleet in its own process: one listener for all nodes.
//!
//! The path is the kubelet's, `/containerLogs/NAMESPACE/POD/CONTAINER`. There is neither encryption nor
//! authentication: it listens on this machine only.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use apiserver::wire::request::Query;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubelet::logs;
use tokio::net::TcpListener;

use super::Shared;

/// Supported options.
const OPTIONS: [&str; 6] = ["previous", "timestamps", "tailLines", "limitBytes", "sinceSeconds", "sinceTime"];

/// A header of every answer, by which the API server recognizes this listener: a node may name any port of the machine as
/// its own, and what other programs answer there is not passed on.
pub(super) const HEADER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-celplane-container-logs"), HeaderValue::from_static("1"));

/// Listens on a port of this machine, 0 for any.
pub async fn bind(port: u16) -> Result<(TcpListener, SocketAddr)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Answers until the process ends.
pub fn serve(listener: TcpListener, fleet: Shared) {
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Most often there are no more file descriptors: wait until there are.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            let fleet = fleet.clone();
            let service = service_fn(move |request| {
                let fleet = fleet.clone();
                async move { Ok::<_, Infallible>(answer(&request, &fleet).await) }
            });
            tokio::spawn(
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service),
            );
        }
    });
}

async fn answer(request: &Request<Incoming>, fleet: &Shared) -> Response<Full<Bytes>> {
    let (code, text) = match logs_of(request, fleet).await {
        Some(Ok(text)) => (StatusCode::OK, text),
        Some(Err(why)) => (StatusCode::BAD_REQUEST, why),
        None => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    let (name, value) = HEADER;
    response.headers_mut().insert(name, value);
    response
}

/// Returns the requested log; `None` for any other request.
async fn logs_of(request: &Request<Incoming>, fleet: &Shared) -> Option<Result<String, String>> {
    let rest = request.uri().path().strip_prefix("/containerLogs/")?;
    let mut parts = rest.split('/');
    let (namespace, pod, container) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let given = OPTIONS.into_iter().filter(|option| query.has(option)).map(|option| (option, query.get(option)));
    let options = match logs::Options::new(given) {
        Ok(options) => options,
        Err(why) => return Some(Err(why)),
    };
    match fleet.get() {
        Some(fleet) => Some(fleet.logs(namespace, pod, container, &options).await),
        None => Some(Err("the nodes have not started yet".to_owned())),
    }
}
