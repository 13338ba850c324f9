//! Devices that are alike to all claims of a pod: where one leads to nothing, so does the other.
//!
//! They are alike where everything is equal that a selector, a constraint, a counter or a taint looks at. A solution with one of them is
//! then a solution with the other, as long as no expression cares for the order of devices: trying both finds nothing new. Names differ,
//! and nobody may read them.

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
use crate::claims::{Ask, Claims};
use crate::constraints::Rule;
use crate::ids::{CandidateId, Table};
use crate::pools::Candidate;

/// Which candidates are alike.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// How many branches came to nothing.
    failures: u64,
    /// By candidate: those with the same number are alike, those without a number to none. Found out when it is worth the while.
    kinds: Option<Table<CandidateId, Option<u32>>>,
}

impl Search<'_, '_> {
    /// A branch with this candidate came to nothing; answers to which others it is alike.
    pub(super) fn note_failure(&mut self, ask: &Ask, id: CandidateId) -> Option<u32> {
        // Administrators also get devices that others have, which are not free for everybody.
        let patience = self.pruning.as_ref().filter(|_| !ask.admin_access)?.patience();
        self.alike.failures = self.alike.failures.saturating_add(1);
        if self.alike.kinds.is_none() && self.alike.failures > patience {
            self.alike.kinds = Some(self.find_kinds());
        }
        self.kind(id)
    }

    /// To which others a candidate is alike, as far as that has been found out.
    pub(super) fn kind(&self, id: CandidateId) -> Option<u32> {
        *self.alike.kinds.as_ref()?.get(id)?
    }

    fn find_kinds(&mut self) -> Table<CandidateId, Option<u32>> {
        let pools = self.pools;
        let Some(looks) = Looks::of(self.claims) else { return Table::filled(pools.candidates.len(), || None) };
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

/// What the constraints of all claims look at.
#[derive(Debug, Default)]
struct Looks<'c> {
    attributes: Vec<&'c str>,
    /// Of each device: the steps below it.
    paths: Vec<Vec<Box<str>>>,
}

impl<'c> Looks<'c> {
    /// Nothing where it matters which of two equal devices comes first.
    fn of(claims: &'c Claims) -> Option<Self> {
        let mut looks = Looks::default();
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
                        // What a run costs may depend on the order: it must not be able to end a run. Nor must it depend on the
                        // order whether there is an error, unless the order stays.
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

    /// All that is looked at of a candidate, as text; nothing where it is like no other.
    fn at(&self, candidate: &Candidate) -> Option<String> {
        let (slice, device, model) = (&candidate.slice, candidate.device(), candidate.model());
        // Each of its shares would have to be alike, too.
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
        // All of the capacity is there already.
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

/// Whether a sum overflows depends on the order of adding. Within one request the order of what is added stays the same: a device of
/// the same kind takes the place of another.
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
