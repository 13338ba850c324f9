//! Another scheduler that gives out the same device at the same time.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use apiserver::Body;
use client::objects::Patch;
use http::{Method, Request, Response};

use super::*;

const CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
const SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices", "ResourceSlice");
const DEVICE_CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

const SLICE: &str = "metadata: {name: s}
spec:
  driver: d.example.com
  nodeName: node
  pool: {name: node, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}, {name: d1}]
";

/// The scheduler's connection. Just before the first allocation is written, the rival gives the same device to `other`.
#[derive(Clone)]
struct Rival {
    connection: Connection,
    admin: Client,
    has_acted: Arc<AtomicBool>,
}

type Asked = Request<http_body_util::Full<bytes::Bytes>>;

impl tower_service::Service<Asked> for Rival {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> Self::Future {
        let is_allocation =
            request.method() == Method::PATCH && request.uri().path().ends_with("/resourceclaims/own/status");
        let acts = is_allocation && !self.has_acted.swap(true, Ordering::SeqCst);
        let (mut connection, admin) = (self.connection.clone(), self.admin.clone());
        Box::pin(async move {
            if acts {
                let status = "status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: node, \
                              device: d0}]}}}";
                let claims = admin.documents(DEVICE_CLAIMS);
                claims.patch("default", "other", "status", Patch::Merge, &yaml(status)).await.unwrap();
            }
            Ok(tower_service::Service::call(&mut connection, request).await.unwrap())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn device_that_another_scheduler_gave_out_is_taken_back() {
    let plane = Plane::in_memory(all()).await;
    plane.stop.stop();
    plane.node("node", "{}", "[]").await;
    plane.admin.documents(SLICES).create("", &yaml(SLICE)).await.unwrap();
    plane.admin.documents(CLASSES).create("", &yaml("metadata: {name: d}\nspec: {}")).await.unwrap();
    let claims = plane.admin.documents(DEVICE_CLAIMS);
    for name in ["own", "other"] {
        let claim = format!(
            "metadata: {{name: {name}}}\nspec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: d}}}}]}}}}"
        );
        claims.create("default", &yaml(&claim)).await.unwrap();
    }
    let user = User::authenticated(::scheduler::IDENTITY, &["system:masters"]);
    let rival = Rival {
        connection: Connection::new(plane.server.clone(), Some(user)),
        admin: plane.admin.clone(),
        has_acted: Arc::default(),
    };
    let (stop, shutdown) = Shutdown::channel();
    let client = Client::in_process(rival.clone(), "celplane-scheduler");
    let options = ::scheduler::Options {
        has_placement_annotations: true,
        ..super::faults::options(client, Leadership::uncontested(), shutdown)
    };
    let running = tokio::spawn(::scheduler::run(options));
    plane.try_pod("p", "{resourceClaims: [{name: x, resourceClaimName: own}]}").await.unwrap();
    let taken = "running PreBind plugin \"DynamicResources\": device d.example.com/node/d0 was given to resource claim \
                 default/other at the same time";
    let (started, mut was_reported) = (Instant::now(), false);
    loop {
        match plane.outcome("p").await {
            Ok(node) => break assert_eq!(node, "node"),
            Err(message) => was_reported |= message.contains(taken),
        }
        assert!(started.elapsed() < LIMIT, "the pod was not bound");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(was_reported && rival.has_acted.load(Ordering::SeqCst));
    let device = async |name: &str| {
        let claim = claims.get("default", name).await.unwrap();
        let results = claim.at(&["status", "allocation", "devices", "results"]).and_then(Value::as_array).unwrap();
        results[0].str_at(&["device"]).unwrap().to_owned()
    };
    assert_eq!((device("own").await, device("other").await), ("d1".to_owned(), "d0".to_owned()));
    stop.stop();
    running.await.unwrap().unwrap();
    plane.server.stop().await.unwrap();
}
