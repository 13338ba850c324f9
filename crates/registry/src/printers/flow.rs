//! Flow schemas and priority levels.

use api::json::Value;

use super::Description::{Field, Text};
use super::{AGE, NAME, PLAIN, Printer, age, condition, name, or, text};

pub(crate) const SCHEMAS: Printer = Printer {
    columns: &[
        NAME,
        text("PriorityLevel", Field("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference", "name")),
        text("MatchingPrecedence", Field("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence")),
        text("DistinguisherMethod", Field("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", "distinguisherMethod")),
        AGE,
        text("MissingPL", Text("references a broken or non-existent PriorityLevelConfiguration")),
    ],
    cells: |it, now| {
        vec![
            name(it),
            or(it, &["spec", "priorityLevelConfiguration", "name"], ""),
            it.int_at(&["spec", "matchingPrecedence"]).into(),
            or(it, &["spec", "distinguisherMethod", "type"], "<none>"),
            age(it, now),
            condition(it, "Dangling").unwrap_or("?").into(),
        ]
    },
    ..PLAIN
};

pub(crate) const LEVELS: Printer = Printer {
    columns: &[
        NAME,
        text("Type", Field("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type")),
        text(
            "NominalConcurrencyShares",
            Field("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
        ),
        text("Queues", Field("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "queues")),
        text("HandSize", Field("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "handSize")),
        text("QueueLengthLimit", Field("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "queueLengthLimit")),
        AGE,
    ],
    cells: |it, now| {
        let number = |path: &[&str]| it.i64_at(path).map_or_else(|| "<none>".into(), Value::from);
        let queuing = |field| number(&["spec", "limited", "limitResponse", "queuing", field]);
        vec![
            name(it),
            or(it, &["spec", "type"], ""),
            number(&["spec", "limited", "nominalConcurrencyShares"]),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            age(it, now),
        ]
    },
    ..PLAIN
};
