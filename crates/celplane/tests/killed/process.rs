//! The server as a process that can be killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::client::Endpoint;

pub(crate) struct Server {
    process: Child,
    data: PathBuf,
}

impl Server {
    /// Starts it on the data in a directory, and waits until it serves.
    pub(crate) fn start(directory: &Path) -> Self {
        let data = directory.join("data");
        let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(["apiserver", "--port", "0", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served at https://127.0.0.1:"), "{line}");
        Self { process, data }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let text = std::fs::read_to_string(self.data.join("admin.kubeconfig")).unwrap();
        let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim();
        let pem = |name: &str| base64::engine::general_purpose::STANDARD.decode(field(name)).unwrap();
        let address = field("server:").trim_start_matches("https://").parse().unwrap();
        let authority = CertificateDer::from_pem_slice(&pem("certificate-authority-data:")).unwrap();
        let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data:")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")).unwrap();
        Endpoint::new(address, authority, Some((certificate, key)))
    }

    /// Ends it without a warning.
    pub(crate) fn kill(&mut self) {
        // It may already have exited, which its clients notice.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
