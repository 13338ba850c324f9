//! The certificate of the webhook: generated, shared by replicas through a Secret, renewed before it expires.

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use api::json::Value;
use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::certificates::{Authority, Pair};
use client::objects::Patch;
use client::{Client, Resource};
use telemetry::logs::chain;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Settings;

/// Interval at which the Secret and the configurations are compared with what is served.
const INTERVAL: Duration = Duration::from_secs(60);
/// Delay after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Delay between the announcement of an authority and the first use of its certificate.
const AFTER_ANNOUNCEMENT: Duration = Duration::from_secs(10);
/// A certificate is renewed when it expires within this time.
const RENEWED_BEFORE_DAYS: i64 = 30;

const SECRETS: Resource = Resource::new("", "v1", "secrets", "Secret");
const CONFIGURATIONS: [Resource; 2] = [
    Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ),
    Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    ),
];

/// A certificate, and the authorities that API servers verify it with.
#[derive(Clone, PartialEq)]
struct ServingCertificate {
    pair: Pair,
    authorities: String,
}

/// Work that runs until the process ends.
type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Loads or generates the certificate; returns TLS with it, and the future that renews both.
pub(super) async fn start(
    client: Client,
    settings: Settings,
) -> Result<(watch::Receiver<TlsAcceptor>, BackgroundTask)> {
    let mut renewal = Renewal::begin(&client, &settings).await?;
    let (sender, receiver) = watch::channel(tls(&renewal.served)?);
    let renewing = async move {
        loop {
            let pause = match renewal.refresh(&client, &settings, &sender).await {
                Ok(pause) => pause,
                Err(error) => {
                    warn!(err = %chain(&*error), "Could not refresh the certificate");
                    AFTER_FAILURE
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    Ok((receiver, Box::pin(renewing)))
}

/// The certificate that is served, and the one that replaces it.
struct Renewal {
    served: ServingCertificate,
    /// The certificate whose authority was in both configurations at the end of the last round.
    announced: Option<ServingCertificate>,
}

impl Renewal {
    /// Serves the certificate of the Secret until its successor is announced, or a new one if it has none that is valid.
    async fn begin(client: &Client, settings: &Settings) -> Result<Self> {
        let stored = read(&secret(client, settings).await?).filter(|stored| stored.pair.lasts(0));
        let served = match stored {
            Some(stored) => stored,
            None => load(client, settings).await?,
        };
        Ok(Self { served, announced: None })
    }

    /// Compares the Secret and the configurations with what is served; returns the time until the next comparison.
    async fn refresh(
        &mut self,
        client: &Client,
        settings: &Settings,
        sender: &watch::Sender<TlsAcceptor>,
    ) -> Result<Duration> {
        let newest = load(client, settings).await?;
        // First the authorities: a server that verifies with the old ones must not meet the new certificate.
        announce(client, settings, &newest.authorities).await?;
        if newest == self.served {
            self.announced = None;
            return Ok(INTERVAL);
        }
        // API servers notice a configuration some time after it was written.
        if self.announced.as_ref() != Some(&newest) {
            self.announced = Some(newest);
            return Ok(AFTER_ANNOUNCEMENT);
        }
        sender.send_replace(tls(&newest)?);
        self.served = newest;
        self.announced = None;
        info!("Loaded another certificate");
        Ok(INTERVAL)
    }
}

fn tls(served: &ServingCertificate) -> Result<TlsAcceptor> {
    // API servers send no client certificates here; a list of authorities is needed nevertheless.
    Ok(listen::tls_from_pem(&served.pair.certificate, &served.pair.key, &served.authorities)?)
}

async fn secret(client: &Client, settings: &Settings) -> Result<Value> {
    let secret = client.documents(SECRETS).get(&settings.namespace, &settings.secret).await;
    secret.with_context(|| format!("cannot read secret {}/{}", settings.namespace, settings.secret))
}

/// Reads the certificate of the Secret, and replaces it if it is missing or about to expire.
async fn load(client: &Client, settings: &Settings) -> Result<ServingCertificate> {
    let secrets = client.documents(SECRETS);
    let secret = secret(client, settings).await?;
    let stored = read(&secret);
    if let Some(served) = stored.as_ref().filter(|served| served.pair.lasts(RENEWED_BEFORE_DAYS)) {
        return Ok(served.clone());
    }
    let authority = Authority::generate()?;
    let (service, namespace) = (&settings.service, &settings.namespace);
    let names = [format!("{service}.{namespace}.svc"), format!("{service}.{namespace}")];
    let pair = authority.service(&names)?;
    // The last authority stays, as long as other replicas serve its certificate.
    let last = stored.as_ref().and_then(|served| first_certificate(&served.authorities)).unwrap_or_default();
    let served = ServingCertificate { pair, authorities: format!("{}{last}", authority.certificate()) };
    let encode = |text: &str| api::base64::encode(text.as_bytes());
    let version = secret.text_at(&["metadata", "resourceVersion"]);
    let patch = api::json!({
        "metadata": {"resourceVersion": version},
        "data": {
            "tls.crt": (encode(&served.pair.certificate)), "tls.key": (encode(&served.pair.key)),
            "ca.crt": (encode(&served.authorities)),
        },
    });
    let written = secrets.patch(namespace, &settings.secret, "", Patch::Merge, &patch).await;
    match written {
        Ok(_) => {
            info!(secret = %format!("{namespace}/{}", settings.secret), "Generated a certificate");
            Ok(served)
        }
        // Another replica was faster.
        Err(error) if error.is_conflict() => {
            let secret = secrets.get(namespace, &settings.secret).await?;
            read(&secret).ok_or_else(|| anyhow!("the secret has no certificate"))
        }
        Err(error) => Err(error.into()),
    }
}

fn read(secret: &Value) -> Option<ServingCertificate> {
    let text = |name: &str| {
        let encoded = secret.str_at(&["data", name])?;
        String::from_utf8(api::base64::decode(encoded).ok()?).ok().filter(|text| !text.is_empty())
    };
    let (certificate, key, authorities) = (text("tls.crt")?, text("tls.key")?, text("ca.crt")?);
    Some(ServingCertificate { pair: Pair { certificate, key }, authorities })
}

/// The first of several certificates in PEM.
fn first_certificate(pem: &str) -> Option<&str> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let end = pem.find(END)?.checked_add(END.len())?;
    pem.get(..end)
}

/// Writes the authorities into the webhook configurations that lack them. A configuration that does not exist is left out.
async fn announce(client: &Client, settings: &Settings, authorities: &str) -> Result<()> {
    let bundle = api::base64::encode(authorities.as_bytes());
    for resource in CONFIGURATIONS {
        let configurations = client.documents(resource.clone());
        let configuration = match configurations.get("", &settings.configuration).await {
            Err(error) if error.is_not_found() => continue,
            configuration => configuration?,
        };
        let hooks = configuration.get("webhooks").and_then(Value::as_array).unwrap_or_default();
        let mut patches = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            if hook.str_at(&["clientConfig", "caBundle"]) != Some(bundle.as_str()) {
                let path = format!("/webhooks/{index}/clientConfig/caBundle");
                patches.push(api::json!({"op": "add", "path": path, "value": (bundle.as_str())}));
            }
        }
        if patches.is_empty() {
            continue;
        }
        let version = configuration.text_at(&["metadata", "resourceVersion"]);
        patches.insert(0, api::json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        let name = &settings.configuration;
        let written = configurations.patch("", name, "", Patch::Json, &Value::Array(patches)).await;
        if let Err(error) = &written {
            warn!(configuration = %name, err = %chain(error), "Could not write the authority");
        }
        written?;
        info!(resource = %resource.plural, configuration = %name, "Wrote the authority of the certificate");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use apiserver::certificates::issue::Terms;
    use apiserver::certificates::node_request;

    use super::*;
    use crate::settings::StoreSettings;
    use crate::{ControlPlane, ServerSettings};

    const DAY: i64 = 24 * 3600;
    /// The stack of a thread: unoptimized builds need more than the default.
    const STACK_BYTES: usize = 8 << 20;

    fn settings() -> Settings {
        Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            namespace: "default".to_owned(),
            service: "webhook".to_owned(),
            secret: "certificate".to_owned(),
            configuration: "placement".to_owned(),
            schedulers: Vec::new(),
            assigns_scheduler: false,
            reads_volumes: false,
        }
    }

    /// A certificate with 10 days left.
    fn aged() -> ServingCertificate {
        let authority = Authority::generate().unwrap();
        let (key, pem) = node_request("webhook", &["127.0.0.1".parse().unwrap()]).unwrap();
        let bytes = api::x509::pem_blocks(&pem).remove(0).bytes;
        let request = api::x509::request::Request::read(&bytes).unwrap();
        let terms = Terms { usages: &["server auth"], seconds: 10 * DAY, now: clock::Clock::system().now() };
        let pair = Pair { certificate: authority.issue(&request, &terms).unwrap(), key };
        assert!(pair.lasts(0) && !pair.lasts(RENEWED_BEFORE_DAYS));
        ServingCertificate { pair, authorities: authority.certificate().to_owned() }
    }

    async fn store(client: &Client, served: &ServingCertificate) {
        let encode = |text: &str| Value::from(api::base64::encode(text.as_bytes()));
        let data = api::json!({
            "tls.crt": (encode(&served.pair.certificate)), "tls.key": (encode(&served.pair.key)),
            "ca.crt": (encode(&served.authorities)),
        });
        let patch = api::json!({"data": data});
        client.documents(SECRETS).patch("default", "certificate", "", Patch::Merge, &patch).await.unwrap();
    }

    /// Runs a test with a client of an API server that has an empty Secret and both configurations.
    fn with_server<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Client) -> F + Send + 'static) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK_BYTES).enable_all().build();
        let mut server = ServerSettings::new(directory.path());
        server.store = StoreSettings::Memory { free_bytes_min: 0 };
        let running = async move {
            let running = ControlPlane::start(server).await.unwrap();
            let client = Client::from_kubeconfig(running.kubeconfig(), None, "test").await.unwrap();
            let empty = api::json!({"metadata": {"name": "certificate"}});
            client.documents(SECRETS).create("default", &empty).await.unwrap();
            for resource in CONFIGURATIONS {
                let hook = |name: &str| {
                    api::json!({
                        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                        "clientConfig": {"service": {"namespace": "default", "name": "webhook"}},
                        "rules": [{
                            "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
                            "resources": ["widgets"],
                        }],
                    })
                };
                let hooks = api::json!([(hook("a.example.com")), (hook("b.example.com"))]);
                let configuration = api::json!({"metadata": {"name": "placement"}, "webhooks": hooks});
                client.documents(resource).create("", &configuration).await.unwrap();
            }
            test(client).await;
            running.end().await.unwrap();
        };
        let runtime = runtime.unwrap();
        runtime.block_on(runtime.spawn(running)).unwrap();
    }

    /// The authorities of every webhook in both configurations.
    async fn bundles(client: &Client) -> Vec<Option<String>> {
        let mut bundles = Vec::new();
        for resource in CONFIGURATIONS {
            let configuration = client.documents(resource).get("", "placement").await.unwrap();
            for hook in configuration.list("webhooks") {
                let encoded = hook.str_at(&["clientConfig", "caBundle"]);
                bundles.push(encoded.map(|it| String::from_utf8(api::base64::decode(it).unwrap()).unwrap()));
            }
        }
        bundles
    }

    #[test]
    fn authority_is_announced_before_its_certificate_is_served() {
        with_server(|client| async move {
            let (settings, old) = (settings(), aged());
            store(&client, &old).await;
            let mut renewal = Renewal::begin(&client, &settings).await.unwrap();
            assert!(renewal.served == old, "it is valid until its successor is announced");
            assert_eq!(bundles(&client).await, vec![None; 4]);
            let (sender, mut receiver) = watch::channel(tls(&old).unwrap());

            let pause = renewal.refresh(&client, &settings, &sender).await.unwrap();
            assert_eq!(pause, AFTER_ANNOUNCEMENT);
            let new = read(&secret(&client, &settings).await.unwrap()).unwrap();
            assert!(new.pair.lasts(RENEWED_BEFORE_DAYS));
            let first = first_certificate(&new.authorities).unwrap();
            assert_eq!(new.authorities, format!("{first}{}", old.authorities), "the old authority stays");
            assert_ne!(first, old.authorities);
            assert_eq!(bundles(&client).await, vec![Some(new.authorities.clone()); 4]);
            assert!(renewal.served == old && !receiver.has_changed().unwrap());

            assert_eq!(renewal.refresh(&client, &settings, &sender).await.unwrap(), INTERVAL);
            assert!(renewal.served == new && receiver.has_changed().unwrap());
            receiver.mark_unchanged();
            assert_eq!(renewal.refresh(&client, &settings, &sender).await.unwrap(), INTERVAL);
            assert!(renewal.served == new && !receiver.has_changed().unwrap());

            // A configuration that was applied again has no authority until the next round.
            let name = &settings.configuration;
            let removal = api::json!([{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]);
            let configurations = client.documents(CONFIGURATIONS[0].clone());
            configurations.patch("", name, "", Patch::Json, &removal).await.unwrap();
            renewal.refresh(&client, &settings, &sender).await.unwrap();
            assert!(bundles(&client).await.iter().all(|it| it.as_ref() == Some(&new.authorities)));
        });
    }

    #[test]
    fn replicas_that_renew_at_once_serve_one_certificate() {
        with_server(|client| async move {
            let settings = settings();
            let first = Renewal::begin(&client, &settings).await.unwrap().served;
            assert_eq!(first_certificate(&first.authorities), Some(first.authorities.as_str()));
            for _ in 0..4 {
                store(&client, &aged()).await;
                let (one, other) = tokio::join!(load(&client, &settings), load(&client, &settings));
                let (one, other) = (one.unwrap(), other.unwrap());
                let stored = read(&secret(&client, &settings).await.unwrap()).unwrap();
                assert!(one == other && one == stored);
            }
        });
    }
}
