//! Behavior of connections: many watches over one, compressed responses, and certificate rotation.

use crate::network;

use std::io::Read as _;
use std::time::Duration;

use apiserver::server::listen;
use apiserver::serving::certificates::Bundle;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use network::Network;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_watches_share_one_connection_with_requests() {
    const WATCHES: usize = 500;
    let network = Network::start().await;
    let mut connection = network.connect().await;
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let response = connection.send("GET", &format!("{MAPS}?watch=1"), &[], &Value::Null).await;
        assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
        watches.push(response.into_body());
    }
    for n in 0..3 {
        let (status, answer) = connection.ask("POST", MAPS, &json!({"metadata": {"name": format!("m{n}")}})).await;
        assert_eq!(status, 201, "{answer}");
    }
    for mut watch in watches {
        let mut text = Vec::new();
        while text.iter().filter(|byte| **byte == b'\n').count() < 3 {
            let frame = tokio::time::timeout(Duration::from_secs(30), watch.frame()).await.unwrap();
            text.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
        let names: Vec<String> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| {
                let event: Value = serde_json::from_str(line).unwrap();
                format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(names, ["ADDED m0", "ADDED m1", "ADDED m2"]);
    }
    drop(connection);
    network.stop().await;
}

/// Some clients treat it as a failure if they cannot send the rest.
#[tokio::test]
async fn rejected_http_2_client_can_finish_its_upload() {
    let network = Network::start().await;
    let stream = TokioIo::new(network.place.stream().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let (parts, body) = tokio::sync::mpsc::channel::<bytes::Bytes>(1);
    let body = futures::stream::unfold(body, async |mut body| {
        let part = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(http_body::Frame::data(part)), body))
    });
    let request = http::Request::post("https://localhost/version").body(StreamBody::new(Box::pin(body))).unwrap();
    parts.send(bytes::Bytes::from_static(b"{")).await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 405);
    response.into_body().collect().await.unwrap();
    // The end of the answer and a reset of the stream would come together.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..3 {
        parts.send(bytes::Bytes::from_static(b" ")).await.expect("what is sent is taken");
    }
    drop(parts);
    drop(sender);
    driver.abort();
    network.stop().await;
}

#[tokio::test]
async fn long_responses_are_compressed_on_request() {
    let network = Network::start().await;
    let mut connection = network.connect().await;
    for n in 0..4 {
        let data = json!({"metadata": {"name": format!("m{n}")}, "data": {"k": "x".repeat(40_000)}});
        assert_eq!(connection.ask("POST", MAPS, &data).await.0, 201);
    }
    let plain = connection.send("GET", MAPS, &[], &Value::Null).await;
    assert!(plain.headers().get("content-encoding").is_none());
    let plain = plain.into_body().collect().await.unwrap().to_bytes();
    assert!(plain.len() > 128 << 10);
    for (path, offered, compressed) in [
        (MAPS.to_owned(), "gzip", true),
        (MAPS.to_owned(), "br, gzip", true),
        (MAPS.to_owned(), "identity", false),
        (format!("{MAPS}/m0"), "gzip", false),
    ] {
        let headers = [("accept-encoding", offered)];
        let response = connection.send("GET", &path, &headers, &Value::Null).await;
        let encoding = response.headers().get("content-encoding").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(encoding.as_deref(), compressed.then_some("gzip"), "{path} {offered}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        if compressed {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
            assert_eq!(text, plain);
            assert!(body.len() < plain.len() / 20);
        }
    }
    network.stop().await;
}

#[tokio::test]
async fn new_certificates_count_for_new_connections() {
    let network = Network::start().await;
    let mut old = network.connect().await;
    let shown = async |network: &Network| {
        let stream = network.stream().await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown(&network).await;
    assert_eq!(before, network.bundle.server.certificate_der().unwrap().to_vec());
    // The same authority signs a new certificate.
    let directory = network.directory.path();
    for file in ["apiserver.crt", "apiserver.key"] {
        std::fs::remove_file(directory.join(file)).unwrap();
    }
    let renewed = Bundle::load_or_create(directory, &network::addresses()).unwrap();
    // Another authority for client certificates is added.
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Bundle::load_or_create(elsewhere.path(), &network::addresses()).unwrap();
    let authorities = format!("{}{}", renewed.authority.certificate(), stranger.authority.certificate());
    let acceptor = listen::tls_from_pem(&renewed.server.certificate, &renewed.server.key, &authorities).unwrap();
    network.tls.send_replace(acceptor);
    let after = shown(&network).await;
    assert_eq!(after, renewed.server.certificate_der().unwrap().to_vec());
    assert_ne!(after, before);
    network.stream_as(&stranger).await;
    assert_eq!(old.ask("GET", MAPS, &Value::Null).await.0, 200, "the old connection lives on");
    assert!(listen::tls_from_pem("", &renewed.server.key, &authorities).is_err());
    drop(old);
    network.stop().await;
}
