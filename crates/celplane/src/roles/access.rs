//! Who may read health and metrics of a component that has a process of its own.
//!
//! The component asks the API server who somebody is (a token review) and whether they may (an access review), as Kubernetes'
//! components do. Client certificates are checked here, against the authority that is given. Health is for everybody.

use std::path::Path;

use anyhow::{Context as _, Result};
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::certificates::Authority;
use client::{Client, Resource};
use http::StatusCode;
use tracing::warn;

const TOKEN_REVIEWS: Resource = Resource::new("authentication.k8s.io", "v1", "tokenreviews", "TokenReview");
const ACCESS_REVIEWS: Resource =
    Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

/// What everybody may read.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Decides who may read.
pub(crate) struct Access {
    client: Client,
    pub(crate) tls: TlsAcceptor,
}

/// Why somebody may not read.
pub(crate) struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
}

impl Refused {
    fn unauthorized() -> Self {
        Self { code: StatusCode::UNAUTHORIZED, message: "Unauthorized".to_owned() }
    }

    fn cannot_tell(error: &client::Error) -> Self {
        warn!(err = %error, "Could not ask who may read");
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, message: "cannot ask the API server".to_owned() }
    }
}

impl Access {
    /// Asks the server of `client`. Without a certificate of its own, the component makes one.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub(crate) fn new(
        client: Client,
        address: std::net::IpAddr,
        own: Option<(&Path, &Path)>,
        client_authority: Option<&Path>,
    ) -> Result<Self> {
        let read =
            |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()));
        let authority = Authority::generate()?;
        let (chain, key) = match own {
            Some((certificate, key)) => (read(certificate)?, read(key)?),
            None => {
                let pair = authority.server(&[std::net::Ipv4Addr::LOCALHOST.into(), address])?;
                (pair.certificate, pair.key)
            }
        };
        // Nobody has a certificate of the authority that was just made.
        let client_authority =
            client_authority.map(read).transpose()?.unwrap_or_else(|| authority.certificate().to_owned());
        Ok(Self { client, tls: listen::tls_from_pem(&chain, &key, &client_authority)? })
    }

    /// Whether somebody may read: whom a certificate names, or who has a token.
    pub(crate) async fn check(&self, user: Option<&User>, token: Option<&str>, path: &str) -> Result<(), Refused> {
        if OPEN_PATHS.contains(&path) || OPEN_PATHS.iter().any(|open| path.starts_with(&format!("{open}/"))) {
            return Ok(());
        }
        let user = match (user, token) {
            (Some(user), _) => user.clone(),
            // Not a token at all, such as a password.
            (None, Some("")) => return Err(Refused::unauthorized()),
            (None, Some(token)) => self.user_of(token).await?,
            (None, None) => User::anonymous(),
        };
        let (name, groups) = (user.name.as_str(), strings(&user.groups));
        let review = api::json!({"spec": {
            "user": name, "groups": groups, "nonResourceAttributes": {"path": path, "verb": "get"},
        }});
        let answer = self.client.documents(ACCESS_REVIEWS).create("", &review).await;
        let answer = answer.map_err(|error| Refused::cannot_tell(&error))?;
        if answer.at(&["status", "allowed"]).and_then(Value::as_bool) == Some(true) {
            return Ok(());
        }
        let message = format!("forbidden: User \"{name}\" cannot get path \"{path}\"");
        Err(Refused { code: StatusCode::FORBIDDEN, message })
    }

    async fn user_of(&self, token: &str) -> Result<User, Refused> {
        let review = api::json!({"spec": {"token": token}});
        let answer = self.client.documents(TOKEN_REVIEWS).create("", &review).await;
        let answer = answer.map_err(|error| Refused::cannot_tell(&error))?;
        let status = answer.get("status").ok_or_else(Refused::unauthorized)?;
        if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
            return Err(Refused::unauthorized());
        }
        let name = status.str_at(&["user", "username"]).ok_or_else(Refused::unauthorized)?;
        let groups = status.at(&["user", "groups"]).and_then(Value::as_array);
        let groups: Vec<&str> = groups.into_iter().flatten().filter_map(Value::as_str).collect();
        Ok(User { groups: groups.into_iter().map(ToOwned::to_owned).collect(), ..User::authenticated(name, &[]) })
    }
}

fn strings(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| text.as_str().into()).collect())
}
