//! Counters, gauges and histograms, and their Prometheus text.
//!
//! A [`Family`] has one series per combination of label values. Series are shared handles: code on a hot path
//! looks up its handle once. A metric without labels is a family without label names. A [`Registry`] writes all
//! families of a component.

use locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Current count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Changes the value by `amount`.
    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of observations below each bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    count: AtomicU64,
    /// In millionths, so that it can be added to atomically.
    sum_micros: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let buckets = bounds.iter().map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, count: AtomicU64::new(0), sum_micros: AtomicU64::new(0) }
    }

    /// Counts a value.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "negative values count as zero")]
    pub fn observe(&self, value: f64) {
        if let Some(bucket) = self.bounds.iter().position(|bound| value <= *bound).and_then(|at| self.buckets.get(at)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add((value * 1e6).max(0.0) as u64, Ordering::Relaxed);
    }

    /// Counts a duration, in seconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A kind of series.
pub trait Metric: Send + Sync + 'static {
    /// The type as Prometheus names it.
    const TYPE: &'static str;
    /// A series that has seen nothing.
    fn new(bounds: &'static [f64]) -> Self;
    /// Writes the lines of a series.
    fn write(&self, out: &mut String, name: &str, labels: &str);
}

impl Metric for Counter {
    const TYPE: &'static str = "counter";

    fn new(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        line(out, name, labels, "", self.get());
    }
}

impl Metric for Gauge {
    const TYPE: &'static str = "gauge";

    fn new(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        line(out, name, labels, "", self.get());
    }
}

impl Metric for Histogram {
    const TYPE: &'static str = "histogram";

    fn new(bounds: &'static [f64]) -> Self {
        Histogram::new(bounds)
    }

    #[expect(clippy::cast_precision_loss, reason = "the sum is shown as a float")]
    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0_u64;
        let bucket_name = format!("{name}_bucket");
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            below = below.saturating_add(bucket.load(Ordering::Relaxed));
            line(out, &bucket_name, labels, &format!("le=\"{}\"", Number(*bound)), below);
        }
        line(out, &bucket_name, labels, "le=\"+Inf\"", self.count());
        let sum = self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6;
        line(out, &format!("{name}_sum"), labels, "", Number(sum));
        line(out, &format!("{name}_count"), labels, "", self.count());
    }
}

/// A number as Prometheus writes it: `1e-08` rather than `0.00000001`.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.0.abs();
        if !size.is_finite() || size == 0.0 || (1e-4..1e6).contains(&size) {
            return write!(f, "{}", self.0);
        }
        let text = format!("{:e}", self.0);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        write!(f, "{digits}e{sign}{exponent:0>2}")
    }
}

fn line(out: &mut String, name: &str, labels: &str, extra: &str, value: impl std::fmt::Display) {
    let comma = if labels.is_empty() || extra.is_empty() { "" } else { "," };
    // Writing to a string does not fail.
    let _ = if labels.is_empty() && extra.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}{comma}{extra}}} {value}")
    };
}

/// All series of one metric.
pub struct Family<M> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    bounds: &'static [f64],
    /// By their label values, each behind an end mark.
    series: RwLock<HashMap<Box<str>, Arc<M>>>,
}

/// Ends a label value in a key. Values that hold it would only share a series with others that do.
const END: char = '\u{0}';

impl<M: Metric> Family<M> {
    /// The series with these label values, in the order of the label names.
    pub fn with(&self, values: &[&str]) -> Arc<M> {
        let mut key = String::with_capacity(128);
        for (_, value) in self.labels.iter().zip(values) {
            key.push_str(value);
            key.push(END);
        }
        if let Some(series) = self.series.read().get(key.as_str()) {
            return series.clone();
        }
        let mut all = self.series.write();
        all.entry(key.into()).or_insert_with(|| Arc::new(M::new(self.bounds))).clone()
    }
}

/// Label values as Prometheus writes them.
fn label_text(labels: &[&str], key: &str) -> String {
    let mut text = String::new();
    for (label, value) in labels.iter().zip(key.split(END)) {
        let comma = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{label}=\"{value}\"");
    }
    text
}

trait AnyFamily: Send + Sync {
    fn name(&self) -> &'static str;
    fn write(&self, out: &mut String);
}

impl<M: Metric> AnyFamily for Family<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&self, out: &mut String) {
        let all = self.series.read();
        if all.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = write!(out, "# HELP {0} {1}\n# TYPE {0} {2}\n", self.name, self.help, M::TYPE);
        let mut sorted: Vec<(String, &Arc<M>)> =
            all.iter().map(|(key, series)| (label_text(self.labels, key), series)).collect();
        sorted.sort_by(|left, right| left.0.cmp(&right.0));
        for (labels, series) in sorted {
            series.write(out, self.name, &labels);
        }
    }
}

type ReadSeries = Box<dyn Fn() -> Vec<(Vec<String>, f64)> + Send + Sync>;

/// A gauge whose series are computed when they are written.
struct ComputedGauge {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    read: ReadSeries,
}

impl AnyFamily for ComputedGauge {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&self, out: &mut String) {
        let key = |values: Vec<String>| values.into_iter().fold(String::new(), |key, value| key + &value + "\0");
        let labeled = |(values, value)| (label_text(self.labels, &key(values)), value);
        let mut series: Vec<(String, f64)> = (self.read)().into_iter().map(labeled).collect();
        if series.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = write!(out, "# HELP {0} {1}\n# TYPE {0} gauge\n", self.name, self.help);
        series.sort_by(|left, right| left.0.cmp(&right.0));
        for (labels, value) in series {
            line(out, self.name, &labels, "", Number(value));
        }
    }
}

/// A counter that is kept elsewhere: its name behind a prefix, its help, at most one label with its value, and the number.
pub type Sample = (&'static str, &'static str, Option<(&'static str, &'static str)>, f64);

/// Counters that are read when they are written.
struct Samples {
    prefix: &'static str,
    read: Box<dyn Fn() -> Vec<Sample> + Send + Sync>,
}

impl AnyFamily for Samples {
    fn name(&self) -> &'static str {
        self.prefix
    }

    fn write(&self, out: &mut String) {
        let mut samples = (self.read)();
        samples.sort_by_key(|(name, _, label, _)| (*name, *label));
        let mut last = "";
        for (name, help, label, value) in samples {
            let full = format!("{}_{name}", self.prefix);
            if name != last {
                // Writing to a string does not fail.
                let _ = write!(out, "# HELP {full} {help}\n# TYPE {full} counter\n");
                last = name;
            }
            let labels = label.map(|(label, value)| label_text(&[label], value)).unwrap_or_default();
            line(out, &full, &labels, "", Number(value));
        }
    }
}

/// The families of one component. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry {
    families: Arc<Mutex<Vec<Arc<dyn AnyFamily>>>>,
}

impl Registry {
    /// No families yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new family; `bounds` are for histograms.
    pub fn family<M: Metric>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
    ) -> Arc<Family<M>> {
        let family = Arc::new(Family { name, help, labels, bounds, series: RwLock::default() });
        self.families.lock().push(family.clone());
        family
    }

    /// A gauge that is computed on each scrape: label values, in the order of the label names, and the number
    /// of each series.
    pub fn computed(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: impl Fn() -> Vec<(Vec<String>, f64)> + Send + Sync + 'static,
    ) {
        let gauge = Arc::new(ComputedGauge { name, help, labels, read: Box::new(read) });
        self.families.lock().push(gauge);
    }

    /// Registers counters that are read when they are written, named `PREFIX_NAME`.
    pub fn counters(&self, prefix: &'static str, read: impl Fn() -> Vec<Sample> + Send + Sync + 'static) {
        let samples = Arc::new(Samples { prefix, read: Box::new(read) });
        self.families.lock().push(samples);
    }

    /// All families as Prometheus text, sorted by name.
    #[must_use]
    pub fn text(&self) -> String {
        let mut families = self.families.lock().clone();
        families.sort_by_key(|family| family.name());
        let mut out = String::new();
        for family in families {
            family.write(&mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, text) in
            [(1e-8, "1e-08"), (2.5e-5, "2.5e-05"), (1e-4, "0.0001"), (0.0, "0"), (10.0, "10"), (1e6, "1e+06")]
        {
            assert_eq!(Number(number).to_string(), text);
        }
    }

    #[test]
    fn counters_kept_elsewhere_are_read_when_they_are_written() {
        let registry = Registry::new();
        let by_field = |field| Some(("field", field));
        registry.counters("x_cel", move || {
            vec![
                ("b_total", "B", None, 2.0),
                ("a_total", "A", by_field("v"), 0.5),
                ("a_total", "A", by_field("u"), 1.0),
            ]
        });
        let text = "# HELP x_cel_a_total A\n# TYPE x_cel_a_total counter\nx_cel_a_total{field=\"u\"} 1\n\
                    x_cel_a_total{field=\"v\"} 0.5\n# HELP x_cel_b_total B\n# TYPE x_cel_b_total counter\nx_cel_b_total 2\n";
        assert_eq!(registry.text(), text);
    }

    #[test]
    fn computed_gauges_are_read_when_they_are_written() {
        let registry = Registry::new();
        let value = Arc::new(Gauge::default());
        let read = value.clone();
        let labels = &["name"];
        registry.computed("age", "Age", labels, move || match read.get() {
            0 => Vec::new(),
            _ => vec![(vec!["b\"".to_owned()], 0.5), (vec!["a".to_owned()], 2.0)],
        });
        assert_eq!(registry.text(), "");
        value.set(1);
        let lines = "age{name=\"a\"} 2\nage{name=\"b\\\"\"} 0.5\n";
        assert_eq!(registry.text(), format!("# HELP age Age\n# TYPE age gauge\n{lines}"));
    }

    #[test]
    fn families_are_written_as_prometheus_text() {
        let registry = Registry::new();
        let requests = registry.family::<Counter>("requests_total", "[STABLE] Requests", &["verb", "code"], &[]);
        requests.with(&["GET", "200"]).add(2);
        requests.with(&["GET", "200"]).increment();
        let times = registry.family::<Histogram>("duration_seconds", "[STABLE] Time", &["verb"], &[0.5, 1.0]);
        times.with(&["a\"b"]).observe(0.7);
        registry.family::<Gauge>("idle", "Never shown", &["x"], &[]);
        assert_eq!(
            registry.text(),
            "# HELP duration_seconds [STABLE] Time\n# TYPE duration_seconds histogram\n\
             duration_seconds_bucket{verb=\"a\\\"b\",le=\"0.5\"} 0\nduration_seconds_bucket{verb=\"a\\\"b\",le=\"1\"} 1\n\
             duration_seconds_bucket{verb=\"a\\\"b\",le=\"+Inf\"} 1\nduration_seconds_sum{verb=\"a\\\"b\"} 0.7\n\
             duration_seconds_count{verb=\"a\\\"b\"} 1\n\
             # HELP requests_total [STABLE] Requests\n# TYPE requests_total counter\n\
             requests_total{verb=\"GET\",code=\"200\"} 3\n"
        );
    }
}
