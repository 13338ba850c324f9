//! Metrics of autoscalers between `autoscaling/v2` and the form that annotations of `autoscaling/v1` hold.
//!
//! The annotations have the types of `autoscaling/v1`, in which targets and current values are flat. Follows
//! `pkg/apis/autoscaling/v1/conversion.go`.

use api::json::{Object, Value};

/// Targets of a spec, or current values of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Current,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Target => "target",
            Side::Current => "current",
        }
    }

    /// The name of a flat field, such as `targetAverageValue`.
    fn flat(self, value: &str) -> String {
        format!("{}{value}", self.name())
    }
}

/// The kinds of metrics, by their field.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// A metric of v2 as the annotation has it.
pub(super) fn to_annotation(metric: &Value, side: Side) -> Value {
    let mut flat = Object::new();
    flat.insert("type", metric.get("type").cloned().unwrap_or_default());
    for source in SOURCES {
        if let Some(fields) = metric.get(source).filter(|it| !it.is_null()) {
            flat.insert(source, flattened(source, fields, side));
        }
    }
    Value::Object(flat)
}

fn flattened(source: &str, fields: &Value, side: Side) -> Value {
    let value = |field: &str| fields.at(&[side.name(), field]).filter(|it| !it.is_null()).cloned();
    let selector = fields.at(&["metric", "selector"]).filter(|it| !it.is_null()).cloned();
    let name = fields.at(&["metric", "name"]).cloned().unwrap_or_else(|| "".into());
    let zero = || Value::from("0");
    let mut flat = Object::new();
    let mut put = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            flat.insert(field, value);
        }
    };
    match source {
        "object" => {
            put("target", fields.get("describedObject").cloned());
            put("metricName", Some(name));
            put(&side.flat("Value"), Some(value("value").unwrap_or_else(zero)));
            put("selector", selector);
            put("averageValue", value("averageValue"));
        }
        "pods" => {
            put("metricName", Some(name));
            put(&side.flat("AverageValue"), Some(value("averageValue").unwrap_or_else(zero)));
            put("selector", selector);
        }
        "external" => {
            put("metricName", Some(name));
            put("metricSelector", selector);
            match side {
                Side::Target => put("targetValue", value("value")),
                Side::Current => put("currentValue", Some(value("value").unwrap_or_else(zero))),
            }
            put(&side.flat("AverageValue"), value("averageValue"));
        }
        _ => {
            put("name", fields.get("name").cloned());
            put(&side.flat("AverageUtilization"), value("averageUtilization"));
            let average = value("averageValue");
            put(
                &side.flat("AverageValue"),
                if side == Side::Current { average.or_else(|| Some(zero())) } else { average },
            );
            put("container", fields.get("container").filter(|it| !it.is_null()).cloned());
        }
    }
    Value::Object(flat)
}

/// A metric of an annotation as v2 has it.
pub(super) fn from_annotation(metric: &Value, side: Side) -> Value {
    let mut nested = Object::new();
    nested.insert("type", metric.get("type").cloned().unwrap_or_default());
    for source in SOURCES {
        if let Some(fields) = metric.get(source).filter(|it| !it.is_null()) {
            nested.insert(source, unflattened(source, fields, side));
        }
    }
    Value::Object(nested)
}

fn unflattened(source: &str, fields: &Value, side: Side) -> Value {
    let value = |field: &str| fields.get(&side.flat(field)).filter(|it| !it.is_null()).cloned();
    let mut nested = Object::new();
    let mut values = Object::new();
    if matches!(source, "object" | "pods" | "external") {
        if let Some(object) = fields.get("target").filter(|_| source == "object") {
            nested.insert("describedObject", object.clone());
        }
        let mut metric = Object::new();
        metric.insert("name", fields.get("metricName").cloned().unwrap_or_else(|| "".into()));
        let selector = if source == "external" { "metricSelector" } else { "selector" };
        if let Some(selector) = fields.get(selector).filter(|it| !it.is_null()) {
            metric.insert("selector", selector.clone());
        }
        nested.insert("metric", metric);
    } else {
        for field in ["name", "container"] {
            if let Some(given) = fields.get(field).filter(|it| !it.is_null()) {
                nested.insert(field, given.clone());
            }
        }
    }
    let average = match source {
        "object" => fields.get("averageValue").filter(|it| !it.is_null()).cloned(),
        _ => value("AverageValue"),
    };
    // A value of nothing stands for a field that cannot be left out.
    let plain = value("Value").filter(|it| source != "object" || average.is_none() || it.as_str() != Some("0"));
    let all = [("value", plain), ("averageValue", average), ("averageUtilization", value("AverageUtilization"))];
    let kinds = [("value", "Value"), ("averageValue", "AverageValue"), ("averageUtilization", "Utilization")];
    let given = |name: &str| all.iter().any(|(field, value)| *field == name && value.is_some());
    // Kubernetes: of several the last one counts.
    if let (Side::Target, Some((_, kind))) = (side, kinds.iter().rev().find(|(field, _)| given(field))) {
        values.insert("type", *kind);
    }
    for (field, value) in all {
        if let Some(value) = value {
            values.insert(field, value);
        }
    }
    nested.insert(side.name(), values);
    Value::Object(nested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metric: &str, flat: &str, side: Side) {
        let metric = api::json::parse(metric.as_bytes()).unwrap();
        assert_eq!(api::json::to_string(&to_annotation(&metric, side)), flat);
        let flat = api::json::parse(flat.as_bytes()).unwrap();
        assert_eq!(from_annotation(&flat, side), metric);
    }

    #[test]
    fn metrics_of_all_sources_are_flattened_and_restored() {
        check(
            r#"{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":50}}}"#,
            r#"{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}}"#,
            Side::Target,
        );
        check(
            r#"{"type":"Pods","pods":{"metric":{"name":"q"},"target":{"type":"AverageValue","averageValue":"3"}}}"#,
            r#"{"type":"Pods","pods":{"metricName":"q","targetAverageValue":"3"}}"#,
            Side::Target,
        );
        check(
            r#"{"type":"Object","object":{"describedObject":{"kind":"S","name":"s"},"metric":{"name":"q"},"target":{"type":"Value","value":"7"}}}"#,
            r#"{"type":"Object","object":{"target":{"kind":"S","name":"s"},"metricName":"q","targetValue":"7"}}"#,
            Side::Target,
        );
        check(
            r#"{"type":"External","external":{"metric":{"name":"q","selector":{"matchLabels":{"a":"b"}}},"target":{"type":"AverageValue","averageValue":"7"}}}"#,
            r#"{"type":"External","external":{"metricName":"q","metricSelector":{"matchLabels":{"a":"b"}},"targetAverageValue":"7"}}"#,
            Side::Target,
        );
        check(
            r#"{"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","current":{"averageValue":"1","averageUtilization":5}}}"#,
            r#"{"type":"ContainerResource","containerResource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"1","container":"c"}}"#,
            Side::Current,
        );
    }
}
