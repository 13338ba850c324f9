//! `NodeSelectorTerm.matchCELExpressions`: reads a node's labels, yields whether the node matches (KEP-5500).

use std::ops::ControlFlow;

use cel::env::EnvError;
use cel::program::Activation;
use cel::syntax::ast::Name;
use cel::value::{HostMap, HostObject, Map, Value};

use super::{Dialect, Language};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::declared::DeclaredType;

const TYPE_NAME: &str = "kubernetes.Node";
const VARIABLE: &str = "node";
const LABELS: &str = "labels";

/// The environment of node affinity expressions.
pub fn environment(dialect: Dialect) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language) -> Result<Environment, EnvError> {
    let labels = DeclaredType::map(DeclaredType::string(317), DeclaredType::string(63), 1000);
    let node = DeclaredType::object(TYPE_NAME, [(Name::from_static(LABELS), labels)]);
    super::with_variables(language, [(VARIABLE, node)], ResultRule::BoolOrUnknown, ExpressionLimits::PLACEMENT)
}

/// A node, as node affinity expressions see it.
#[derive(Debug, Clone, Copy)]
pub struct Node<'n> {
    /// The node's labels.
    pub labels: &'n dyn HostMap,
}

impl Activation for Node<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.object(name).map(Value::Object)
    }

    fn object(&self, name: &str) -> Option<&dyn HostObject> {
        if name == VARIABLE { Some(self) } else { None }
    }
}

impl HostObject for Node<'_> {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn get(&self, field: &str) -> Option<Value<'_>> {
        (field == LABELS).then_some(Value::Map(Map::Host(self.labels)))
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>) {
        super::visit_fields(self, &[LABELS], visit);
    }
}

/// Labels, sorted by key, as expressions read them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(candidate, _)| candidate.as_ref().cmp(key)).ok()?;
        self.0.get(index).map(|(_, value)| value.as_ref())
    }

    /// All labels, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

/// If several labels have the same key, the first one counts.
impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut labels: Vec<(Box<str>, Box<str>)> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        labels.dedup_by(|later, earlier| later.0 == earlier.0);
        Labels(labels.into())
    }
}

impl HostMap for Labels {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &Value<'_>) -> Option<Value<'_>> {
        key.as_str().and_then(|key| self.get(key)).map(Value::str)
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        for (key, value) in &self.0 {
            if visit(Value::str(key), Value::str(value)).is_break() {
                return;
            }
        }
    }
}
