//! Secrets with service account tokens: filled if there is a signing key, deleted with the account, and removed
//! from the account's list when they are deleted.
//!
//! It acts under the identity of the manager itself, as in Kubernetes. Follows Kubernetes
//! `pkg/controller/serviceaccount/tokens_controller.go`.

use std::sync::Arc;

use api::core::v1::{Secret, ServiceAccount};
use api::json::Value;
use api::metadata;
use api::well_known::{ANNOTATION_SERVICE_ACCOUNT_NAME, SECRET_SERVICE_ACCOUNT_TOKEN};
use client::controller::{Controller, Next};
use client::informer::{Change, Informer, Key};
use client::objects::{Deletion, Selection};
use client::resources::ServedView as _;
use client::{Client, Document};

use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::outcome;
use crate::manager::Context;
use crate::settings::{Settings, TokenSubject};

const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// An item to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    /// A secret.
    Secret(Key),
    /// A deleted secret, and its account.
    Gone(Key, Key),
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Item::Secret(key) | Item::Gone(key, _)) = self;
        write!(f, "{key}")
    }
}

struct Tokens {
    secrets: Informer<Document<Secret>>,
    client: Client,
    executor: Executor,
    settings: Arc<Settings>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let selection = Selection { fields: format!("type={SECRET_SERVICE_ACCOUNT_TOKEN}"), ..Selection::default() };
    let secrets = context.informers.of::<Document<Secret>>(&selection);
    let accounts = context.informers.all::<ServiceAccount>();
    let client = context.informers.client().clone();
    let executor = Executor::new("serviceaccount-token-controller", client.clone(), context.refusals.clone());
    let known = secrets.clone();
    let runner = Controller::new(context.name, &context.runtime)
        .watch_changes(&secrets, |change| {
            let secret = change.newest();
            let key = edit::key(secret.metadata());
            match (change, account_of(secret)) {
                (Change::Deleted(_), Some(account)) => {
                    let account = Key::new(key.namespace.clone(), account);
                    Some(Item::Gone(key, account))
                }
                (Change::Deleted(_), None) => None,
                _ => Some(Item::Secret(key)),
            }
        })
        .watch_changes(&accounts, move |change| {
            let account = change.newest();
            let is_its = |it: &Arc<Document<Secret>>| {
                it.metadata().namespace == account.metadata.namespace
                    && account_of(it).is_some_and(|name| name == account.metadata.name.as_str())
            };
            let all = known.store().list();
            all.iter().filter(|it| is_its(it)).map(|it| Item::Secret(edit::key(it.metadata()))).collect::<Vec<_>>()
        });
    let settings = context.settings.clone();
    let controller = Arc::new(Tokens { secrets, client, executor, settings });
    runner
        .run(move |item: Item| {
            let controller = controller.clone();
            async move {
                match item {
                    Item::Secret(key) => controller.reconcile(key).await,
                    Item::Gone(key, account) => controller.drop_reference(key, account).await,
                }
            }
        })
        .await;
}

/// The account that a secret names.
fn account_of(secret: &Document<Secret>) -> Option<&str> {
    let name = metadata::annotation(secret.value(), ANNOTATION_SERVICE_ACCOUNT_NAME);
    name.filter(|name| !name.is_empty())
}

impl Tokens {
    async fn account(&self, namespace: &str, name: &str) -> Result<Option<Value>, client::Error> {
        match self.client.documents(ServiceAccount::RESOURCE).get(namespace, name).await {
            Ok(account) => Ok(Some(account)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(secret) = self.secrets.store().get_key(&key) else { return Ok(Next::Done) };
        let Some(name) = account_of(&secret) else { return Ok(Next::Done) };
        // The informer may be outdated: the server decides whether the account exists.
        let account = self.account(&key.namespace, name).await?;
        let actions = token(&secret, account.as_ref(), &self.settings).into_iter().collect();
        outcome::next(self.executor.perform(&key, actions).await)
    }

    async fn drop_reference(&self, key: Key, account: Key) -> Result<Next, Failure> {
        let Some(account) = self.account(&account.namespace, &account.name).await? else { return Ok(Next::Done) };
        let actions = without_reference(&account, &key.name).into_iter().collect();
        outcome::next(self.executor.perform(&key, actions).await)
    }
}

/// Returns the action for a secret: filling it, or deleting it.
fn token(secret: &Document<Secret>, account: Option<&Value>, settings: &Settings) -> Option<Action> {
    let metadata = secret.metadata();
    let uid = account.and_then(|it| it.str_at(&["metadata", "uid"])).unwrap_or_default();
    let meant = metadata::annotation(secret.value(), ACCOUNT_UID).unwrap_or_default();
    let Some(account) = account.filter(|_| meant.is_empty() || meant == uid) else {
        return Some(Action::Delete {
            resource: Secret::RESOURCE,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            how: Deletion { uid: Some(metadata.uid.to_string()), ..Deletion::default() },
        });
    };
    let mut object = secret.to_value();
    let text = |value: &str| Value::from(api::base64::encode(value.as_bytes()));
    if !settings.root_ca.is_empty() {
        object.set_at(&["data", "ca.crt"], text(&settings.root_ca));
    }
    if !secret.data.contains_key("namespace") {
        object.set_at(&["data", "namespace"], text(&metadata.namespace));
    }
    let bound = TokenSubject {
        namespace: &metadata.namespace,
        account: metadata::name(account),
        account_uid: uid,
        secret: &metadata.name,
    };
    let missing = secret.data.get("token").is_none_or(|token| token.is_empty());
    let signed = settings.tokens.as_ref().filter(|_| missing).and_then(|source| source.token(&bound));
    match signed {
        Some(token) => object.set_at(&["data", "token"], text(&token)),
        // An incomplete secret is of no use.
        None if missing => return None,
        None => {}
    }
    object.set_at(&["metadata", "annotations", ACCOUNT_UID], uid);
    (object != *secret.value()).then_some(Action::Update { resource: Secret::RESOURCE, object })
}

/// The account without a secret in its list.
fn without_reference(account: &Value, secret: &str) -> Option<Action> {
    let mut object = account.clone();
    let list = object.get_mut("secrets").and_then(Value::as_array_mut)?;
    list.retain(|it| it.str_at(&["name"]) != Some(secret));
    if list.is_empty() {
        object.remove_at(&["secrets"]);
    }
    (object != *account).then_some(Action::Update { resource: ServiceAccount::RESOURCE, object })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TokenSource;

    struct Source;

    impl TokenSource for Source {
        fn token(&self, account: &TokenSubject<'_>) -> Option<String> {
            Some(format!("{}/{}/{}", account.namespace, account.account, account.secret))
        }
    }

    fn secret(annotations: &[(&str, &str)]) -> Document<Secret> {
        let annotations: api::json::Object = annotations.iter().map(|(key, value)| (*key, *value)).collect();
        let object =
            api::json!({"metadata": {"name": "tok", "namespace": "a", "uid": "s", "annotations": annotations}});
        Document::new(object).expect("a secret")
    }

    #[test]
    fn a_token_is_made_for_an_account_and_goes_without_one() {
        let account = api::json!({"metadata": {"name": "bot", "uid": "u"}});
        let plain = secret(&[(ANNOTATION_SERVICE_ACCOUNT_NAME, "bot")]);
        let settings = Settings { root_ca: "pem".to_owned(), tokens: Some(Arc::new(Source)), ..Settings::default() };
        let Some(Action::Update { object, .. }) = token(&plain, Some(&account), &settings) else { panic!("no token") };
        assert_eq!(object.str_at(&["data", "token"]), Some(api::base64::encode(b"a/bot/tok").as_str()));
        assert_eq!(metadata::annotation(&object, ACCOUNT_UID), Some("u"));
        assert_eq!(token(&Document::new(object).expect("a secret"), Some(&account), &settings), None);
        assert_eq!(token(&plain, Some(&account), &Settings::default()), None, "nobody can sign");
        assert!(matches!(token(&plain, None, &settings), Some(Action::Delete { .. })));
        let stale = secret(&[(ANNOTATION_SERVICE_ACCOUNT_NAME, "bot"), (ACCOUNT_UID, "old")]);
        assert!(matches!(token(&stale, Some(&account), &settings), Some(Action::Delete { .. })));
    }

    #[test]
    fn a_reference_goes_with_its_secret() {
        let account = api::json!({"metadata": {"name": "bot"}, "secrets": [{"name": "tok"}]});
        let Some(Action::Update { object, .. }) = without_reference(&account, "tok") else { panic!("it stays") };
        assert_eq!(object.get("secrets"), None);
        assert_eq!(without_reference(&account, "other"), None);
    }
}
