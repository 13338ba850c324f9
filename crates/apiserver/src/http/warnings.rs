//! What users should know although their request is answered: `Warning` headers.
//!
//! Whatever handles a request adds texts here; they are sent with the answer, also with a refusal, each once.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;

use crate::http::request::Target;
use crate::resources::Resource;

tokio::task_local! {
    static WARNINGS: RefCell<Vec<String>>;
}

/// Runs what answers a request; gives back its result and what was added meanwhile.
pub(crate) async fn collect<T>(work: Pin<&mut impl Future<Output = T>>) -> (T, Vec<String>) {
    WARNINGS
        .scope(RefCell::new(Vec::new()), async {
            let result = work.await;
            (result, WARNINGS.with(RefCell::take))
        })
        .await
}

/// Adds texts, unless they are there already. Outside of a request nobody would read them.
pub(crate) fn add(texts: impl IntoIterator<Item = String>) {
    // An error means that no request is being handled.
    let _ = WARNINGS.try_with(|warnings| {
        let mut warnings = warnings.borrow_mut();
        for text in texts {
            if !warnings.contains(&text) {
                warnings.push(text);
            }
        }
    });
}

/// What is said about a version or kind that is to go, by the lifecycle tags of Kubernetes' API.
pub(crate) fn deprecation(resource: &Resource<'_>, target: &Target) -> Option<String> {
    let rest = match (resource.group, target.version.as_str(), resource.kind) {
        ("", "v1", "ComponentStatus") => "is deprecated in v1.19+",
        ("", "v1", "Endpoints") => "is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ("resource.k8s.io", "v1beta1", _) => "is deprecated in v1.35+, unavailable in v1.38+",
        ("resource.k8s.io", "v1beta2", "DeviceTaintRule") => return None,
        ("resource.k8s.io", "v1beta2", _) | ("resource.k8s.io", "v1alpha3", "DeviceTaintRule") => {
            "is deprecated in v1.36+, unavailable in v1.39+"
        }
        _ => return None,
    };
    Some(format!("{} {} {rest}", crate::resources::api_version(resource.group, &target.version), resource.kind))
}
