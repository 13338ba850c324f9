//! Handling of rejections and identities in requests.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::sync::Mutex;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::*;

type Head = (Method, String, http::HeaderMap);

/// Answers with the prepared responses, one after the other, and then with an empty object.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<Response<Full<Bytes>>>>>,
    asked: Arc<Mutex<Vec<Head>>>,
}

impl Script {
    fn new(answers: Vec<Response<Full<Bytes>>>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers)), asked: Arc::default() }
    }

    fn client(&self) -> Client {
        Client::in_process(self.clone(), "tester/1")
    }
}

impl Service<Request<Full<Bytes>>> for Script {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let head = (request.method().clone(), request.uri().to_string(), request.headers().clone());
        self.asked.lock().unwrap().push(head);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.is_empty() { Response::new(Full::from("{}")) } else { answers.remove(0) };
        std::future::ready(Ok(answer))
    }
}

fn refusal(code: u16, after: Option<&str>) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(code);
    if let Some(after) = after {
        response = response.header(RETRY_AFTER, after);
    }
    response.body(Full::from("busy")).unwrap()
}

/// Sends one request; returns the number of attempts, the duration and the status.
async fn sent(answers: Vec<Response<Full<Bytes>>>) -> (usize, u64, u16) {
    let script = Script::new(answers);
    let started = Instant::now();
    let result = script.client().send(Method::POST, "/api/v1/pods", "application/json", "{}".to_owned()).await;
    let code = result.map_or_else(|error| error.code(), |_| 200);
    let asked = script.asked.lock().unwrap().len();
    (asked, started.elapsed().as_secs(), code)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_says_when_to_come_back_is_followed_once() {
    assert_eq!(sent(vec![refusal(429, Some("2"))]).await, (2, 2, 200));
    assert_eq!(sent(vec![refusal(503, Some("1"))]).await, (2, 1, 200));
    assert_eq!(sent(vec![refusal(429, Some("1")), refusal(429, Some("1"))]).await, (2, 1, 429));
}

#[tokio::test(start_paused = true)]
async fn other_refusals_are_the_callers_matter() {
    assert_eq!(sent(vec![refusal(429, None)]).await, (1, 0, 429), "nobody says when");
    assert_eq!(sent(vec![refusal(503, Some("3600"))]).await, (1, 0, 503), "too long");
    assert_eq!(sent(vec![refusal(409, Some("1"))]).await, (1, 0, 409), "not a matter of time");
    assert_eq!(sent(vec![refusal(503, Some("Wed, 21 Oct 2015 07:28:00 GMT"))]).await, (1, 0, 503));
}

#[tokio::test]
async fn requests_carry_user_agent_and_impersonation() {
    let script = Script::default();
    let client = script.client().impersonating("system:node:a", &["system:nodes"]).unwrap();
    client.send(Method::GET, "/api/v1/pods", "", String::new()).await.unwrap();
    let asked = script.asked.lock().unwrap();
    let (_, _, headers) = asked.first().unwrap();
    assert_eq!(headers.get(USER_AGENT).unwrap(), "tester/1");
    assert_eq!(headers.get("impersonate-user").unwrap(), "system:node:a");
    assert_eq!(headers.get("impersonate-group").unwrap(), "system:nodes");
    assert!(script.client().impersonating("line\nbreak", &[]).is_err());
}

#[tokio::test]
async fn a_binding_names_the_pod_it_means() {
    let script = Script::default();
    let mut pod = api::core::v1::Pod::default();
    pod.metadata.name = "p".into();
    pod.metadata.namespace = "ns".into();
    script.client().objects::<api::core::v1::Pod>().bind(&pod, "n1").await.unwrap();
    let selection = crate::objects::Selection { labels: "a=b".to_owned(), ..Default::default() };
    let pods = script.client().objects::<api::core::v1::Pod>();
    pods.delete_collection(&selection, &Default::default()).await.unwrap();
    pods.apply("ns", "p", "status", &api::json!({}), "me", true).await.unwrap();
    let asked = script.asked.lock().unwrap();
    let lines: Vec<String> = asked.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    assert_eq!(
        lines,
        [
            "POST /api/v1/namespaces/ns/pods/p/binding",
            "DELETE /api/v1/pods?labelSelector=a%3Db",
            "PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=me&force=true",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn former_leader_reads_but_does_not_write() {
    let script = Script::default();
    let lease = Duration::from_secs(15);
    let client = script.client().while_leading(&Leadership::until(Instant::now() + lease));
    let write = || client.send(Method::PUT, "/api/v1/pods", "application/json", "{}".to_owned());
    assert!(write().await.is_ok());
    tokio::time::advance(lease).await;
    assert!(matches!(write().await, Err(Error::NotLeading)));
    assert!(client.send(Method::GET, "/api/v1/pods", "", String::new()).await.is_ok());
    let asked: Vec<Method> = script.asked.lock().unwrap().iter().map(|(method, ..)| method.clone()).collect();
    assert_eq!(asked, [Method::PUT, Method::GET]);
    // A write that is delayed past the end of the leadership is not repeated.
    let script = Script::new(vec![refusal(429, Some("20"))]);
    let client = script.client().while_leading(&Leadership::until(Instant::now() + lease));
    let answer = client.send(Method::PUT, "/api/v1/pods", "application/json", "{}".to_owned()).await;
    assert!(matches!(answer, Err(Error::NotLeading)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn informer_lists_where_the_server_cannot_stream_the_list() {
    let failed = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"a watch stream was \
                  requested by the client but the required storage feature RequestWatchProgress is disabled\",\
                  \"reason\":\"InternalError\",\"code\":500}}\n";
    let list = "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"}}]}";
    let mut answers: Vec<_> = [failed, list].map(|text| Response::new(Full::from(text))).into();
    // The watch after the list fails, and the informer pauses.
    answers.push(refusal(500, None));
    let script = Script::new(answers);
    let informer = crate::Informer::<api::core::v1::Node>::start(&script.client(), Default::default());
    informer.synced().await;
    assert!(informer.store().get("", "a").is_some());
    let asked = script.asked.lock().unwrap();
    let paths: Vec<&str> = asked.iter().map(|(_, path, _)| path.as_str()).collect();
    assert!(paths.first().unwrap().contains("sendInitialEvents=true"), "{paths:?}");
    assert_eq!(paths.get(1), Some(&"/api/v1/nodes"));
}
