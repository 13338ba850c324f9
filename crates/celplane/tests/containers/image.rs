//! Images without a registry: a program of this machine packed as an OCI archive, which `ctr image import` reads.

use std::path::Path;

use ring::digest::{SHA256, digest};

/// The parts of an image with busybox and links for all its applets.
pub(super) struct Parts {
    pub(super) config: String,
    pub(super) manifest: String,
    pub(super) layer: Vec<u8>,
}

pub(super) fn parts(config: &str) -> Parts {
    let program = std::fs::read("/bin/busybox").unwrap();
    let list = std::process::Command::new("/bin/busybox").arg("--list").output().unwrap();
    let applets = String::from_utf8(list.stdout).unwrap();
    let mut layer = Tar::default();
    for directory in ["bin/", "etc/", "tmp/", "proc/", "sys/", "dev/", "run/"] {
        layer.add(directory, b'5', 0o755, "", b"");
    }
    layer.add("bin/busybox", b'0', 0o755, "", &program);
    layer.add("etc/passwd", b'0', 0o644, "", b"root:x:0:0:root:/:/bin/sh\n");
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        layer.add(&format!("bin/{applet}"), b'2', 0o777, "busybox", b"");
    }
    let layer = layer.end();
    let layer_digest = sha256(&layer);
    let config = format!(
        r#"{{"architecture":"{ARCH}","os":"linux","config":{config},"rootfs":{{"type":"layers","diff_ids":["{layer_digest}"]}}}}"#
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{}}},"layers":[{}}}]}}"#,
        descriptor("config.v1+json", config.as_bytes()),
        descriptor("layer.v1.tar", &layer),
    );
    Parts { config, manifest, layer }
}

/// An OCI archive of an image.
pub(super) fn busybox(path: &Path, reference: &str, config: &str) {
    let Parts { config, manifest, layer } = parts(config);
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{},"annotations":{{"io.containerd.image.name":"{reference}"}}}}]}}"#,
        descriptor("manifest.v1+json", manifest.as_bytes()),
    );
    let mut archive = Tar::default();
    archive.add("oci-layout", b'0', 0o644, "", br#"{"imageLayoutVersion":"1.0.0"}"#);
    archive.add("index.json", b'0', 0o644, "", index.as_bytes());
    for blob in [config.as_bytes(), manifest.as_bytes(), &layer] {
        let name = sha256(blob).replace("sha256:", "blobs/sha256/");
        archive.add(&name, b'0', 0o644, "", blob);
    }
    std::fs::write(path, archive.end()).unwrap();
}

/// The beginning of a reference to bytes.
fn descriptor(kind: &str, bytes: &[u8]) -> String {
    let (digest, size) = (sha256(bytes), bytes.len());
    format!(r#"{{"mediaType":"application/vnd.oci.image.{kind}","digest":"{digest}","size":{size}"#)
}

const ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

pub(super) fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A tar archive in the making.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn add(&mut self, name: &str, kind: u8, mode: u32, link: &str, bytes: &[u8]) {
        let mut head = [0_u8; 512];
        let mut put = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}\0"));
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", bytes.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(157, link);
        put(257, "ustar\x0000");
        head[156] = kind;
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(head);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
