//! `--dry-run` of those that serve the API: flags, files, port and data are judged as a start would judge them.
//!
//! A dump is loaded into a server in memory that holds a copy of what is stored, so that this says what a start would say.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::identity::User;
use apiserver::identity::keys::KeyRing;
use apiserver::server::listen::{self, Connection};
use apiserver::serving::certificates::Authority;
use apiserver::{Options, Server};
use client::Client;
use store::{Embedded, Store as _, Write};

use super::beside::{self, Beside, Checked};
use super::{STORE_FILE, ServerArguments, duration, gates, load};
use crate::data_directory::DataDirectory;
use crate::dry_run::NOTHING_DONE;

/// Says what a start would do.
pub(super) async fn rehearse(arguments: &ServerArguments, features: Features, beside: Option<Beside>) -> Result<()> {
    let shared = features.with_flag(&arguments.feature_gates)?;
    let beside = beside.map(|beside| beside.check(shared)).transpose()?;
    let directory = arguments.data_dir();
    DataDirectory::look(&directory)?;
    let listener = arguments.listen().await?;
    let url = format!("https://{}", arguments.address(listener.local_addr()?.port()));
    drop(listener);
    check_files(arguments, &directory)?;
    let kept = arguments.stored(&directory)?;
    let components = beside.as_ref().map_or_else(|| vec![("kube-apiserver", shared)], Checked::gates);
    println!("Would serve the API at {url}.");
    print!("{}", gates::lines(&components));
    println!("Data: {}{}", arguments.store_text(&directory), kept.as_ref().map_or(String::new(), Kept::text));
    if let Some(beside) = &beside {
        println!("Nodes: {}.", beside.nodes_text());
        if beside.creates() {
            print!("{}", created(arguments, beside, kept.unwrap_or_default()).await?);
        }
    }
    println!("{NOTHING_DONE}");
    Ok(())
}

/// What is in the store.
#[derive(Default)]
pub(super) struct Kept {
    revision: u64,
    entries: Vec<store::Kept>,
}

impl Kept {
    fn text(&self) -> String {
        format!(", which holds {} objects as of revision {}", self.entries.len(), self.revision)
    }
}

impl ServerArguments {
    /// What a start would find in the data directory; none where it would begin anew or ask etcd.
    fn stored(&self, directory: &Path) -> Result<Option<Kept>> {
        let path = directory.join(STORE_FILE);
        if self.ephemeral || !self.etcd.etcd_servers.is_empty() || !path.try_exists()? {
            return Ok(None);
        }
        let snapshot = Embedded::snapshot_of(&path).map_err(|error| super::cannot_open(error, &path))?;
        let revision = snapshot.revision();
        let entries: Result<Vec<_>, _> = snapshot.collect();
        Ok(Some(Kept { revision, entries: entries.map_err(|error| super::cannot_open(error, &path))? }))
    }
}

/// Reads all files that the flags name.
fn check_files(arguments: &ServerArguments, directory: &Path) -> Result<()> {
    let identity = &arguments.identity;
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()));
    let files = identity.files(&directory.join("pki"));
    files.users()?;
    let own = Authority::generate()?;
    let authorities = match &identity.client_ca_file {
        Some(path) => read(path)?,
        None => own.certificate().to_owned(),
    };
    let pair = match (&identity.tls_cert_file, &identity.tls_private_key_file) {
        (Some(certificate), Some(key)) => (read(certificate)?, read(key)?),
        _ => {
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
    arguments.audit.policy()?;
    duration(&arguments.event_ttl).context("cannot use --event-ttl")?;
    arguments.etcd.compaction_interval()?;
    if !arguments.etcd.etcd_servers.is_empty() {
        arguments.etcd.open()?;
    }
    Ok(())
}

/// What would be created, tried on a copy in memory.
async fn created(arguments: &ServerArguments, beside: &Checked, kept: Kept) -> Result<String> {
    let store = Arc::new(Embedded::in_memory(store::Options::default())?);
    for entry in kept.entries {
        // Nothing else is there that it could conflict with.
        let _ = store.write(Write::create(&*entry.key, entry.value)).await?;
    }
    let options = Options {
        features: beside.apiserver,
        runtime_config: arguments.runtime_config.clone(),
        disabled_admission_plugins: arguments.disable_admission_plugins.clone(),
        ..Options::default()
    };
    let server = Server::start(store, options).await.context("cannot start")?;
    let user = User::authenticated("celplane", &["system:masters"]);
    let admin = Client::in_process(Connection::new(server.clone(), Some(user)), "celplane");
    let loaded = match &beside.load {
        Some(path) => load::load(&admin, path).await?.text("Would load"),
        None => String::new(),
    };
    beside::register(&admin, &beside.nodes.named).await?;
    drop(admin);
    server.stop().await?;
    Ok(loaded)
}
