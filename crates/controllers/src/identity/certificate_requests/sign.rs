//! Signs approved requests, or records why not.

use std::sync::Arc;
use std::time::Duration;

use api::certificates::v1::CertificateSigningRequest;
use api::json::Value;
use api::time::Timestamp;
use api::x509::request::Request;
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::Key;
use client::resources::ServedView as _;
use tracing::warn;

use super::{content, has, rules};
use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::Failure;
use crate::manager::Context;
use crate::settings::{CertificateSigner, Order};

/// No certificate holds for a shorter time.
const SECONDS_MIN: i64 = 600;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let Some(signer) = context.settings.signer.clone() else { return };
    let requests = context.informers.all::<Document<CertificateSigningRequest>>();
    let executor = context.executor();
    let runner = Controller::new(context.name, &context.runtime).watch(&requests, own);
    let seconds_max = i64::try_from(context.settings.signing_duration.as_secs()).unwrap_or(i64::MAX);
    runner
        .run(move |key: Key| {
            let (requests, executor, signer) = (requests.clone(), executor.clone(), signer.clone());
            async move {
                let Some(request) = requests.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                match decide(&request, &signer, seconds_max, executor.now()) {
                    Some(Ok(action)) => executor.perform(&key, vec![action]).await?,
                    Some(Err(why)) => {
                        warn!(certificateSigningRequest = %key, err = why, "Could not sign certificate");
                        return Ok(Next::After(Duration::from_secs(60)));
                    }
                    None => {}
                }
                Ok(Next::Done)
            }
        })
        .await;
}

/// Returns the update of a request; an error if it should be signed and cannot.
fn decide(
    object: &Document<CertificateSigningRequest>,
    signer: &Arc<dyn CertificateSigner>,
    seconds_max: i64,
    now: Timestamp,
) -> Option<Result<Action, String>> {
    let is_open = has(object, "Approved") && !has(object, "Denied") && !has(object, "Failed");
    if !is_open || !object.status.certificate.is_empty() {
        return None;
    }
    let spec = &object.spec;
    // The server has read it when it was made.
    let bytes = content(object)?;
    let request = Request::read(&bytes)?;
    let mut written = object.to_value();
    let resource = CertificateSigningRequest::RESOURCE;
    if let Err(why) = rules::check(&spec.signer_name, &request, &spec.usages)? {
        let condition = api::json!({
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": why,
            "lastUpdateTime": (edit::time(now)),
        });
        written.make_list_at(&["status", "conditions"]).push(condition);
        return Some(Ok(Action::UpdateStatus { resource, object: written }));
    }
    let seconds =
        spec.expiration_seconds.map_or(seconds_max, i64::from).clamp(SECONDS_MIN, seconds_max.max(SECONDS_MIN));
    let usages: Vec<&str> = spec.usages.iter().map(api::json::Text::as_str).collect();
    let signed = signer.sign(&request, &Order { usages: &usages, seconds, now });
    let certificate = match signed {
        Ok(certificate) => certificate,
        Err(why) => return Some(Err(why)),
    };
    written.set_at(&["status", "certificate"], Value::from(api::base64::encode(certificate.as_bytes())));
    Some(Ok(Action::UpdateStatus { resource, object: written }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::well_known::{SIGNER_CLIENT, SIGNER_KUBELET_CLIENT};

    struct Signer;

    impl CertificateSigner for Signer {
        fn sign(&self, request: &Request<'_>, order: &Order<'_>) -> Result<String, String> {
            Ok(format!("{} for {}", request.names.common_name, order.seconds))
        }
    }

    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHWMH4CAQAwHDEKMAgGA1UECgwBZzEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAASWf3d3GG1nBlnDihtBgEb0ga/jFK49jWwgnVlon/p2
ieNb0ZWZJ875B7bU9UPkCXON4UbDjI2EKD+B/TWTJuOroAAwCgYIKoZIzj0EAwID
SAAwRQIhAMERBTqXOUAJFxISqR9qZ1q9+YyxkUeOkh54UU5iFMYEAiAYYuSkBPKI
cdKS5SWVcWhoZCgxIrpyJZ6UFbYd0WP1lA==
-----END CERTIFICATE REQUEST-----
";

    fn decided(signer_name: &str, seconds: Value, conditions: &[&str]) -> Option<Value> {
        let conditions = conditions.iter().map(|it| api::json!({"type": (*it), "status": "True"})).collect();
        let object = api::json!({
            "metadata": {"name": "r"},
            "spec": {
                "request": (api::base64::encode(REQUEST.as_bytes())),
                "signerName": signer_name,
                "usages": ["client auth"],
                "expirationSeconds": seconds,
            },
            "status": {"conditions": (Value::Array(conditions))},
        });
        let signer: Arc<dyn CertificateSigner> = Arc::new(Signer);
        match decide(&Document::new(object).unwrap(), &signer, 1000, crate::machinery::model::now())? {
            Ok(Action::UpdateStatus { object, .. }) => object.get("status").cloned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_approved_requests_are_signed_within_the_limit() {
        let certificate = |seconds: Value, conditions: &[&str]| {
            let status = decided(SIGNER_CLIENT, seconds, conditions)?;
            let bytes = api::base64::decode(status.str_at(&["certificate"])?).unwrap();
            Some(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(certificate(Value::Null, &[]), None);
        assert_eq!(certificate(Value::Null, &["Approved", "Denied"]), None);
        assert_eq!(certificate(Value::Null, &["Approved", "Failed"]), None);
        assert_eq!(certificate(Value::Null, &["Approved"]).as_deref(), Some("alice for 1000"));
        assert_eq!(certificate(5000.into(), &["Approved"]).as_deref(), Some("alice for 1000"));
        assert_eq!(certificate(800.into(), &["Approved"]).as_deref(), Some("alice for 800"));
        assert_eq!(certificate(60.into(), &["Approved"]).as_deref(), Some("alice for 600"));
        assert_eq!(decided("example.com/own", Value::Null, &["Approved"]), None);
        let failed = decided(SIGNER_KUBELET_CLIENT, Value::Null, &["Approved"]).unwrap();
        assert_eq!(failed.get("certificate"), None);
        let condition = failed.array_at(&["conditions"]).unwrap().last().unwrap().clone();
        assert_eq!(condition.str_at(&["reason"]), Some("SignerValidationFailure"));
    }
}
