//! Rules of Kubernetes' signers.

use api::json::Text;
use api::well_known::{GROUP_NODES, SIGNER_CLIENT, SIGNER_KUBELET_CLIENT, SIGNER_KUBELET_SERVING, SIGNER_LEGACY};
use api::x509::request::Request;

const NODE_PREFIX: &str = "system:node:";

/// Checks a request against the rules of a signer; `None` if the signer is unknown.
pub(super) fn check(signer: &str, request: &Request<'_>, usages: &[Text]) -> Option<Result<(), String>> {
    match signer {
        SIGNER_KUBELET_SERVING => Some(kubelet_serving(request, usages)),
        SIGNER_KUBELET_CLIENT => Some(kubelet_client(request, usages)),
        SIGNER_CLIENT => Some(client(usages)),
        SIGNER_LEGACY => Some(Ok(())),
        _ => None,
    }
}

fn refuse(unless: bool, why: &str) -> Result<(), String> {
    if unless { Ok(()) } else { Err(why.to_owned()) }
}

/// Checks that these are the wanted usages (sorted), with or without the one that only RSA keys need.
fn are_usages(usages: &[Text], wanted: [&str; 3]) -> Result<(), String> {
    let mut given: Vec<&str> = usages.iter().map(Text::as_str).collect();
    given.sort_unstable();
    given.dedup();
    let without_rsa = wanted.iter().filter(|it| **it != "key encipherment");
    let fits = given == wanted || given.iter().eq(without_rsa);
    refuse(fits, &format!("usages did not match [{}]", wanted.join(" ")))
}

fn kubelet_serving(request: &Request<'_>, usages: &[Text]) -> Result<(), String> {
    let names = &request.alternatives;
    refuse(request.names.organizations == [GROUP_NODES], "subject organization is not system:nodes")?;
    let has_names = !names.dns.is_empty() || !names.addresses.is_empty();
    refuse(has_names, "DNS or IP subjectAltName is required")?;
    refuse(names.emails.is_empty(), "Email subjectAltNames are not allowed")?;
    refuse(names.uris.is_empty(), "URI subjectAltNames are not allowed")?;
    are_usages(usages, ["digital signature", "key encipherment", "server auth"])?;
    refuse(request.names.common_name.starts_with(NODE_PREFIX), "subject common name does not begin with system:node:")
}

pub(super) fn kubelet_client(request: &Request<'_>, usages: &[Text]) -> Result<(), String> {
    let names = &request.alternatives;
    refuse(request.names.organizations == [GROUP_NODES], "subject organization is not system:nodes")?;
    refuse(names.dns.is_empty(), "DNS subjectAltNames are not allowed")?;
    refuse(names.emails.is_empty(), "Email subjectAltNames are not allowed")?;
    refuse(names.addresses.is_empty(), "IP subjectAltNames are not allowed")?;
    refuse(names.uris.is_empty(), "URI subjectAltNames are not allowed")?;
    refuse(request.names.common_name.starts_with(NODE_PREFIX), "subject common name does not begin with system:node:")?;
    are_usages(usages, ["client auth", "digital signature", "key encipherment"])
}

fn client(usages: &[Text]) -> Result<(), String> {
    for usage in usages {
        if !matches!(usage.as_str(), "digital signature" | "key encipherment" | "client auth") {
            return Err(format!("invalid usage for client certificate: {usage}"));
        }
    }
    refuse(
        usages.iter().any(|usage| usage == "client auth"),
        "missing required usage for client certificate: client auth",
    )
}

#[cfg(test)]
mod tests {
    use api::x509::Names;
    use api::x509::request::{AlternativeNames, Request};

    use super::*;

    /// A request of `openssl`; the tests put other names in its place.
    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHWMH4CAQAwHDEKMAgGA1UECgwBZzEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAASWf3d3GG1nBlnDihtBgEb0ga/jFK49jWwgnVlon/p2
ieNb0ZWZJ875B7bU9UPkCXON4UbDjI2EKD+B/TWTJuOroAAwCgYIKoZIzj0EAwID
SAAwRQIhAMERBTqXOUAJFxISqR9qZ1q9+YyxkUeOkh54UU5iFMYEAiAYYuSkBPKI
cdKS5SWVcWhoZCgxIrpyJZ6UFbYd0WP1lA==
-----END CERTIFICATE REQUEST-----
";

    #[track_caller]
    fn verdict(signer: &str, who: (&str, &str), dns: &[&str], usages: &[&str], expected: &str) {
        let bytes = api::x509::request::from_pem(REQUEST).unwrap();
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<String>>();
        let request = Request {
            names: Names { common_name: who.1.to_owned(), organizations: texts(&[who.0]), uids: Vec::new() },
            alternatives: AlternativeNames { dns: texts(dns), ..AlternativeNames::default() },
            ..Request::read(&bytes).unwrap()
        };
        let usages: Vec<Text> = usages.iter().map(|it| (*it).into()).collect();
        let verdict = check(signer, &request, &usages);
        assert_eq!(verdict.map(|it| it.err().unwrap_or_default()).as_deref(), Some(expected));
    }

    #[test]
    fn each_signer_has_its_rules() {
        let (node, user) = (("system:nodes", "system:node:a"), ("g", "alice"));
        let (serving, client) = (["digital signature", "server auth"], ["digital signature", "client auth"]);
        verdict(SIGNER_CLIENT, user, &[], &client, "");
        verdict(SIGNER_CLIENT, user, &[], &serving, "invalid usage for client certificate: server auth");
        verdict(SIGNER_CLIENT, user, &[], &[], "missing required usage for client certificate: client auth");
        verdict(SIGNER_KUBELET_CLIENT, node, &[], &client, "");
        verdict(SIGNER_KUBELET_CLIENT, user, &[], &client, "subject organization is not system:nodes");
        verdict(SIGNER_KUBELET_CLIENT, node, &["a"], &client, "DNS subjectAltNames are not allowed");
        verdict(
            SIGNER_KUBELET_CLIENT,
            ("system:nodes", "a"),
            &[],
            &client,
            "subject common name does not begin with system:node:",
        );
        let usages = "usages did not match [client auth digital signature key encipherment]";
        verdict(SIGNER_KUBELET_CLIENT, node, &[], &serving, usages);
        verdict(SIGNER_KUBELET_SERVING, node, &["a"], &serving, "");
        verdict(SIGNER_KUBELET_SERVING, node, &[], &serving, "DNS or IP subjectAltName is required");
        let usages = "usages did not match [digital signature key encipherment server auth]";
        verdict(SIGNER_KUBELET_SERVING, node, &["a"], &client, usages);
        verdict(SIGNER_LEGACY, user, &[], &["cert sign"], "");
    }

    #[test]
    fn other_signers_are_left_to_others() {
        let bytes = api::x509::request::from_pem(REQUEST).unwrap();
        assert_eq!(check("example.com/own", &Request::read(&bytes).unwrap(), &[]), None);
    }
}
