//! Inputs of a given size, by kind and shape.
//!
//! Each kind has several forms; a shape says which, how deep it nests, how long its texts are, and whether they differ.

mod bodies;
mod extensions;
mod fields;
mod objects;

use http::Method;
use serde_json::{Value, json};

use self::bodies::{apply, json_body, json_patch, merge_patch, selector, strategic_patch, yaml_body};
use self::extensions::{admission_policy, custom_resource, custom_table, definition, definitions};
use self::fields::{EXPRESSIONS, SELECTORS, admitted, expression_field, policies, selector_field};
use self::objects::{
    certificate_request, endpoint_slice, event, network_policy, pod, pod_expressions, resource_claim, resource_slice,
    review, role, service, workload,
};

/// A shape of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of the form, of those that the kind has.
    pub(super) form: usize,
    pub(super) depth: usize,
    /// Bytes of a text.
    pub(super) length: usize,
    /// Whether texts differ.
    pub(super) distinct: bool,
}

impl Shape {
    /// A step of the climb.
    pub(super) fn changed(self, step: usize) -> Self {
        match step {
            0 => Self { depth: self.depth * 2, ..self },
            1 => Self { depth: (self.depth / 2).max(1), ..self },
            2 => Self { length: self.length * 8, ..self },
            3 => Self { length: (self.length / 4).max(1), ..self },
            _ => Self { distinct: !self.distinct, ..self },
        }
    }

    /// The text number `index`.
    fn text(&self, index: usize) -> String {
        let number = if self.distinct { index } else { 0 };
        format!("{}{number}", "x".repeat(self.length))
    }

    /// As many texts as fit into `size` bytes, each with `more` bytes around it.
    fn texts(&self, size: usize, more: usize) -> Vec<String> {
        let count = (size / (self.length + 4 + more)).max(1);
        (0..count).map(|index| self.text(index)).collect()
    }
}

/// A request.
pub(super) struct Input {
    pub(super) method: Method,
    pub(super) path: String,
    /// The type of the body; of the answer, if it is a read.
    pub(super) content_type: &'static str,
    pub(super) body: String,
    /// The object that it creates, to be deleted.
    pub(super) created: String,
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl Input {
    fn post(path: &str, name: &str, body: &Value) -> Self {
        let created = if name.is_empty() { String::new() } else { format!("{path}/{name}") };
        Self { method: Method::POST, path: path.into(), content_type: JSON, body: body.to_string(), created }
    }

    fn text(method: Method, path: &str, content_type: &'static str, body: String) -> Self {
        Self { method, path: path.into(), content_type, body, created: String::new() }
    }

    fn get(path: String) -> Self {
        Self::text(Method::GET, &path, JSON, String::new())
    }

    /// A ConfigMap of this size, as everybody writes it.
    pub(super) fn ordinary(size: usize) -> Self {
        let count = (size / 100).max(1);
        let data: serde_json::Map<String, Value> =
            (0..count).map(|index| (format!("key-{index}"), "v".repeat(80).into())).collect();
        let body = json!({"metadata": {"name": "cost-{n}"}, "data": data});
        Self::post(MAPS, "cost-{n}", &body)
    }
}

/// A kind of input.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) forms: usize,
    pub(super) size_max: usize,
    pub(super) generate: fn(&Shape, usize) -> Input,
    /// Paths and bodies of what must be there.
    pub(super) prepare: fn() -> Vec<(&'static str, String)>,
    /// A command that reads the body from `{file}`; a request if empty.
    pub(super) command: &'static [&'static str],
}

const fn kind(name: &'static str, forms: usize, size_max: usize, generate: fn(&Shape, usize) -> Input) -> Kind {
    Kind { name, forms, size_max, generate, prepare: Vec::new, command: &[] }
}

const fn command(
    name: &'static str,
    forms: usize,
    size_max: usize,
    generate: fn(&Shape, usize) -> Input,
    command: &'static [&'static str],
) -> Kind {
    Kind { name, forms, size_max, generate, prepare: Vec::new, command }
}

const MB: usize = 1_000_000;

/// Every kind of input: endpoints, fields that take an expression, a pattern, a selector or a list, and commands.
pub(super) static KINDS: &[Kind] = &[
    kind("json body", 6, MB, json_body),
    kind("yaml body", 7, MB, yaml_body),
    kind("apply", 4, MB, apply),
    kind("json patch", 4, MB, json_patch),
    kind("merge patch", 2, MB, merge_patch),
    kind("strategic patch", 3, MB, strategic_patch),
    kind("selector", 6, 50_000, selector),
    kind("pod", 7, MB, pod),
    kind("pod expressions", 4, MB, pod_expressions),
    kind("workload", 2, MB, workload),
    kind("service", 2, MB, service),
    kind("network policy", 2, MB, network_policy),
    kind("role", 2, MB, role),
    kind("review", 3, MB, review),
    kind("endpoint slice", 2, MB, endpoint_slice),
    kind("resource claim", 3, MB, resource_claim),
    kind("resource slice", 2, MB, resource_slice),
    kind("definition", 7, MB, definition),
    Kind { prepare: definitions, ..kind("custom resource", 5, MB, custom_resource) },
    Kind { prepare: definitions, ..kind("custom table", 1, 1_000, custom_table) },
    kind("admission policy", 2, MB, admission_policy),
    kind("expression fields", 2 * EXPRESSIONS.len(), MB, expression_field),
    kind("selector fields", SELECTORS.len(), MB, selector_field),
    Kind { prepare: policies, ..kind("admitted by policies", 2, MB, admitted) },
    kind("certificate request", 2, MB, certificate_request),
    kind("event", 2, MB, event),
    command("check yaml", 7, MB, yaml_body, &["check", "-f", "{file}"]),
    command("check json", 6, MB, json_body, &["check", "-f", "{file}"]),
    command("check pod", 4, MB, pod_expressions, &["check", "-f", "{file}"]),
    command("check definition", 7, MB, definition, &["check", "-f", "{file}"]),
    command("scan", 7, MB, yaml_body, &["scan", "-f", "{file}"]),
    command("simulate", 4, 100_000, pod_expressions, &["simulate", "-f", "{file}"]),
    command("why", 4, 100_000, pod_expressions, &["why", "--pod", "{file}"]),
    command("cel input", 7, MB, yaml_body, &["cel", "eval", "--env", "column", "--input", "{file}", "self.y.size()"]),
];

/// An ordinary file for a command.
pub(super) fn ordinary_file(kind: &Kind, size: usize) -> String {
    let body = Input::ordinary(size).body;
    match kind.name {
        "simulate" | "why" => {
            let labels: serde_json::Map<String, Value> =
                (0..size / 60).map(|index| (format!("key-{index}"), "v".repeat(40).into())).collect();
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": labels},
                   "spec": {"containers": [{"name": "c", "image": "i"}]}})
            .to_string()
        }
        _ => format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",{}", &body[1..]),
    }
}

/// `open` and `close` around `inside`, as often as the shape says.
fn nest(shape: &Shape, open: &str, inside: &str, close: &str) -> String {
    let depth = shape.depth.min(300);
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

fn joined(texts: &[String], form: impl Fn(&String) -> String) -> String {
    texts.iter().map(form).collect::<Vec<_>>().join(",")
}

/// An expression that costs much for its length.
fn expression(shape: &Shape, index: usize) -> String {
    let number = if shape.distinct { index } else { 0 };
    let depth = shape.depth.min(6);
    let open: String = (0..depth).map(|level| format!("[1,2,3,4,5,6,7,8,9,0].all(v{level},")).collect();
    format!("{open}{number}>=0{}&&false", ")".repeat(depth))
}
