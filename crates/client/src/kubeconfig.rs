//! Kubeconfig files: server, trust and identity.
//!
//! Follows `clientcmd` of client-go. Unsupported features (proxies, the old auth providers) are rejected by
//! name: a connection is never made with less than the file requires.

use std::path::{Path, PathBuf};

use api::json::Value;

/// A reason why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a kubeconfig.
    #[error("{0}")]
    Syntax(String),
    /// A named entry does not exist.
    #[error("{kind} `{name}` does not exist")]
    Missing {
        /// Kind of the entry.
        kind: &'static str,
        /// Name of the entry.
        name: String,
    },
    /// A field that has no usable value.
    #[error("`{field}`: {why}")]
    Field {
        /// Field with the error.
        field: &'static str,
        /// Description of the error.
        why: String,
    },
    /// An unsupported feature.
    #[error("`{0}` is not supported")]
    Unsupported(&'static str),
}

/// A context of a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://HOST:PORT`, perhaps with a path.
    pub server: String,
    /// The certificates that vouch for the server, as PEM; none means those of the system.
    pub authority: Option<Vec<u8>>,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// The name that the server's certificate must have, where that is not its address.
    pub server_name: Option<String>,
    /// The namespace of the context.
    pub namespace: Option<String>,
    /// Identity of the client.
    pub user: User,
}

/// Identity of a client.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Certificates and key, as PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// A bearer token.
    pub token: Option<String>,
    /// A file with a bearer token, which may change.
    pub token_file: Option<PathBuf>,
    /// Name and password.
    pub password: Option<(String, String)>,
    /// A program that gives credentials.
    pub exec: Option<Exec>,
    /// Impersonation headers.
    pub impersonate: Vec<(String, String)>,
}

impl std::fmt::Debug for User {
    // Secrets stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// A program that gives credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exec {
    /// The program.
    pub command: PathBuf,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Variables that are added to its environment.
    pub env: Vec<(String, String)>,
    /// API version of the program's output.
    pub api_version: String,
    /// Hint for the user if the program does not exist.
    pub install_hint: String,
}

/// The directory with the credentials of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Kubeconfig {
    /// The server and the credentials that Kubernetes gives to the containers of a pod; none outside of a pod.
    ///
    /// # Errors
    /// The certificate authority cannot be read.
    pub fn in_cluster() -> Result<Option<Self>, KubeconfigError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(host), Some(port)) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"))
        else {
            return Ok(None);
        };
        Self::of_service_account(Path::new(SERVICE_ACCOUNT), &host, &port).map(Some)
    }

    fn of_service_account(directory: &Path, host: &str, port: &str) -> Result<Self, KubeconfigError> {
        let path = directory.join("ca.crt");
        let authority = std::fs::read(&path).map_err(|source| KubeconfigError::Read { path, source })?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let namespace = std::fs::read_to_string(directory.join("namespace")).ok();
        let user = User { token_file: Some(directory.join("token")), ..User::default() };
        let namespace = namespace.map(|text| text.trim().to_owned());
        Ok(Self {
            server: format!("https://{host}:{port}"),
            authority: Some(authority),
            namespace,
            user,
            ..Self::default()
        })
    }

    /// Reads a file, and resolves one of its contexts: the current one unless another is given.
    ///
    /// # Errors
    /// The file cannot be read, or is incomplete.
    pub fn read(path: &Path, context: Option<&str>) -> Result<Self, KubeconfigError> {
        Self::merge(&[File::read(path)?], context)
    }

    /// Reads several files as one, as `KUBECONFIG` lists them: what is named in two is that of the first, and paths are
    /// relative to the file in which they stand. Files that do not exist are passed over, unless none does.
    ///
    /// # Errors
    /// As [`Kubeconfig::read`].
    pub fn read_all(paths: &[PathBuf], context: Option<&str>) -> Result<Self, KubeconfigError> {
        let mut files = Vec::new();
        for path in paths {
            match File::read(path) {
                Ok(file) => files.push(file),
                Err(KubeconfigError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        match (files.is_empty(), paths.first()) {
            (true, Some(first)) => Self::read(first, context),
            _ => Self::merge(&files, context),
        }
    }

    /// Reads a text. Paths in it are relative to `directory`.
    ///
    /// # Errors
    /// As [`Kubeconfig::read`].
    pub fn parse(text: &str, directory: &Path, context: Option<&str>) -> Result<Self, KubeconfigError> {
        Self::merge(&[File::parse(text, directory)?], context)
    }

    fn merge(files: &[File], context: Option<&str>) -> Result<Self, KubeconfigError> {
        let mut name = context;
        for file in files {
            name = match name {
                Some(name) => Some(name),
                None => text_of(&file.content, "current-context")?,
            };
        }
        let Some(name) = name else {
            return Err(KubeconfigError::Syntax("there is no current context".to_owned()));
        };
        let (context, _) = named(files, "contexts", "context", name)?;
        let (cluster, directory) =
            named(files, "clusters", "cluster", text_of(context, "cluster")?.unwrap_or_default())?;
        let user = match text_of(context, "user")? {
            Some(name) => {
                let (it, directory) = named(files, "users", "user", name)?;
                user(it, directory)?
            }
            None => User::default(),
        };
        let Some(server) = text_of(cluster, "server")? else {
            return Err(KubeconfigError::Field { field: "server", why: "there is none".to_owned() });
        };
        if text_of(cluster, "proxy-url")?.is_some() {
            return Err(KubeconfigError::Unsupported("proxy-url"));
        }
        Ok(Self {
            server: server.trim_end_matches('/').to_owned(),
            authority: content(cluster, "certificate-authority", "certificate-authority-data", directory)?,
            insecure: flag(cluster, "insecure-skip-tls-verify")?,
            server_name: text_of(cluster, "tls-server-name")?.map(ToOwned::to_owned),
            namespace: text_of(context, "namespace")?.map(ToOwned::to_owned),
            user,
        })
    }
}

/// One file of those that are read as one.
struct File {
    content: Value,
    /// Base of relative paths.
    directory: PathBuf,
}

impl File {
    fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let text = read(path)?;
        let text = String::from_utf8(text).map_err(|_| KubeconfigError::Syntax("the file is not UTF-8".to_owned()))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    fn parse(text: &str, directory: &Path) -> Result<Self, KubeconfigError> {
        let (documents, error) = api::yaml::parse_documents(text);
        if let Some(error) = error {
            return Err(KubeconfigError::Syntax(error.to_string()));
        }
        let content = documents.into_iter().next().map(|it| it.value).unwrap_or_default();
        if content.as_object().is_none() {
            return Err(KubeconfigError::Syntax("the file is not a kubeconfig".to_owned()));
        }
        Ok(Self { content, directory: directory.to_owned() })
    }
}

fn user(user: &Value, directory: &Path) -> Result<User, KubeconfigError> {
    if user.get("auth-provider").is_some_and(|it| !it.is_null()) {
        return Err(KubeconfigError::Unsupported("auth-provider"));
    }
    let certificate = content(user, "client-certificate", "client-certificate-data", directory)?;
    let key = content(user, "client-key", "client-key-data", directory)?;
    let certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let why = "a certificate needs its key, and a key its certificate".to_owned();
            return Err(KubeconfigError::Field { field: "client-certificate", why });
        }
    };
    let mut impersonate = Vec::new();
    for (field, header) in [("as", "impersonate-user"), ("as-uid", "impersonate-uid")] {
        impersonate.extend(text_of(user, field)?.map(|value| (header.to_owned(), value.to_owned())));
    }
    let groups = texts(user.get("as-groups"), "as-groups")?;
    impersonate.extend(groups.into_iter().map(|group| ("impersonate-group".to_owned(), group)));
    let extra = user.get("as-user-extra").and_then(Value::as_object);
    for (key, values) in extra.into_iter().flat_map(|it| it.iter()) {
        let name = format!("impersonate-extra-{}", key.to_lowercase());
        impersonate.extend(texts(Some(values), "as-user-extra")?.into_iter().map(|value| (name.clone(), value)));
    }
    let password = text_of(user, "password")?.unwrap_or_default();
    let password = text_of(user, "username")?.map(|name| (name.to_owned(), password.to_owned()));
    Ok(User {
        certificate,
        token: text_of(user, "token")?.map(ToOwned::to_owned),
        token_file: text_of(user, "tokenFile")?.map(|it| directory.join(it)),
        password,
        exec: user.get("exec").filter(|it| !it.is_null()).map(|it| exec(it, directory)).transpose()?,
        impersonate,
    })
}

fn exec(exec: &Value, directory: &Path) -> Result<Exec, KubeconfigError> {
    let Some(command) = text_of(exec, "command")? else {
        return Err(KubeconfigError::Field { field: "exec.command", why: "there is none".to_owned() });
    };
    let api_version = text_of(exec, "apiVersion")?.unwrap_or_default();
    if !matches!(api_version, "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") {
        let why = format!("`{api_version}` is not a version that is known");
        return Err(KubeconfigError::Field { field: "exec.apiVersion", why });
    }
    let env = exec.get("env").and_then(Value::as_array).unwrap_or_default().iter();
    let variable = |it: &Value| -> Result<(String, String), KubeconfigError> {
        let name = text_of(it, "name")?.ok_or_else(|| not_text("exec.env"))?;
        Ok((name.to_owned(), text_of(it, "value")?.unwrap_or_default().to_owned()))
    };
    // Kubernetes: a command with a slash is relative to the file, any other is looked up in the path.
    let command = if command.contains('/') { directory.join(command) } else { PathBuf::from(command) };
    Ok(Exec {
        command,
        args: texts(exec.get("args"), "exec.args")?,
        env: env.map(variable).collect::<Result<_, _>>()?,
        api_version: api_version.to_owned(),
        install_hint: text_of(exec, "installHint")?.unwrap_or_default().to_owned(),
    })
}

/// The entry of a list of `{name: …, FIELD: …}`, in the first file that has it, and where that file is.
fn named<'a>(
    files: &'a [File],
    list: &str,
    field: &'static str,
    name: &str,
) -> Result<(&'a Value, &'a Path), KubeconfigError> {
    let missing = || KubeconfigError::Missing { kind: field, name: name.to_owned() };
    for file in files {
        let entries = match file.content.get(list) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(KubeconfigError::Syntax(format!("`{list}` is not a list"))),
        };
        if let Some(entry) = entries.iter().find(|it| it.str_at(&["name"]) == Some(name)) {
            return Ok((entry.get(field).ok_or_else(missing)?, file.directory.as_path()));
        }
    }
    Err(missing())
}

/// Returns the inline data, or the contents of the referenced file.
fn content(
    of: &Value,
    file: &'static str,
    data: &'static str,
    directory: &Path,
) -> Result<Option<Vec<u8>>, KubeconfigError> {
    if let Some(text) = text_of(of, data)? {
        let decoded = api::base64::decode(text);
        let decoded = decoded.map_err(|error| KubeconfigError::Field { field: data, why: error.to_string() });
        return decoded.map(Some);
    }
    text_of(of, file)?.map(|path| read(&directory.join(path))).transpose()
}

fn read(path: &Path) -> Result<Vec<u8>, KubeconfigError> {
    std::fs::read(path).map_err(|source| KubeconfigError::Read { path: path.to_owned(), source })
}

/// Returns a non-empty text. Other types are rejected: the identity must not depend on skipped fields.
fn text_of<'a>(value: &'a Value, field: &'static str) -> Result<Option<&'a str>, KubeconfigError> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|it| !it.is_empty())),
        Some(_) => Err(not_text(field)),
    }
}

fn texts(list: Option<&Value>, field: &'static str) -> Result<Vec<String>, KubeconfigError> {
    match list {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|it| it.as_str().map(ToOwned::to_owned).ok_or_else(|| not_text(field))).collect()
        }
        Some(_) => Err(not_text(field)),
    }
}

fn flag(value: &Value, field: &'static str) -> Result<bool, KubeconfigError> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_set)) => Ok(*is_set),
        Some(_) => Err(KubeconfigError::Field { field, why: "neither true nor false".to_owned() }),
    }
}

fn not_text(field: &'static str) -> KubeconfigError {
    KubeconfigError::Field { field, why: "not a text".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: one, user: ann, namespace: team}}
- {name: b, context: {cluster: two, user: bob}}
- {name: c, context: {cluster: one, user: nobody}}
clusters:
- {name: one, cluster: {server: 'https://127.0.0.1:6443/', certificate-authority-data: Q0E=}}
- {name: two, cluster: {server: 'https://b', insecure-skip-tls-verify: true, tls-server-name: c}}
users:
- {name: ann, user: {token: secret, as: jürgen, as-groups: [a, b]}}
- {name: bob, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [a], env: [{name: NAME, value: v}]}}}
";

    fn parse(context: Option<&str>, change: impl Fn(&str) -> String) -> Result<Kubeconfig, String> {
        Kubeconfig::parse(&change(FILE), Path::new("/etc/k"), context).map_err(|error| error.to_string())
    }

    #[test]
    fn contexts_name_server_and_user() {
        let it = parse(None, ToOwned::to_owned).unwrap();
        assert_eq!((it.server.as_str(), it.authority.as_deref()), ("https://127.0.0.1:6443", Some(b"CA".as_slice())));
        assert_eq!((it.user.token.as_deref(), it.namespace.as_deref()), (Some("secret"), Some("team")));
        assert_eq!(it.user.impersonate.len(), 3);
        assert!(!format!("{it:?}").contains("secret"));
        let it = parse(Some("b"), ToOwned::to_owned).unwrap();
        assert!(it.insecure && it.server_name.as_deref() == Some("c"));
        let exec = it.user.exec.unwrap();
        assert_eq!(exec.command, Path::new("/etc/k/./login"));
        assert_eq!((exec.args, exec.env), (vec!["a".to_owned()], vec![("NAME".to_owned(), "v".to_owned())]));
    }

    #[test]
    fn several_files_are_one_and_the_first_to_name_something_wins() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let contexts = write("1/contexts", "contexts: [{name: x, context: {cluster: one, user: bob}}]");
        let cluster = "{clusters: [{name: one, cluster: {server: 'https://mine', certificate-authority: ca}}]}";
        let clusters = write("2/clusters", cluster);
        write("2/ca", "CA");
        let all = write("3/all", FILE);
        let files = [directory.path().join("absent"), contexts, clusters, all];
        let it = Kubeconfig::read_all(&files, Some("x")).unwrap();
        assert_eq!((it.server.as_str(), it.authority.as_deref()), ("https://mine", Some(b"CA".as_slice())));
        assert_eq!(it.user.exec.unwrap().command, directory.path().join("3/./login"));
        let current = Kubeconfig::read_all(&files, None).unwrap();
        assert_eq!((current.server.as_str(), current.namespace.as_deref()), ("https://mine", Some("team")));
        let absent = Kubeconfig::read_all(&files[..1], None).unwrap_err();
        assert!(
            matches!(&absent, KubeconfigError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
            "{absent:?}"
        );
        // Unreadable input is not treated as absent: neither a file nor a list.
        let unreadable = [directory.path().to_owned(), files[3].clone()];
        assert!(Kubeconfig::read_all(&unreadable, None).is_err());
        let odd = [write("4/odd", "users: 7"), files[3].clone()];
        assert_eq!(Kubeconfig::read_all(&odd, None).unwrap_err().to_string(), "`users` is not a list");
    }

    #[test]
    fn unsupported_settings_are_rejected() {
        let check = |context, from: &str, to: &str, why: &str| {
            assert_eq!(parse(context, |text| text.replace(from, to)).unwrap_err(), why);
        };
        check(Some("c"), "", "", "user `nobody` does not exist");
        check(Some("z"), "", "", "context `z` does not exist");
        check(None, "current-context: a", "", "there is no current context");
        check(None, "token: secret", "auth-provider: {name: gcp}", "`auth-provider` is not supported");
        check(None, "certificate-authority-data: Q0E=", "proxy-url: http://p", "`proxy-url` is not supported");
        check(
            None,
            "token: secret",
            "client-certificate-data: Q0E=",
            "`client-certificate`: a certificate needs its key, and a key its certificate",
        );
        check(
            Some("b"),
            "client.authentication.k8s.io/v1",
            "client.authentication.k8s.io/v9",
            "`exec.apiVersion`: `client.authentication.k8s.io/v9` is not a version that is known",
        );
        check(None, "as-groups: [a, b]", "as-groups: [a, y]", "`as-groups`: not a text");
        check(None, "token: secret", "token: 7", "`token`: not a text");
        check(
            None,
            "certificate-authority-data: Q0E=",
            "insecure-skip-tls-verify: 'no'",
            "`insecure-skip-tls-verify`: neither true nor false",
        );
        assert!(parse(None, |_| "[".to_owned()).is_err());
        assert_eq!(parse(None, |_| "text".to_owned()).unwrap_err(), "the file is not a kubeconfig");
        let missing =
            parse(None, |text| text.replace("certificate-authority-data: Q0E=", "certificate-authority: nowhere"));
        assert!(missing.unwrap_err().starts_with("cannot read `/etc/k/nowhere`"));
    }
}
