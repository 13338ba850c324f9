//! Access to health and metrics of a component in its own process.
//!
//! The component authenticates (a token review) and authorizes (an access review) clients through the API
//! server, as Kubernetes' components do. Client certificates are verified here, against the given authority.
//! Health is public.

use std::path::Path;

use anyhow::{Context as _, Result};
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::certificates::{Authority, Pair};
use client::{Client, Resource};
use http::StatusCode;
use telemetry::logs::chain;
use tokio::sync::watch;
use tracing::warn;

const TOKEN_REVIEWS: Resource = Resource::new("authentication.k8s.io", "v1", "tokenreviews", "TokenReview");
const ACCESS_REVIEWS: Resource =
    Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

/// Public paths.
const OPEN_PATHS: [&str; 5] = ["/health", "/healthz", "/livez", "/ready", "/readyz"];

/// Authorizes reads.
pub struct Access {
    client: Client,
    tls: watch::Sender<TlsAcceptor>,
    /// The authorities of client certificates, as PEM.
    client_authority: String,
}

/// Access to a node that a caller requests.
pub struct NodeAccess<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The subresource: `proxy`, `log`, `stats` or `metrics`.
    pub subresource: &'a str,
    /// The verb.
    pub verb: &'a str,
}

/// A rejection.
pub struct AccessRejection {
    /// The HTTP status code.
    pub code: StatusCode,
    /// The message.
    pub message: String,
}

impl AccessRejection {
    fn unauthorized() -> Self {
        Self { code: StatusCode::UNAUTHORIZED, message: "Unauthorized".to_owned() }
    }

    fn undetermined(error: &client::Error) -> Self {
        warn!(err = %chain(&error), "Could not authorize a request");
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, message: "cannot reach the API server".to_owned() }
    }
}

impl Access {
    /// Uses the server of `client`. Without a certificate, the component generates one.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn new(
        client: Client,
        address: std::net::IpAddr,
        own: Option<(&Path, &Path)>,
        client_authority: Option<&Path>,
    ) -> Result<Self> {
        let client_authority = client_authority.map(read).transpose()?;
        Self::with_authority(client, address, own, client_authority.as_deref())
    }

    /// As [`Access::new`], with the authority of client certificates as PEM.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn with_authority(
        client: Client,
        address: std::net::IpAddr,
        own: Option<(&Path, &Path)>,
        client_authority: Option<&str>,
    ) -> Result<Self> {
        let authority = Authority::generate()?;
        let (chain, key) = match own {
            Some((certificate, key)) => (read(certificate)?, read(key)?),
            None => {
                let pair = authority.server(&[std::net::Ipv4Addr::LOCALHOST.into(), address])?;
                (pair.certificate, pair.key)
            }
        };
        // No client has a certificate of the authority that was just generated.
        let client_authority = client_authority.unwrap_or_else(|| authority.certificate());
        Self::from_pem(client, &chain, &key, client_authority)
    }

    fn from_pem(client: Client, chain: &str, key: &str, client_authority: &str) -> Result<Self> {
        let tls = watch::Sender::new(listen::tls_from_pem(chain, key, client_authority)?);
        Ok(Self { client, tls, client_authority: client_authority.to_owned() })
    }

    /// The configuration for new connections, which changes with the certificate.
    pub(crate) fn tls(&self) -> watch::Receiver<TlsAcceptor> {
        self.tls.subscribe()
    }

    /// Serves new connections with another certificate. Connections that are open stay.
    ///
    /// # Errors
    /// The certificate cannot be used; the old one then stays.
    pub fn replace_certificate(&self, chain: &str, key: &str) -> Result<()> {
        self.tls.send_replace(listen::tls_from_pem(chain, key, &self.client_authority)?);
        Ok(())
    }

    /// As [`Access::new`], with a certificate that an authority signed.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub fn signed(client: Client, pair: &Pair, client_authority: &str) -> Result<Self> {
        Self::from_pem(client, &pair.certificate, &pair.key, client_authority)
    }

    /// Checks whether a caller may access a node. Anonymous callers are always rejected.
    ///
    /// # Errors
    /// The refusal.
    pub async fn check_node(
        &self,
        user: Option<&User>,
        token: Option<&str>,
        asked: &NodeAccess<'_>,
    ) -> Result<(), AccessRejection> {
        let user = match (user, token) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) if !token.is_empty() => self.user_of(token).await?,
            _ => return Err(AccessRejection::unauthorized()),
        };
        let NodeAccess { node, subresource, verb } = *asked;
        let (name, groups) = (user.name.as_str(), strings(&user.groups));
        let review = api::json!({"spec": {
            "user": name, "groups": groups,
            "resourceAttributes": {"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node},
        }});
        let answer = self.client.documents(ACCESS_REVIEWS).create("", &review).await;
        let answer = answer.map_err(|error| AccessRejection::undetermined(&error))?;
        if answer.bool_at(&["status", "allowed"]) == Some(true) {
            return Ok(());
        }
        let message = format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{subresource}])");
        Err(AccessRejection { code: StatusCode::FORBIDDEN, message })
    }

    /// Checks whether a client may read, identified by a certificate or a token.
    pub async fn check(&self, user: Option<&User>, token: Option<&str>, path: &str) -> Result<(), AccessRejection> {
        if OPEN_PATHS.contains(&path) || OPEN_PATHS.iter().any(|open| path.starts_with(&format!("{open}/"))) {
            return Ok(());
        }
        let user = match (user, token) {
            (Some(user), _) => user.clone(),
            // Not a token at all, such as a password.
            (None, Some("")) => return Err(AccessRejection::unauthorized()),
            (None, Some(token)) => self.user_of(token).await?,
            (None, None) => User::anonymous(),
        };
        let (name, groups) = (user.name.as_str(), strings(&user.groups));
        let review = api::json!({"spec": {
            "user": name, "groups": groups, "nonResourceAttributes": {"path": path, "verb": "get"},
        }});
        let answer = self.client.documents(ACCESS_REVIEWS).create("", &review).await;
        let answer = answer.map_err(|error| AccessRejection::undetermined(&error))?;
        if answer.bool_at(&["status", "allowed"]) == Some(true) {
            return Ok(());
        }
        let message = format!("forbidden: User \"{name}\" cannot get path \"{path}\"");
        Err(AccessRejection { code: StatusCode::FORBIDDEN, message })
    }

    async fn user_of(&self, token: &str) -> Result<User, AccessRejection> {
        let review = api::json!({"spec": {"token": token}});
        let answer = self.client.documents(TOKEN_REVIEWS).create("", &review).await;
        let answer = answer.map_err(|error| AccessRejection::undetermined(&error))?;
        let status = answer.get("status").ok_or_else(AccessRejection::unauthorized)?;
        if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
            return Err(AccessRejection::unauthorized());
        }
        let name = status.str_at(&["user", "username"]).ok_or_else(AccessRejection::unauthorized)?;
        let groups = status.array_at(&["user", "groups"]);
        let groups: Vec<&str> = groups.into_iter().flatten().filter_map(Value::as_str).collect();
        Ok(User { groups: groups.into_iter().map(ToOwned::to_owned).collect(), ..User::authenticated(name, &[]) })
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn strings(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| text.as_str().into()).collect())
}
