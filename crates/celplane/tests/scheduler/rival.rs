//! Another scheduler that gives out the same device at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use client::objects::Patch;
use http::Method;

use super::faults::{CLASSES, DEVICE_CLAIMS, SLICES, Wire, Work, options};
use super::*;

const SLICE: &str = "metadata: {name: s}
spec:
  driver: d.example.com
  nodeName: node
  pool: {name: node, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}, {name: d1}]
";

/// Gives the device that the scheduler is about to allocate to `other`.
async fn give_to_other(admin: Client) {
    let status =
        "status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: node, device: d0}]}}}";
    let claims = admin.documents(DEVICE_CLAIMS);
    claims.patch("default", "other", "status", Patch::Merge, &yaml(status)).await.unwrap();
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
    // The rival acts just before the first allocation is written.
    let (has_acted, admin) = (Arc::new(AtomicBool::new(false)), plane.admin.clone());
    let acts = has_acted.clone();
    let wire = Wire::to(&plane.server).before(move |method, path| {
        let is_allocation = *method == Method::PATCH && path.ends_with("/resourceclaims/own/status");
        let is_first = is_allocation && !acts.swap(true, Ordering::SeqCst);
        is_first.then(|| Box::pin(give_to_other(admin.clone())) as Work)
    });
    let (stop, shutdown) = Shutdown::channel();
    let client = Client::in_process(wire, "celplane-scheduler");
    let options = ::scheduler::Options {
        has_placement_annotations: true,
        ..options(client, Leadership::uncontested(), shutdown)
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
    assert!(was_reported && has_acted.load(Ordering::SeqCst));
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
