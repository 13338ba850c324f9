//! The admission webhook for annotations that carry the proposals' fields.
//!
//! It validates annotations as an API server with the fields would, applies the update rules of the fields, and rejects pods
//! that go to a scheduler that does not read them. Its certificate is in a Secret, which all replicas share; it is generated
//! and renewed here, and its authority is written into the webhook configurations.

mod certificate;

use std::net::SocketAddr;
use std::sync::Arc;

use api::features::Features;
use api::json::Value;
use apiserver::server::listen;
use bytes::Bytes;
use client::{Client, Resource};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use registry::annotations;
use registry::annotations::review;
use telemetry::logs::chain;
use telemetry::metrics::{Counter, Family};
use tracing::{info, warn};

use super::Role;
use crate::placement::Merger;

/// Name of the component in metrics and logs.
pub const NAME: &str = "celplane-webhook";
/// Maximum size of a review: an object of 3 MiB, twice, and what is around it.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Claims of a pod that are looked up.
const CLAIMS_MAX: usize = 64;

const CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");
const CLAIM_TEMPLATES: Resource =
    Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");

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
}

/// The state that requests share.
struct Webhook {
    client: Client,
    settings: Settings,
    merger: Arc<Merger>,
    reviews: Arc<Family<Counter>>,
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
        let webhook = Arc::new(Webhook { client, settings, merger, reviews });
        let page: listen::Page = Arc::new(move |request, _| {
            let webhook = webhook.clone();
            Box::pin(async move { webhook.respond(request).await })
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
        let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let review = match api::json::parse(&body) {
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
        let claim = self.annotated_claim(&review).await;
        let (merger, settings) = (self.merger.clone(), self.settings.clone());
        // Compiling expressions must not hold up connections.
        let decided =
            tokio::task::spawn_blocking(move || decide(&review, claim.as_deref(), mutates, &settings, &merger));
        let mut response = decided.await.unwrap_or_else(|error| {
            warn!(err = %chain(&error), "Review failed");
            api::json!({"allowed": false, "status": {"code": 500, "message": "the review failed"}})
        });
        if let Some(fields) = response.as_object_mut() {
            fields.insert("uid", uid);
        }
        api::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// Returns the name of a claim of a new pod, or of its template, that has annotations. A claim that does not exist yet
    /// has none.
    async fn annotated_claim(&self, review: &Value) -> Option<String> {
        let request = review.get("request")?;
        if request.str_at(&["kind", "kind"]) != Some("Pod") || request.str_at(&["operation"]) != Some("CREATE") {
            return None;
        }
        let namespace = request.text("namespace");
        let claims = request.list_at(&["object", "spec", "resourceClaims"]);
        for claim in claims.iter().take(CLAIMS_MAX) {
            let named = |field: &str| claim.str_at(&[field]).filter(|name| !name.is_empty());
            let (resource, name) = match (named("resourceClaimName"), named("resourceClaimTemplateName")) {
                (Some(name), _) => (CLAIMS, name),
                (None, Some(name)) => (CLAIM_TEMPLATES, name),
                (None, None) => continue,
            };
            let kind = resource.kind.clone();
            match self.client.documents(resource).get(namespace, name).await {
                Ok(object) if annotations::has_any(&kind, &object) => return Some(name.to_owned()),
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                // Unknown claims count as annotated: only a scheduler that reads annotations is safe for both.
                Err(error) => {
                    warn!(resourceClaim = %format!("{namespace}/{name}"), err = %chain(&error), "Could not read claim");
                    return Some(name.to_owned());
                }
            }
        }
        None
    }
}

/// The response to a review, without its uid.
fn decide(review: &Value, claim: Option<&str>, mutates: bool, settings: &Settings, merger: &Merger) -> Value {
    let null = Value::Null;
    let part = |path: &[&str]| review.at(path).unwrap_or(&null);
    let text = |path: &[&str]| review.text_at(path);
    let old = part(&["request", "oldObject"]);
    let request = review::Request {
        kind: text(&["request", "kind", "kind"]),
        object: part(&["request", "object"]),
        old: (!old.is_null()).then_some(old),
        schedulers: &settings.schedulers,
        claim,
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
