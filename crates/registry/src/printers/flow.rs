//! Flow schemas and priority levels.

use api::json::Value;

use super::{AGE, NAME, PLAIN, Printer, age, condition, name, or, text};

pub(crate) const SCHEMAS: Printer = Printer {
    columns: &[
        NAME,
        text("PriorityLevel", "The priority level of requests that match."),
        text("MatchingPrecedence", "Of several schemas that match, the one with the lowest number counts."),
        text("DistinguisherMethod", "What makes a flow of its own."),
        AGE,
        text("MissingPL", "Whether the priority level does not exist."),
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
        text("Type", "Whether the level is limited."),
        text("NominalConcurrencyShares", "The part of all seats that belongs to the level."),
        text("Queues", "How many queues there are."),
        text("HandSize", "How many of them one flow uses."),
        text("QueueLengthLimit", "How many requests wait in one queue."),
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
