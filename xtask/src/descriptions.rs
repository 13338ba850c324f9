//! Descriptions of fields, and required fields: `k8s-openapi`'s schemas →
//! `crates/api/src/types/descriptions.txt`.
//!
//! Built only with the feature `descriptions`, because the schemas take minutes to compile. What the proposals add is
//! described in `xtask/data/new_fields.json`.

use crate::generate::File;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Text of a type, and of its fields with whether they are required.
#[derive(Default)]
struct Description {
    text: String,
    fields: BTreeMap<String, (bool, String)>,
}

/// The file of descriptions.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let mut types = schemas()?;
    let new = std::fs::read_to_string(root.join("xtask/data/new_fields.json"))
        .context("cannot read xtask/data/new_fields.json")?;
    let new: Value = serde_json::from_str(&new)?;
    let list = |key: &str| new.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    for entry in list("types").iter().chain(&list("fields")).chain(&list("descriptions")) {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let owner = types.entry(crate::types::schema_name(&text("type"))).or_default();
        match entry.get("name") {
            None => owner.text = text("description"),
            Some(_) if text("description").is_empty() => {}
            Some(_) => {
                let required = entry.get("required").and_then(Value::as_bool).unwrap_or(false);
                owner.fields.insert(text("name"), (required, text("description")));
            }
        }
    }
    let mut out = String::new();
    for (name, description) in types {
        writeln!(out, "{name}\t{}", escape(&description.text))?;
        for (field, (required, text)) in description.fields {
            writeln!(out, "\t{field}\t{}\t{}", if required { "required" } else { "" }, escape(&text))?;
        }
    }
    Ok(vec![File { path: "crates/api/src/types/descriptions.txt".into(), text: out }])
}

fn schemas() -> Result<BTreeMap<String, Description>> {
    let mut generator = schemars::generate::SchemaSettings::openapi3().into_generator();
    macro_rules! add {
        ($($path:path,)*) => { $(generator.subschema_for::<$path>();)* };
    }
    use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
    add! {
        api::admissionregistration::v1::MutatingAdmissionPolicy,
        api::admissionregistration::v1::MutatingAdmissionPolicyBinding,
        api::admissionregistration::v1::MutatingWebhookConfiguration,
        api::admissionregistration::v1::ValidatingAdmissionPolicy,
        api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        api::admissionregistration::v1::ValidatingWebhookConfiguration,
        api::apiserverinternal::v1alpha1::StorageVersion,
        api::apps::v1::ControllerRevision,
        api::apps::v1::DaemonSet,
        api::apps::v1::Deployment,
        api::apps::v1::ReplicaSet,
        api::apps::v1::StatefulSet,
        api::authentication::v1::SelfSubjectReview,
        api::authentication::v1::TokenRequest,
        api::authentication::v1::TokenReview,
        api::authorization::v1::LocalSubjectAccessReview,
        api::authorization::v1::SelfSubjectAccessReview,
        api::authorization::v1::SelfSubjectRulesReview,
        api::authorization::v1::SubjectAccessReview,
        api::autoscaling::v1::HorizontalPodAutoscaler,
        api::autoscaling::v1::Scale,
        api::autoscaling::v2::HorizontalPodAutoscaler,
        api::batch::v1::CronJob,
        api::batch::v1::Job,
        api::certificates::v1::CertificateSigningRequest,
        api::certificates::v1::ClusterTrustBundle,
        api::certificates::v1::PodCertificateRequest,
        api::coordination::v1::Lease,
        api::core::v1::Binding,
        api::core::v1::ComponentStatus,
        api::core::v1::ConfigMap,
        api::core::v1::Endpoints,
        api::core::v1::Event,
        api::core::v1::LimitRange,
        api::core::v1::Namespace,
        api::core::v1::Node,
        api::core::v1::PersistentVolume,
        api::core::v1::PersistentVolumeClaim,
        api::core::v1::Pod,
        api::core::v1::PodTemplate,
        api::core::v1::ReplicationController,
        api::core::v1::ResourceQuota,
        api::core::v1::Secret,
        api::core::v1::Service,
        api::core::v1::ServiceAccount,
        api::discovery::v1::EndpointSlice,
        api::events::v1::Event,
        api::flowcontrol::v1::FlowSchema,
        api::flowcontrol::v1::PriorityLevelConfiguration,
        api::networking::v1::IPAddress,
        api::networking::v1::Ingress,
        api::networking::v1::IngressClass,
        api::networking::v1::NetworkPolicy,
        api::networking::v1::ServiceCIDR,
        api::node::v1::RuntimeClass,
        api::policy::v1::Eviction,
        api::policy::v1::PodDisruptionBudget,
        api::rbac::v1::ClusterRole,
        api::rbac::v1::ClusterRoleBinding,
        api::rbac::v1::Role,
        api::rbac::v1::RoleBinding,
        api::resource::v1::DeviceClass,
        api::resource::v1::DeviceTaintRule,
        api::resource::v1::ResourceClaim,
        api::resource::v1::ResourceClaimTemplate,
        api::resource::v1::ResourceSlice,
        api::resource::v1alpha3::DeviceTaintRule,
        api::resource::v1alpha3::ResourcePoolStatusRequest,
        api::resource::v1beta1::DeviceClass,
        api::resource::v1beta1::ResourceClaim,
        api::resource::v1beta1::ResourceClaimTemplate,
        api::resource::v1beta1::ResourceSlice,
        api::resource::v1beta2::DeviceClass,
        api::resource::v1beta2::DeviceTaintRule,
        api::resource::v1beta2::ResourceClaim,
        api::resource::v1beta2::ResourceClaimTemplate,
        api::resource::v1beta2::ResourceSlice,
        api::scheduling::v1::PriorityClass,
        api::storage::v1::CSIDriver,
        api::storage::v1::CSINode,
        api::storage::v1::CSIStorageCapacity,
        api::storage::v1::StorageClass,
        api::storage::v1::VolumeAttachment,
        api::storage::v1::VolumeAttributesClass,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        kube_aggregator::pkg::apis::apiregistration::v1::APIService,
        apimachinery::pkg::apis::meta::v1::Status,
        apimachinery::pkg::apis::meta::v1::DeleteOptions,
    }
    let mut types = BTreeMap::new();
    for (name, schema) in generator.definitions() {
        let text = |value: &Value| value.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut description = Description { text: text(schema), fields: BTreeMap::new() };
        for (field, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let is_required = required.iter().any(|it| it == field);
            description.fields.insert(field.clone(), (is_required, text(schema)));
        }
        types.insert(name.clone(), description);
    }
    Ok(types)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', " ")
}
