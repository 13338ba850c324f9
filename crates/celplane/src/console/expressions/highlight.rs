//! One expression on many nodes: which of them match.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::console::{Failure, NodeView};
use api::json::{self, Value};
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::places::{InputError, Place};

use super::{compile, invalid};

/// Time limit of all evaluations together.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Cost limit of all evaluations together.
const COST_MAX: u64 = 100_000_000;

/// Answers with the names of the nodes whose labels match, or one of whose taints does; the distinct ones are evaluated once.
pub(in crate::console) fn match_nodes(question: &Value, nodes: &[Arc<NodeView>]) -> Result<Value, Failure> {
    let text = question.text("expression");
    let place = match question.str_at(&["place"]) {
        Some("affinity") => Place::NodeAffinity,
        Some("toleration") => Place::Toleration,
        _ => return Err(Failure::invalid("an expression sees labels (`affinity`) or taints (`toleration`)")),
    };
    let environment = place.environment(Dialect::CELPLANE, None).map_err(|error| invalid(&error))?;
    let compiled = match compile(&environment, text) {
        Ok(compiled) => compiled,
        Err(errors) => return Ok(api::json!({"errors": errors})),
    };
    let started = Instant::now();
    let mut spent = 0_u64;
    let mut known: HashMap<String, bool> = HashMap::new();
    let (mut names, mut failure) = (Vec::new(), None);
    let mut holds = |document: Value| -> Result<bool, Failure> {
        let key = json::to_string(&document);
        if let Some(known) = known.get(&key) {
            return Ok(*known);
        }
        if started.elapsed() > TIME_MAX || spent > COST_MAX {
            return Err(Failure { code: 422, message: "the expression costs too much on this many nodes".to_owned() });
        }
        let input = place.input(Some(document), None, &|_, _| Err(InputError::new("no variables")));
        let input = input.map_err(|error| invalid(&error))?;
        let truth = input.with(|input| {
            let evaluation = compiled.eval(input);
            spent = spent.saturating_add(evaluation.cost);
            match evaluation.result {
                Ok(value) => value.as_bool() == Some(true),
                Err(error) => {
                    failure.get_or_insert_with(|| error.to_string());
                    false
                }
            }
        });
        known.insert(key, truth);
        Ok(truth)
    };
    for node in nodes {
        let is_match = match place {
            Place::NodeAffinity => holds(api::json!({"node": {"labels": (node.labels.clone())}}))?,
            _ => {
                let mut any = false;
                for taint in node.taints.as_array().unwrap_or_default() {
                    any = any || holds(api::json!({"taint": (taint.clone())}))?;
                }
                any
            }
        };
        if is_match {
            names.push(Value::from(node.name.as_str()));
        }
    }
    Ok(api::json!({"names": (Value::Array(names)), "failure": failure}))
}
