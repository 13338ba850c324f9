//! Devices that a pod's claims can get on each node.
//!
//! Claims that are made from templates when the pod is created are judged as if they were there.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use api::core::v1::Node;
use api::features::Features;
use api::json::Text;
use api::resource::v1::{DeviceClass, ResourceClaim};
use dra::constraints::look_ahead::LookAhead;
use dra::explain::{ClaimsExplanation, SearchReport};
use dra::pools::Target;
use dra::{Attempt, Budget, Claims, Expressions, Inventory, Narration};
use matching::Matcher;
use matching::node_selector::NodeSelector;
use scheduling::cluster::Object;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::style::Style;

/// The search for a pod's devices on one node.
#[derive(Debug, Default)]
pub(super) struct DeviceReport {
    /// Reason why the pod does not fit.
    problem: Option<String>,
    explained: Option<ClaimsExplanation>,
}

/// Devices, claims and programs.
pub(super) struct Devices {
    inventory: Inventory,
    programs: Expressions,
    matcher: Arc<Matcher>,
    classes: Vec<Arc<DeviceClass>>,
    claims: Vec<Arc<ResourceClaim>>,
    missing: Option<String>,
    features: dra::Features,
}

impl Devices {
    pub(super) fn new(cluster: &Cluster, gates: Features) -> anyhow::Result<Self> {
        let start = Instant::now();
        let capacity = NonZeroUsize::new(4096).context("a capacity is not zero")?;
        let clock = Arc::new(move || start.elapsed());
        let matcher = Arc::new(Matcher::new(capacity, clock.clone(), gates.into())?);
        let features = dra::Features::from(gates);
        let mut inventory = Inventory::new(matcher.clone(), features);
        let mut classes = Vec::new();
        for (number, object) in cluster.objects.iter().enumerate() {
            match object {
                Object::ResourceSlice(slice) => inventory.set_slice(slice),
                Object::DeviceTaintRule(rule) => inventory.set_taint_rule(&rule.metadata.name, Some(rule)),
                Object::DeviceClass(class) => classes.push(class.clone()),
                Object::ResourceClaim(claim) => {
                    // In files claims have no UIDs.
                    let uid: Text = match claim.metadata.uid.as_str() {
                        "" => format!("claim-{number}").into(),
                        uid => uid.into(),
                    };
                    inventory.see_claim(&uid, claim.status.allocation.as_ref());
                }
                _ => {}
            }
        }
        let (claims, missing) = match claims_of(cluster) {
            Ok(claims) => (claims, None),
            Err(missing) => (Vec::new(), Some(missing)),
        };
        Ok(Self {
            inventory,
            programs: Expressions::new(capacity, clock)?,
            matcher,
            classes,
            claims,
            missing,
            features,
        })
    }

    pub(super) fn judge(&self, view: &Node, node: &matching::Node) -> DeviceReport {
        let mut report = DeviceReport { problem: self.missing.clone(), explained: None };
        let waiting = |claim: &&Arc<ResourceClaim>| claim.status.allocation.is_none();
        for claim in self.claims.iter().filter(|claim| !waiting(claim)) {
            let selector = claim.status.allocation.as_ref().and_then(|it| it.node_selector.as_ref());
            let off = matching::Features::default();
            let is_here = |selector| NodeSelector::new(selector, self.matcher.cache(), &off).matches(node);
            if !selector.is_none_or(is_here) {
                report.problem = Some(format!("{}: its devices are not available on this node", claim.metadata.name));
            }
        }
        let waiting: Vec<Arc<ResourceClaim>> = self.claims.iter().filter(waiting).cloned().collect();
        if waiting.is_empty() || report.problem.is_some() {
            return report;
        }
        let class = |name: &str| self.classes.iter().find(|class| class.metadata.name == name).cloned();
        let claims = Claims::new(&waiting, &class, &self.programs, self.features);
        let budget = Budget { narration: Some(Narration::default()), ..Budget::by_cost() };
        let mut attempt = Attempt::new(&self.inventory, claims, budget, Some(&LookAhead::boxed));
        match attempt.explain(Target::new(node, &view.status.declared_features), &self.programs) {
            Err(error) => report.problem = Some(error.to_string()),
            Ok(explained) => {
                report.problem = match (&explained.devices, &explained.error) {
                    (_, Some(error)) => Some(error.to_string()),
                    (None, None) => Some("cannot allocate all claims".to_owned()),
                    (Some(_), None) => None,
                };
                report.explained = Some(explained);
            }
        }
        report
    }
}

/// The claims of the pod.
fn claims_of(cluster: &Cluster) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let mut claims = Vec::new();
    for wanted in &cluster.pod.spec.resource_claims {
        let reported = cluster.pod.status.resource_claim_statuses.iter().find(|it| it.name == wanted.name);
        let made = reported.and_then(|it| it.resource_claim_name.as_ref());
        let Some(name) = wanted.resource_claim_name.as_ref().or(made) else {
            match &wanted.resource_claim_template_name {
                Some(template) if reported.is_none() => {
                    return Err(format!("resource claim template {:?} not found", template.as_str()));
                }
                _ => continue,
            }
        };
        let claim = cluster.objects.iter().find_map(|object| match object {
            Object::ResourceClaim(claim)
                if claim.metadata.name == *name && claim.metadata.namespace == cluster.namespace.as_str() =>
            {
                Some(claim.clone())
            }
            _ => None,
        });
        claims.push(claim.ok_or_else(|| format!("resourceclaim.resource.k8s.io {:?} not found", name.as_str()))?);
    }
    Ok(claims)
}

impl DeviceReport {
    /// Whether the pod fits.
    pub(super) fn holds(&self) -> bool {
        self.problem.is_none()
    }

    /// Line by line.
    pub(super) fn lines(&self, style: Style) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(problem) = &self.problem {
            lines.push(format!("devices: {}", style.bad(problem)));
        }
        let Some(explained) = &self.explained else { return lines };
        for device in explained.devices.iter().flatten() {
            lines.push(format!("devices: {}", style.good(device)));
        }
        for request in &explained.requests {
            let wanted = request.wanted.map_or_else(|| "all".to_owned(), |wanted| wanted.to_string());
            lines.push(format!("claim {}, request {}: wants {wanted}", request.claim, request.request));
            for stage in &request.stages {
                lines.push(format!("  {:>4}  {}", stage.left, stage.what));
                lines.extend(stage.failed.iter().map(|why| format!("        {}", style.warning(why))));
            }
        }
        for constraint in &explained.constraints {
            lines.push(format!("claim {}, constraint #{}: {}", constraint.claim, constraint.index, constraint.what));
            lines.extend(constraint.findings.iter().map(|it| format!("  {it}")));
        }
        if let Some(search) = &explained.search {
            let SearchReport { possible, evaluated, cut, cost } = search;
            lines.push(format!(
                "search: {evaluated} of {possible} possible sets evaluated, {cut} branches cut, cost {cost}"
            ));
        }
        lines
    }

    pub(super) fn json(&self) -> Value {
        let explained = self.explained.as_ref().map(|it| {
            let requests: Vec<Value> = it
                .requests
                .iter()
                .map(|request| {
                    let stages = request.stages.iter();
                    let stages = stages.map(|it| json!({"what": it.what, "left": it.left, "failed": it.failed}));
                    json!({
                        "claim": request.claim, "request": request.request, "wanted": request.wanted,
                        "stages": stages.collect::<Vec<_>>(),
                    })
                })
                .collect();
            let constraints = it.constraints.iter().map(|it| {
                json!({"claim": it.claim, "index": it.index, "constraint": it.what, "findings": it.findings})
            });
            // Numbers above 2^53 are not exact in JSON readers, so the number of possible sets is a string.
            let search = it.search.map(|search| {
                json!({
                    "possible": search.possible.to_string(), "evaluated": search.evaluated, "cut": search.cut,
                    "cost": search.cost,
                })
            });
            json!({
                "devices": it.devices, "requests": requests, "constraints": constraints.collect::<Vec<_>>(),
                "search": search,
            })
        });
        json!({"holds": self.holds(), "problem": self.problem, "explained": explained})
    }
}
