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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proxy::health_check::HealthCheck;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    /// The response of a port, or nothing if the connection is refused.
    async fn fetch(address: Ipv4Addr, port: u16) -> Option<String> {
        let mut stream = TcpStream::connect((address, port)).await.ok()?;
        let request = "GET /any HTTP/1.1\r\nhost: balancer\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    }

    /// Repeats a request until its response is the expected one: listeners follow a change after a moment.
    async fn until(address: Ipv4Addr, port: u16, is_expected: impl Fn(Option<&str>) -> bool) {
        let repeated = async {
            while !is_expected(fetch(address, port).await.as_deref()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), repeated).await.unwrap();
    }

    #[tokio::test]
    async fn ports_follow_the_services() {
        // An address of this process, so that others do not use its ports.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 91, high, low);
        let (one, other) = (18_080, 18_081);
        let (key, web) = (Key::new("a", "web"), |port, local_endpoints| HealthCheck { port, local_endpoints });
        let checks = |check: Option<HealthCheck>| HealthChecks {
            services: check.map(|it| (key.clone(), it)).into_iter().collect(),
            is_healthy: true,
        };
        let (sender, receiver) = watch::channel(checks(Some(web(one, 2))));
        let served = tokio::spawn(serve(Some(address), receiver));
        let is_good = |it: Option<&str>| {
            it.is_some_and(|it| it.starts_with("HTTP/1.1 200") && it.contains("x-load-balancing-endpoint-weight: 2"))
        };
        until(address, one, is_good).await;
        // The open port answers with the newest numbers.
        sender.send_replace(checks(Some(web(one, 0))));
        until(address, one, |it| it.is_some_and(|it| it.starts_with("HTTP/1.1 503"))).await;
        sender.send_replace(checks(Some(web(other, 2))));
        until(address, other, is_good).await;
        until(address, one, |it| it.is_none()).await;
        // A port that another process has is opened with the next change.
        let taken = TcpListener::bind((address, one)).await.unwrap();
        sender.send_replace(checks(Some(web(one, 2))));
        until(address, other, |it| it.is_none()).await;
        drop(taken);
        sender.send_replace(checks(Some(web(one, 2))));
        until(address, one, is_good).await;
        sender.send_replace(checks(None));
        until(address, one, |it| it.is_none()).await;
        drop(sender);
        served.await.unwrap();
    }
}
