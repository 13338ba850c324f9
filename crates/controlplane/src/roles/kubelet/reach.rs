//! Connections of the API server to node agents: direct calls within its process, the node's address for
//! others.
//!
//! Real agents use TLS, and the server presents a client certificate. Separate fleets of simulated nodes do not
//! use encryption, and are contacted only on this machine, at ports that an administrator has listed: a Node can name
//! any port, and with it any local service.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use api::json::Value;
use apiserver::outbound::addresses;
use apiserver::server::{
    ConnectFuture, ContainerUsage, FollowFuture, Kubelets, Logs, LogsFailure, Stream, StreamFailure, Streams, Usage,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubelet::logs;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::agent_tls::AgentTls;
use super::listener::HEADER;
use super::{SharedFleet, real};
use crate::upgrade;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Pieces of a log that wait for a slow reader.
const PIECES_WAITING: usize = 4;
/// No more is read of an answer.
const BYTES_MAX: usize = 16 << 20;

/// Reaches node agents.
#[derive(Clone, Default)]
pub struct Reach {
    /// The simulated fleet in this process.
    pub own: Option<SharedFleet>,
    /// The real node in this process.
    pub real: Option<real::SharedAgent>,
    /// TLS for connections to agents over the network.
    pub tls: Option<AgentTls>,
    /// Ports of this machine at which separate fleets of simulated nodes serve logs; all others are refused.
    pub log_ports: Vec<u16>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>>;

impl Reach {
    /// Returns the address of a node's agent and a connector to it, or the reason why it must not be contacted.
    fn target(&self, node: Option<&Value>, name: &str) -> Result<(SocketAddr, AgentTls), String> {
        // The address of the node in this process is known: its Node may name another one.
        let own = self.real.as_ref().and_then(|real| real.get()).filter(|agent| agent.fleet.has_node(name));
        let Some(address) = own.map(|agent| agent.endpoint).or_else(|| address_of(node)) else {
            return Err(format!("the kubelet of node {name} has no address"));
        };
        if own.is_none() && !addresses::is_allowed(address.ip()) {
            return Err(format!("address {address} of the kubelet of node {name} is not allowed"));
        }
        match &self.tls {
            Some(tls) => Ok((address, tls.clone())),
            None => Err(format!("this server has no certificate for the kubelet of node {name}")),
        }
    }

    /// Returns the address at which a separate fleet serves the logs of a simulated node, or the reason why it must not be
    /// contacted.
    fn log_address(&self, node: Option<&Value>, name: &str) -> Result<SocketAddr, LogsFailure> {
        let Some(address) = address_of(node).filter(|address| address.ip().is_loopback()) else {
            let why = format!("the kubelet of node {name} has no address on this machine where logs can be read");
            return Err(LogsFailure::Unreachable(why));
        };
        if !self.log_ports.contains(&address.port()) {
            let why = format!(
                "address {address} of the kubelet of node {name} is not allowed: its port is not among the API server's --node-log-ports"
            );
            return Err(LogsFailure::Refused(why));
        }
        Ok(address)
    }

    fn is_simulated(&self, node: Option<&Value>, name: &str) -> bool {
        let own = self.own.as_ref().and_then(|shared| shared.get()).is_some_and(|fleet| fleet.has_node(name));
        own || node.is_none_or(|node| {
            let version = node.text_at(&["status", "nodeInfo", "containerRuntimeVersion"]);
            version.is_empty() || version.starts_with("sim://")
        })
    }
}

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
        let address = self.log_address(wanted.node.as_ref(), &wanted.node_name);
        Box::pin(async move {
            let (node, address) = (&wanted.node_name, address?);
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

    fn follow(&self, wanted: Logs, follows: bool) -> FollowFuture {
        if self.is_simulated(wanted.node.as_ref(), &wanted.node_name) {
            return Box::pin(async { Ok(None) });
        }
        let target = self.target(wanted.node.as_ref(), &wanted.node_name);
        Box::pin(async move {
            let (address, tls) = target.map_err(LogsFailure::Refused)?;
            let node = wanted.node_name.clone();
            match pieces(address, &tls, &wanted, follows).await {
                Ok(Ok(pieces)) => Ok(Some(pieces)),
                Ok(Err(refusal)) => Err(LogsFailure::Refused(refusal)),
                Err(error) => {
                    Err(LogsFailure::Unreachable(format!("the kubelet of node {node} at {address}: {error:#}")))
                }
            }
        })
    }

    fn no_streams(&self, node: Option<&Value>, name: &str) -> Option<String> {
        self.is_simulated(node, name).then(|| {
            format!(
                "containers of node {name} are simulated, not run: exec, attach and port-forward have nothing to connect to"
            )
        })
    }

    fn simulated_pod(&self, namespace: &str, name: &str) -> Option<Vec<ContainerUsage>> {
        let containers = self.own.as_ref()?.get()?.pod_usage(namespace, name)?.into_iter();
        Some(containers.map(|it| ContainerUsage { name: it.name.to_string(), usage: usage(it.usage) }).collect())
    }

    fn simulated_nodes(&self) -> HashMap<String, Usage> {
        let Some(fleet) = self.own.as_ref().and_then(|shared| shared.get()) else { return HashMap::new() };
        fleet.node_usages().into_iter().map(|(name, it)| (name.to_string(), usage(it))).collect()
    }

    fn connect(&self, node: Option<Value>, name: String) -> ConnectFuture {
        let target = match self.is_simulated(node.as_ref(), &name) {
            true => Err(format!("containers of node {name} are simulated, not run: there is nothing to connect to")),
            false => self.target(node.as_ref(), &name),
        };
        Box::pin(async move {
            let (address, tls) = target.map_err(StreamFailure::Refused)?;
            match tls.connect(&name, address).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                Err(error) => {
                    Err(StreamFailure::Unreachable(format!("the kubelet of node {name} at {address}: {error:#}")))
                }
            }
        })
    }

    fn stream(&self, wanted: Streams) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, StreamFailure>> + Send>> {
        let target = self.target(wanted.node.as_ref(), &wanted.node_name);
        Box::pin(async move {
            let (address, tls) = target.map_err(StreamFailure::Refused)?;
            let Streams { node_name, path, headers, client, .. } = wanted;
            let relayed = async {
                let stream = tls.connect(&node_name, address).await?;
                upgrade::relay(stream, &address.to_string(), upgrade::method(&headers), &path, &headers, client).await
            };
            relayed.await.map_err(|error| {
                StreamFailure::Unreachable(format!("the kubelet of node {node_name} at {address}: {error:#}"))
            })
        })
    }
}

fn usage(it: kubelet::usage::Usage) -> Usage {
    Usage { cpu_nanocores: it.cpu_nanocores, memory_bytes: it.memory_bytes }
}

/// Opens the output of a container at a real agent; the refusal, if the agent has none.
async fn pieces(
    address: SocketAddr,
    tls: &AgentTls,
    wanted: &Logs,
    follows: bool,
) -> anyhow::Result<Result<mpsc::Receiver<Bytes>, String>> {
    let mut query: Vec<String> =
        wanted.options.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if follows {
        query.push("follow=true".to_owned());
    }
    let Logs { namespace, pod, container, .. } = wanted;
    let path = format!("/containerLogs/{namespace}/{pod}/{container}?{}", query.join("&"));
    let request = Request::get(path).header(http::header::HOST, address.to_string()).body(Empty::<Bytes>::new())?;
    let stream = tls.connect(&wanted.node_name, address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = tokio::time::timeout(TIMEOUT, sender.send_request(request)).await.context("it does not answer")??;
    if !answer.status().is_success() {
        let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        return Ok(Err(String::from_utf8_lossy(&body).trim().to_owned()));
    }
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING);
    let mut body = answer.into_body();
    tokio::spawn(async move {
        // The connection lives as long as its sender.
        let _sender = sender;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = pieces.closed() => return,
            };
            let Some(Ok(frame)) = frame else { return };
            if let Ok(piece) = frame.into_data()
                && pieces.send(piece).await.is_err()
            {
                return;
            }
        }
    });
    Ok(Ok(receiver))
}

/// Address of a node's agent.
fn address_of(node: Option<&Value>) -> Option<SocketAddr> {
    let node = node?;
    let port = node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])?.as_i64()?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let addresses = node.at(&["status", "addresses"])?.as_array()?;
    let internal = addresses.iter().find(|it| it.str_at(&["type"]) == Some("InternalIP"))?;
    Some(SocketAddr::new(internal.str_at(&["address"])?.parse::<IpAddr>().ok()?, port))
}

/// Requests a log from an agent; returns whether it succeeded, and the response.
async fn ask(address: SocketAddr, wanted: &Logs) -> anyhow::Result<(bool, Bytes)> {
    let options = wanted.options.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let (query, Logs { namespace, pod, container, .. }) = (options.collect::<Vec<_>>().join("&"), wanted);
    let path = format!("/containerLogs/{namespace}/{pod}/{container}?{query}");
    let request = Request::get(path).header(http::header::HOST, address.to_string()).body(Empty::<Bytes>::new())?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let (name, value) = HEADER;
    if answer.headers().get(name) != Some(&value) {
        anyhow::bail!("another program answers there");
    }
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
    use apiserver::serving::certificates::Authority;

    use super::*;

    const SIMULATED: &str = "sim://1.0";

    /// A request for the log of a pod on a node whose agent is at this port of the machine.
    fn request_to(port: u16, runtime: &str) -> Logs {
        let node = api::json!({"status": {
            "nodeInfo": {"containerRuntimeVersion": runtime},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": (i64::from(port))}},
        }});
        Logs {
            node: Some(node),
            node_name: "n".to_owned(),
            namespace: "default".to_owned(),
            pod: "p".to_owned(),
            container: "c".to_owned(),
            options: Vec::new(),
        }
    }

    #[tokio::test]
    async fn answers_of_other_programs_are_not_passed_on() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await.unwrap();
        });
        let reach = Reach { log_ports: vec![port], ..Reach::default() };
        let failure = reach.logs(request_to(port, SIMULATED)).await.unwrap_err();
        let expected = format!("the kubelet of node n at 127.0.0.1:{port}: another program answers there");
        assert_eq!(failure, LogsFailure::Unreachable(expected));
    }

    #[tokio::test]
    async fn loopback_port_that_is_not_listed_gets_no_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = AgentTls::new(&Authority::generate().unwrap()).unwrap();
        let reach = Reach { tls: Some(tls), log_ports: vec![port.wrapping_add(1)], ..Reach::default() };
        let why = format!("address 127.0.0.1:{port} of the kubelet of node n is not allowed");
        let simulated = reach.logs(request_to(port, SIMULATED)).await.unwrap_err();
        let flag = ": its port is not among the API server's --node-log-ports";
        assert_eq!(simulated, LogsFailure::Refused(format!("{why}{flag}")));
        let real = request_to(port, "containerd://2.0");
        let followed = reach.follow(real.clone(), true).await.map(|_| ()).unwrap_err();
        assert_eq!(followed, LogsFailure::Refused(why.clone()));
        let Err(StreamFailure::Refused(connected)) = reach.connect(real.node, "n".to_owned()).await else {
            panic!("connected")
        };
        assert_eq!(connected, why);
        // Connections that were made wait in the backlog.
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }

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
