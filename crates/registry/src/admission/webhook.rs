//! The rules, selectors and conditions of a webhook: the requests that it is called for.
//!
//! They are those of a policy, with one difference: a webhook without rules is never called.

use api::json::Value;
use cel_kubernetes::environments::admission::Compiler;

use super::cluster::Cluster;
pub use super::evaluation::ConditionCheck;
use super::evaluation::{Deadline, Session};
use super::index::RuleIndex;
use super::policy::Policy;
use super::request::Request;
use super::rules::{Match, MatchError};

/// The filter of one webhook.
#[derive(Debug)]
pub struct Filter(Policy<()>);

impl Filter {
    /// Compiles the filter of an entry of `webhooks`.
    #[must_use]
    pub fn new(webhook: &Value, compiler: &Compiler) -> Self {
        let field = |name: &str| webhook.field(name).clone();
        let policy = api::json!({
            "metadata": {"name": (field("name"))},
            "spec": {
                "failurePolicy": (field("failurePolicy")),
                "matchConditions": (field("matchConditions")),
                "matchConstraints": {
                    "namespaceSelector": (field("namespaceSelector")),
                    "objectSelector": (field("objectSelector")),
                    "resourceRules": (field("rules")),
                    "matchPolicy": (field("matchPolicy"))
                }
            }
        });
        Self(Policy::filter(&policy, compiler))
    }

    /// Adds the rules to an index. Places are added in ascending order.
    pub fn add_to(&self, index: &mut RuleIndex, place: u32) {
        index.add(place, &self.0.constraints);
    }

    /// The match of a request by rules and selectors, if there is one.
    ///
    /// # Errors
    /// A selector is invalid, or the namespace does not exist.
    pub fn matches(&self, request: &Request, cluster: &dyn Cluster) -> Result<Option<Match>, MatchError> {
        if self.0.constraints.rules().is_empty() {
            return Ok(None);
        }
        self.0.constraints.matches(request, cluster)
    }

    /// Whether there are conditions.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        !self.0.conditions.is_empty()
    }

    /// Whether the conditions hold for a request that matches, and the evaluation to count. An error means that a condition
    /// fails and the failure policy is `Fail`, or that the documents cannot be converted.
    pub fn meets_conditions(
        &self,
        request: &Request,
        cluster: &dyn Cluster,
        found: &Match,
        deadline: Deadline<'_>,
    ) -> (Result<bool, String>, Option<ConditionCheck>) {
        let interrupt = || (deadline.now)() > deadline.end;
        let session = Session::new(request, cluster, &interrupt, deadline);
        let versioned = match session.versioned(found) {
            Ok(versioned) => versioned,
            Err(why) => return (Err(why), None),
        };
        let met = session.meets_conditions(&self.0, &versioned, None);
        (met, session.condition_checks().pop())
    }
}
