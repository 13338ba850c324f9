//! Connections into pods, with node agents that are played: which protocols are passed on to which agents.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use api::json::Value as ApiValue;
use apiserver::Options;
use apiserver::server::{Kubelets, Logs, LogsFailure, StreamFailure, Streams};
use bytes::Bytes;
use http::Response;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::network::Network;

/// An agent that serves websockets: it returns bytes in upper case. Its log has the paths and protocols.
#[derive(Default)]
struct Agent(Mutex<Vec<String>>);

impl Kubelets for Agent {
    fn logs(&self, _wanted: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>> {
        Box::pin(async { Err(LogsFailure::Refused("no logs".to_owned())) })
    }

    fn no_streams(&self, _node: Option<&ApiValue>, _name: &str) -> Option<String> {
        None
    }

    fn stream(&self, wanted: Streams) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, StreamFailure>> + Send>> {
        let header = |name: &str| wanted.headers[name].to_str().unwrap().to_owned();
        let (upgrade, protocol) = (header("upgrade"), header("sec-websocket-protocol"));
        self.0.lock().unwrap().push(format!("{upgrade} {protocol} {}", wanted.path));
        tokio::spawn(async move {
            let mut client = TokioIo::new(wanted.client.await.unwrap());
            let mut bytes = [0; 5];
            client.read_exact(&mut bytes).await.unwrap();
            client.write_all(&bytes.to_ascii_uppercase()).await.unwrap();
        });
        let answer = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
        let answer = answer.header("sec-websocket-accept", "c2Vl").header("sec-websocket-protocol", protocol);
        Box::pin(async move { Ok(answer.body(Bytes::new()).unwrap()) })
    }
}

/// Sends the handshake of a websocket for a command in a pod, and returns the connection with the answer's head.
async fn handshake(
    network: &Network,
    pod: &str,
) -> (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, String) {
    let mut stream = network.stream_http1().await;
    let head = format!(
        "GET /api/v1/namespaces/default/pods/{pod}/exec?command=cat&stdin=true&stdout=true HTTP/1.1\r\nHost: a\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(bytes).unwrap().to_lowercase())
}

/// Agents that declare the feature get websockets as they are. For others, kubectl falls back to SPDY after the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn websockets_reach_agents_that_declare_them() {
    let network = Network::start_with(store::Options::default(), Options::without_controllers()).await;
    let agent = Arc::new(Agent::default());
    network.server.set_kubelets(agent.clone());
    let mut admin = network.connect().await;
    let account = json!({"metadata": {"name": "default"}});
    admin.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    for (name, features) in [("declares", json!(["ExtendWebSocketsToKubelet"])), ("silent", json!([]))] {
        let node = json!({"metadata": {"name": name}});
        assert_eq!(admin.ask("POST", "/api/v1/nodes", &node).await.0, 201);
        let status = json!({"metadata": {"name": name}, "status": {"declaredFeatures": features}});
        let (code, stored) = admin.ask("PUT", &format!("/api/v1/nodes/{name}/status"), &status).await;
        assert_eq!(code, 200, "{stored}");
        let pod = json!({
            "metadata": {"name": name}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}
        });
        let (code, created) = admin.ask("POST", "/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(code, 201, "{created}");
    }
    let (mut stream, head) = handshake(&network, "declares").await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("sec-websocket-accept: c2vl"), "{head}");
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    stream.write_all(b"bytes").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"BYTES");
    let (_, head) = handshake(&network, "silent").await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    let path = "websocket v5.channel.k8s.io /exec/default/declares/c?input=1&output=1&command=cat";
    assert_eq!(*agent.0.lock().unwrap(), [path]);
    network.end().await;
}
