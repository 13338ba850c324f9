//! Subresources: status, scale, binding, eviction, tokens, and those that need a kubelet.

mod binding;
mod eviction;
pub(crate) mod log;
mod proxy;
mod scale;
mod streams;
mod token;

use api::json::Value;

pub(super) use self::binding::bind;
use super::{Call, patch, read, update};
use crate::admission::Operation;
use crate::authorization;
use crate::wire::answer::Answer;
use crate::wire::request::Verb;
use crate::wire::status::{Failure, Result};

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
            connect(call, subresource.name).await
        }
        ("proxy", _) => connect(call, subresource.name).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

/// Entering a pod requires the permission to `create`, even where a browser can only `get`.
fn confirm_may_enter(call: &Call<'_>) -> Result<()> {
    let asked = authorization::Request::Resource { verb: "create", target: call.target };
    if call.server.authorizer.allows(call.user, asked) {
        return Ok(());
    }
    Err(Failure::forbidden(call.resource.group, call.resource.plural, &call.target.name, ""))
}

/// Admits a connection, and opens it.
async fn connect(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    let mut options = connect_options(call, subresource);
    let no_options = || Value::Null;
    let attributes = call.attributes(Operation::Connect, subresource, false, &no_options);
    call.server.admission.admit(&attributes, Some(&mut options)).await?;
    if subresource == "proxy" { proxy::proxy(call).await } else { streams::stream(call, &options).await }
}

/// The options of a connection as an object, such as `PodExecOptions`.
fn connect_options(call: &Call<'_>, subresource: &str) -> Value {
    let kind = call.resource.subresource(subresource).map_or("", |it| it.kind.2);
    let mut options = api::json!({"kind": kind, "apiVersion": "v1"});
    let Some(fields) = options.as_object_mut() else { return options };
    match subresource {
        "proxy" => {
            let path = call.target.subresource.strip_prefix("proxy/").unwrap_or_default();
            // A path that ends with `proxy/` is the root of the other server, one that ends with `proxy` is none.
            if !path.is_empty() || call.parts.is_some_and(|parts| parts.uri.path().ends_with('/')) {
                fields.insert("path", format!("/{path}"));
            }
        }
        "portforward" => {
            let ports: Vec<Value> =
                call.query.all("ports").filter_map(|it| it.parse::<i64>().ok()).map(Into::into).collect();
            if !ports.is_empty() {
                fields.insert("ports", ports);
            }
        }
        _ => {
            for field in ["stdin", "stdout", "stderr", "tty"] {
                if call.query.flag(field) {
                    fields.insert(field, true);
                }
            }
            if call.query.has("container") {
                fields.insert("container", call.query.get("container"));
            }
            let command: Vec<Value> = call.query.all("command").map(Into::into).collect();
            if subresource == "exec" && !command.is_empty() {
                fields.insert("command", command);
            }
        }
    }
    options
}
