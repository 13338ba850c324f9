//! Deletes requests that are no longer needed: issued and denied ones after an hour, open ones after a day.

use std::time::Duration;

use api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use api::time::Timestamp;
use api::x509::{issuer, pem_blocks};
use client::controller::{Controller, Next, own};
use client::informer::Key;
use client::objects::Deletion;
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::Failure;
use crate::machinery::outcome;
use crate::machinery::pods::until;
use crate::manager::Context;

const DECIDED_SECONDS: i64 = 3600;
const OPEN_SECONDS: i64 = 24 * 3600;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let requests = context.informers.all::<CertificateSigningRequest>();
    let executor = context.executor();
    let runner = Controller::new(context.name, &context.runtime).watch(&requests, own);
    runner
        .run(move |key: Key| {
            let (requests, executor) = (requests.clone(), executor.clone());
            async move {
                let Some(request) = requests.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                let left = ends_at(&request).map(|end| until(end, executor.now()));
                match left {
                    None => Ok(Next::Done),
                    Some(Duration::ZERO) => {
                        let action = Action::Delete {
                            resource: CertificateSigningRequest::RESOURCE,
                            namespace: "".into(),
                            name: request.metadata.name.clone(),
                            uid: request.metadata.uid.clone(),
                            how: Deletion::default(),
                        };
                        outcome::next(executor.perform(&key, vec![action]).await)
                    }
                    Some(left) => Ok(Next::After(left)),
                }
            }
        })
        .await;
}

/// Time at which a request is deleted.
fn ends_at(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let status = &request.status;
    let is_issued = !status.certificate.is_empty();
    let after = |condition: &CertificateSigningRequestCondition| {
        let seconds = match (condition.condition_type.as_str(), is_issued) {
            ("Denied" | "Failed", _) | ("Approved", true) => DECIDED_SECONDS,
            ("Approved", false) => OPEN_SECONDS,
            _ => return None,
        };
        Some(condition.last_update_time?.plus_seconds(seconds))
    };
    let approved = || status.conditions.iter().any(|it| it.condition_type == "Approved");
    let expired = is_issued.then(|| certificate_end(&status.certificate)).flatten().filter(|_| approved());
    let open = status.conditions.is_empty().then_some(request.metadata.creation_timestamp).flatten();
    let open = open.map(|made| made.plus_seconds(OPEN_SECONDS));
    status.conditions.iter().filter_map(after).chain(expired).chain(open).min()
}

/// Until when a certificate holds.
fn certificate_end(encoded: &str) -> Option<Timestamp> {
    let pem = api::base64::decode(encoded).ok()?;
    let block = pem_blocks(str::from_utf8(&pem).ok()?).into_iter().next()?;
    issuer::not_after(&block.bytes)
}

#[cfg(test)]
mod tests {
    use api::certificates::v1::CertificateSigningRequestStatus;

    use super::*;

    #[test]
    fn decided_requests_expire_before_open_ones() {
        let at = |seconds: i64| Timestamp { seconds, nanos: 0 };
        let request = |conditions: &[(&str, i64)], certificate: &str| {
            let condition = |(kind, since): &(&str, i64)| CertificateSigningRequestCondition {
                condition_type: (*kind).into(),
                last_update_time: Some(at(*since)),
                ..Default::default()
            };
            let conditions = conditions.iter().map(condition).collect();
            let mut request = CertificateSigningRequest {
                status: CertificateSigningRequestStatus { conditions, certificate: certificate.into() },
                ..Default::default()
            };
            request.metadata.creation_timestamp = Some(at(10));
            ends_at(&request)
        };
        assert_eq!(request(&[], ""), Some(at(10 + 24 * 3600)));
        assert_eq!(request(&[("Denied", 50)], ""), Some(at(50 + 3600)));
        assert_eq!(request(&[("Approved", 50)], ""), Some(at(50 + 24 * 3600)));
        assert_eq!(request(&[("Approved", 50)], "eA=="), Some(at(50 + 3600)));
        assert_eq!(request(&[("Approved", 50), ("Failed", 60)], ""), Some(at(60 + 3600)));
    }
}
