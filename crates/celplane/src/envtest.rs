//! The program under the names that controller-runtime's envtest starts: `kube-apiserver` and `etcd`.
//!
//! Flags that `celplane apiserver` has are passed on; flags that change nothing here are logged and ignored; any other flag is an
//! error. `kube-apiserver` behaves as envtest's does: no controllers, no scheduler, unless `CELPLANE_ENVTEST_CONTROLLERS` adds
//! them. `etcd` keeps objects in memory for as long as it runs.

mod etcd;
pub(crate) mod flags;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use self::flags::{Flag, Flags};

/// Variable that names the controllers to run beside the API server: `none`, `all`, or a list as for `--controllers`.
pub(crate) const CONTROLLERS: &str = "CELPLANE_ENVTEST_CONTROLLERS";

/// Flags of kube-apiserver without a meaning here: they tune it, or turn on what is always on.
const IGNORED: &[&str] = &[
    "allow-privileged",
    "alsologtostderr",
    "default-watch-cache-size",
    "delete-collection-workers",
    "enable-aggregator-routing",
    "enable-garbage-collector",
    "enable-priority-and-fairness",
    "endpoint-reconciler-type",
    "etcd-compaction-batch-limit",
    "etcd-count-metric-poll-period",
    "etcd-db-metric-poll-interval",
    "etcd-healthcheck-timeout",
    "etcd-readycheck-timeout",
    "external-hostname",
    "goaway-chance",
    "kubelet-certificate-authority",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "kubelet-port",
    "kubelet-preferred-address-types",
    "kubelet-timeout",
    "kubernetes-service-node-port",
    "lease-reuse-duration-seconds",
    "livez-grace-period",
    "logtostderr",
    "max-connection-bytes-per-sec",
    "min-request-timeout",
    "profiling",
    "request-timeout",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-username-headers",
    "service-account-extend-token-expiration",
    "service-account-lookup",
    "service-account-max-token-expiration",
    "shutdown-delay-duration",
    "shutdown-send-retry-after",
    "storage-backend",
    "storage-initialization-timeout",
    "storage-media-type",
    "vmodule",
    "watch-cache",
    "watch-cache-sizes",
];

/// Values of these flags that change the behavior of kube-apiserver in a way that celplane does not follow, by the only value
/// that it does.
const REQUIRED_VALUES: &[(&str, &str)] = &[
    ("allow-privileged", "true"),
    ("enable-garbage-collector", "true"),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
    ("requestheader-group-headers", "X-Remote-Group"),
    ("requestheader-username-headers", "X-Remote-User"),
    ("service-account-lookup", "true"),
    ("storage-backend", "etcd3"),
];

/// The program's role, decided by the name under which it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    ApiServer,
    Etcd,
}

impl Role {
    fn of(program: &Path) -> Option<Self> {
        match program.file_name()?.to_str()? {
            "kube-apiserver" => Some(Self::ApiServer),
            "etcd" => Some(Self::Etcd),
            _ => None,
        }
    }
}

/// Next step of `main`.
pub(crate) enum Start {
    /// Parses these arguments as the program's own.
    Arguments(Vec<OsString>),
    /// The work is done.
    Finished(ExitCode),
}

/// Translates the arguments of a program that was started as `kube-apiserver`, or runs `etcd`.
pub(crate) fn start(arguments: Vec<OsString>, command: &clap::Command) -> Result<Start> {
    let program = PathBuf::from(arguments.first().cloned().unwrap_or_default());
    let Some(role) = Role::of(&program) else { return Ok(Start::Arguments(arguments)) };
    let given: Vec<String> = arguments.into_iter().skip(1).map(|it| it.to_string_lossy().into_owned()).collect();
    match role {
        Role::Etcd => etcd::run(&given).map(Start::Finished),
        Role::ApiServer if given.iter().any(|flag| matches!(flag.as_str(), "--help" | "-h")) => {
            print_help(command)?;
            Ok(Start::Finished(ExitCode::SUCCESS))
        }
        Role::ApiServer if given.iter().any(|flag| flag == "--version" || flag == "--version=true") => {
            print_line(&format!("Kubernetes {}", crate::commands::KUBERNETES_VERSION))?;
            Ok(Start::Finished(ExitCode::SUCCESS))
        }
        Role::ApiServer => {
            let controllers = std::env::var(CONTROLLERS).unwrap_or_default();
            let translated = translate(&given, &controllers, command)?;
            for name in &translated.ignored {
                crate::output::complain_line!("kube-apiserver: --{name} has no effect in celplane");
            }
            link_certificates(translated.links.as_ref())?;
            Ok(Start::Arguments(translated.arguments.into_iter().map(OsString::from).collect()))
        }
    }
}

/// Arguments of `celplane` that correspond to arguments of `kube-apiserver`.
#[derive(Debug, Default, PartialEq, Eq)]
struct TranslatedArguments {
    arguments: Vec<String>,
    /// Flags without an effect.
    ignored: Vec<String>,
    /// Certificate directory and data directory, if the server has to generate the certificate.
    links: Option<(PathBuf, PathBuf)>,
}

fn translate(given: &[String], controllers: &str, command: &clap::Command) -> Result<TranslatedArguments> {
    let subcommand = if matches!(controllers, "" | "none") { "apiserver" } else { "up" };
    let known = flags::of_subcommand(command, subcommand)?;
    let mut translated = TranslatedArguments::default();
    let mut arguments = vec!["celplane".to_owned(), subcommand.to_owned()];
    let mut directory = None;
    let mut has_certificate = false;
    for Flag { name, value } in Flags::parse(given, |name| known.get(name).copied())? {
        match name.as_str() {
            "secure-port" => arguments.push(format!("--port={}", value.context("--secure-port needs a value")?)),
            "cert-dir" => directory = Some(PathBuf::from(value.context("--cert-dir needs a value")?)),
            "insecure-port" if value.as_deref() == Some("0") => {}
            "authorization-mode" => check_authorization(value.as_deref().unwrap_or_default())?,
            "anonymous-auth" if value.as_deref() != Some("false") => translated.ignored.push(name),
            _ if known.contains_key(name.as_str()) => {
                has_certificate |= name == "tls-cert-file";
                arguments.push(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
            }
            _ if IGNORED.contains(&name.as_str()) => {
                check_ignored(&name, value.as_deref())?;
                translated.ignored.push(name);
            }
            _ => bail!("unknown flag: --{name}"),
        }
    }
    let directory =
        directory.context("--cert-dir is required: it holds the certificates and the server's own files")?;
    let data = directory.join("celplane");
    arguments.push(format!("--data-dir={}", data.display()));
    let (certificate, key) = (directory.join("apiserver.crt"), directory.join("apiserver.key"));
    if !has_certificate && certificate.exists() {
        arguments.push(format!("--tls-cert-file={}", certificate.display()));
        arguments.push(format!("--tls-private-key-file={}", key.display()));
    } else if !has_certificate {
        translated.links = Some((directory, data));
    }
    if subcommand == "up" {
        arguments.push("--nodes=0".to_owned());
        arguments.push(format!("--controllers={}", if controllers == "all" { "*" } else { controllers }));
    }
    translated.arguments = arguments;
    Ok(translated)
}

/// Rejects the value of a flag that would need an effect. A flag without a value is a switch that is turned on.
fn check_ignored(name: &str, value: Option<&str>) -> Result<()> {
    let required = REQUIRED_VALUES.iter().find(|(flag, _)| *flag == name).map(|(_, required)| *required);
    let value = value.unwrap_or("true");
    match required.filter(|required| !value.eq_ignore_ascii_case(required)) {
        Some(required) => bail!("--{name}={value} is not supported: {required} is"),
        None => Ok(()),
    }
}

/// Node and RBAC authorization are what there is; a mode that allows more or less would change what a test sees.
fn check_authorization(modes: &str) -> Result<()> {
    let mut modes = modes.split(',');
    match modes.find(|mode| !matches!(*mode, "RBAC" | "Node")) {
        Some(mode) => bail!("--authorization-mode={mode} is not supported: Node and RBAC are"),
        None => Ok(()),
    }
}

/// Makes the certificate that the server will create appear where kube-apiserver would write it.
fn link_certificates(directories: Option<&(PathBuf, PathBuf)>) -> Result<()> {
    let Some((certificates, data)) = directories else { return Ok(()) };
    std::fs::create_dir_all(certificates).with_context(|| format!("cannot create `{}`", certificates.display()))?;
    for name in ["apiserver.crt", "apiserver.key"] {
        let link = certificates.join(name);
        match std::os::unix::fs::symlink(data.join("pki").join(name), &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create `{}`", link.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Lists flags one a line, which is where envtest looks for `--insecure-port`.
fn print_help(command: &clap::Command) -> Result<()> {
    let mut names: Vec<String> =
        flags::of_subcommand(command, "apiserver")?.into_keys().map(ToOwned::to_owned).collect();
    names.extend(["authorization-mode", "cert-dir", "secure-port"].map(ToOwned::to_owned));
    names.sort();
    print_line("kube-apiserver as served by celplane, for envtest. Flags:\n")?;
    for name in names {
        print_line(&format!("  --{name}"))?;
    }
    print_line(&format!("\nFlags without effect: --{}", IGNORED.join(", --")))?;
    print_line(&format!("{CONTROLLERS}=all|none|LIST adds controllers and the scheduler (default: none)."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn translated(given: &[&str], controllers: &str) -> Result<TranslatedArguments> {
        let given: Vec<String> = given.iter().map(ToString::to_string).collect();
        translate(&given, controllers, &crate::Arguments::command())
    }

    #[test]
    fn flags_of_envtest_are_understood() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("apiserver.crt"), "").unwrap();
        let at = directory.path().display();
        let certificates = format!("--cert-dir={at}");
        let found = translated(
            &[
                "--allow-privileged=true",
                "--authorization-mode=RBAC",
                "--bind-address=127.0.0.1",
                &certificates,
                "--disable-admission-plugins=ServiceAccount",
                "--etcd-servers=http://127.0.0.1:1",
                "--secure-port=2",
                "--service-account-issuer=https://127.0.0.1:2/",
                "--service-account-key-file=/sa.crt",
                "--service-account-signing-key-file=/sa.key",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--client-ca-file=/ca.crt",
            ],
            "",
        );
        let found = found.unwrap();
        assert_eq!(found.ignored, ["allow-privileged"]);
        assert_eq!(found.links, None);
        let text = found.arguments.join(" ");
        assert!(text.starts_with("celplane apiserver --bind-address=127.0.0.1 "), "{text}");
        assert!(text.contains(" --port=2 "), "{text}");
        assert!(text.contains(&format!(" --data-dir={at}/celplane --tls-cert-file={at}/apiserver.crt ")), "{text}");
        assert!(crate::Arguments::command().try_get_matches_from(&found.arguments).is_ok(), "{text}");
    }

    #[test]
    fn flags_that_matter_and_are_unknown_are_errors() {
        for flag in [
            "--authorization-mode=AlwaysAllow",
            "--insecure-port=8080",
            "--anonymous-auth=false",
            "--oidc-issuer-url=x",
        ] {
            assert!(translated(&["--cert-dir=/nonexistent", flag], "").is_err(), "{flag}");
        }
        assert!(translated(&["--secure-port=1"], "").is_err(), "no --cert-dir");
    }

    #[test]
    fn values_that_matter_are_errors() {
        for flag in [
            "--allow-privileged=false",
            "--enable-garbage-collector=false",
            "--requestheader-username-headers=X-User",
            "--service-account-lookup=false",
            "--storage-backend=etcd2",
        ] {
            let error = translated(&["--cert-dir=/nonexistent", flag], "").unwrap_err().to_string();
            assert!(error.starts_with(flag) && error.contains(" is not supported: "), "{flag}: {error}");
        }
        for flag in ["--allow-privileged", "--storage-backend=etcd3", "--requestheader-group-headers=x-remote-group"] {
            assert_eq!(translated(&["--cert-dir=/nonexistent", flag], "").unwrap().ignored.len(), 1, "{flag}");
        }
    }

    #[test]
    fn ignored_flags_are_not_flags_of_the_server() {
        let command = crate::Arguments::command();
        for subcommand in ["apiserver", "up"] {
            let known = flags::of_subcommand(&command, subcommand).unwrap();
            let stale: Vec<&&str> = IGNORED.iter().filter(|name| known.contains_key(**name)).collect();
            assert!(stale.is_empty(), "{subcommand} has {stale:?}");
        }
        assert!(REQUIRED_VALUES.iter().all(|(name, _)| IGNORED.contains(name)));
    }

    #[test]
    fn controllers_are_added_on_demand() {
        let found = translated(&["--cert-dir=/nonexistent"], "all").unwrap();
        assert!(found.arguments.starts_with(&["celplane".to_owned(), "up".to_owned()]));
        assert!(found.arguments.contains(&"--controllers=*".to_owned()));
        assert!(crate::Arguments::command().try_get_matches_from(&found.arguments).is_ok());
        assert!(translated(&["--cert-dir=/nonexistent"], "none").unwrap().arguments.contains(&"apiserver".to_owned()));
    }
}
