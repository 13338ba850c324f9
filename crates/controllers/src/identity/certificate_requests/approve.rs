//! Approves certificates that nodes request, if they have permission.

use std::sync::Arc;

use api::certificates::v1::CertificateSigningRequest;
use api::json::Value;
use api::well_known::SIGNER_KUBELET_CLIENT;
use api::x509::request::Request;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;
use client::{Document, Resource};
use tracing::info;

use super::{content, has, rules};
use crate::machinery::executor::{Executor, Failure};
use crate::manager::Context;

const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

struct Approver {
    requests: Informer<Document<CertificateSigningRequest>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let requests = context.informers.all::<Document<CertificateSigningRequest>>();
    let runner = Controller::new(context.name, &context.runtime).watch(&requests, own);
    let approver = Arc::new(Approver { requests, executor: context.executor() });
    runner
        .run(move |key: Key| {
            let approver = approver.clone();
            async move { approver.reconcile(key).await }
        })
        .await;
}

/// Returns the permissions that the requester must have, with the messages for approval; the narrower
/// permission first.
fn rights(object: &CertificateSigningRequest) -> Vec<(&'static str, &'static str)> {
    let is_decided = has(object, "Approved") || has(object, "Denied") || !object.status.certificate.is_empty();
    if is_decided || object.spec.signer_name != SIGNER_KUBELET_CLIENT {
        return Vec::new();
    }
    let bytes = content(object);
    let Some(request) = bytes.as_deref().and_then(Request::read) else { return Vec::new() };
    if rules::kubelet_client(&request, &object.spec.usages).is_err() {
        return Vec::new();
    }
    let mut rights = vec![("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")];
    if object.spec.username == request.names.common_name.as_str() {
        let own = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
        rights.insert(0, own);
    }
    rights
}

impl Approver {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(object) = self.requests.store().get_key(&key) else { return Ok(Next::Done) };
        let rights = rights(&object);
        for (subresource, message) in &rights {
            if self.may(&object, subresource).await? {
                return self.approve(&object, message).await;
            }
        }
        if !rights.is_empty() {
            info!(certificateSigningRequest = %key, "Did not approve certificate: the requester lacks permission");
        }
        Ok(Next::Done)
    }

    /// Whether the requester may create a request of this kind.
    async fn may(&self, object: &Document<CertificateSigningRequest>, subresource: &str) -> Result<bool, Failure> {
        let asked = object.value().get("spec");
        let field = |name: &str| asked.and_then(|it| it.get(name)).cloned().unwrap_or_default();
        let review = api::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": (field("username")),
                "uid": (field("uid")),
                "groups": (field("groups")),
                "extra": (field("extra")),
                "resourceAttributes": {
                    "group": "certificates.k8s.io",
                    "version": "*",
                    "resource": "certificatesigningrequests",
                    "verb": "create",
                    "subresource": subresource,
                },
            },
        });
        let answer: Value = self.executor.client().documents(REVIEWS).create("", &review).await?;
        Ok(answer.bool_at(&["status", "allowed"]) == Some(true))
    }

    async fn approve(&self, object: &Document<CertificateSigningRequest>, message: &str) -> Result<Next, Failure> {
        let mut written = object.to_value();
        let mut conditions = written.list_at(&["status", "conditions"]).to_vec();
        conditions.push(api::json!({
            "type": "Approved", "status": "True", "reason": "AutoApproved", "message": message,
        }));
        written.set_at(&["status", "conditions"], Value::Array(conditions));
        let requests = self.executor.client().documents(CertificateSigningRequest::RESOURCE);
        requests.update_below("", &object.metadata().name, "approval", &written).await?;
        Ok(Next::Done)
    }
}
