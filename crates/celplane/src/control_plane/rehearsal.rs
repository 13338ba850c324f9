//! `--dry-run` of those that serve the API: flags, files, port and data are judged as a start would judge them.
//!
//! A dump is loaded into a server in memory with a copy of the stored data, so that the result is that of a
//! real start.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::features::Features;
use api::well_known::GROUP_MASTERS;
use apiserver::identity::User;
use apiserver::identity::keys::KeyRing;
use apiserver::server::listen::{self, Connection};
use apiserver::serving::certificates::Authority;
use apiserver::{Options, Server};
use client::Client;
use controlplane::data_directory::DataDirectory;
use controlplane::settings::{STORE_FILE, ServerSettings, StoreSettings, cannot_open};
use controlplane::{Components, components, gates, load};
use store::{EmbeddedStore, Store as _, Write};

use super::ServerArguments;
use super::component_arguments::ComponentArguments;
use crate::dry_run::NOTHING_DONE;
use crate::output::{print_line, print_text};

/// Time that a dry run waits for etcd.
const ETCD_TIMEOUT: Duration = Duration::from_secs(3);

/// Prints the actions of a start.
pub(super) async fn rehearse(
    arguments: &ServerArguments,
    features: Features,
    component_arguments: Option<ComponentArguments>,
) -> Result<()> {
    let shared = features.with_flag(&arguments.feature_gates)?;
    let component_arguments = component_arguments
        .map(|component_arguments| component_arguments.check(shared, &arguments.data_dir()))
        .transpose()?;
    let directory = arguments.data_dir();
    DataDirectory::look(&directory)?;
    let settings = arguments
        .settings(component_arguments.as_ref().map_or(shared, |component_arguments| component_arguments.apiserver))?;
    let listener = settings.listen().await?;
    let url = format!("https://{}", settings.address(listener.local_addr()?.port()));
    drop(listener);
    check_files(&settings)?;
    check_etcd(&settings).await?;
    let kept = stored(&settings)?;
    let components = component_arguments.as_ref().map_or_else(|| vec![("kube-apiserver", shared)], Components::gates);
    print_line!("Would serve the API at {url}.")?;
    if !arguments.bind_address.is_loopback() {
        print_line!("The port would be open to the network: --bind-address is {}.", arguments.bind_address)?;
    }
    print_text!("{}", gates::lines(&components))?;
    print_line!("Data: {}{}", settings.store_text(), kept.as_ref().map_or(String::new(), StoreContents::text))?;
    if let Some(component_arguments) = &component_arguments {
        print_line!("Nodes: {}.", component_arguments.nodes_text())?;
        if component_arguments.creates() {
            print_text!("{}", created(&settings, component_arguments, kept.unwrap_or_default()).await?)?;
        }
    }
    print_line!("{NOTHING_DONE}")?;
    Ok(())
}

/// Contents of the store.
#[derive(Default)]
pub(super) struct StoreContents {
    revision: u64,
    entries: Vec<store::KeptEntry>,
}

impl StoreContents {
    fn text(&self) -> String {
        format!(", which holds {} objects as of revision {}", self.entries.len(), self.revision)
    }
}

/// Fails where etcd does not answer.
async fn check_etcd(settings: &ServerSettings) -> Result<()> {
    let StoreSettings::Etcd { options, .. } = &settings.store else { return Ok(()) };
    let context = || format!("etcd does not answer at {}", options.endpoints.join(", "));
    let store = settings.store.open(&settings.data_dir)?;
    let answer = tokio::time::timeout(ETCD_TIMEOUT, store.current_revision()).await;
    answer
        .map_err(|_| anyhow::anyhow!("no answer within {} s", ETCD_TIMEOUT.as_secs()))
        .with_context(context)?
        .with_context(context)?;
    Ok(())
}

/// Returns the contents of the data directory; `None` if a start would begin empty or use etcd.
fn stored(settings: &ServerSettings) -> Result<Option<StoreContents>> {
    let path = settings.data_dir.join(STORE_FILE);
    if !matches!(settings.store, StoreSettings::File { .. }) || !path.try_exists()? {
        return Ok(None);
    }
    let snapshot = EmbeddedStore::snapshot_of(&path).map_err(|error| cannot_open(error, &path))?;
    let revision = snapshot.revision();
    let entries: Result<Vec<_>, _> = snapshot.collect();
    Ok(Some(StoreContents { revision, entries: entries.map_err(|error| cannot_open(error, &path))? }))
}

/// Reads all files that the flags name.
fn check_files(settings: &ServerSettings) -> Result<()> {
    let identity = &settings.identity;
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()));
    let files = identity.files(&settings.data_dir.join("pki"));
    files.users()?;
    if let Some(front_proxy) = &identity.front_proxy {
        front_proxy.read()?;
    }
    let own = Authority::generate()?;
    let authorities = match &identity.client_ca_file {
        Some(path) => read(path)?,
        None => own.certificate().to_owned(),
    };
    let pair = match &identity.tls {
        Some((certificate, key)) => (read(certificate)?, read(key)?),
        None => {
            let made = own.server(&[])?;
            (made.certificate, made.key)
        }
    };
    listen::tls_from_pem(&pair.0, &pair.1, &authorities)?;
    if files.signing_key.exists() {
        KeyRing::parse(&read(&files.signing_key)?)
            .with_context(|| format!("cannot use `{}`", files.signing_key.display()))?;
    }
    let mut keys = KeyRing::generate()?;
    for path in &files.keys {
        keys.accept(&read(path)?).with_context(|| format!("cannot use `{}`", path.display()))?;
    }
    if let StoreSettings::Etcd { .. } = settings.store {
        settings.store.open(&settings.data_dir)?;
    }
    Ok(())
}

/// Returns the objects that would be created, tried on a copy in memory.
async fn created(settings: &ServerSettings, component_arguments: &Components, kept: StoreContents) -> Result<String> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default())?);
    for entry in kept.entries {
        // The store is empty, so there are no conflicts.
        let _ = store.write(Write::create(&*entry.key, entry.value)).await?;
    }
    // No controller creates service accounts in the copy.
    let mut disabled_admission_plugins = settings.options.disabled_admission_plugins.clone();
    disabled_admission_plugins.push("ServiceAccount".to_owned());
    let options = Options {
        features: component_arguments.apiserver,
        runtime_config: settings.options.runtime_config.clone(),
        disabled_admission_plugins,
        pod_security: settings.options.pod_security.clone(),
        enabled_admission_plugins: settings.options.enabled_admission_plugins.clone(),
        ..Options::default()
    };
    let server = Server::start(store, options).await.context("cannot start")?;
    let user = User::authenticated("celplane", &[GROUP_MASTERS]);
    let admin = Client::in_process(Connection::new(server.clone(), Some(user)), "celplane");
    let loaded = match &component_arguments.load {
        Some(objects) => load::load(&admin, objects.clone()).await?.text("Would load"),
        None => String::new(),
    };
    components::register(&admin, &component_arguments.nodes.named).await?;
    drop(admin);
    server.stop().await?;
    Ok(loaded)
}
