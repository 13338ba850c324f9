//! What stands below objects: status, scale, binding, eviction, tokens, and what needs a kubelet.

mod binding;
mod eviction;
mod log;
mod scale;
mod token;

pub(super) use self::binding::bind;
use super::{Call, patch, read, update};
use crate::authorization;
use crate::http::answer::Answer;
use crate::http::request::Verb;
use crate::http::status::{Failure, Result};

pub(super) async fn run(call: &Call<'_>, verb: Verb) -> Result<Answer> {
    let name = call.target.subresource.as_str();
    let Some(subresource) = call.resource.subresource(name.split('/').next().unwrap_or(name)) else {
        if call.custom().is_some() {
            return Err(Failure::not_found(call.resource, &call.target.name));
        }
        return Err(Failure::no_resource());
    };
    if !subresource.verbs.contains(&verb.name()) || call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    match (subresource.name, verb) {
        ("status" | "approval" | "finalize" | "ephemeralcontainers" | "resize", Verb::Get) => read::get(call).await,
        ("status" | "approval" | "finalize" | "ephemeralcontainers" | "resize", Verb::Update) => {
            update::update(call, subresource.name).await
        }
        ("status" | "approval" | "ephemeralcontainers" | "resize", Verb::Patch) => {
            patch::patch(call, subresource.name).await
        }
        ("scale", Verb::Get) => scale::get(call).await,
        ("scale", Verb::Update) => scale::update(call).await,
        ("scale", Verb::Patch) => scale::patch(call).await,
        ("binding", Verb::Create) => bind(call).await,
        ("eviction", Verb::Create) => eviction::evict(call).await,
        ("token", Verb::Create) => token::create(call).await,
        ("log", Verb::Get) => log::log(call).await,
        ("exec" | "attach" | "portforward", _) => {
            confirm_may_enter(call)?;
            needs_kubelet(call).await
        }
        ("proxy", _) => needs_kubelet(call).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

/// Who enters a pod needs the right to `create` there, also where a browser can only `get`.
fn confirm_may_enter(call: &Call<'_>) -> Result<()> {
    let asked = authorization::Request::Resource { verb: "create", target: call.target };
    if call.server.authorizer.allows(call.user, asked) {
        return Ok(());
    }
    Err(Failure::forbidden(call.resource.group, call.resource.plural, &call.target.name, ""))
}

async fn needs_kubelet(call: &Call<'_>) -> Result<Answer> {
    call.wait_for_now().await?;
    let Some(object) = call.cache().get(&call.key()) else {
        return Err(Failure::not_found(call.resource, &call.target.name));
    };
    let object = object.decode();
    let name = &call.target.name;
    if call.target.subresource.starts_with("proxy") {
        return Err(Failure::bad_request("address not allowed"));
    }
    let node = object.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if node.is_empty() {
        return Err(Failure::bad_request(format!("pod {name} does not have a host assigned")));
    }
    match call.server.kubelets() {
        Some(kubelets) => Err(Failure::bad_request(kubelets.no_streams(node))),
        None => Err(Failure::internal(format!("the kubelet of node {node} cannot be reached from this server"))),
    }
}
