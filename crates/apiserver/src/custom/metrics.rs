//! Metrics of printer column expressions, per definition and column.
//!
//! Labels are bounded: the first few hundred columns have separate series, the others share one.

use locks::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

use registry::custom_resource::printer_columns::{Columns, Tally};
use telemetry::metrics::{Counter, Family, Histogram, Registry};
use tracing::warn;

use super::serving::ServedVersion;

/// Number of columns with separate series.
const SERIES_MAX: usize = 500;
/// Label value of all other columns.
const OTHER: &str = "other";
/// Maximum number of recorded failures, so that each is logged once.
const LOGGED_MAX: usize = 10_000;

const LABELS: &[&str] = &["crd", "column"];

/// Bounds of evaluation times of the cells of one column in one table, in seconds.
const SECONDS: &[f64] = &[0.000_001, 0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0];

/// The metrics of printer columns.
pub(crate) struct ColumnMetrics {
    evaluations: Arc<Family<Counter>>,
    errors: Arc<Family<Counter>>,
    cost: Arc<Family<Counter>>,
    skipped: Arc<Family<Counter>>,
    seconds: Arc<Family<Histogram>>,
    named: Mutex<HashSet<(String, String)>>,
    logged: Mutex<HashSet<String>>,
}

impl ColumnMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            evaluations: registry.family(
                "apiextensions_apiserver_printer_column_cel_evaluations_total",
                "[ALPHA] Number of evaluations of CEL expressions of printer columns, by definition and column.",
                LABELS,
                &[],
            ),
            errors: registry.family(
                "apiextensions_apiserver_printer_column_cel_errors_total",
                "[ALPHA] Number of evaluations of CEL expressions of printer columns that failed and left a cell empty, by definition and column.",
                LABELS,
                &[],
            ),
            cost: registry.family(
                "apiextensions_apiserver_printer_column_cel_cost_total",
                "[ALPHA] Cost of evaluations of CEL expressions of printer columns, by definition and column.",
                LABELS,
                &[],
            ),
            skipped: registry.family(
                "apiextensions_apiserver_printer_column_cel_skipped_total",
                "[ALPHA] Number of cells that were left empty because the cost budget of the request was exceeded, by definition and column.",
                LABELS,
                &[],
            ),
            seconds: registry.family(
                "apiextensions_apiserver_printer_column_cel_duration_seconds",
                "[ALPHA] Time that the cells of a printer column with a CEL expression took in one table, by definition and column.",
                LABELS,
                SECONDS,
            ),
            named: Mutex::default(),
            logged: Mutex::default(),
        }
    }

    /// Counts what the columns of a table did, and logs failures that have not been logged.
    pub(crate) fn count(&self, serving: &ServedVersion, columns: &Columns, tallies: &[Tally]) {
        for (column, tally) in columns.columns().iter().zip(tallies) {
            if column.expression().is_none() || (tally.evaluations == 0 && tally.skipped == 0) {
                continue;
            }
            let (definition, name) = self.labels(&serving.definition, &column.name);
            let labels = [definition.as_str(), name.as_str()];
            self.evaluations.with(&labels).add(tally.evaluations);
            self.cost.with(&labels).add(tally.cost);
            if tally.errors > 0 {
                self.errors.with(&labels).add(tally.errors);
            }
            if tally.skipped > 0 {
                self.skipped.with(&labels).add(tally.skipped);
            }
            self.seconds.with(&labels).observe_duration(tally.time);
            if let Some(failure) = &tally.first_error {
                let object = if failure.namespace.is_empty() {
                    failure.name.clone()
                } else {
                    format!("{}/{}", failure.namespace, failure.name)
                };
                let key = format!("{}\0{}\0{object}\0{}", serving.definition, column.name, failure.generation);
                if self.is_first(key) {
                    warn!(
                        customResourceDefinition = serving.definition,
                        column = column.name,
                        object,
                        err = failure.message,
                        "Failed to evaluate expression of printer column"
                    );
                }
            }
        }
    }

    fn labels(&self, definition: &str, column: &str) -> (String, String) {
        let labels = (definition.to_owned(), column.to_owned());
        let mut named = self.named.lock();
        if named.contains(&labels) || named.len() < SERIES_MAX {
            named.insert(labels.clone());
            return labels;
        }
        (OTHER.to_owned(), OTHER.to_owned())
    }

    fn is_first(&self, key: String) -> bool {
        let mut logged = self.logged.lock();
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        logged.insert(key)
    }
}
