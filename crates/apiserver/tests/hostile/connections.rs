//! Connections that are slow, half open, not TLS, or too many.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use apiserver::Options;
use apiserver::identity::User;
use apiserver::serving::certificates::Authority;

use super::client::Endpoint;
use super::running::{RunningServer, eventually, open_files};
use crate::logs;

fn impatient() -> Options {
    let short = Duration::from_secs(1);
    Options {
        head_timeout: short,
        idle_timeout: short,
        request_timeout: short,
        write_timeout: short,
        ..Options::without_controllers()
    }
}

/// Returns how long the peer keeps a connection open, and the data that it sent.
fn until_closed(mut stream: impl std::io::Read) -> (Duration, Vec<u8>) {
    let (started, mut received) = (Instant::now(), Vec::new());
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut received);
    (started.elapsed(), received)
}

#[test]
fn connection_without_tls_is_closed() {
    let running = RunningServer::start(impatient());
    let files = open_files();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(),
        b"\x16\x03\x01\xff\xff",
        b"\0\0\0\0\0\0\0\0",
        b"SSH-2.0-x\r\n",
    ] {
        let mut stream = running.endpoint.tcp();
        stream.write_all(bytes).unwrap();
        let (took, received) = until_closed(stream);
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert!(!received.starts_with(b"HTTP/1.1 200"), "{received:?}");
        if bytes.starts_with(b"GET") {
            let text = String::from_utf8_lossy(&received);
            assert!(text.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{text}");
            assert!(text.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{text}");
        }
    }
    // Sends nothing at all.
    let (took, _) = until_closed(running.endpoint.tcp());
    assert!(took < Duration::from_secs(60), "{took:?}");
    running.check_alive();
    eventually("files are closed", || open_files() <= files + 2);
}

#[test]
fn certificate_from_unknown_ca_is_anonymous() {
    let running = RunningServer::start(Options::without_controllers());
    let pair = Authority::generate().unwrap().client("admin", "system:masters").unwrap();
    let identity = (pair.certificate_der().unwrap(), pair.key_der().unwrap());
    let stranger = Endpoint::new(running.endpoint.address, running.authority(), Some(identity));
    // Refused in the handshake, which the client may learn only when it reads.
    if let Ok(answer) = stranger.request("GET", "/api/v1/secrets", &[], b"") {
        assert!(matches!(answer.status, 401 | 403), "{}", answer.status);
    }
    let answer = running.anonymous.request("GET", "/api/v1/secrets", &[], b"").unwrap();
    assert!(matches!(answer.status, 401 | 403), "{}", answer.status);
    for token in ["x", "\u{7f}", &"a".repeat(30_000)] {
        let headers = [("Authorization", format!("Bearer {token}"))];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = running.anonymous.request("GET", "/api/v1/secrets", &headers, b"").unwrap();
        assert!(matches!(answer.status, 400 | 401 | 403), "{}", answer.status);
    }
    running.check_alive();
}

#[test]
fn heads_and_bodies_that_do_not_come_are_not_waited_for() {
    let running = RunningServer::start(impatient());
    let files = open_files();
    // A head that never ends, a byte at a time.
    let mut client = running.endpoint.connect();
    client.send(b"GET /readyz HTTP/1.1\r\n").unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) && client.send(b"X-A: b\r\n").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(started.elapsed() < Duration::from_secs(60));
    // A body that never comes.
    let mut client = running.endpoint.connect();
    client.send(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let started = Instant::now();
    if let Ok(answer) = client.response() {
        assert!(matches!(answer.status, 400 | 408 | 504), "{}", answer.status);
    }
    assert!(started.elapsed() < Duration::from_secs(60));
    drop(client);
    // Half closed: nothing more comes from here, which ends a head as well as a body.
    for text in ["GET /readyz HTTP", "POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", ""]
    {
        let mut client = running.endpoint.connect();
        client.send(text.as_bytes()).unwrap();
        client.stream.conn.send_close_notify();
        let _ = client.stream.flush();
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert!(client.is_closed());
    }
    running.check_alive();
    eventually("files are closed", || open_files() <= files + 2);
}

#[test]
fn a_body_that_comes_slowly_takes_no_seat() {
    // A limited user, with all permissions and one seat.
    let jane = User::authenticated("jane", &[]);
    let options = Options {
        reads_max: 0,
        writes_max: 1,
        request_timeout: Duration::from_secs(60),
        tokens: [("secret".to_owned(), jane)].into(),
        ..Options::without_controllers()
    };
    let running = RunningServer::start(options);
    let binding =
        br#"{"metadata":{"name":"jane"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
        "name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}"#;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(running.ask("POST", path, "", binding).status, 201);
    let body = br#"{"metadata":{"name":"late"}}"#;
    let token = "Authorization: Bearer secret";
    let head =
        format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\n{token}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut waiting: Vec<_> = (0..5)
        .map(|_| {
            let mut client = running.anonymous.connect();
            client.send(head.as_bytes()).unwrap();
            client.send(&body[..1]).unwrap();
            client
        })
        .collect();
    let headers = [("Authorization", "Bearer secret")];
    let more = br#"{"metadata":{"name":"more"}}"#;
    let answer = running.anonymous.request("POST", "/api/v1/namespaces", &headers, more).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let mut codes: Vec<_> = Vec::new();
    for client in &mut waiting {
        client.send(&body[1..]).unwrap();
        codes.push(client.response().unwrap().status);
    }
    assert_eq!(codes, [201, 409, 409, 409, 409]);
    running.check_alive();
}

#[test]
fn silent_connections_do_not_block_others() {
    logs::listen();
    let running = RunningServer::start(Options { connections_max: 40, ..Options::without_controllers() });
    let silent: Vec<_> = (0..400).map(|_| running.endpoint.tcp()).collect();
    running.check_alive();
    // Connections with requests stay open while others are opened.
    let mut client = running.endpoint.connect();
    client.send(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut start = [0; 15];
    client.stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let more: Vec<_> = (0..400).map(|_| running.endpoint.tcp()).collect();
    running.check_alive();
    client.stream.read_exact(&mut start).unwrap();
    drop((silent, more));
    // It is logged, and not 800 times.
    let said = logs::lines_with(&["WARN", "Reached a limit of connections", "127.0.0.1"]);
    assert!((1..20).contains(&said.len()), "{said:?}");
}

#[test]
fn idle_connection_does_not_delay_shutdown() {
    let running = RunningServer::start(Options {
        first_request_timeout: Duration::from_secs(1),
        ..Options::without_controllers()
    });
    // Before the handshake, and after it.
    let (took, _) = until_closed(running.endpoint.tcp());
    assert!(took < Duration::from_secs(60), "{took:?}");
    let started = Instant::now();
    assert!(running.endpoint.connect().is_closed());
    assert!(started.elapsed() < Duration::from_secs(60));
    running.check_alive();
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let running = RunningServer::start(Options::without_controllers());
    let files = open_files();
    for round in 0..300 {
        let mut client = running.endpoint.connect();
        match round % 3 {
            0 => drop(client.send(b"GET /api/v1/namespaces HTTP/1.1\r\nHost: a\r\n\r\n")),
            1 => drop(client.send(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n")),
            _ => {
                client.send(b"GET /api/v1/namespaces HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                let _ = client.stream.read(&mut [0; 10]);
            }
        }
    }
    running.check_alive();
    eventually("files are closed", || open_files() <= files + 2);
}

#[test]
fn rejection_is_delivered_and_announces_closing() {
    let running = RunningServer::start(Options::without_controllers());
    // A body of acceptable size is read, so that a client that is still sending receives the response.
    for length in [1000, 2 << 20] {
        let answer = running.anonymous.request("POST", "/api/v1/namespaces", &[], &vec![b'x'; length]).unwrap();
        assert_eq!((answer.status, answer.header("connection")), (403, None));
    }
    // What does not come is not waited for.
    let mut client = running.anonymous.connect();
    client.send(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\nx").unwrap();
    let answer = client.response().unwrap();
    assert_eq!((answer.status, answer.header("connection")), (403, Some("close".to_owned())));
    let answer = running.ask("POST", "/api/v1/namespaces", "application/json", br#"{"metadata": {"name": "a"}}"#);
    assert_eq!((answer.status, answer.header("connection")), (201, None));
}

#[test]
fn a_head_may_have_many_lines() {
    let running = RunningServer::start(Options::without_controllers());
    let names: Vec<String> = (0..300).map(|number| format!("x-{number}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    assert_eq!(running.endpoint.request("GET", "/api/v1/namespaces", &headers, b"").unwrap().status, 200);
}
