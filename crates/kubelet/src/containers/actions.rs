//! Actions that probes and hooks share: a command in the container, a request, a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::json::Value;
use cri::Client;
use cri::messages as m;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::manifest::texts;

/// The most that is read of a response.
const RESPONSE_BYTES_MAX: u64 = 10 << 10;
/// Extra time for a command in addition to its time limit, in which the runtime reports the timeout.
const MARGIN: Duration = Duration::from_secs(1);

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The action succeeded.
    Success,
    /// The action failed, with a message for users.
    Failure(String),
    /// The action could not be tried.
    Error(String),
}

/// Container and address of an action.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) container_id: String,
    pub(super) address: String,
}

/// A port that a probe or hook names: a number, or the name of one of the container's ports.
pub(super) fn port(container: &Value, given: Option<&Value>) -> Option<u16> {
    let number_of = match given? {
        Value::String(name) => {
            let named = container.list("ports").iter().find(|it| it.text("name") == name.as_str());
            named.and_then(|it| it.i64_at(&["containerPort"])).or_else(|| name.parse().ok())?
        }
        other => other.as_i64()?,
    };
    u16::try_from(number_of).ok().filter(|port| *port != 0)
}

/// Runs a command in a container.
pub(super) async fn exec(
    runtime: &Client,
    place: &Place,
    command: &[String],
    timeout: Duration,
) -> Result<(i32, String), String> {
    let request = m::ExecSyncRequest {
        container_id: place.container_id.clone(),
        cmd: command.to_vec(),
        timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
    };
    let answer = tokio::time::timeout(timeout.saturating_add(MARGIN), runtime.exec_sync(request)).await;
    let ran_out = || format!("command timed out: \"{}\" timed out after {}s", command.join(" "), timeout.as_secs());
    match answer {
        Err(_) => Ok((-1, ran_out())),
        Ok(Err(status)) if status.code() == cri::Code::DeadlineExceeded => Ok((-1, ran_out())),
        Ok(Err(status)) => Err(format!("rpc error: code = {:?} desc = {}", status.code(), status.message())),
        Ok(Ok(answer)) => {
            let mut output = answer.stdout;
            output.extend(answer.stderr);
            output.truncate(usize::try_from(RESPONSE_BYTES_MAX).unwrap_or(usize::MAX));
            Ok((answer.exit_code, String::from_utf8_lossy(&output).into_owned()))
        }
    }
}

/// Connects to a port.
pub(super) async fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpStream, String> {
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(format!("dial tcp {address}: connect: connection refused"))
        }
        Ok(Err(error)) => Err(format!("dial tcp {address}: {error}")),
        Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
    }
}

/// The address of an action: the host that it names, or the pod's.
pub(super) fn address(place: &Place, container: &Value, action: &Value) -> Result<SocketAddr, String> {
    let host = match action.text("host") {
        "" => place.address.as_str(),
        given => given,
    };
    let port = port(container, action.get("port")).ok_or("strconv.ParseInt: parsing port: invalid syntax")?;
    let ip = host.parse().map_err(|_| format!("cannot use host \"{host}\": only addresses are supported"))?;
    Ok(SocketAddr::new(ip, port))
}

/// Sends a GET request; returns the status code, or a failure with the text of Go's client.
pub(super) async fn http_get(
    place: &Place,
    container: &Value,
    action: &Value,
    timeout: Duration,
) -> Result<u16, String> {
    let address = address(place, container, action)?;
    let path = match action.text("path") {
        "" => "/".to_owned(),
        given if given.starts_with('/') => given.to_owned(),
        given => format!("/{given}"),
    };
    let is_https = action.text("scheme").eq_ignore_ascii_case("HTTPS");
    let url = format!("{}://{address}{path}", if is_https { "https" } else { "http" });
    let failed = |why: String| format!("Get \"{url}\": {why}");
    let version = api::kubernetes::VERSION;
    let mut headers =
        format!("GET {path} HTTP/1.1\r\nUser-Agent: kube-probe/{version}\r\nAccept: */*\r\nConnection: close\r\n");
    let mut host = address.to_string();
    for header in action.list("httpHeaders") {
        let (name, value) = (header.text("name"), header.text("value"));
        if name.contains(['\r', '\n']) || value.contains(['\r', '\n']) {
            return Err("a header contains a line break".to_owned());
        }
        match name.eq_ignore_ascii_case("host") {
            true => host = value.to_owned(),
            false => headers.push_str(&format!("{name}: {value}\r\n")),
        }
    }
    headers.push_str(&format!("Host: {host}\r\n\r\n"));
    if path.contains(['\r', '\n', ' ']) {
        return Err("the path contains a blank or a line break".to_owned());
    }
    let exchange = async {
        let stream = connect(address, timeout).await?;
        match is_https {
            true => converse(encrypt(stream, address).await?, &headers).await,
            false => converse(stream, &headers).await,
        }
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(outcome) => outcome.map_err(failed),
        Err(_) => Err(failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned())),
    }
}

/// Encrypts a connection. Kubernetes: certificates of containers are not verified.
async fn encrypt(stream: TcpStream, address: SocketAddr) -> Result<impl AsyncRead + AsyncWrite + Unpin, String> {
    let config = client::unverified_tls().map_err(|error| error.to_string())?;
    let name = ServerName::IpAddress(address.ip().into());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidMessage(_)) => "http: server gave HTTP response to HTTPS client".to_owned(),
            Some(cause) => format!("remote error: tls: {cause}"),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            None => error.to_string(),
        }
    })
}

/// Sends a request and returns the status code of its answer. Only the answer's beginning is read.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<u16, String> {
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let read = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut answer).await;
    let line = String::from_utf8_lossy(&answer);
    let code = line.strip_prefix("HTTP/1.").and_then(|it| it.split(' ').nth(1)).and_then(|it| it.parse().ok());
    match (code, read) {
        // Servers may close an encrypted connection without notice after the answer.
        (Some(code), _) => Ok(code),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) => Err("EOF".to_owned()),
    }
}

/// Runs the action of a probe.
pub(super) async fn probe(
    runtime: &Client,
    place: &Place,
    container: &Value,
    probe: &Value,
    timeout: Duration,
) -> Outcome {
    if let Some(action) = probe.get("exec") {
        return match exec(runtime, place, &texts(action, &["command"]), timeout).await {
            Ok((0, _)) => Outcome::Success,
            Ok((_, output)) => Outcome::Failure(output),
            Err(why) => Outcome::Error(why),
        };
    }
    if let Some(action) = probe.get("httpGet") {
        return match http_get(place, container, action, timeout).await {
            Ok(200..400) => Outcome::Success,
            Ok(code) => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
            Err(why) => Outcome::Failure(why),
        };
    }
    if let Some(action) = probe.get("tcpSocket") {
        let connected = match address(place, container, action) {
            Ok(address) => connect(address, timeout).await,
            Err(why) => return Outcome::Error(why),
        };
        return connected.map_or_else(Outcome::Failure, |_| Outcome::Success);
    }
    if let Some(action) = probe.get("grpc") {
        return match address(place, container, action) {
            Ok(address) => grpc(address, action.text("service"), timeout).await,
            Err(why) => Outcome::Error(why),
        };
    }
    Outcome::Error("missing probe handler".to_owned())
}

async fn grpc(address: SocketAddr, service: &str, timeout: Duration) -> Outcome {
    match cri::health::check(address, service, timeout).await {
        Ok(cri::health::SERVING) => Outcome::Success,
        Ok(2) => Outcome::Failure("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
        Ok(_) => Outcome::Failure("service unhealthy (responded with \"UNKNOWN\")".to_owned()),
        Err(status) if status.code() == cri::Code::Unimplemented => Outcome::Failure(
            "this server does not implement the grpc health protocol (grpc.health.v1.Health)".to_owned(),
        ),
        Err(_) => {
            let limit = timeout.as_secs();
            Outcome::Failure(format!(
                "timeout: failed to connect service \"{address}\" within {limit}s: context deadline exceeded"
            ))
        }
    }
}

/// Runs the action of a hook.
///
/// # Errors
/// A message for users.
pub(super) async fn hook(
    runtime: &Client,
    place: &Place,
    container: &Value,
    hook: &Value,
    timeout: Duration,
) -> Result<(), String> {
    if let Some(action) = hook.get("exec") {
        let command = texts(action, &["command"]);
        let shown = command.join(" ");
        return match exec(runtime, place, &command, timeout).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => Err(format!(
                "error: command '{shown}' exited with {code}: , message: {}",
                api::json::to_string(&output.as_str().into())
            )),
            Err(why) => Err(format!("error: {why}, message: \"\"")),
        };
    }
    if let Some(action) = hook.get("httpGet") {
        return http_get(place, container, action, timeout).await.map(|_| ()).map_err(|why| format!("error: {why}"));
    }
    if let Some(action) = hook.get("sleep") {
        let seconds = action.i64_at(&["seconds"]).and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds).min(timeout)).await;
        return Ok(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Serves one connection with a status line, encrypted or not. The certificate is self-signed and for another name.
    async fn serve(is_encrypted: bool, answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = rcgen::generate_simple_self_signed(["other.example.com".to_owned()]).unwrap();
        let (chain, key) = (vec![own.cert.der().clone()], PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            if is_encrypted {
                let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                // The connection ends without a closing message.
            } else {
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn check(is_encrypted: bool, scheme: &str, answer: &'static str, expected: Result<u16, &str>) {
        let address = serve(is_encrypted, answer).await;
        let place = Place { container_id: String::new(), address: address.ip().to_string() };
        let action = api::json!({"port": (i64::from(address.port())), "path": "/health", "scheme": scheme});
        let outcome = http_get(&place, &Value::object(), &action, Duration::from_secs(5)).await;
        match (&outcome, expected) {
            (Ok(code), Ok(expected)) => assert_eq!(*code, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            _ => panic!("{outcome:?}"),
        }
    }

    /// A gRPC server whose services are healthy, unhealthy, or unknown by their names.
    struct Health;

    impl cri::server::Service for Health {
        fn call(
            self: Arc<Self>,
            method: String,
            request: bytes::Bytes,
        ) -> futures::future::BoxFuture<'static, Result<Vec<u8>, cri::Status>> {
            Box::pin(async move {
                assert_eq!(method, "/grpc.health.v1.Health/Check");
                let service = cri::server::decode::<cri::health::HealthCheckRequest>(request)?.service;
                // An answer is one field, the state.
                match service.as_str() {
                    "" => Ok(vec![8, 1]),
                    "ill" => Ok(vec![8, 2]),
                    "new" => Ok(vec![8, 3]),
                    _ => Err(cri::Status::unimplemented("no health here")),
                }
            })
        }
    }

    #[tokio::test]
    async fn grpc_probes_decide_by_the_state_of_a_service() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("health.sock");
        tokio::spawn(cri::server::serve(&socket, Arc::new(Health)).unwrap());
        // The server listens on a socket file, probes connect to ports.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut server = tokio::net::UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
        let limit = Duration::from_secs(30);
        let failure = |why: &str| Outcome::Failure(why.to_owned());
        assert_eq!(grpc(address, "", limit).await, Outcome::Success);
        assert_eq!(grpc(address, "ill", limit).await, failure("service unhealthy (responded with \"NOT_SERVING\")"));
        assert_eq!(grpc(address, "new", limit).await, failure("service unhealthy (responded with \"UNKNOWN\")"));
        let why = "this server does not implement the grpc health protocol (grpc.health.v1.Health)";
        assert_eq!(grpc(address, "other", limit).await, failure(why));
        // A port that nothing listens on.
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let why = format!("timeout: failed to connect service \"{closed}\" within 30s: context deadline exceeded");
        assert_eq!(grpc(closed, "", limit).await, failure(&why));
    }

    #[tokio::test]
    async fn https_probes_do_not_verify_certificates() {
        check(true, "HTTPS", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Ok(200)).await;
        check(true, "HTTPS", "HTTP/1.1 503 no\r\n\r\n", Ok(503)).await;
        check(false, "HTTPS", "HTTP/1.1 400 Bad Request\r\n\r\n", Err("server gave HTTP response to HTTPS client"))
            .await;
        check(false, "HTTP", "HTTP/1.1 204 No Content\r\n\r\n", Ok(204)).await;
        check(false, "", "garbage", Err("EOF")).await;
    }
}
