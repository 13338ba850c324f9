//! Errors of requests.

use api::json::{ConvertError, SyntaxError, Value};

/// Error of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's answer is an error.
    #[error("{0}")]
    Refused(Status),
    /// The server cannot be reached, or the connection broke.
    #[error("no response to the request")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Leadership is lost: another may act by now, and nothing was sent.
    #[error("leadership is lost")]
    NotLeading,
    /// The answer is not JSON.
    #[error("the response is not JSON")]
    Syntax(#[from] SyntaxError),
    /// The answer does not have the expected form.
    #[error("the response has an unexpected form")]
    Form(#[from] ConvertError),
    /// The request cannot be written.
    #[error("the request cannot be built")]
    Request(#[from] http::Error),
}

/// Status of a rejected request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The HTTP code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: String,
    /// A text for people.
    pub message: String,
    /// Delay before a retry, if the server gives one.
    pub retry_after_seconds: Option<u64>,
    /// Errors by field, if the server gives them.
    pub causes: Vec<Cause>,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueForbidden`.
    pub reason: String,
    /// The path of the field.
    pub field: String,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "the server answered with code {}", self.code),
            message => f.write_str(message),
        }
    }
}

impl Status {
    /// Reads a `Status` object, or any other text, that came with `code`.
    pub(crate) fn read(code: u16, body: &[u8]) -> Self {
        match api::json::parse(body) {
            Ok(value) if value.str_at(&["kind"]) == Some("Status") => Self { code, ..Self::of(&value) },
            _ => Self {
                code,
                message: String::from_utf8_lossy(body).trim_end().to_owned(),
                reason: reason_of(code).to_owned(),
                ..Self::default()
            },
        }
    }

    /// Reads a `Status` object.
    pub(crate) fn of(value: &Value) -> Self {
        let code = value.get("code").and_then(Value::as_i64).and_then(|code| u16::try_from(code).ok());
        let after = value.i64_at(&["details", "retryAfterSeconds"]);
        let causes = value.list_at(&["details", "causes"]);
        let text = |cause: &Value, key: &str| cause.text(key).to_owned();
        Self {
            code: code.unwrap_or(500),
            reason: value.text("reason").to_owned(),
            message: value.text("message").to_owned(),
            retry_after_seconds: after.and_then(|after| u64::try_from(after).ok()),
            causes: causes.iter().map(|it| Cause { reason: text(it, "reason"), field: text(it, "field") }).collect(),
        }
    }
}

fn reason_of(code: u16) -> &'static str {
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Gone",
        429 => "TooManyRequests",
        _ => "",
    }
}

impl Error {
    /// The HTTP code of a refusal, 0 if there was no answer.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Error::Refused(status) => status.code,
            _ => 0,
        }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether another writer was faster: the object has changed since it was read.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == 409 && !self.is_already_exists()
    }

    /// Whether an object of this name exists already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Error::Refused(status) if status.code == 409 && status.reason == "AlreadyExists")
    }

    /// Whether the requested version is too old, so that a new list is required.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Transport(_)) || matches!(self.code(), 429 | 500 | 502..=504)
    }
}
