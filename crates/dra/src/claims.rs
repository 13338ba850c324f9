//! Requests of a pod's claims, parsed once: the same for every node.
//!
//! The problem of a request is kept in its place, because a search reports the first problem in the order of
//! the claims, and some appear only on a node.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use api::json::Text;
use api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceSelector, DeviceSubRequest, DeviceToleration, ExactDeviceRequest,
    ResourceClaim,
};

use crate::constraints::Constraint;
use crate::error::{Error, RequestProblem};
use crate::expressions::{DerivedAttribute, Expressions, Selector};
use crate::features::Features;
use crate::ids::{AskId, ClaimId, Table};

/// The claims of a pod that need an allocation.
#[derive(Debug)]
pub struct Claims {
    pub(crate) claims: Table<ClaimId, Claim>,
    pub(crate) asks: Table<AskId, RequestAlternative>,
    pub(crate) features: Features,
}

/// A claim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) source: Arc<ResourceClaim>,
    /// With its namespace.
    pub(crate) key: String,
    pub(crate) requests: Vec<Request>,
    pub(crate) constraints: Result<Vec<Constraint>, Error>,
}

/// A request: one ask, or alternatives of which the first available one is used.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: Text,
    pub(crate) problem: Option<Error>,
    pub(crate) asks: Vec<AskId>,
    pub(crate) has_alternatives: bool,
}

/// A request without alternatives, or one of them.
#[derive(Debug)]
pub(crate) struct RequestAlternative {
    pub(crate) name: Text,
    /// The request and the alternative.
    pub(crate) full_name: Text,
    pub(crate) request: usize,
    pub(crate) problem: Option<Error>,
    pub(crate) class: Option<Arc<DeviceClass>>,
    /// Selectors of the class, then of the request.
    pub(crate) selectors: Vec<AskSelector>,
    pub(crate) count: Count,
    pub(crate) admin_access: bool,
    pub(crate) tolerations: Vec<DeviceToleration>,
    pub(crate) capacity: Option<CapacityRequirements>,
    pub(crate) derived: BTreeMap<Text, Result<Arc<DerivedAttribute>, Error>>,
}

/// A selector, and its name in errors.
#[derive(Debug)]
pub(crate) struct AskSelector {
    pub(crate) of: Arc<str>,
    pub(crate) index: usize,
    pub(crate) program: Result<Arc<Selector>, Error>,
}

/// Number of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Exactly(i64),
    All,
}

/// The fields of requests and of alternatives.
struct ParsedRequest<'r> {
    name: &'r Text,
    parent: Option<&'r Text>,
    class: &'r Text,
    selectors: &'r [DeviceSelector],
    mode: &'r Text,
    count: i64,
    admin_access: Option<bool>,
    tolerations: &'r [DeviceToleration],
    capacity: &'r Option<CapacityRequirements>,
    derived: &'r [api::resource::v1::DeviceDerivedAttribute],
}

/// Looks up classes by name.
pub type FindClass<'f> = &'f dyn Fn(&str) -> Option<Arc<DeviceClass>>;

impl Claims {
    /// Reads claims.
    pub fn new(
        claims: &[Arc<ResourceClaim>],
        class: FindClass<'_>,
        programs: &Expressions,
        features: Features,
    ) -> Self {
        let mut reader = Reader { asks: Table::new(), class, programs, features: &features };
        let claims = claims.iter().map(|claim| reader.claim(claim)).collect();
        Claims { claims, asks: reader.asks, features }
    }

    /// Whether there is nothing to allocate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.len() == 0
    }

    /// Returns all requests as text, without names of claims: equal texts mean equal searches.
    pub(crate) fn question(&self) -> String {
        let mut text = String::new();
        for (_, claim) in self.claims.iter() {
            // Writing to a text cannot fail.
            let _ = write!(text, "{:?};", claim.source.spec.devices);
        }
        for (_, ask) in self.asks.iter() {
            let _ = write!(text, "{:?};", ask.class.as_ref().map(|class| &class.spec));
        }
        text
    }

    /// Whether a constraint may exclude one of all devices that a request asks for, which is an error.
    pub(crate) fn may_miss_one_of_all(&self, claim: ClaimId) -> bool {
        let claim = self.claims.of(claim);
        let Ok(constraints) = &claim.constraints else { return true };
        let by_attribute = || constraints.iter().filter(|constraint| !constraint.is_over_set());
        claim.requests.iter().any(|request| {
            let mut all = request.asks.iter().map(|id| self.asks.of(*id)).filter(|ask| ask.count == Count::All);
            all.any(|ask| by_attribute().any(|constraint| constraint.covers(ask, &request.name)))
        })
    }

    /// Whether a claim has a constraint over the set of its devices.
    #[must_use]
    pub fn have_set_constraints(&self) -> bool {
        self.claims.iter().any(|(_, claim)| claim.is_canonical())
    }
}

impl Claim {
    /// Whether devices are tried in canonical order.
    pub(crate) fn is_canonical(&self) -> bool {
        self.constraints.as_ref().is_ok_and(|constraints| constraints.iter().any(Constraint::is_over_set))
    }
}

struct Reader<'r> {
    asks: Table<AskId, RequestAlternative>,
    class: FindClass<'r>,
    programs: &'r Expressions,
    features: &'r Features,
}

impl Reader<'_> {
    fn claim(&mut self, claim: &Arc<ResourceClaim>) -> Claim {
        let metadata = &claim.metadata;
        let key = if metadata.namespace.is_empty() {
            metadata.name.to_string()
        } else {
            format!("{}/{}", metadata.namespace, metadata.name)
        };
        let mut requests = Vec::with_capacity(claim.spec.devices.requests.len());
        for (index, request) in claim.spec.devices.requests.iter().enumerate() {
            let has_alternatives = !request.first_available.is_empty();
            let refuse = |of: String, problem| Error::Request { claim: key.clone(), of, problem };
            let mut problem = None;
            if has_alternatives && !self.features.prioritized_list {
                problem = Some(refuse(format!("request {}", request.name), RequestProblem::SubrequestsOff));
            } else if !self.features.consumable_capacity {
                if request.exactly.as_ref().is_some_and(|it| it.capacity.is_some()) {
                    problem = Some(refuse(format!("request {}", request.name), RequestProblem::CapacityOff));
                } else if let Some(it) = request.first_available.iter().find(|it| it.capacity.is_some()) {
                    problem = Some(refuse(format!("subrequest {}", it.name), RequestProblem::CapacityOff));
                }
            }
            let asks = if has_alternatives {
                let all = request.first_available.iter();
                all.map(|it| self.ask(&key, index, &ParsedRequest::alternative(it, &request.name))).collect()
            } else {
                let nothing = ExactDeviceRequest::default();
                let exactly = request.exactly.as_ref().unwrap_or(&nothing);
                vec![self.ask(&key, index, &ParsedRequest::exactly(exactly, &request.name))]
            };
            requests.push(Request { name: request.name.clone(), problem, asks, has_alternatives });
        }
        let constraints = Constraint::read_all(&key, &claim.spec.devices, self.programs, self.features);
        Claim { source: claim.clone(), key, requests, constraints }
    }

    fn ask(&mut self, claim: &str, request: usize, asked: &ParsedRequest<'_>) -> AskId {
        let refuse = |of: String, problem| Error::Request { claim: claim.to_owned(), of, problem };
        let class = (self.class)(asked.class);
        let problem = self.problem(asked, class.is_none());
        let problem = problem.map(|(detail, problem)| refuse(format!("request {}{detail}", asked.name), problem));
        let mut selectors = Vec::new();
        if let Some(class) = &class {
            let of = format!("class {}", class.metadata.name);
            self.add_selectors(&mut selectors, of.into(), &class.spec.selectors, || {
                refuse(format!("request {}, class {}", asked.name, class.metadata.name), RequestProblem::EmptySelector)
            });
        }
        let of = format!("claim {claim}");
        self.add_selectors(&mut selectors, of.into(), asked.selectors, || {
            refuse(format!("request {}", asked.name), RequestProblem::EmptySelector)
        });
        let derived = asked.derived.iter().map(|attribute| {
            let program = self.programs.derived_attribute(&attribute.expression);
            let program = program.map_err(|error| Error::DerivedAttributeDoesNotCompile {
                name: attribute.name.to_string(),
                error: error.to_string(),
            });
            (attribute.name.clone(), program)
        });
        self.asks.push(RequestAlternative {
            name: asked.name.clone(),
            full_name: match asked.parent {
                Some(parent) => format!("{parent}/{}", asked.name).into(),
                None => asked.name.clone(),
            },
            request,
            problem,
            class,
            selectors,
            count: if asked.mode == "All" { Count::All } else { Count::Exactly(asked.count) },
            admin_access: asked.admin_access == Some(true),
            tolerations: asked.tolerations.to_vec(),
            capacity: asked.capacity.clone(),
            derived: derived.collect(),
        })
    }

    /// Returns the problem of a request that is independent of the node, and its place.
    fn problem(&self, asked: &ParsedRequest<'_>, no_class: bool) -> Option<(String, RequestProblem)> {
        let plain = |problem| Some((String::new(), problem));
        if !asked.derived.is_empty() && !self.features.derived_attributes {
            return plain(RequestProblem::DerivedAttributesOff);
        }
        if let Some(index) = asked.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Some((format!(", selector #{index}"), RequestProblem::EmptySelector));
        }
        if !self.features.admin_access && asked.admin_access.is_some() {
            return plain(RequestProblem::AdminAccessOff);
        }
        if asked.class.is_empty() {
            return plain(RequestProblem::NoClassName);
        }
        if no_class {
            return plain(RequestProblem::NoClass { class: asked.class.to_string() });
        }
        match asked.mode.as_str() {
            "ExactCount" | "All" => None,
            mode => plain(RequestProblem::UnknownMode { mode: mode.to_owned() }),
        }
    }

    fn add_selectors(
        &self,
        to: &mut Vec<AskSelector>,
        of: Arc<str>,
        selectors: &[DeviceSelector],
        empty: impl Fn() -> Error,
    ) {
        for (index, selector) in selectors.iter().enumerate() {
            let program =
                match &selector.cel {
                    None => Err(empty()),
                    Some(cel) => self.programs.selector(&cel.expression).map_err(|error| {
                        Error::SelectorDoesNotCompile { of: of.to_string(), index, error: error.to_string() }
                    }),
                };
            to.push(AskSelector { of: of.clone(), index, program });
        }
    }
}

impl<'r> ParsedRequest<'r> {
    fn exactly(request: &'r ExactDeviceRequest, name: &'r Text) -> Self {
        ParsedRequest {
            name,
            parent: None,
            class: &request.device_class_name,
            selectors: &request.selectors,
            mode: &request.allocation_mode,
            count: request.count,
            admin_access: request.admin_access,
            tolerations: &request.tolerations,
            capacity: &request.capacity,
            derived: &request.derived_attributes,
        }
    }

    fn alternative(request: &'r DeviceSubRequest, parent: &'r Text) -> Self {
        ParsedRequest {
            name: &request.name,
            parent: Some(parent),
            class: &request.device_class_name,
            selectors: &request.selectors,
            mode: &request.allocation_mode,
            count: request.count,
            admin_access: None,
            tolerations: &request.tolerations,
            capacity: &request.capacity,
            derived: &request.derived_attributes,
        }
    }
}
