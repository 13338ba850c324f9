//! Renewal of a node's certificates: a new one is requested when 70 to 90 % of the lifetime have passed.
//!
//! Follows `client-go/util/certificate` of Kubernetes: the point is random, so that the nodes of a cluster do not renew at
//! the same time; files are replaced atomically; a certificate in the directory precedes the one that the agent was started
//! with; a failed request is repeated with growing pauses, and the old certificate is used as long as it is valid.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::time::Timestamp;
use api::x509::certificate::Certificate;
use apiserver::certificates::write_private;
use client::Client;
use clock::Clock;
use tracing::{info, warn};

pub use super::join::Credentials;
use super::join::{CLIENT_SIGNER, SERVING_SIGNER, request};

/// Time limit for the approval of a request; after it another one is created.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// First and longest pause after a failed request.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(32));

/// The file of a certificate with its key: `NAME-current.pem`.
#[derive(Debug, Clone)]
pub struct CertificateFile(PathBuf);

impl CertificateFile {
    /// The file of a certificate in a directory.
    #[must_use]
    pub fn new(directory: &Path, name: &str) -> Self {
        Self(directory.join(format!("{name}-current.pem")))
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The certificate in the file; `None` if there is none, or if it has expired at `now`.
    #[must_use]
    pub fn read(&self, now: Timestamp) -> Option<Credentials> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let (certificate, key) = parts(&text);
        let credentials = Credentials { certificate, key };
        let (_, until) = validity(&credentials.certificate)?;
        (now < until && !credentials.key.is_empty()).then_some(credentials)
    }

    /// Replaces the file. Readers see the old certificate with its key or the new one, never a mixture.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, credentials: &Credentials) -> Result<()> {
        if let Some(directory) = self.0.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
        }
        write_private(&self.0, &format!("{}{}", credentials.certificate, credentials.key))?;
        Ok(())
    }
}

/// The certificates and the key of a PEM text.
fn parts(text: &str) -> (String, String) {
    let (mut certificates, mut key, mut block) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        block.push_str(line);
        block.push('\n');
        if line.starts_with("-----END ") {
            let target = if line.contains("PRIVATE KEY") { &mut key } else { &mut certificates };
            target.push_str(&block);
            block.clear();
        }
    }
    (certificates, key)
}

/// The beginning and the end of a certificate's validity: those of the first one in a PEM text.
#[must_use]
pub fn validity(text: &str) -> Option<(Timestamp, Timestamp)> {
    let blocks = api::x509::pem_blocks(text);
    let certificate = Certificate::read(&blocks.first()?.bytes)?;
    Some((certificate.not_before, certificate.not_after))
}

/// Whether the first certificate of a PEM text is valid now.
#[must_use]
pub fn is_valid(text: &str) -> bool {
    validity(text).is_some_and(|(_, until)| Clock::system().now() < until)
}

/// The time of renewal: at 70 to 90 % of the lifetime, chosen by `point`.
fn deadline(from: Timestamp, until: Timestamp, point: u64) -> Timestamp {
    let lifetime = from.until(until);
    let percent = u32::try_from(point.checked_rem(21).unwrap_or(0)).unwrap_or(0).saturating_add(70);
    from.plus(lifetime.checked_div(100).unwrap_or_default().saturating_mul(percent))
}

fn random() -> u64 {
    // A new state is seeded by the system.
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// A certificate that is renewed for as long as the agent works.
pub struct Rotation {
    /// The use of the certificate, for logs.
    pub purpose: &'static str,
    /// The file in which it is kept.
    pub file: CertificateFile,
    /// The time.
    pub clock: Clock,
}

impl Rotation {
    /// Renews a certificate: `obtain` requests a new one, which `replace` puts into use. Without a current certificate the
    /// first one is requested at once.
    pub async fn run<O, R>(
        self,
        current: Option<Credentials>,
        mut obtain: impl FnMut() -> O,
        mut replace: impl FnMut(Credentials) -> R,
    ) where
        O: Future<Output = Result<Credentials>>,
        R: Future<Output = Result<()>>,
    {
        let mut due = self.due(current.as_ref());
        let mut failures = 0_u32;
        loop {
            self.clock.sleep(self.clock.now().until(due)).await;
            let renewed = async {
                let new = obtain().await?;
                // The file first: a certificate in use that a restart would lose had to be requested again.
                self.file.write(&new)?;
                replace(new.clone()).await?;
                anyhow::Ok(new)
            };
            match renewed.await {
                Ok(new) => {
                    failures = 0;
                    due = self.due(Some(&new));
                    info!(purpose = self.purpose, next = %due, "Renewed certificate");
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    warn!(purpose = self.purpose, err = %why, "Could not renew certificate");
                    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
                    failures = failures.saturating_add(1);
                    due = self.clock.now().plus(PAUSES.0.saturating_mul(factor).min(PAUSES.1));
                }
            }
        }
    }

    fn due(&self, current: Option<&Credentials>) -> Timestamp {
        let (Some((from, until)), point) = (current.and_then(|it| validity(&it.certificate)), random()) else {
            return self.clock.now();
        };
        deadline(from, until, point)
    }
}

/// A kubeconfig whose user has the certificate of a file.
#[must_use]
pub fn kubeconfig(server: &str, authority: Option<&[u8]>, node: &str, file: &CertificateFile) -> String {
    let user = api::json!({"client-certificate": (file.path().display().to_string()),
        "client-key": (file.path().display().to_string())});
    let mut cluster = api::json!({"server": server});
    if let (Some(authority), Some(cluster)) = (authority, cluster.as_object_mut()) {
        cluster.insert("certificate-authority-data", api::base64::encode(authority));
    }
    let name = format!("system:node:{node}");
    // JSON is YAML, too.
    api::json::to_string(&api::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "node",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "contexts": [{"name": "node", "context": {"cluster": "cluster", "user": (name.as_str())}}],
        "users": [{"name": (name.as_str()), "user": user}],
    }))
}

/// Requests a client certificate of a node under its own name.
///
/// # Errors
/// The request is refused, denied, or not approved in time.
pub async fn request_client(client: &Client, node: &str) -> Result<Credentials> {
    request(client, node, &[], CLIENT_SIGNER, &["digital signature", "client auth"], APPROVAL_TIMEOUT, |_| {}).await
}

/// Requests a serving certificate of a node under its own name. An administrator approves it.
///
/// # Errors
/// The request is refused, denied, or not approved in time.
pub async fn request_serving(client: &Client, node: &str, address: IpAddr) -> Result<Credentials> {
    let announce =
        |name: &str| info!(certificateSigningRequest = name, "Requested serving certificate, which must be approved");
    let usages = ["digital signature", "server auth"];
    request(client, node, &[address], SERVING_SIGNER, &usages, APPROVAL_TIMEOUT, announce).await
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests")]
mod tests {
    use std::cell::RefCell;

    use api::x509::request::Request;
    use apiserver::certificates::issue::Terms;
    use apiserver::certificates::{Authority, node_request};

    use super::*;

    const DAY: i64 = 24 * 3600;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn renewal_is_due_between_70_and_90_percent() {
        assert_eq!(deadline(at(1000), at(2000), 0), at(1700));
        assert_eq!(deadline(at(1000), at(2000), 20), at(1900));
        for _ in 0..100 {
            assert!((1700..=1900).contains(&deadline(at(1000), at(2000), random()).seconds));
        }
        // A certificate without a lifetime is due at once.
        assert_eq!(deadline(at(5), at(5), 7), at(5));
    }

    #[test]
    fn file_holds_certificate_and_key_for_the_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = CertificateFile::new(&directory.path().join("pki"), "kubelet-client");
        assert!(file.read(at(0)).is_none());
        let pair = Authority::generate().unwrap().client("system:node:n1", "system:nodes").unwrap();
        let credentials = Credentials { certificate: pair.certificate, key: pair.key };
        file.write(&credentials).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(file.read(Clock::system().now()).is_some_and(|it| it == credentials));
        assert!(file.read(at(i64::from(u32::MAX) * 100)).is_none(), "it has expired");
        std::fs::write(file.path(), &credentials.certificate).unwrap();
        assert!(file.read(Clock::system().now()).is_none(), "the key is missing");
    }

    #[tokio::test(start_paused = true)]
    async fn certificates_are_renewed_on_time_and_retried() {
        let clock = Clock::starting_at(at(1_800_000_000));
        let authority = Authority::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let issue = || {
            let (key, pem) = node_request("n1", &[]).unwrap();
            let bytes = api::x509::pem_blocks(&pem).remove(0).bytes;
            let request = Request::read(&bytes).unwrap();
            let terms = Terms { usages: &["client auth"], seconds: 10 * DAY, now: clock.now() };
            Credentials { certificate: authority.issue(&request, &terms).unwrap(), key }
        };
        let times = RefCell::new(Vec::new());
        let replaced = RefCell::new(Vec::new());
        let file = CertificateFile::new(directory.path(), "kubelet-client");
        let rotation = Rotation { purpose: "client", file: file.clone(), clock: clock.clone() };
        let begun = clock.now();
        let running = rotation.run(
            None,
            || {
                times.borrow_mut().push(begun.until(clock.now()).as_secs());
                // The second renewal fails twice.
                let fails = matches!(times.borrow().len(), 2 | 3);
                let answer = if fails { Err(anyhow::anyhow!("no")) } else { Ok(issue()) };
                async { answer }
            },
            |new| {
                replaced.borrow_mut().push(new.certificate);
                async { Ok(()) }
            },
        );
        assert!(tokio::time::timeout(Duration::from_secs(20 * 24 * 3600), running).await.is_err());
        let times = times.borrow();
        let days = u64::try_from(DAY).unwrap();
        assert_eq!(times[0], 0, "the first one is requested at once");
        assert!((7 * days - 300..=9 * days).contains(&times[1]), "{times:?}");
        assert_eq!((times[2] - times[1], times[3] - times[2]), (2, 4));
        let after = times[4] - times[3];
        assert!((7 * days - 300..=9 * days).contains(&after), "{times:?}");
        let kept = file.read(clock.now()).unwrap();
        assert_eq!(Some(&kept.certificate), replaced.borrow().last());
    }
}
