//! Joining a cluster: a machine with a bootstrap token gets certificates of its own.
//!
//! Follows `kubeadm join` with discovery by token. Address and authority of the cluster come from
//! `kube-public/cluster-info`. That is read without trust, and then verified: by its signature with the token's secret,
//! and by the pinned key of the authority, which an attacker who knows the token cannot forge.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use api::json::Value;
use apiserver::certificates::{node_request, pins};
use client::Client;
use client::kubeconfig::{Kubeconfig, User};
use client::resources::Resource;
use controllers::identity::bootstrap_signer;
use tokio::time::Instant;

use super::NAME;
use crate::roles::dns::ClusterNetwork;

const REQUESTS: Resource =
    Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
pub(super) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The pause between two looks at a certificate request.
const LOOK: Duration = Duration::from_millis(500);

/// A bootstrap token: `ID.SECRET`.
#[derive(Clone)]
pub struct Token {
    id: String,
    secret: String,
}

impl std::fmt::Debug for Token {
    // The secret stays out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
        };
        match text.split_once('.').filter(|(id, secret)| fits(id, 6) && fits(secret, 16)) {
            Some((id, secret)) => Ok(Self { id: id.to_owned(), secret: secret.to_owned() }),
            None => Err("a bootstrap token is ID.SECRET: 6 and 16 lower-case letters and digits".to_owned()),
        }
    }
}

/// The pinned key of an authority: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin(String);

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        match digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_hexdigit()) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err("a pin is `sha256:` and 64 hexadecimal digits".to_owned()),
        }
    }
}

/// A cluster that was found and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// `https://HOST:PORT`.
    pub server: String,
    /// Certificates of its authority, as PEM.
    pub authority: String,
}

/// A certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate with its chain.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Finds the cluster of a server. Without pins, every server that knows the token can pose as the cluster.
///
/// # Errors
/// The server does not answer, publishes nothing, or is not the one that the token and the pins name.
pub async fn discover(server: &str, token: &Token, pinned: &[Pin]) -> Result<Cluster> {
    let unverified = Kubeconfig { server: server.to_owned(), insecure: true, ..Kubeconfig::default() };
    let client = Client::configured(unverified, NAME).await.map_err(anyhow::Error::from_boxed)?;
    let answer = client.get_as(CLUSTER_INFO, "application/json").await;
    let answer = answer.with_context(|| {
        format!("cannot read cluster-info of {server}; the API server publishes it with --enable-bootstrap-token-auth")
    })?;
    let map = api::json::parse(&answer).map_err(|error| anyhow!("cluster-info is no JSON: {error}"))?;
    verify(&map, token, pinned)
}

fn verify(map: &Value, token: &Token, pinned: &[Pin]) -> Result<Cluster> {
    let content = map.str_at(&["data", "kubeconfig"]).context("cluster-info has no kubeconfig")?;
    let id = &token.id;
    let signature = map.str_at(&["data", &format!("jws-kubeconfig-{id}")]).with_context(|| {
        format!("token {id} does not sign cluster-info: it is unknown, has expired, or lacks usage-bootstrap-signing")
    })?;
    if signature != bootstrap_signer::signature(content, id, &token.secret) {
        bail!("the signature of cluster-info does not fit token {id}: the secret is wrong, or this is another cluster");
    }
    let (documents, error) = api::yaml::parse_documents(content);
    if let Some(error) = error {
        bail!("the kubeconfig in cluster-info is malformed: {error}");
    }
    let document = documents.into_iter().next().map(|it| it.value).unwrap_or_default();
    let clusters = document.get("clusters").and_then(Value::as_array).unwrap_or_default();
    let cluster = clusters.first().and_then(|it| it.get("cluster")).context("cluster-info names no cluster")?;
    let text = |field: &str| cluster.str_at(&[field]).with_context(|| format!("cluster-info has no {field}"));
    let authority = api::base64::decode(text("certificate-authority-data")?)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .context("the authority in cluster-info is malformed")?;
    let found = pins(&authority);
    if found.is_empty() {
        bail!("cluster-info has no certificate of an authority");
    }
    if !pinned.is_empty() && !found.iter().any(|pin| pinned.iter().any(|it| it.0 == *pin)) {
        bail!("the authority of the cluster has the pin {}, which is not the expected one", found.join(", "));
    }
    Ok(Cluster { server: text("server")?.trim_end_matches('/').to_owned(), authority })
}

impl Cluster {
    async fn client(&self, user: User) -> Result<Client> {
        let authority = Some(self.authority.clone().into_bytes());
        let kubeconfig = Kubeconfig { server: self.server.clone(), authority, user, ..Kubeconfig::default() };
        Client::configured(kubeconfig, NAME).await.map_err(anyhow::Error::from_boxed)
    }

    /// Requests the client certificate of a node with a token.
    ///
    /// # Errors
    /// The request is refused, denied, or not approved in time.
    pub async fn client_certificate(&self, token: &Token, node: &str, patience: Duration) -> Result<Credentials> {
        let bearer = format!("{}.{}", token.id, token.secret);
        let client = self.client(User { token: Some(bearer), ..User::default() }).await?;
        let usages = ["digital signature", "client auth"];
        request(&client, node, &[], CLIENT_SIGNER, &usages, patience, |_| {}).await
    }

    /// Requests a serving certificate under a node's own name. An administrator must approve it; `announce` gets its
    /// name.
    ///
    /// # Errors
    /// The request is refused, denied, or not approved in time.
    pub async fn serving_certificate(
        &self,
        own: &Credentials,
        node: &str,
        address: IpAddr,
        patience: Duration,
        announce: impl FnOnce(&str),
    ) -> Result<Credentials> {
        let certificate = Some((own.certificate.clone().into_bytes(), own.key.clone().into_bytes()));
        let client = self.client(User { certificate, ..User::default() }).await?;
        let usages = ["digital signature", "server auth"];
        request(&client, node, &[address], SERVING_SIGNER, &usages, patience, announce).await
    }

    /// The network of the cluster, under a node's own name.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub async fn network(&self, own: &Credentials) -> Result<ClusterNetwork> {
        let certificate = Some((own.certificate.clone().into_bytes(), own.key.clone().into_bytes()));
        ClusterNetwork::read(&self.client(User { certificate, ..User::default() }).await?).await
    }

    /// The kubeconfig of a node with its certificate.
    #[must_use]
    pub fn kubeconfig(&self, node: &str, own: &Credentials) -> String {
        let encode = |text: &str| api::base64::encode(text.as_bytes());
        let user = format!("system:node:{node}");
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: node\nclusters:\n- name: cluster\n  cluster:\n    server: {}\n    \
             certificate-authority-data: {}\ncontexts:\n- name: node\n  context:\n    cluster: cluster\n    user: {user}\nusers:\n\
             - name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
            self.server,
            encode(&self.authority),
            encode(&own.certificate),
            encode(&own.key),
        )
    }
}

/// Creates a certificate request and waits until it is signed.
pub(super) async fn request(
    client: &Client,
    node: &str,
    addresses: &[IpAddr],
    signer: &str,
    usages: &[&str],
    patience: Duration,
    announce: impl FnOnce(&str),
) -> Result<Credentials> {
    let (key, pem) = node_request(node, addresses).context("cannot create a certificate request")?;
    let usages: Vec<Value> = usages.iter().map(|it| Value::from(*it)).collect();
    let document = api::json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": {"request": (api::base64::encode(pem.as_bytes())), "signerName": signer, "usages": usages},
    });
    let requests = client.documents(REQUESTS);
    let made = requests.create("", &document).await.context("cannot create a certificate request")?;
    let name = made.str_at(&["metadata", "name"]).unwrap_or_default().to_owned();
    announce(&name);
    let deadline = Instant::now().checked_add(patience);
    loop {
        let seen = requests.get("", &name).await.with_context(|| format!("cannot read certificate request {name}"))?;
        if let Some(certificate) = signed(&seen, &name)? {
            return Ok(Credentials { certificate, key });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            bail!(
                "certificate request {name} was not approved in time; approve it with `kubectl certificate approve {name}`"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The certificate of a request, once it is signed.
fn signed(request: &Value, name: &str) -> Result<Option<String>> {
    let conditions = request.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let refused = conditions.iter().find(|it| matches!(it.str_at(&["type"]), Some("Denied" | "Failed")));
    if let Some(refused) = refused {
        let text = |field: &str| refused.str_at(&[field]).unwrap_or_default();
        bail!("certificate request {name} was refused: {} {}", text("reason"), text("message"));
    }
    let Some(certificate) = request.str_at(&["status", "certificate"]).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let decoded = api::base64::decode(certificate).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.map(Some).with_context(|| format!("the certificate of request {name} is malformed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver::certificates::Authority;

    fn cluster_info(token: &Token, authority: &str) -> Value {
        let data = api::base64::encode(authority.as_bytes());
        let content = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://192.0.2.1:6443/\n    \
             certificate-authority-data: {data}\n"
        );
        let signature = bootstrap_signer::signature(&content, &token.id, &token.secret);
        api::json!({"data": {"kubeconfig": content, "jws-kubeconfig-abcdef": signature}})
    }

    #[test]
    fn cluster_is_verified_by_token_and_pin() {
        let authority = Authority::generate().unwrap().certificate().to_owned();
        let other = Authority::generate().unwrap().certificate().to_owned();
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let map = cluster_info(&token, &authority);
        let pin: Pin = pins(&authority)[0].parse().unwrap();
        let found = verify(&map, &token, &[pin]).unwrap();
        assert_eq!((found.server.as_str(), &found.authority), ("https://192.0.2.1:6443", &authority));
        assert!(verify(&map, &token, &[]).is_ok());
        let wrong_pin: Pin = pins(&other)[0].parse().unwrap();
        assert!(verify(&map, &token, &[wrong_pin]).unwrap_err().to_string().contains("not the expected one"));
        let forged: Token = "abcdef.0123456789abcdeg".parse().unwrap();
        assert!(verify(&map, &forged, &[]).unwrap_err().to_string().contains("does not fit"));
        let unknown: Token = "aaaaaa.0123456789abcdef".parse().unwrap();
        assert!(verify(&map, &unknown, &[]).unwrap_err().to_string().contains("does not sign"));
    }

    #[test]
    fn tokens_and_pins_are_checked() {
        for bad in ["", "abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0"] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        assert!(!format!("{token:?}").contains("0123456789"));
        for bad in ["", "sha256:", "md5:00", &format!("sha256:{}", "g".repeat(64))] {
            assert!(bad.parse::<Pin>().is_err(), "{bad}");
        }
    }

    #[test]
    fn refused_requests_are_errors() {
        let denied = api::json!({"status": {"conditions": [{"type": "Denied", "reason": "No", "message": "never"}]}});
        assert!(signed(&denied, "x").unwrap_err().to_string().contains("No never"));
        assert_eq!(signed(&api::json!({}), "x").unwrap(), None);
    }
}
