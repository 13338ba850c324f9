//! Programs that give credentials: `users[].user.exec` of a kubeconfig.
//!
//! Follows Kubernetes' `client.authentication.k8s.io`: the program gets an ExecCredential in `KUBERNETES_EXEC_INFO` and
//! prints one with a status.

use std::process::Stdio;

use api::json::Value;
use api::time::Timestamp;

use super::AnyError;
use crate::kubeconfig::Exec;

/// Credentials from a program.
#[derive(Default)]
pub(super) struct ExecCredentials {
    pub(super) token: Option<String>,
    /// Certificates and key, as PEM.
    pub(super) certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// In seconds since 1970; none for credentials that last.
    pub(super) until: Option<u64>,
}

pub(super) async fn run(program: &Exec, server: &str) -> Result<ExecCredentials, AnyError> {
    let info = api::json!({
        "apiVersion": (program.api_version.as_str()), "kind": "ExecCredential",
        "spec": {"interactive": false, "cluster": {"server": server}}
    });
    let mut command = tokio::process::Command::new(&program.command);
    command.args(&program.args).envs(program.env.iter().map(|(name, value)| (name, value)));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let name = program.command.display();
    let output =
        command.output().await.map_err(|error| format!("cannot run `{name}`: {error}\n{}", program.install_hint))?;
    if !output.status.success() {
        return Err(format!("`{name}` returned no credentials: {}", output.status).into());
    }
    read(&output.stdout, program).map_err(|why| format!("`{name}` returned no credentials: {why}").into())
}

fn read(output: &[u8], program: &Exec) -> Result<ExecCredentials, String> {
    let answer = api::json::parse(output).map_err(|error| error.to_string())?;
    let is_ours = answer.str_at(&["kind"]) == Some("ExecCredential")
        && answer.str_at(&["apiVersion"]) == Some(program.api_version.as_str());
    if !is_ours {
        return Err(format!("expected an ExecCredential of {}", program.api_version));
    }
    let status = answer.get("status").unwrap_or(&Value::Null);
    let text = |field: &str| status.str_at(&[field]).filter(|it| !it.is_empty());
    let certificate = match (text("clientCertificateData"), text("clientKeyData")) {
        (Some(certificate), Some(key)) => Some((certificate.as_bytes().to_vec(), key.as_bytes().to_vec())),
        (None, None) => None,
        _ => return Err("a certificate needs its key, and a key its certificate".to_owned()),
    };
    let until = match text("expirationTimestamp") {
        Some(time) => {
            let time = Timestamp::parse(time).map_err(|_| format!("`{time}` is not a time"))?;
            Some(u64::try_from(time.seconds).unwrap_or_default())
        }
        None => None,
    };
    let token = text("token").map(ToOwned::to_owned);
    if token.is_none() && certificate.is_none() {
        return Err("there is neither a token nor a certificate".to_owned());
    }
    Ok(ExecCredentials { token, certificate, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str) -> Result<(Option<String>, Option<u64>), String> {
        let program = Exec { api_version: "client.authentication.k8s.io/v1".to_owned(), ..Exec::default() };
        read(output.as_bytes(), &program).map(|given| (given.token, given.until))
    }

    #[test]
    fn a_token_lasts_until_its_time() {
        let answer = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
            "status":{"token":"t","expirationTimestamp":"1970-01-01T00:01:00Z"}}"#;
        assert_eq!(check(answer).unwrap(), (Some("t".to_owned()), Some(60)));
        assert!(check(&answer.replace("1970", "never")).is_err());
        assert!(check(&answer.replace("/v1\"", "/v1beta1\"")).is_err());
        assert!(check(&answer.replace("token", "other")).unwrap_err().contains("neither a token"));
        assert!(check("").is_err());
    }
}
