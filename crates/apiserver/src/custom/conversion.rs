//! Conversion of custom resources between their versions by a webhook.
//!
//! [`Converter`] calls the webhook of one definition; the document and the rules of its answer are in
//! [`registry::conversion_review`]. A webhook whose pods are simulated is not called: then objects are converted as with the
//! strategy `None`, and users are warned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::go_text::quote;
use api::json::{self, Value};
use api::metadata;
use registry::conversion_review::{self, GROUP, KIND};
use telemetry::metrics::{Counter, Family, Histogram, Registry};
use tokio::sync::Semaphore;

use crate::outbound::backends::{Backend, Backends, NoAnswer};
use crate::outbound::reviews;
use crate::random;
use crate::storage::recorder::{Recorder, RegardingObject};
use crate::wire::warnings;

/// The most that a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of background conversions; other objects are converted when a request needs them.
pub(crate) const WARMING_MAX: u32 = 64;

/// The parts that all converters share.
pub(crate) struct Conversions {
    backends: Arc<Backends>,
    metrics: ConversionMetrics,
    recorder: Arc<Recorder>,
    /// Permits of conversions in the background.
    pub(crate) warming: Arc<Semaphore>,
}

impl Conversions {
    pub(crate) fn new(backends: Arc<Backends>, recorder: Arc<Recorder>, registry: &Registry) -> Self {
        let permits = usize::try_from(WARMING_MAX).unwrap_or(usize::MAX);
        let warming = Arc::new(Semaphore::new(permits));
        Self { backends, metrics: ConversionMetrics::new(registry), recorder, warming }
    }
}

/// Histogram buckets of conversion durations, in seconds.
const DOUBLING: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Counts and times of conversions, under Kubernetes' names.
struct ConversionMetrics {
    durations: Arc<Family<Histogram>>,
    requests: Arc<Family<Counter>>,
    latencies: Arc<Family<Histogram>>,
    skipped: Arc<Family<Counter>>,
}

impl ConversionMetrics {
    fn new(registry: &Registry) -> Self {
        Self {
            durations: registry.family(
                "apiserver_crd_conversion_webhook_duration_seconds",
                "[ALPHA] CRD webhook conversion duration in seconds",
                &["crd_name", "from_version", "succeeded", "to_version"],
                DOUBLING,
            ),
            requests: registry.family(
                "apiserver_conversion_webhook_request_total",
                "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
                &["failure_type", "result"],
                &[],
            ),
            latencies: registry.family(
                "apiserver_conversion_webhook_duration_seconds",
                "[ALPHA] Conversion webhook request latency",
                &["failure_type", "result"],
                &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
            ),
            skipped: registry.family(
                "celplane_apiserver_simulated_converter_skipped_total",
                "[ALPHA] Calls of conversion webhooks that were skipped because the pods of their Service are simulated.",
                &["crd_name"],
                &[],
            ),
        }
    }
}

/// The reasons why objects are not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversionError {
    /// The conversion failed, in Kubernetes' words.
    Failed(String),
    /// The webhook's pods are simulated: the strategy `None` applies.
    Simulated,
}

/// A failed call: its type in metrics, and its text.
type CallFailure = (&'static str, String);

/// The conversion webhook of a CustomResourceDefinition.
pub(crate) struct Converter {
    shared: Arc<Conversions>,
    definition: RegardingObject,
    backend: Backend,
    /// The version of reviews that it is sent: the first known one that it names.
    version: Option<&'static str>,
}

impl Converter {
    /// The webhook of a definition; none if its strategy is another.
    pub(super) fn of(definition: &Value, shared: &Arc<Conversions>) -> Option<Arc<Self>> {
        let conversion = definition.at(&["spec", "conversion"])?;
        if conversion.str_at(&["strategy"]) != Some("Webhook") {
            return None;
        }
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array).unwrap_or_default();
        let known = ["v1", "v1beta1"];
        Some(Arc::new(Self {
            shared: shared.clone(),
            definition: RegardingObject {
                api_version: "apiextensions.k8s.io/v1",
                kind: "CustomResourceDefinition",
                name: metadata::name(definition).to_owned(),
                uid: metadata::text(definition, "uid").to_owned(),
            },
            backend: Backend::of(webhook.get("clientConfig").unwrap_or(&Value::Null)),
            version: versions.iter().find_map(|it| known.into_iter().find(|known| it.as_str() == Some(known))),
        }))
    }

    /// The shared parts.
    pub(super) fn shared(&self) -> &Arc<Conversions> {
        &self.shared
    }

    /// Converts objects, all of which are in another version, to the version `to`, named `group/version`.
    ///
    /// # Errors
    /// A text for users. Texts about one of several objects do not name it.
    pub(crate) async fn convert(&self, objects: Vec<Value>, to: &str) -> Result<Vec<Value>, ConversionError> {
        let started = Instant::now();
        let from = objects.first().and_then(|it| it.str_at(&["apiVersion"])).unwrap_or_default().to_owned();
        let kind = objects.first().and_then(|it| it.str_at(&["kind"])).unwrap_or_default();
        let about = format!("conversion webhook for {from}, Kind={kind}");
        let outcome = match self.ask(objects, to, &about).await {
            Some(outcome) => outcome,
            None => {
                self.skip();
                return Err(ConversionError::Simulated);
            }
        };
        let elapsed = started.elapsed();
        let metrics = &self.shared.metrics;
        let (failure_type, result) = match &outcome {
            Ok(_) => ("", "success"),
            Err((failure_type, _)) => (*failure_type, "failure"),
        };
        metrics.requests.with(&[failure_type, result]).increment();
        metrics.latencies.with(&[failure_type, result]).observe_duration(elapsed);
        let version = |api_version: &str| api_version.rsplit('/').next().unwrap_or_default().to_owned();
        let succeeded = if outcome.is_ok() { "true" } else { "false" };
        let labels = [&*self.definition.name, &*version(&from), succeeded, &*version(to)];
        metrics.durations.with(&labels).observe_duration(elapsed);
        outcome.map_err(|(_, why)| ConversionError::Failed(why))
    }

    /// Calls the webhook; none if it is not called.
    async fn ask(&self, objects: Vec<Value>, to: &str, about: &str) -> Option<Result<Vec<Value>, CallFailure>> {
        let Some(version) = self.version else {
            return Some(Err((
                "conversion_webhook_call_failure",
                "no supported conversion review versions".to_owned(),
            )));
        };
        let uid = random::uid();
        let review = conversion_review::request(version, &uid, to, objects.clone());
        let body = json::to_string(&review).into();
        let body = match self.shared.backends.call(&self.backend, body, TIMEOUT).await {
            Ok(body) => body,
            Err(NoAnswer::Simulated) => return None,
            Err(NoAnswer::Unreachable(why) | NoAnswer::Rejected(why, _)) => {
                return Some(Err(("conversion_webhook_call_failure", format!("{about} failed: {why}"))));
            }
        };
        Some(read(&body, (version, &uid), &objects, to, about))
    }

    /// Reports that the webhook is not called.
    fn skip(&self) {
        let name = &self.definition.name;
        self.shared.metrics.skipped.with(&[name]).increment();
        let why = format!(
            "conversion webhook of {} was not called: the pods of its service are simulated; objects are converted by rewriting their apiVersion; map the service with --backend, or use --simulated-backends=fail",
            quote(name)
        );
        self.shared.recorder.warn(&self.definition, "SimulatedBackend", why.clone());
        warnings::add([why]);
    }
}

/// Reads the response of the webhook; it must have the version and uid of the review that was sent.
fn read(
    body: &[u8],
    (version, uid): (&str, &str),
    objects: &[Value],
    to: &str,
    about: &str,
) -> Result<Vec<Value>, CallFailure> {
    let unreadable = |why: String| ("conversion_webhook_call_failure", format!("{about} failed: {why}"));
    let malformed = |why: String| ("conversion_webhook_malformed_response_failure", format!("{about} failed: {why}"));
    let mut review = reviews::parse(body).map_err(unreadable)?;
    reviews::check_type(&review, (GROUP, KIND), version).map_err(unreadable)?;
    if version == "v1" {
        reviews::confirm_type(&review, (GROUP, KIND), version).map_err(malformed)?;
    }
    let converted = conversion_review::converted_objects(&mut review, version, uid).map_err(malformed)?;
    if converted.len() != objects.len() {
        let why = format!("{about} returned {} objects, expected {}", converted.len(), objects.len());
        return Err(("conversion_webhook_partial_response_failure", why));
    }
    let invalid = |why| ("conversion_webhook_invalid_converted_object_failure", why);
    let pairs = objects.iter().zip(converted);
    pairs.map(|(original, it)| conversion_review::accept(about, original, it, to).map_err(invalid)).collect()
}
