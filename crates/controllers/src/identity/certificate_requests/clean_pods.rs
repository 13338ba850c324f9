//! Deletes certificate requests of pods after 15 minutes: by then they are answered or abandoned.
//!
//! Follows Kubernetes `pkg/controller/certificates/cleaner/pcrcleaner.go`.

use std::time::Duration;

use api::json::Value;
use api::metadata;
use api::time::Timestamp;
use client::Resource;
use client::controller::{Controller, Next};
use client::informer::Key;
use client::objects::{Deletion, Selection};

use crate::machinery::action::Action;
use crate::machinery::executor::Failure;
use crate::machinery::outcome;
use crate::machinery::pods::until;
use crate::manager::Context;

const REQUESTS: Resource =
    Resource::new("certificates.k8s.io", "v1", "podcertificaterequests", "PodCertificateRequest");
const SECONDS: i64 = 15 * 60;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let requests = context.informers.of_documents(&REQUESTS, &Selection::default());
    let executor = context.executor();
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&requests, |it: &Value| [Key::new(metadata::namespace(it), metadata::name(it))]);
    runner
        .run(move |key: Key| {
            let (requests, executor) = (requests.clone(), executor.clone());
            async move {
                let Some(request) = requests.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                match left(&request, executor.now()) {
                    Duration::ZERO => {
                        let uid = request.text_at(&["metadata", "uid"]);
                        let action = Action::Delete {
                            resource: REQUESTS,
                            namespace: key.namespace.clone(),
                            name: key.name.clone(),
                            uid: uid.into(),
                            how: Deletion { uid: Some(uid.to_owned()), ..Deletion::default() },
                        };
                        outcome::next(executor.perform(&key, vec![action]).await)
                    }
                    left => Ok(Next::After(left)),
                }
            }
        })
        .await;
}

/// Remaining lifetime of a request.
fn left(request: &Value, now: Timestamp) -> Duration {
    let made = request.str_at(&["metadata", "creationTimestamp"]).and_then(|text| Timestamp::parse(text).ok());
    made.map_or(Duration::ZERO, |made| until(made.plus_seconds(SECONDS), now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stays_for_a_quarter_of_an_hour() {
        let request = api::json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}});
        let at = |text: &str| Timestamp::parse(text).expect("a time");
        assert_eq!(left(&request, at("2020-01-01T00:05:00Z")), Duration::from_secs(600));
        assert_eq!(left(&request, at("2020-01-01T00:15:00Z")), Duration::ZERO);
    }
}
