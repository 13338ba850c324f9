//! An example of a device driver for dynamic resource allocation, for vendors to start from.
//!
//! ```text
//! cargo run -p celplane --example dra_driver -- KUBECONFIG [ROOT-DIRECTORY] [CDI-DIRECTORY]
//! ```
//!
//! It registers as `example.celplane.dev` with the node agent whose `--root-dir` is given, and prepares devices by writing
//! CDI files. The devices themselves are ResourceSlices, which an administrator creates here (docs/real-nodes.md has
//! them) and a real driver publishes by itself.

mod driver;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use cri::server::serve;

const NAME: &str = "example.celplane.dev";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().context("usage: dra_driver KUBECONFIG [ROOT-DIRECTORY] [CDI-DIRECTORY]")?;
    let root = PathBuf::from(arguments.next().unwrap_or_else(|| "/var/lib/celplane-kubelet".to_owned()));
    let cdi = PathBuf::from(arguments.next().unwrap_or_else(|| "/var/run/cdi".to_owned()));
    let client = client::Client::from_kubeconfig(&PathBuf::from(kubeconfig), None, NAME).await;
    let client = client.map_err(anyhow::Error::from_boxed)?;
    let read = driver::reader(client, NAME.to_owned());
    let service = driver::Driver { name: NAME.to_owned(), cdi, read, log: Default::default() };
    let socket = driver::socket(&root, NAME);
    // A socket of an earlier run is replaced.
    let _ = std::fs::remove_file(&socket);
    let server = serve(&socket, Arc::new(service)).with_context(|| format!("cannot listen at {}", socket.display()))?;
    tokio::select! {
        () = server => {}
        outcome = tokio::signal::ctrl_c() => outcome?,
    }
    std::fs::remove_file(&socket)?;
    Ok(())
}
