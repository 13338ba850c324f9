//! Constraints between the devices of requests.
//!
//! `attribute` holds the constraints on one attribute, which are checked device by device. Expressions over the
//! whole set are evaluated when the set is complete; [`pruning`] is the interface for earlier checks of a
//! search, [`look_ahead`] implements it with the results of [`outlook`]. [`first_set`] is such a search for one
//! constraint alone, and [`meter`] the one place where expressions over sets are run.

pub(crate) mod attribute;
pub mod first_set;
pub mod look_ahead;
pub mod meter;
pub mod outlook;
pub mod pruning;

use std::sync::Arc;

use api::json::Text;
use api::resource::v1::{DeviceClaim, DeviceConstraint};

use crate::claims::RequestAlternative;
use crate::error::{ConstraintProblem, Error};
use crate::expressions::{Expressions, SetExpression};
use crate::features::Features;

/// A constraint of a claim.
#[derive(Debug)]
pub(crate) struct Constraint {
    /// Index in the claim.
    pub(crate) index: usize,
    /// Requests, or alternatives with their request; none means all.
    requests: Vec<Text>,
    pub(crate) rule: Rule,
    /// The last request that it covers: then the set is whole.
    pub(crate) last_request: usize,
}

/// Rule of a constraint.
#[derive(Debug)]
pub(crate) enum Rule {
    /// All devices have the attribute, with one value.
    Match(Text),
    /// All devices have the attribute, with distinct values.
    Distinct(Text),
    /// An expression over the set.
    Set(Arc<SetExpression>),
}

impl Constraint {
    /// The constraints of a claim.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub(crate) fn read_all(
        claim: &str,
        devices: &DeviceClaim,
        programs: &Expressions,
        features: &Features,
    ) -> Result<Vec<Constraint>, Error> {
        let mut constraints = Vec::with_capacity(devices.constraints.len());
        for (index, constraint) in devices.constraints.iter().enumerate() {
            let rule = Rule::new(constraint, programs, features);
            let rule = rule.map_err(|problem| Error::Constraint { claim: claim.to_owned(), index, problem })?;
            let covers = |name: &Text| {
                constraint.requests.is_empty()
                    || constraint.requests.iter().any(|it| it.split_once('/').map_or(it.as_str(), |(it, _)| it) == name)
            };
            let last_request = devices.requests.iter().rposition(|request| covers(&request.name)).unwrap_or(0);
            constraints.push(Constraint { index, requests: constraint.requests.clone(), rule, last_request });
        }
        Ok(constraints)
    }

    /// Whether devices for a request count.
    pub(crate) fn covers(&self, ask: &RequestAlternative, request: &Text) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|it| it == request || *it == ask.full_name)
    }

    pub(crate) fn is_over_set(&self) -> bool {
        matches!(self.rule, Rule::Set(_))
    }
}

impl Rule {
    fn new(
        constraint: &DeviceConstraint,
        programs: &Expressions,
        features: &Features,
    ) -> Result<Rule, ConstraintProblem> {
        match constraint {
            DeviceConstraint { match_attribute: Some(name), distinct_attribute: None, cel: None, .. } => {
                Ok(Rule::Match(name.clone()))
            }
            DeviceConstraint { match_attribute: None, distinct_attribute: Some(name), cel: None, .. } => {
                Ok(Rule::Distinct(name.clone()))
            }
            DeviceConstraint { cel: Some(_), .. } if !features.cel_constraints => Err(ConstraintProblem::GateOff),
            DeviceConstraint { match_attribute: None, distinct_attribute: None, cel: Some(cel), .. } => {
                let program = programs.set(&cel.expression);
                program.map(Rule::Set).map_err(|error| ConstraintProblem::DoesNotCompile(error.to_string()))
            }
            // No known rule, or several ones, which is ambiguous.
            _ => Err(ConstraintProblem::Unknown),
        }
    }
}
