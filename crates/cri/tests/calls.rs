//! Requests and responses arrive as they were sent, and failures with their code.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri::messages as m;
use cri::server::{Service, decode, serve};
use cri::{Client, Code, Status};
use futures::future::BoxFuture;
use prost::Message as _;

struct Runtime;

impl Service for Runtime {
    fn call(self: Arc<Self>, method: String, request: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        Box::pin(async move {
            match method.as_str() {
                "/runtime.v1.RuntimeService/ExecSync" => {
                    let asked: m::ExecSyncRequest = decode(request)?;
                    let stdout = asked.cmd.join(" ").into_bytes();
                    Ok(m::ExecSyncResponse { stdout, stderr: Vec::new(), exit_code: 3 }.encode_to_vec())
                }
                "/runtime.v1.RuntimeService/Version" => std::future::pending().await,
                _ => Err(Status::not_found("an error occurred when try to find container \"x\": not found")),
            }
        })
    }
}

#[tokio::test]
async fn calls_return_answers_and_statuses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cri.sock");
    let server = tokio::spawn(serve(&path, Arc::new(Runtime)).unwrap());
    let client = Client::new(&format!("unix://{}", path.display())).unwrap();
    let request = m::ExecSyncRequest { container_id: "x".into(), cmd: vec!["echo".into(), "hi".into()], timeout: 1 };
    let answer = client.exec_sync(request).await.unwrap();
    assert_eq!((answer.stdout.as_slice(), answer.exit_code), (b"echo hi".as_slice(), 3));
    let missing = client.container_status(m::ContainerStatusRequest::default()).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(missing.message(), "an error occurred when try to find container \"x\": not found");
    let method = "/runtime.v1.RuntimeService/Version";
    let hangs: Result<m::VersionResponse, _> =
        client.call(method, m::VersionRequest::default(), Duration::from_millis(20)).await;
    assert_eq!(hangs.unwrap_err().code(), Code::DeadlineExceeded);
    server.abort();
}

#[tokio::test]
async fn missing_socket_is_unavailable() {
    let client = Client::new("unix:///nonexistent/cri.sock").unwrap();
    let error = client.version(m::VersionRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("No such file"), "{error}");
}

#[test]
fn only_unix_sockets_are_endpoints() {
    for endpoint in ["tcp://localhost:1", "/run/containerd/containerd.sock", "unix://relative"] {
        assert!(Client::new(endpoint).is_err(), "{endpoint}");
    }
}
