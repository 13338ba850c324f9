//! FlowSchemas and PriorityLevelConfigurations: what is read of them, and the status that the server gives schemas.

use api::json::Value;
use api::time::Timestamp;

use super::queues::Shape;
use super::shares::Shares;
use crate::initial_objects;
use crate::resources::{self, Resource};
use api::metadata;
use patching::apply::{self, BuiltIn};

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub(crate) const SCHEMAS: &str = "flowschemas";
pub(crate) const LEVELS: &str = "prioritylevelconfigurations";

/// Field manager of the built-in objects, and of the status of schemas.
pub(crate) const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Objects with this annotation follow the server's version of them.
pub(super) const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The objects that are there even when they are not.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// The whole configuration.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    pub(super) levels: Vec<LevelConfiguration>,
    pub(super) schemas: Vec<SchemaConfiguration>,
}

#[derive(Debug)]
pub(super) struct LevelConfiguration {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) shape: Shape,
    pub(super) shares: Shares,
}

#[derive(Debug)]
pub(super) struct SchemaConfiguration {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) level: String,
    pub(super) document: Value,
}

impl Configuration {
    /// From the objects that exist. Those without which nothing would be decided are imagined if they are missing.
    pub(super) fn of(levels: &[Value], schemas: &[Value]) -> Self {
        let mut all = Self::default();
        let imagined = |plural: &str, known: &[Value]| -> Vec<Value> {
            let missing = MANDATORY.iter().filter(|name| !known.iter().any(|it| metadata::name(it) == **name));
            let built_in = initial_objects::built_in(plural);
            missing.filter_map(|name| built_in.iter().find(|it| metadata::name(it) == *name).cloned()).collect()
        };
        for level in levels.iter().chain(&imagined(LEVELS, levels)) {
            all.levels.push(LevelConfiguration::of(level));
        }
        for schema in schemas.iter().chain(&imagined(SCHEMAS, schemas)) {
            all.schemas.push(SchemaConfiguration {
                name: metadata::name(schema).to_owned(),
                uid: metadata::text(schema, "uid").to_owned(),
                level: level_of(schema).to_owned(),
                document: schema.clone(),
            });
        }
        all
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares and percentages are small")]
impl LevelConfiguration {
    fn of(level: &Value) -> Self {
        let is_exempt = level.str_at(&["spec", "type"]) == Some("Exempt");
        let kind = if is_exempt { "exempt" } else { "limited" };
        let number = |path: &[&str]| level.i64_at(path).filter(|number| *number >= 0);
        let own = |field: &str| number(&["spec", kind, field]);
        let queuing = |field: &str| number(&["spec", kind, "limitResponse", "queuing", field]).unwrap_or_default();
        let queues = level.str_at(&["spec", kind, "limitResponse", "type"]) == Some("Queue");
        let positive = |number: i64| u64::try_from(number).unwrap_or_default();
        Self {
            name: metadata::name(level).to_owned(),
            uid: metadata::text(level, "uid").to_owned(),
            shape: Shape {
                queues: if queues { positive(queuing("queues")) } else { 0 },
                hand: positive(queuing("handSize")),
                length_max: usize::try_from(queuing("queueLengthLimit")).unwrap_or_default(),
            },
            shares: Shares {
                is_exempt,
                nominal: own("nominalConcurrencyShares").unwrap_or_default() as f64,
                lendable_percent: own("lendablePercent").unwrap_or_default().min(100) as f64,
                borrowing_limit_percent: own("borrowingLimitPercent").map(|percent| percent as f64),
            },
        }
    }
}

/// The priority level that a schema leads to.
fn level_of(schema: &Value) -> &str {
    schema.text_at(&["spec", "priorityLevelConfiguration", "name"])
}

/// Returns the schema with a status that reports whether its level exists; `None` if it is unchanged.
pub(crate) fn with_status(schema: &Value, level_exists: impl Fn(&str) -> bool, now: &str) -> Option<Value> {
    let row = resources::FLOW_SCHEMAS;
    let level = level_of(schema);
    let reference = format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\"");
    let (status, reason, message) = if level_exists(level) {
        ("False", "Found", format!("{reference} and it exists"))
    } else {
        ("True", "NotFound", format!("{reference} but there is no such object"))
    };
    let conditions = schema.list_at(&["status", "conditions"]);
    let said = conditions.iter().find(|it| it.str_at(&["type"]) == Some("Dangling"));
    let says = |field: &str, text: &str| said.and_then(|it| it.str_at(&[field])) == Some(text);
    if says("status", status) && says("reason", reason) && says("message", &message) {
        return None;
    }
    let config = api::json!({
        "apiVersion": (row.api_version("v1")), "kind": (row.kind),
        "metadata": {"name": (metadata::name(schema))},
        "status": {"conditions": [{
            "type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message
        }]}
    });
    let (versions, api_version) = (BuiltIn::new(row, "status"), row.api_version("v1"));
    let (kind, subresource, manager) = (row.kind, "status", CONSUMER);
    let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now };
    let applied = write.apply(schema, &config, true).ok()?;
    let mut object = normal(row, applied.object?);
    if let Some(managed_fields) = applied.managed_fields {
        metadata::set(&mut object, "managedFields", managed_fields);
    }
    Some(normal(row, object))
}

/// An object in the order of its type.
pub(super) fn normal(row: &Resource<'_>, object: Value) -> Value {
    let decoded = row.object_type("v1").and_then(|of| api::types::decode(of, &object).ok());
    decoded.map_or(object, |decoded| decoded.value)
}

/// A new object in its normal form, as a write. A schema that is built in leads somewhere.
pub(crate) fn make(resource: &Resource<'_>, object: Value, now: Timestamp) -> Option<store::Write> {
    initial_objects::make(resource, object, PRODUCER, true, now, |normal| {
        let has_status = resource.plural == SCHEMAS;
        let status = has_status.then(|| with_status(&normal, |_| true, &now.to_string())).flatten();
        status.unwrap_or(normal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_objects_use_defaults() {
        let all = Configuration::of(&[], &[]);
        let names: Vec<&str> = all.levels.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, MANDATORY);
        let names: Vec<&str> = all.schemas.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, MANDATORY);
    }

    #[test]
    fn levels_are_read() {
        let levels = initial_objects::built_in(LEVELS);
        let find = |name: &str| levels.iter().find(|it| metadata::name(it) == name).unwrap();
        let low = LevelConfiguration::of(find("workload-low"));
        assert_eq!(low.shape, Shape { queues: 128, hand: 6, length_max: 50 });
        assert_eq!((low.shares.nominal, low.shares.lendable_percent), (100.0, 90.0));
        assert!(LevelConfiguration::of(find("exempt")).shares.is_exempt);
        assert_eq!(LevelConfiguration::of(find("catch-all")).shape.queues, 0);
    }

    #[test]
    fn a_schema_says_whether_its_level_exists() {
        let mut schema =
            initial_objects::built_in(SCHEMAS).iter().find(|it| metadata::name(it) == "probes").unwrap().clone();
        schema.as_object_mut().unwrap().insert("kind", "FlowSchema");
        schema.as_object_mut().unwrap().insert("apiVersion", "flowcontrol.apiserver.k8s.io/v1");
        let schema = normal(resources::FLOW_SCHEMAS, schema);
        let found = with_status(&schema, |_| true, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(found.at(&["status", "conditions"]).unwrap().as_array().unwrap().len(), 1);
        assert_eq!(with_status(&found, |_| true, "2026-01-01T00:00:01Z"), None);
        let lost = with_status(&found, |_| false, "2026-01-01T00:00:01Z").unwrap();
        let condition = &lost.at(&["status", "conditions"]).unwrap().as_array().unwrap()[0];
        assert_eq!(condition.str_at(&["status"]), Some("True"));
        assert_eq!(
            condition.str_at(&["message"]),
            Some(
                "This FlowSchema references the PriorityLevelConfiguration object named \"exempt\" but there is no such object"
            )
        );
    }
}
