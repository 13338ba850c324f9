//! How the API server reaches node agents: those of its own process by a call, others at the address of their node.
//!
//! Agents of ours answer without encryption. They are asked only on this machine.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use api::json::Value;
use apiserver::server::{Kubelets, Logs, LogsFailure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubelet::logs;
use tokio::net::TcpStream;

use super::Shared;

const TIMEOUT: Duration = Duration::from_secs(10);
/// No more is read of an answer.
const BYTES_MAX: usize = 16 << 20;

/// Reaches node agents.
pub(crate) struct Reach {
    /// The fleet in this process.
    pub(crate) own: Option<Shared>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>>;

impl Kubelets for Reach {
    fn logs(&self, wanted: Logs) -> Answer {
        let own = self.own.as_ref().and_then(|shared| shared.get()).filter(|fleet| fleet.has_node(&wanted.node_name));
        if let Some(fleet) = own.cloned() {
            return Box::pin(async move {
                let given = wanted.options.iter().map(|(name, value)| (*name, value.as_str()));
                let options = logs::Options::new(given).map_err(LogsFailure::Refused)?;
                let text = fleet.logs(&wanted.namespace, &wanted.pod, &wanted.container, &options).await;
                text.map(Bytes::from).map_err(LogsFailure::Refused)
            });
        }
        Box::pin(async move {
            let node = &wanted.node_name;
            let address = address_of(wanted.node.as_ref());
            let Some(address) = address.filter(|address| address.ip().is_loopback()) else {
                let why =
                    format!("the kubelet of node {node} says of no address on this machine where logs can be read");
                return Err(LogsFailure::Unreachable(why));
            };
            let asked = tokio::time::timeout(TIMEOUT, ask(address, &wanted)).await;
            let failed =
                |why: &str| LogsFailure::Unreachable(format!("the kubelet of node {node} at {address}: {why}"));
            match asked {
                Ok(Ok((true, text))) => Ok(text),
                Ok(Ok((false, text))) => Err(LogsFailure::Refused(String::from_utf8_lossy(&text).into_owned())),
                Ok(Err(error)) => Err(failed(&error.to_string())),
                Err(_) => Err(failed("it does not answer")),
            }
        })
    }

    fn no_streams(&self, node: &str) -> String {
        format!(
            "containers of node {node} are simulated, not run: exec, attach and port-forward have nothing to connect to"
        )
    }
}

/// Where the agent of a node answers.
fn address_of(node: Option<&Value>) -> Option<SocketAddr> {
    let node = node?;
    let port = node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])?.as_i64()?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let addresses = node.at(&["status", "addresses"])?.as_array()?;
    let internal = addresses.iter().find(|it| it.str_at(&["type"]) == Some("InternalIP"))?;
    Some(SocketAddr::new(internal.str_at(&["address"])?.parse::<IpAddr>().ok()?, port))
}

/// Asks an agent; tells whether it had something, and what it said.
async fn ask(address: SocketAddr, wanted: &Logs) -> anyhow::Result<(bool, Bytes)> {
    let options = wanted.options.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let (query, Logs { namespace, pod, container, .. }) = (options.collect::<Vec<_>>().join("&"), wanted);
    let path = format!("/containerLogs/{namespace}/{pod}/{container}?{query}");
    let request = Request::get(path).header(http::header::HOST, address.to_string()).body(Empty::<Bytes>::new())?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let is_ok = answer.status().is_success();
    let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
    Ok((is_ok, body.map_err(|error| anyhow::anyhow!(error))?.to_bytes()))
}

/// A value as it stands in a query.
fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_found_by_its_node() {
        let node = api::json!({"status": {
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }});
        assert_eq!(address_of(Some(&node)), Some("127.0.0.1:10250".parse().unwrap()));
        assert_eq!(address_of(Some(&api::json!({"status": {}}))), None);
        assert_eq!(encoded("2026-01-01T00:00:00+01:00"), "2026-01-01T00:00:00%2B01:00");
    }
}
