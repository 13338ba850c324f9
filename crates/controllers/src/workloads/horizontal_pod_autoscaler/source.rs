//! Metrics of pods, objects and other systems, from `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
//!
//! Answers of aggregated servers are read up to a number of bytes. Texts of failures are those of Kubernetes' metrics
//! clients. Follows `pkg/controller/podautoscaler/metrics/client.go` and `k8s.io/metrics/pkg/client/custom_metrics`.

use std::time::Duration;

use api::autoscaling::v2::CrossVersionObjectReference;
use api::core::v1::ResourceList;
use api::json::{self, Value};
use api::quantity::Quantity;
use api::time::Timestamp;
use client::discovery::Discovery;
use client::{Client, Error, Resource};

use super::calculator::{PodMetric, PodMetrics};

const CUSTOM: &str = "custom.metrics.k8s.io";
/// Versions of the custom metrics API that can be read.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Bytes of an answer.
const BYTES_MAX: usize = 16 << 20;
/// The window of a value that names none.
const WINDOW: Duration = Duration::from_secs(60);

/// Usage of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodUsage {
    name: String,
    at: Timestamp,
    window: Duration,
    /// Usage by container.
    containers: Vec<(String, ResourceList)>,
}

impl PodUsage {
    fn parse(item: &Value) -> Option<Self> {
        let container = |it: &Value| {
            let usage = it.get("usage").and_then(|it| json::from_value(it).ok()).unwrap_or_default();
            Some((it.str_at(&["name"])?.to_owned(), usage))
        };
        let window = api::duration::Duration::parse(item.str_at(&["window"]).unwrap_or_default()).ok();
        let window = window.and_then(|it| u64::try_from(it.nanos).ok()).map_or(WINDOW, Duration::from_nanos);
        let containers = item.get("containers").and_then(Value::as_array).unwrap_or_default();
        Some(Self {
            name: item.str_at(&["metadata", "name"])?.to_owned(),
            at: time(item),
            window,
            containers: containers.iter().filter_map(container).collect(),
        })
    }

    /// The usage of a resource by one container, or by all of them if each has a value.
    fn of(&self, resource: &str, container: &str) -> Option<PodMetric> {
        let amount = |(_, usage): &(String, ResourceList)| usage.get(resource).map(Quantity::milli_value);
        let value = if container.is_empty() {
            if self.containers.is_empty() {
                return None;
            }
            self.containers.iter().try_fold(0_i64, |sum, it| Some(sum.saturating_add(amount(it)?)))?
        } else {
            amount(self.containers.iter().find(|(name, _)| name == container)?)?
        };
        Some(PodMetric { value, at: self.at, window: self.window })
    }
}

/// The usage of a resource by pod.
pub(super) fn usage_of(pods: &[PodUsage], resource: &str, container: &str) -> PodMetrics {
    pods.iter().filter_map(|pod| Some((pod.name.as_str().into(), pod.of(resource, container)?))).collect()
}

/// Reads the metrics of one namespace.
pub(super) struct Source<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Source<'_> {
    /// The usage of the pods that a selector matches.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) async fn usage(&self, selector: &str) -> Result<Vec<PodUsage>, String> {
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={}",
            self.namespace,
            encoded(selector)
        );
        let answer = self.get(&path, "pods.metrics.k8s.io").await;
        let answer = answer.map_err(|why| format!("unable to fetch metrics from resource metrics API: {why}"))?;
        let pods: Vec<PodUsage> = items(&answer).iter().filter_map(PodUsage::parse).collect();
        match pods.is_empty() {
            true => Err("no metrics returned from resource metrics API".to_owned()),
            false => Ok(pods),
        }
    }

    /// The values of a custom metric of the pods that a selector matches.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) async fn of_pods(&self, metric: &str, selector: &str, labels: &str) -> Result<PodMetrics, String> {
        let read = async {
            let version = self.custom_version().await?;
            let path = format!(
                "/apis/{CUSTOM}/{version}/namespaces/{}/pods/*/{}?labelSelector={}{}",
                self.namespace,
                encoded(metric),
                encoded(selector),
                parameter("metricLabelSelector", labels)
            );
            self.get(&path, &format!("pods.{CUSTOM} *")).await
        };
        let answer = read.await.map_err(|why| format!("unable to fetch metrics from custom metrics API: {why}"))?;
        let items = items(&answer);
        if items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let value = |item: &Value| {
            let seconds = item.get("windowSeconds").or_else(|| item.get("window")).and_then(Value::as_i64);
            let window = seconds.and_then(|it| u64::try_from(it).ok()).map_or(WINDOW, Duration::from_secs);
            let name = item.str_at(&["describedObject", "name"])?;
            Some((name.into(), PodMetric { value: milli(item)?, at: time(item), window }))
        };
        Ok(items.iter().filter_map(value).collect())
    }

    /// The value of a custom metric of one object.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) async fn of_object(
        &self,
        metric: &str,
        object: &CrossVersionObjectReference,
        labels: &str,
        discovery: &Discovery,
    ) -> Result<i64, String> {
        let read = async {
            let version = self.custom_version().await?;
            let namespace = self.namespace;
            let is_namespace = object.kind == "Namespace" && !object.api_version.contains('/');
            let place = if is_namespace {
                // Kubernetes: the reference cannot name another namespace than its own.
                "metrics".to_owned()
            } else {
                let found = discovery.find(&object.api_version, &object.kind);
                let group = object.api_version.split_once('/').map_or("", |it| it.0);
                let found = found.ok_or_else(|| no_match(&object.kind, group))?;
                format!("{}/{}", group_resource(&found.resource), encoded(&object.name))
            };
            let labels = parameter("metricLabelSelector", labels).replacen('&', "?", 1);
            let path = format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/{place}/{}{labels}", encoded(metric));
            let what = format!("{}.{CUSTOM}", place.split('/').next().unwrap_or_default());
            let answer = self.get(&path, &format!("{what} {}", object.name)).await?;
            match items(&answer) {
                [one] => milli(one).ok_or_else(|| "the custom metrics API server returned no value".to_owned()),
                several => Err(format!(
                    "the custom metrics API server returned {} results when we asked for exactly one",
                    several.len()
                )),
            }
        };
        read.await.map_err(|why| format!("unable to fetch metrics from custom metrics API: {why}"))
    }

    /// The sum of the values of an external metric.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) async fn external(&self, metric: &str, labels: &str) -> Result<i64, String> {
        let labels = parameter("labelSelector", labels).replacen('&', "?", 1);
        let path =
            format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}{labels}", self.namespace, encoded(metric));
        let answer = self.get(&path, &format!("{metric}.external.metrics.k8s.io")).await;
        let answer = answer.map_err(|why| format!("unable to fetch metrics from external metrics API: {why}"))?;
        match items(&answer) {
            [] => Err("no metrics returned from external metrics API".to_owned()),
            all => Ok(all.iter().filter_map(milli).fold(0, i64::saturating_add)),
        }
    }

    /// The version of the custom metrics API that is preferred, or else one that can be read.
    async fn custom_version(&self) -> Result<&'static str, String> {
        let none = || format!("no custom metrics API ({CUSTOM}) registered");
        let group = match self.read(&format!("/apis/{CUSTOM}")).await {
            Ok(group) => group,
            Err(Error::Refused(status)) if status.code == 404 => return Err(none()),
            Err(error) => return Err(error.to_string()),
        };
        let preferred = group.str_at(&["preferredVersion", "version"]);
        let versions = group.get("versions").and_then(Value::as_array).unwrap_or_default();
        let mut served = preferred.into_iter().chain(versions.iter().filter_map(|it| it.str_at(&["version"])));
        served.find_map(|version| CUSTOM_VERSIONS.into_iter().find(|it| *it == version)).ok_or_else(none)
    }

    async fn get(&self, path: &str, what: &str) -> Result<Value, String> {
        self.read(path).await.map_err(|error| text(&error, what))
    }

    async fn read(&self, path: &str) -> Result<Value, Error> {
        let mut body = Vec::new();
        let take = |piece: &[u8]| {
            if body.len().saturating_add(piece.len()) > BYTES_MAX {
                return Err(std::io::Error::other(format!("the answer is longer than {BYTES_MAX} bytes")));
            }
            body.extend_from_slice(piece);
            Ok(())
        };
        self.client.download(path, take).await?;
        Ok(json::parse(&body)?)
    }
}

/// Kubernetes: a kind that is not served.
pub(super) fn no_match(kind: &str, group: &str) -> String {
    format!("no matches for kind \"{kind}\" in group \"{group}\"")
}

/// An error as client-go words it. Answers that are no `Status` have its own words.
fn text(error: &Error, what: &str) -> String {
    match error {
        Error::Refused(status) if status.code == 404 && is_general(&status.message) => {
            format!("the server could not find the requested resource (get {what})")
        }
        Error::Refused(status) if status.code == 503 => {
            format!("the server is currently unable to handle the request (get {what})")
        }
        error => telemetry::logs::chain(error).to_string(),
    }
}

fn is_general(message: &str) -> bool {
    message.is_empty()
        || message.starts_with("404 page not found")
        || message == "the server could not find the requested resource"
}

fn items(answer: &Value) -> &[Value] {
    answer.get("items").and_then(Value::as_array).unwrap_or_default()
}

fn time(item: &Value) -> Timestamp {
    item.str_at(&["timestamp"]).and_then(|it| Timestamp::parse(it).ok()).unwrap_or(Timestamp::ZERO)
}

fn milli(item: &Value) -> Option<i64> {
    let value = item.get("value")?;
    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    Quantity::parse(&text).ok().map(|it| it.milli_value())
}

fn group_resource(resource: &Resource) -> String {
    match &*resource.group {
        "" => resource.plural.to_string(),
        group => format!("{}.{group}", resource.plural),
    }
}

/// A further parameter of a query, unless it is empty.
fn parameter(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("&{name}={}", encoded(value)) }
}

/// A text as it stands in a path or query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_summed_unless_a_container_lacks_it() {
        let item = api::json!({"metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "20s", "containers": [
            {"name": "a", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "1"}}]});
        let pods = [PodUsage::parse(&item).unwrap()];
        let value = |resource: &str, container: &str| {
            usage_of(&pods, resource, container).get("p").map(|it| (it.value, it.window.as_secs()))
        };
        assert_eq!(value("cpu", ""), Some((1250, 20)));
        assert_eq!((value("cpu", "b"), value("cpu", "c")), (Some((1000, 20)), None));
        assert_eq!((value("memory", ""), value("memory", "a")), (None, Some((1_024_000, 20))));
    }

    #[test]
    fn texts_are_encoded_in_paths() {
        assert_eq!(encoded("a in (b,c)/ü"), "a%20in%20%28b%2Cc%29%2F%C3%BC");
        assert_eq!((parameter("x", ""), parameter("x", "a=b").as_str()), (String::new(), "&x=a%3Db"));
    }

    #[test]
    fn values_are_read_as_thousandths() {
        assert_eq!(milli(&api::json!({"value": "1500m"})), Some(1500));
        assert_eq!(milli(&api::json!({"value": 3})), Some(3000));
        assert_eq!(milli(&api::json!({"value": "x"})), None);
    }
}
