//! `AdmissionReview`: the request that a webhook is sent, and its answer.
//!
//! Follows `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go` of Kubernetes; texts are Kubernetes' and Go's.

use api::go_text::quote;
use api::json::{Object, Value};

use crate::outbound::reviews::{check_type, confirm_type, parse};

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// Builds the `AdmissionReview` that is sent to a webhook.
pub(super) fn of(version: &str, uid: &str, mut request: Value, object: Value, old: Value) -> Value {
    if let Some(fields) = request.as_object_mut() {
        fields.insert("uid", uid);
        fields.insert("object", object);
        fields.insert("oldObject", old);
    }
    api::json!({"kind": KIND, "apiVersion": (format!("{GROUP}/{version}")), "request": request})
}

/// The answer of a webhook.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Option<Object>,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

/// The reasons why an answer is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// The response cannot be parsed.
    Unreadable(String),
    /// The response does not match the request.
    Invalid(String),
}

/// Reads the response of a webhook; it must have the version and uid of the review that was sent.
pub(super) fn read(body: &[u8], version: &str, uid: &str, mutates: bool) -> Result<Answer, ReviewError> {
    let review = parse(body).map_err(ReviewError::Unreadable)?;
    check_type(&review, (GROUP, KIND), version).map_err(ReviewError::Unreadable)?;
    let Some(response) = review.get("response").and_then(Value::as_object) else {
        return match review.get("response") {
            None | Some(Value::Null) => Err(ReviewError::Invalid("webhook response was absent".to_owned())),
            Some(other) => {
                Err(ReviewError::Unreadable(unfit(other, "AdmissionReview.response", "v1.AdmissionResponse")))
            }
        };
    };
    let answer = response_of(response).map_err(ReviewError::Unreadable)?;
    let (mut answer, given_uid, has_patch_type) = answer;
    if version == "v1beta1" {
        // Kubernetes: the type of responses in the old version is not checked.
        "JSONPatch".clone_into(&mut answer.patch_type);
        return Ok(answer);
    }
    if given_uid != uid {
        return Err(ReviewError::Invalid(format!("expected response.uid={}, got {}", quote(uid), quote(&given_uid))));
    }
    confirm_type(&review, (GROUP, KIND), version).map_err(ReviewError::Invalid)?;
    let why = match (mutates, !answer.patch.is_empty(), has_patch_type) {
        (true, true, false) => "webhook returned response.patch but not response.patchType",
        (true, false, true) => "webhook returned response.patchType but not response.patch",
        (true, true, true) if answer.patch_type.is_empty() => "webhook returned invalid response.patchType of \"\"",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, _, true) => "validating webhook may not return response.patchType",
        _ => return Ok(answer),
    };
    Err(ReviewError::Invalid(why.to_owned()))
}

fn unfit(value: &Value, field: &str, of: &str) -> String {
    let kind = match value {
        Value::Int(_) | Value::Float(_) => "number".to_owned(),
        other => other.kind().to_owned(),
    };
    format!("json: cannot unmarshal {kind} into Go struct field {field} of type {of}")
}

/// The answer, its uid, and whether it names a type of patch.
fn response_of(response: &Object) -> Result<(Answer, String, bool), String> {
    let text = |field: &str, of: &str| match response.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(unfit(value, &format!("AdmissionResponse.response.{field}"), of)),
        },
    };
    let uid = text("uid", "types.UID")?.unwrap_or_default();
    let allowed = match response.get("allowed") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(unfit(other, "AdmissionResponse.response.allowed", "bool")),
    };
    let status = match response.get("status") {
        None | Some(Value::Null) => None,
        Some(Value::Object(status)) => Some(status.clone()),
        Some(other) => return Err(unfit(other, "AdmissionResponse.response.status", "v1.Status")),
    };
    if let Some(code) =
        status.as_ref().and_then(|it| it.get("code")).filter(|it| it.as_i64().is_none() && !it.is_null())
    {
        return Err(unfit(code, "Status.response.status.code", "int32"));
    }
    let patch = text("patch", "[]uint8")?.unwrap_or_default();
    let patch = api::base64::decode(&patch).map_err(|error| error.to_string())?;
    let patch_type = text("patchType", "v1.PatchType")?;
    let warnings = response.get("warnings").and_then(Value::as_array).unwrap_or_default();
    let warnings = warnings.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    let annotations = response.get("auditAnnotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flat_map(Object::iter);
    let annotations = annotations.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())));
    let has_patch_type = patch_type.is_some();
    let patch_type = patch_type.unwrap_or_default();
    let annotations = annotations.collect();
    Ok((Answer { allowed, status, patch, patch_type, warnings, annotations }, uid, has_patch_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, bad: Option<ReviewError>) {
        assert_eq!(read(body.as_bytes(), "v1", "u", false).err(), bad);
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        let absent = || Some(ReviewError::Invalid("webhook response was absent".to_owned()));
        check("{}", absent());
        check("null", absent());
        let ok =
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}"#;
        check(ok, None);
        check(
            &ok.replace(r#""u""#, r#""v""#),
            Some(ReviewError::Invalid(r#"expected response.uid="u", got "v""#.to_owned())),
        );
        let why = "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool";
        check(&ok.replace("true", "\"true\""), Some(ReviewError::Unreadable(why.to_owned())));
        let why = "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion";
        check(&ok.replace("/v1\"", "/v1beta1\""), Some(ReviewError::Unreadable(why.to_owned())));
    }
}
