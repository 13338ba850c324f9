//! Reading the whole manifest of a pod: the parts that only a node agent needs are in no typed view.

use api::Quantity;
use api::json::Value;

/// The texts of the list at a path.
pub(super) fn texts(value: &Value, path: &[&str]) -> Vec<String> {
    value.list_at(path).iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// An amount of a container's `requests` or `limits`.
pub(super) fn amount(container: &Value, kind: &str, resource: &str) -> Option<Quantity> {
    match container.at(&["resources", kind, resource])? {
        Value::String(text) => Quantity::parse(text).ok(),
        number => number.as_i64().map(|it| Quantity::new(it, api::quantity::Format::DecimalSi)),
    }
}

/// The place of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Init,
    Main,
    Ephemeral,
}

impl Kind {
    /// The field of the spec that lists such containers.
    pub(super) fn field(self) -> &'static str {
        match self {
            Kind::Init => "initContainers",
            Kind::Main => "containers",
            Kind::Ephemeral => "ephemeralContainers",
        }
    }
}

/// All containers of a pod with their places, in the order in which they start.
pub(super) fn containers(manifest: &Value) -> impl Iterator<Item = (Kind, &Value)> {
    [Kind::Init, Kind::Main, Kind::Ephemeral]
        .into_iter()
        .flat_map(|kind| manifest.list_at(&["spec", kind.field()]).iter().map(move |it| (kind, it)))
}

/// The container of a name.
pub(super) fn find<'v>(manifest: &'v Value, name: &str) -> Option<(Kind, &'v Value)> {
    containers(manifest).find(|(_, it)| it.str_at(&["name"]) == Some(name))
}

/// Whether an init container restarts and runs in parallel with the others.
pub(super) fn is_sidecar(kind: Kind, container: &Value) -> bool {
    kind == Kind::Init && container.str_at(&["restartPolicy"]) == Some("Always")
}

/// Whether a container that ended is to be started again.
pub(super) fn restarts(manifest: &Value, kind: Kind, container: &Value, exit_code: i32) -> bool {
    let applies = |rule: &&Value| {
        let values = rule.list_at(&["exitCodes", "values"]);
        let is_in = values.iter().any(|it| it.as_i64() == Some(i64::from(exit_code)));
        match rule.text_at(&["exitCodes", "operator"]) {
            "In" => is_in,
            "NotIn" => !is_in,
            _ => false,
        }
    };
    let rule = container.list("restartPolicyRules").iter().find(applies);
    if rule.is_some_and(|rule| rule.text("action") == "Restart") {
        return true;
    }
    let of_pod = manifest.text_at(&["spec", "restartPolicy"]);
    match (kind, container.str_at(&["restartPolicy"]).unwrap_or(of_pod)) {
        (Kind::Ephemeral, _) | (_, "Never") => false,
        (Kind::Init, "Always") if is_sidecar(kind, container) => true,
        // An init container that succeeded is done under every policy.
        (Kind::Init, _) | (_, "OnFailure") => exit_code != 0,
        _ => true,
    }
}

/// FNV-1a of 64 bits over a container's fields whose change restarts it.
pub(super) fn hash(container: &Value) -> String {
    let text = format!("{}\n{}", container.text("name"), container.text("image"));
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:x}")
}
