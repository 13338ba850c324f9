//! Custom resource definitions: time until all are served, and memory.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::json::{self, Value};

use super::Size;
use super::control_plane::ControlPlane;
use super::figures::{Group, Unit};
use crate::load::connection::Connection;
use crate::load::pods::Requests;

/// API group of the definitions.
const GROUP: &str = "bench.example.com";
/// Number of nested objects in a schema, and of fields in each of them: about 20 kB of JSON.
const SECTIONS: usize = 16;
const FIELDS: usize = 12;
/// Definitions that are not served by then never will be.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The group of these figures.
#[must_use]
pub fn group(size: Size, contestants: &[String]) -> Group {
    let mut group = Group::new("definitions", "Custom resource definitions", contestants);
    let bytes = definition(0).len();
    group.setup = format!(
        "{} definitions of {:.0} kB each are created over one connection; the time ends when a list of each resource \
         has been answered. Memory is the growth of all processes of the server with its store.",
        size.definitions,
        bytes as f64 / 1e3
    );
    group
}

/// Adds a sample of each figure.
///
/// # Errors
/// Those of the network, and unexpected answers.
pub fn measure(plane: &ControlPlane, size: Size, contestant: usize, group: &mut Group) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let target = plane.target()?;
    let requests = Requests::new(target.endpoint.address.clone(), false);
    let (before, used, begun) = (plane.resident_bytes(), target.processor_seconds(), Instant::now());
    runtime.block_on(async {
        let mut connection = target.endpoint.connect().await?;
        for number in 0..size.definitions {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let request = requests.send("POST", path, "application/json", &definition(number));
            let (status, body) = connection.fetch(&request).await?;
            if status != 201 {
                bail!("a definition was answered {status}: {}", String::from_utf8_lossy(&body));
            }
        }
        for number in 0..size.definitions {
            let path = format!("/apis/{GROUP}/v1/{}", plural(number));
            wait_until_served(&mut connection, &requests.get(&path, "application/json"), begun).await?;
        }
        Ok(())
    })?;
    let took = begun.elapsed().as_secs_f64();
    group.add("until all are served", Unit::Seconds, contestant, took);
    group.add("processor time", Unit::Seconds, contestant, target.processor_seconds() - used);
    let growth = plane.resident_bytes().saturating_sub(before);
    group.add("memory, growth", Unit::Bytes, contestant, growth as f64);
    group.add("memory per definition", Unit::Bytes, contestant, growth as f64 / size.definitions as f64);
    Ok(())
}

/// Kubernetes serves a definition some time after it was created.
async fn wait_until_served(connection: &mut Connection, request: &[u8], begun: Instant) -> Result<()> {
    loop {
        match connection.exchange(request).await? {
            200 => return Ok(()),
            404 | 429 | 503 if begun.elapsed() < TIMEOUT => {}
            status => bail!("a list of custom resources was answered {status}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn plural(number: usize) -> String {
    format!("things{number}")
}

/// A definition with a schema of ordinary depth: nested objects, lists, limits and descriptions.
fn definition(number: usize) -> String {
    let field = |name: usize| {
        let description =
            format!("Field {name} of this section: a text that explains its use to the reader of the schema.");
        match name % 4 {
            0 => api::json!({"type": "string", "maxLength": 253, "description": description}),
            1 => api::json!({"type": "integer", "format": "int64", "minimum": 0, "description": description}),
            2 => api::json!({"type": "array", "maxItems": 16, "description": description, "items": {"type": "string"}}),
            _ => api::json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}}),
        }
    };
    let section = || {
        let fields = (0..FIELDS).map(|name| (format!("field{name}"), field(name)));
        api::json!({"type": "object", "properties": (Value::Object(fields.collect()))})
    };
    let sections = (0..SECTIONS).map(|name| (format!("section{name}"), section()));
    let spec = api::json!({"type": "object", "properties": (Value::Object(sections.collect()))});
    let (plural, kind) = (plural(number), format!("Thing{number}"));
    let definition = api::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": (format!("{plural}.{GROUP}"))},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "singular": (kind.to_lowercase()), "kind": (kind.clone()), "listKind": (format!("{kind}List"))},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                }}}
            }]
        }
    });
    json::to_string(&definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_differ_by_their_names_only() {
        let (first, second) = (definition(1), definition(2));
        assert!(first.contains("things1.bench.example.com") && first.len() > 15_000, "{}", first.len());
        let renamed = first.replace("hings1", "hings2").replace("hing1", "hing2");
        assert_eq!(renamed, second);
    }
}
