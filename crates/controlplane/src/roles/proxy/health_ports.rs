//! Listeners for the health checks of load balancers (`healthCheckNodePort`).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use apiserver::server::listen;
use client::Key;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use proxy::health_check;
use proxy::proxier::HealthChecks;
use telemetry::logs::chain;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// A listener that ends when it is dropped.
struct Listener {
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens and closes ports as Services require, until the sender ends.
pub(super) async fn serve(address: Option<Ipv4Addr>, mut checks: watch::Receiver<HealthChecks>) {
    let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let mut listeners: BTreeMap<Key, Listener> = BTreeMap::new();
    loop {
        let wanted = checks.borrow_and_update().services.clone();
        listeners.retain(|key, listener| wanted.get(key).is_some_and(|it| it.port == listener.port));
        for (key, check) in wanted {
            if listeners.contains_key(&key) {
                continue;
            }
            match TcpListener::bind(SocketAddr::from((address, check.port))).await {
                Ok(listener) => {
                    info!(service = %key, port = check.port, "Opened health check port");
                    let task = tokio::spawn(listen::serve_pages(page(key.clone(), checks.clone()), listener, None));
                    listeners.insert(key, Listener { port: check.port, task });
                }
                // The next change of any health check tries again.
                Err(error) => {
                    warn!(service = %key, port = check.port, err = %chain(&error), "Could not open health check port")
                }
            }
        }
        if checks.changed().await.is_err() {
            return;
        }
    }
}

/// Answers every path, as kube-proxy does.
fn page(key: Key, checks: watch::Receiver<HealthChecks>) -> listen::Page {
    Arc::new(move |_, _| {
        let (count, is_healthy) = {
            let known = checks.borrow();
            (known.services.get(&key).map_or(0, |it| it.local_endpoints), known.is_healthy)
        };
        let answer = health_check::respond(&key, count, is_healthy);
        Box::pin(async move {
            let mut response = Response::new(listen::PageBody::from(answer.body));
            *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.insert("x-load-balancing-endpoint-weight", HeaderValue::from(answer.weight));
            response
        })
    })
}
