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
    let mut served = load(&client, &settings).await?;
    let (sender, receiver) = watch::channel(tls(&served)?);
    let renewing = async move {
        loop {
            let pause = match refresh(&client, &settings, &mut served, &sender).await {
                Ok(()) => INTERVAL,
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

async fn refresh(
    client: &Client,
    settings: &Settings,
    served: &mut ServingCertificate,
    sender: &watch::Sender<TlsAcceptor>,
) -> Result<()> {
    let newest = load(client, settings).await?;
    // First the authorities: a server that verifies with the old ones must not meet the new certificate.
    announce(client, settings, &newest.authorities).await?;
    if newest != *served {
        sender.send_replace(tls(&newest)?);
        *served = newest;
        info!("Loaded another certificate");
    }
    Ok(())
}

fn tls(served: &ServingCertificate) -> Result<TlsAcceptor> {
    // API servers send no client certificates here; a list of authorities is needed nevertheless.
    Ok(listen::tls_from_pem(&served.pair.certificate, &served.pair.key, &served.authorities)?)
}

/// Reads the certificate of the Secret, and replaces it if it is missing or about to expire.
async fn load(client: &Client, settings: &Settings) -> Result<ServingCertificate> {
    let secrets = client.documents(SECRETS);
    let secret = secrets.get(&settings.namespace, &settings.secret).await;
    let secret = secret.with_context(|| format!("cannot read secret {}/{}", settings.namespace, settings.secret))?;
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
