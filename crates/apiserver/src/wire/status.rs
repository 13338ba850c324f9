//! Failures of requests: `Status` objects with Kubernetes' codes, reasons and texts.
//!
//! Every layer below returns its own error; here they become a [`Failure`], once, with the texts that clients match on.

use api::field::Errors;
use api::json;
use api::json::{Object, Value};

use crate::resources::{Resource, qualified};

/// A request that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The HTTP code.
    pub code: u16,
    /// The machine-readable reason, empty if there is none.
    pub reason: &'static str,
    /// A reason that a webhook gives, in place of the other.
    pub given_reason: Option<String>,
    /// A status that a webhook gives, in place of `Failure`.
    pub given_status: Option<String>,
    /// Whether the `Status` has a kind and a version.
    pub is_typed: bool,
    /// Message of the failure.
    pub message: String,
    /// More about it.
    pub details: Option<Object>,
    /// Token with which a list can continue although its version has expired.
    pub continue_token: Option<String>,
}

/// The result of handling a request.
pub type Result<T> = std::result::Result<T, Box<Failure>>;

impl Failure {
    /// A failure without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason,
            given_reason: None,
            given_status: None,
            is_typed: true,
            message: message.into(),
            details: None,
            continue_token: None,
        })
    }

    fn about(mut self: Box<Self>, name: &str, group: &str, kind: &str) -> Box<Self> {
        let mut details = Object::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key, value);
            }
        }
        self.details = Some(details);
        self
    }

    /// The client sent something that cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the client is not authenticated.
    #[must_use]
    pub fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user lacks permission. `resource` and `name` may be empty.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Box<Self> {
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (_, true) => format!("{} is forbidden: {why}", qualified(resource, group)),
            _ => format!("{} \"{name}\" is forbidden: {why}", qualified(resource, group)),
        };
        Self::new(403, "Forbidden", message).about(name, group, resource)
    }

    /// 404: the object does not exist.
    #[must_use]
    pub fn not_found(resource: &Resource<'_>, name: &str) -> Box<Self> {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified())).about(
            name,
            resource.group,
            resource.plural,
        )
    }

    /// 404: the resource does not exist.
    #[must_use]
    pub fn no_resource() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource").about("", "", "")
    }

    /// The resource cannot do that.
    #[must_use]
    pub fn method_not_allowed() -> Box<Self> {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).about("", "", "")
    }

    /// The object exists.
    #[must_use]
    pub fn already_exists(resource: &Resource<'_>, name: &str) -> Box<Self> {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.qualified())).about(
            name,
            resource.group,
            resource.plural,
        )
    }

    /// Someone else was faster, or a precondition does not hold.
    #[must_use]
    pub fn conflict(resource: &Resource<'_>, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(name, resource.group, resource.plural)
    }

    /// As [`Failure::conflict`], for a part of an object.
    #[must_use]
    pub fn conflict_of_part(resource: &Resource<'_>, part: &str, name: &str, why: &str) -> Box<Self> {
        let whole = format!("{}/{part}", resource.plural);
        let qualified = crate::resources::qualified(&whole, resource.group);
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(name, resource.group, &whole)
    }

    /// Lets a name pass under which an object can be looked up.
    ///
    /// # Errors
    /// 400 if there is none, or no object can have it.
    pub fn check_name_parameter(name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Self::bad_request("Name parameter required."));
        }
        let complaints = api::names::path_segment(name);
        if complaints.is_empty() {
            return Ok(());
        }
        let name = api::go_text::quote(name);
        Err(Self::bad_request(format!("Name parameter invalid: {name}: {}", complaints.join(";"))))
    }

    /// As [`conflict`](Self::conflict), where Kubernetes names the kind and not the resource.
    #[must_use]
    pub fn conflict_of_kind(resource: &Resource<'_>, name: &str, why: &str) -> Box<Self> {
        let qualified = crate::resources::qualified(resource.kind, resource.group);
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(name, resource.group, resource.kind)
    }

    /// The object that an update was based on has changed.
    #[must_use]
    pub fn modified(resource: &Resource<'_>, name: &str) -> Box<Self> {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 410: the requested history has expired.
    pub fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(410, "Expired", message)
    }

    /// The object is not valid.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> Box<Self> {
        // Events of both groups are one kind inside.
        let group = if group == "events.k8s.io" { "" } else { group };
        let message = errors.invalid_message(&qualified(kind, group), name);
        let mut failure = Self::new(422, "Invalid", message).about(name, group, kind);
        if let Some(details) = &mut failure.details
            && !errors.is_empty()
        {
            details.insert("causes", errors.causes());
        }
        failure
    }

    /// The body has a form that is not read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 500: an internal error.
    pub fn internal(message: impl Into<String>) -> Box<Self> {
        let message = message.into();
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        let causes = Value::Array(vec![json!({"message": message})]);
        failure.details = Some([("causes", causes)].into_iter().collect());
        failure
    }

    /// An unclassified error: code 500 with the bare message.
    pub fn unclassified(message: impl Into<String>) -> Box<Self> {
        Self::new(500, "", message)
    }

    /// Adds to the details.
    #[must_use]
    pub fn with_detail(mut self: Box<Self>, key: &str, value: impl Into<Value>) -> Box<Self> {
        self.details.get_or_insert_default().insert(key, value);
        self
    }

    /// The seconds after which to try again.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<i64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_i64()
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut status = Object::new();
        if self.is_typed {
            status.insert("kind", "Status");
            status.insert("apiVersion", "v1");
        }
        let mut metadata = Object::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue", token.as_str());
        }
        status.insert("metadata", metadata);
        status.insert("status", self.given_status.as_deref().unwrap_or("Failure"));
        status.insert("message", self.message.as_str());
        let reason = self.given_reason.as_deref().unwrap_or(self.reason);
        if !reason.is_empty() {
            status.insert("reason", reason);
        }
        if let Some(details) = &self.details {
            status.insert("details", details.clone());
        }
        status.insert("code", i64::from(self.code));
        Value::Object(status)
    }
}

impl From<store::Error> for Box<Failure> {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Compacted { .. } => Failure::expired("The resourceVersion for the provided list is too old."),
            store::Error::FutureRevision { requested, current } => too_large_version(requested, current),
            store::Error::TooLarge { limit: 0, .. } => {
                // etcd does not report its limit.
                let message = "Request entity too large: etcdserver: request is too large";
                Failure::new(413, "RequestEntityTooLarge", message)
            }
            store::Error::TooLarge { .. } => {
                Failure::new(413, "RequestEntityTooLarge", format!("Request entity too large: {error}"))
            }
            store::Error::TimedOut(cause) => {
                Failure::new(504, "Timeout", format!("Timeout: the storage did not answer in time: {cause}"))
            }
            store::Error::Unavailable(cause) => Failure::internal(format!("the storage is unavailable: {cause}")),
            store::Error::Refused(cause) => Failure::internal(format!("the storage refused the request: {cause}")),
            other => Failure::internal(other.to_string()),
        }
    }
}

impl From<cache::field_selectors::Error> for Box<Failure> {
    fn from(error: cache::field_selectors::Error) -> Self {
        Failure::bad_request(error.0)
    }
}

impl From<patching::patch::Error> for Box<Failure> {
    fn from(error: patching::patch::Error) -> Self {
        use patching::patch::Error;
        match error {
            Error::Malformed(message) => Failure::bad_request(message),
            Error::TooLarge(message) => Failure::new(413, "RequestEntityTooLarge", message),
            Error::Inapplicable(message) => Failure::new(422, "", message),
            Error::Unfit(message) => Failure::unclassified(message),
            other => Failure::internal(other.to_string()),
        }
    }
}

/// The requested version was not reached in time.
#[must_use]
pub fn too_large_version(requested: u64, current: u64) -> Box<Failure> {
    let message = format!("Too large resource version: {requested}, current: {current}");
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    Failure::new(504, "Timeout", format!("Timeout: {message}"))
        .with_detail("causes", Value::Array(vec![cause]))
        .with_detail("retryAfterSeconds", 1_i64)
}

/// The `Status` that reports a success.
#[must_use]
pub fn success(resource: &Resource<'_>, name: &str, uid: &str) -> Value {
    let mut details = Object::new();
    for (key, value) in [("name", name), ("group", resource.group), ("kind", resource.plural), ("uid", uid)] {
        if !value.is_empty() {
            details.insert(key, value);
        }
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
