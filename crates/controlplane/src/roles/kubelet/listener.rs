//! The log endpoint of a fleet in its own process: one listener for all nodes.
//!
//! The path is the kubelet's, `/containerLogs/NAMESPACE/POD/CONTAINER`. There is neither encryption nor
//! authentication: it listens on this machine only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use apiserver::server::listen::{self, PageBody};
use apiserver::wire::request::Query;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use kubelet::logs;
use tokio::net::TcpListener;

use super::SharedFleet;

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

/// Answers until the process ends, under the limits and timeouts of the API server.
pub fn serve(listener: TcpListener, fleet: SharedFleet) {
    let page: listen::Page = Arc::new(move |request, _| {
        let fleet = fleet.clone();
        Box::pin(async move { answer(&request, &fleet).await })
    });
    tokio::spawn(listen::serve_pages(page, listener, None));
}

async fn answer(request: &Request<Incoming>, fleet: &SharedFleet) -> Response<PageBody> {
    let (code, text) = match logs_of(request, fleet).await {
        Some(Ok(text)) => (StatusCode::OK, text),
        Some(Err(why)) => (StatusCode::BAD_REQUEST, why),
        None => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(PageBody::from(text));
    *response.status_mut() = code;
    let (name, value) = HEADER;
    response.headers_mut().insert(name, value);
    response
}

/// Returns the requested log; `None` for any other request.
async fn logs_of(request: &Request<Incoming>, fleet: &SharedFleet) -> Option<Result<String, String>> {
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
