//! The admission webhook for annotations that carry the proposals' fields.
//!
//! It validates annotations as an API server with the fields would, applies the update rules of the fields, and rejects pods
//! that go to a scheduler that does not read them. Its certificate is in a Secret, which all replicas share; it is generated
//! and renewed here, and its authority is written into the webhook configurations.

mod callers;
mod certificate;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use api::features::Features;
use api::json::Value;
use apiserver::audit::Peer;
use apiserver::server::listen;
use bytes::Bytes;
use client::{Client, Resource};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use registry::annotations;
use registry::annotations::review;
use telemetry::logs::chain;
use telemetry::metrics::{Counter, Family};
use tracing::{info, warn};

use self::callers::Callers;
use super::Role;
use crate::placement::Merger;

/// Name of the component in metrics and logs.
pub const NAME: &str = "celplane-webhook";
/// Claims of a pod that are looked up, of each kind.
const CLAIMS_MAX: usize = 64;

const CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");
const CLAIM_TEMPLATES: Resource =
    Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
const VOLUME_CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes", "PersistentVolume");

/// Settings of the webhook.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The namespace of the Service and the Secret.
    pub namespace: String,
    /// The Service whose name the certificate has.
    pub service: String,
    /// The Secret with the certificate.
    pub secret: String,
    /// The name of the webhook configurations.
    pub configuration: String,
    /// Names of the schedulers that read annotations.
    pub schedulers: Vec<String>,
    /// Whether pods that need such a scheduler and name the default one get the first of them.
    pub assigns_scheduler: bool,
    /// Whether annotations of the volumes to which a new pod's claims are bound count as annotations of the pod.
    pub reads_volumes: bool,
}

/// The name of an object of a pod that has annotations.
enum CarrierName {
    Claim(String),
    Volume(String),
}

impl CarrierName {
    fn as_carrier(&self) -> review::Carrier<'_> {
        match self {
            Self::Claim(name) => review::Carrier::Claim(name),
            Self::Volume(name) => review::Carrier::Volume(name),
        }
    }
}

/// The state that requests share.
struct Webhook {
    client: Client,
    settings: Settings,
    merger: Arc<Merger>,
    reviews: Arc<Family<Counter>>,
    callers: Callers,
}

/// Starts the webhook.
pub fn start(client: Client, features: Features, settings: Settings) -> Role {
    Role::start(NAME, features, move |setting| async move {
        client.publish_connections(&setting.registry);
        let merger = Arc::new(Merger::new(features)?);
        let reviews = setting.registry.family(
            "celplane_webhook_reviews_total",
            "[ALPHA] Number of admission reviews by path and whether the request was allowed.",
            &["path", "allowed"],
            &[],
        );
        let (acceptor, renewing) = certificate::start(client.clone(), settings.clone()).await?;
        let listener = super::status::listen(settings.address).await?;
        info!(address = %settings.address, "Started webhook");
        let webhook = Arc::new(Webhook { client, settings, merger, reviews, callers: Callers::default() });
        let page: listen::Page = Arc::new(move |request, _| {
            let webhook = webhook.clone();
            Box::pin(async move { webhook.respond(request).await.map(listen::PageBody::from) })
        });
        tokio::select! {
            () = listen::serve_renewed_pages(page, listener, acceptor) => {}
            () = renewing => {}
            () = setting.shutdown.requested() => {}
        }
        Ok(())
    })
}

impl Webhook {
    async fn respond(&self, request: Request<Incoming>) -> Response<Bytes> {
        let path = match (request.method(), request.uri().path()) {
            (&Method::GET, "/healthz" | "/livez" | "/readyz") => return plain(StatusCode::OK, "ok"),
            (&Method::POST, "/validate") => "/validate",
            (&Method::POST, "/mutate") => "/mutate",
            _ => return plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        let address = request.extensions().get().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| *address);
        let caller = self.callers.of(address);
        let received = match caller.receive(request.into_body()).await {
            Ok(received) => received,
            Err((code, why)) => return plain(code, why),
        };
        let unavailable = || plain(StatusCode::SERVICE_UNAVAILABLE, "the webhook ends\n");
        let Some(_turn) = caller.turn().await else { return unavailable() };
        // A long text must not hold up connections.
        let Ok(parsed) = tokio::task::spawn_blocking(move || api::json::parse(&received.bytes)).await else {
            return unavailable();
        };
        let review = match parsed {
            Ok(review) if review.get("request").is_some() => review,
            Ok(_) => return plain(StatusCode::BAD_REQUEST, "an AdmissionReview with a request is required"),
            Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let response = self.review(review, path == "/mutate").await;
        let allowed = response.flag_at(&["response", "allowed"]);
        self.reviews.with(&[path, if allowed { "true" } else { "false" }]).increment();
        let mut answer = Response::new(Bytes::from(api::json::to_string(&response)));
        answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        answer
    }

    async fn review(&self, review: Value, mutates: bool) -> Value {
        let uid = review.text_at(&["request", "uid"]).to_owned();
        let carrier = self.carrier(&review).await;
        let (merger, settings) = (self.merger.clone(), self.settings.clone());
        // Compiling expressions must not hold up connections.
        let decided = tokio::task::spawn_blocking(move || {
            decide(&review, carrier.as_ref().map(CarrierName::as_carrier), mutates, &settings, &merger)
        });
        let mut response = decided.await.unwrap_or_else(|error| {
            warn!(err = %chain(&error), "Review failed");
            api::json!({"allowed": false, "status": {"code": 500, "message": "the review failed"}})
        });
        if let Some(fields) = response.as_object_mut() {
            fields.insert("uid", uid);
        }
        api::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// Returns an object of a new pod that has annotations: a claim, the template of one, or the volume of a volume claim.
    async fn carrier(&self, review: &Value) -> Option<CarrierName> {
        let request = review.get("request")?;
        if request.str_at(&["kind", "kind"]) != Some("Pod") || request.str_at(&["operation"]) != Some("CREATE") {
            return None;
        }
        let (namespace, spec) = (request.text("namespace"), request.at(&["object", "spec"])?);
        let claims = spec.list("resourceClaims");
        for claim in claims.iter().take(CLAIMS_MAX) {
            let named = |field: &str| claim.str_at(&[field]).filter(|name| !name.is_empty());
            let (resource, name) = match (named("resourceClaimName"), named("resourceClaimTemplateName")) {
                (Some(name), _) => (CLAIMS, name),
                (None, Some(name)) => (CLAIM_TEMPLATES, name),
                (None, None) => continue,
            };
            if self.is_annotated(resource, namespace, name).await {
                return Some(CarrierName::Claim(name.to_owned()));
            }
        }
        // A pod with annotations needs no further reason.
        if !self.settings.reads_volumes || annotations::has_any("Pod", request.field("object")) {
            return None;
        }
        let volumes = spec.list("volumes");
        let claims = volumes.iter().filter_map(|it| it.str_at(&["persistentVolumeClaim", "claimName"]));
        for name in claims.take(CLAIMS_MAX) {
            let volume = match self.client.documents(VOLUME_CLAIMS).get(namespace, name).await {
                // The volume of a claim that is not bound yet is not known.
                Ok(claim) => claim.text_at(&["spec", "volumeName"]).to_owned(),
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    let claim = format!("{namespace}/{name}");
                    warn!(persistentVolumeClaim = %claim, err = %chain(&error), "Could not read claim");
                    return Some(CarrierName::Volume(name.to_owned()));
                }
            };
            if !volume.is_empty() && self.is_annotated(VOLUMES, "", &volume).await {
                return Some(CarrierName::Volume(volume));
            }
        }
        None
    }

    /// Whether an object has annotations. One that does not exist yet has none; one that cannot be read counts as
    /// annotated, because only a scheduler that reads annotations is safe for both.
    async fn is_annotated(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        let kind = resource.kind.clone();
        match self.client.documents(resource).get(namespace, name).await {
            Ok(object) => annotations::has_any(&kind, &object),
            Err(error) if error.is_not_found() => false,
            Err(error) => {
                warn!(kind = %kind, namespace, name, err = %chain(&error), "Could not read object of a pod");
                true
            }
        }
    }
}

/// The response to a review, without its uid.
fn decide(
    review: &Value,
    carrier: Option<review::Carrier<'_>>,
    mutates: bool,
    settings: &Settings,
    merger: &Merger,
) -> Value {
    let null = Value::Null;
    let part = |path: &[&str]| review.at(path).unwrap_or(&null);
    let text = |path: &[&str]| review.text_at(path);
    let old = part(&["request", "oldObject"]);
    let request = review::Request {
        kind: text(&["request", "kind", "kind"]),
        object: part(&["request", "object"]),
        old: (!old.is_null()).then_some(old),
        schedulers: &settings.schedulers,
        carrier,
    };
    if mutates {
        let name = request.assigned_scheduler().filter(|_| settings.assigns_scheduler);
        let Some(name) = name else { return api::json!({"allowed": true}) };
        let patch = api::json!([{"op": "add", "path": "/spec/schedulerName", "value": name}]);
        let patch = api::base64::encode(api::json::to_string(&patch).as_bytes());
        return api::json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
    }
    let errors = request.validate(&merger.context(text(&["request", "namespace"])));
    if errors.is_empty() {
        return api::json!({"allowed": true});
    }
    let (group, kind) = (text(&["request", "kind", "group"]), request.kind);
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let name = match text(&["request", "name"]) {
        "" => request.object.text_at(&["metadata", "generateName"]),
        name => name,
    };
    let message = errors.invalid_message(&qualified, name);
    let causes = errors.causes();
    api::json!({
        "allowed": false,
        "status": {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": message,
            "details": {"name": name, "group": group, "kind": kind, "causes": causes},
        },
    })
}

fn plain(code: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text.to_owned()));
    *response.status_mut() = code;
    response
}
