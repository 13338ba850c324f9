//! Deletes bootstrap tokens whose time has passed.
//!
//! Follows Kubernetes `pkg/controller/bootstrap/tokencleaner.go`.

use std::time::Duration;

use api::core::v1::Secret;
use api::time::Timestamp;
use api::well_known::{NAMESPACE_SYSTEM, SECRET_BOOTSTRAP_TOKEN};
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::objects::{Deletion, Selection};
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::Failure;
use crate::machinery::outcome;
use crate::manager::Context;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let tokens = tokens_of(&context);
    let executor = context.executor();
    let runner = Controller::new(context.name, &context.runtime).watch(&tokens, own);
    runner
        .run(move |key: Key| {
            let (tokens, executor) = (tokens.clone(), executor.clone());
            async move {
                let Some(token) = tokens.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                match left(&token, executor.now()) {
                    None => Ok(Next::Done),
                    Some(Duration::ZERO) => {
                        let metadata = &token.metadata;
                        let how = Deletion { uid: Some(metadata.uid.to_string()), ..Deletion::default() };
                        let action = Action::Delete {
                            resource: Secret::RESOURCE,
                            namespace: metadata.namespace.clone(),
                            name: metadata.name.clone(),
                            uid: metadata.uid.clone(),
                            how,
                        };
                        outcome::next(executor.perform(&key, vec![action]).await)
                    }
                    Some(left) => Ok(Next::After(left)),
                }
            }
        })
        .await;
}

/// The informer of bootstrap tokens.
pub(crate) fn tokens_of(context: &Context) -> Informer<Secret> {
    let selection = Selection {
        namespace: NAMESPACE_SYSTEM.to_owned(),
        fields: format!("type={SECRET_BOOTSTRAP_TOKEN}"),
        ..Selection::default()
    };
    context.informers.of::<Secret>(&selection)
}

/// Returns the remaining lifetime of a token; `None` if it does not expire. Unreadable tokens have expired.
pub(crate) fn left(token: &Secret, now: Timestamp) -> Option<Duration> {
    let encoded = token.data.get("expiration").filter(|it| !it.is_empty())?;
    let end = api::base64::decode(encoded)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| Timestamp::parse(&text).ok());
    let seconds = end.map_or(0, |end| end.seconds.saturating_sub(now.seconds));
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_or_unreadable_tokens_are_deleted() {
        let token = |expiration: &str| Secret {
            data: std::iter::once(("expiration".into(), expiration.into())).collect(),
            ..Secret::default()
        };
        let now = Timestamp::parse("2020-01-01T00:00:10Z").expect("a time");
        let encoded = |text: &str| api::base64::encode(text.as_bytes());
        assert_eq!(left(&Secret::default(), now), None);
        assert_eq!(left(&token(&encoded("2020-01-01T00:00:00Z")), now), Some(Duration::ZERO));
        assert_eq!(left(&token(&encoded("2020-01-01T00:01:00Z")), now), Some(Duration::from_secs(50)));
        assert_eq!(left(&token(&encoded("tomorrow")), now), Some(Duration::ZERO));
        assert_eq!(left(&token("%"), now), Some(Duration::ZERO));
    }
}
