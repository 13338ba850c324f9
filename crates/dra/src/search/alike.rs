//! Devices that are equivalent for all claims of a pod: if one fails, so does the other.
//!
//! They are equivalent if everything that a selector, a constraint, a counter or a taint reads is equal. A
//! solution with one of them is then a solution with the other, as long as no expression depends on the order
//! of devices: trying both finds nothing new. Their names differ, but are not read.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use cel::checker::TypedAst;
use cel::syntax::ast::ExprKind;
use cel::value::{HostObject, Map, Value};
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices;
use cel_kubernetes::order::is_indifferent_to_order;
use cel_kubernetes::reads::{ELEMENT, Reads};

use super::Search;
use crate::catalog::Nodes;
use crate::claims::{Claims, RequestAlternative};
use crate::constraints::Rule;
use crate::ids::{CandidateId, Table};
use crate::pools::Candidate;

/// Equivalence of candidates.
#[derive(Debug, Default)]
pub(super) struct Equivalence {
    /// Number of failed branches.
    failures: u64,
    /// By candidate: those with the same number are equivalent, those without a number to none. Computed on
    /// demand.
    kinds: Option<Table<CandidateId, Option<u32>>>,
}

impl Search<'_, '_> {
    /// Records a failed branch with this candidate; returns its equivalence class.
    pub(super) fn note_failure(&mut self, ask: &RequestAlternative, id: CandidateId) -> Option<u32> {
        // Administrators also get devices that others have, which are not free for everybody.
        let patience = self.pruning.as_ref().filter(|_| !ask.admin_access)?.patience();
        self.alike.failures = self.alike.failures.saturating_add(1);
        if self.alike.kinds.is_none() && self.alike.failures > patience {
            self.alike.kinds = Some(self.find_kinds());
        }
        self.kind(id)
    }

    /// Equivalence class of a candidate, if it was determined.
    pub(super) fn kind(&self, id: CandidateId) -> Option<u32> {
        *self.alike.kinds.as_ref()?.get(id)?
    }

    fn find_kinds(&mut self) -> Table<CandidateId, Option<u32>> {
        let pools = self.pools;
        let Some(looks) = ReadAttributes::of(self.claims) else {
            return Table::filled(pools.candidates.len(), || None);
        };
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut kind = |(id, candidate): (CandidateId, &Candidate)| {
            let mut text = looks.at(candidate)?;
            for ask in self.claims.asks.ids() {
                text.push(if self.is_selectable(ask, id).ok()? { '1' } else { '0' });
            }
            text.push(if self.uses.of(id).is_dedicated { '1' } else { '0' });
            let next = u32::try_from(known.len()).ok()?;
            Some(*known.entry(text).or_insert(next))
        };
        pools.candidates.iter().map(&mut kind).collect()
    }
}

/// Attributes that the constraints of all claims read.
#[derive(Debug, Default)]
struct ReadAttributes<'c> {
    attributes: Vec<&'c str>,
    /// Attributes of each device: the steps below it.
    paths: Vec<Vec<Box<str>>>,
}

impl<'c> ReadAttributes<'c> {
    /// Returns `None` if the order of two equal devices matters.
    fn of(claims: &'c Claims) -> Option<Self> {
        let mut looks = ReadAttributes::default();
        if claims.asks.iter().any(|(_, ask)| !ask.derived.is_empty()) {
            return None;
        }
        let has_several_asks = claims.asks.len() > 1;
        for (id, claim) in claims.claims.iter() {
            // All devices are taken as they are listed: whether one is missed first, or in use, depends on which of two is.
            if claims.may_miss_one_of_all(id) {
                return None;
            }
            for constraint in claim.constraints.as_ref().ok()? {
                match &constraint.rule {
                    Rule::Match(name) | Rule::Distinct(name) => looks.attributes.push(name),
                    Rule::Set(expression) => {
                        let compiled = expression.compiled();
                        let typed = compiled.typed();
                        // The cost of an evaluation may depend on the order: it must not be able to end one.
                        // Nor may the order decide whether there is an error, unless the order is fixed.
                        let is_told_by_order = may_overflow(typed) || compiled.can_end_early();
                        let may_end = compiled.may_exceed_its_limit() || (has_several_asks && is_told_by_order);
                        if !is_indifferent_to_order(typed, devices::VARIABLE) || may_end {
                            return None;
                        }
                        looks.paths.extend(Reads::of(typed).paths().map(|path| match path {
                            [_, element, below @ ..] if element.as_ref() == ELEMENT => below.to_vec(),
                            _ => Vec::new(),
                        }));
                    }
                }
            }
        }
        Some(looks)
    }

    /// Returns everything that is read of a candidate as text; `None` if it is equivalent to no other.
    fn at(&self, candidate: &Candidate) -> Option<String> {
        let (slice, device, model) = (&candidate.slice, candidate.device(), candidate.model());
        // Each of its shares would have to be equivalent, too.
        if model.allow_multiple_allocations || matches!(slice.nodes, Nodes::PerDevice) {
            return None;
        }
        let mut text = format!(
            "{:p} {:?} {:?} {} {:?} {:?} {:?} ",
            Arc::as_ptr(slice),
            device.consumes,
            device.taints,
            device.binds_to_node,
            device.binding_conditions,
            device.binding_failure_conditions,
            model.capacity,
        );
        for name in &self.attributes {
            // Writing to a text cannot fail.
            let _ = write!(text, "{:?} ", model.attribute(name));
        }
        let seen = model.seen().ok()?;
        // The whole capacity is already included.
        for path in self.paths.iter().filter(|path| path.first().is_none_or(|field| field.as_ref() != "capacity")) {
            let _ = match value_at(seen, path) {
                Ok(Value::Bool(value)) => write!(text, "{value} "),
                Ok(Value::Int(value)) => write!(text, "{value} "),
                Ok(Value::String(value)) => write!(text, "{:?} ", value.as_str()),
                // Not taken apart: equal only where all of the device is.
                Ok(_) => write!(text, "m{} ", model.id),
                Err(missing) => write!(text, "?{missing} "),
            };
        }
        Some(text)
    }
}

/// Whether a sum overflows depends on the order of addition. Within one request the order stays the same: a
/// device is replaced by one of the same kind.
fn may_overflow(typed: &TypedAst) -> bool {
    let ast = typed.ast();
    ast.preorder(ast.root())
        .any(|id| matches!(&ast[id].kind, ExprKind::Call { function, .. } if function.as_str() == "sum"))
}

/// The value at the end of a path; the step that is missing if there is none.
fn value_at<'d>(device: &'d Device, path: &[Box<str>]) -> Result<Value<'d>, usize> {
    let mut value = Value::Object(device);
    for (index, step) in path.iter().enumerate() {
        value = match &value {
            Value::Object(_) if index == 0 => device.get(step).ok_or(index)?,
            Value::Map(map) => Map::get(map, &Value::str(step)).ok_or(index)?,
            _ => return Ok(value),
        };
    }
    Ok(value)
}
