//! Paths of the API that may be read through the console.
//!
//! A path is understood completely or rejected: what the console does not understand it could not keep from reaching a Secret, or a
//! subresource that does more than read (`proxy`, `exec`, `portforward` answer to GET too).

/// The parameters of reads, watches and logs.
const PARAMETERS: &[&str] = &[
    "allowWatchBookmarks",
    "container",
    "continue",
    "fieldSelector",
    "follow",
    "includeObject",
    "labelSelector",
    "limit",
    "limitBytes",
    "previous",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "sinceSeconds",
    "tailLines",
    "timeoutSeconds",
    "timestamps",
    "watch",
];

/// Parameters of a path are at most this long.
const QUERY_BYTES_MAX: usize = 8 << 10;

/// A read that may be sent to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    /// Path and parameters.
    pub(crate) target: String,
    /// Whether the values of Secrets have to be removed from the answer.
    pub(crate) is_secret: bool,
    /// Whether the answer is a stream without an end.
    pub(crate) is_stream: bool,
}

/// Parses the path and parameters of a read; returns the reason if it is rejected.
pub(crate) fn parse(path: &str, query: &str) -> Result<ReadRequest, &'static str> {
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or_default().split('/').collect();
    if !segments.iter().all(|segment| is_plain(segment)) {
        return Err("the path has parts that are not understood");
    }
    if query.len() > QUERY_BYTES_MAX {
        return Err("the parameters are too long");
    }
    let mut is_stream = false;
    for (name, value) in
        query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
    {
        if !PARAMETERS.contains(&name) {
            return Err("the console does not send this parameter");
        }
        is_stream |= matches!(name, "watch" | "follow") && !matches!(value, "false" | "0");
    }
    let is_secret = match segments.as_slice() {
        ["version" | "api" | "apis"] | ["api", _] | ["apis", _] | ["apis", _, _] => false,
        ["api", version, rest @ ..] => resource("", version, rest)?,
        ["apis", group, version, rest @ ..] => resource(group, version, rest)?,
        _ => return Err("the console does not read this path"),
    };
    if is_secret && is_stream {
        return Err("Secrets cannot be watched through the console");
    }
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Ok(ReadRequest { target, is_secret, is_stream })
}

/// Whether a part of a path is literal: without escapes or segments that a server would resolve.
fn is_plain(segment: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(is_known)
}

/// Whether the resource is `secrets`; an error if it cannot be read.
fn resource(group: &str, _version: &str, rest: &[&str]) -> Result<bool, &'static str> {
    let (resource, below) = match rest {
        // `/namespaces/NAME/RESOURCE…`, but `/namespaces/NAME/status` belongs to the namespace.
        ["namespaces", _, resource, below @ ..] if !matches!(*resource, "status" | "finalize") => (*resource, below),
        [resource, below @ ..] => (*resource, below),
        [] => return Ok(false),
    };
    if matches!(resource, "watch" | "proxy") {
        return Err("the console does not read this path");
    }
    match below {
        [] | [_] | [_, "status" | "scale"] => {}
        [_, "log"] if group.is_empty() && resource == "pods" => {}
        _ => return Err("the console does not read this subresource"),
    }
    Ok(group.is_empty() && resource == "secrets")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn accepted(path: &str, query: &str) -> ReadRequest {
        parse(path, query).unwrap()
    }

    #[track_caller]
    fn rejected(path: &str, query: &str) {
        assert!(parse(path, query).is_err(), "{path}?{query}");
    }

    #[test]
    fn reads_are_accepted() {
        for path in [
            "/version",
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps/v1",
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods/b",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a",
            "/api/v1/namespaces/a/status",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        ] {
            assert_eq!(accepted(path, "").target, path);
        }
        assert!(accepted("/api/v1/pods", "watch=true&resourceVersion=5").is_stream);
        assert!(!accepted("/api/v1/pods", "watch=false").is_stream);
        assert!(accepted("/api/v1/namespaces/a/pods/b/log", "follow=true").is_stream);
    }

    #[test]
    fn paths_with_effects_are_rejected() {
        for path in [
            "/api/v1/namespaces/a/pods/b/exec",
            "/api/v1/namespaces/a/pods/b/attach",
            "/api/v1/namespaces/a/pods/b/portforward",
            "/api/v1/namespaces/a/pods/b/proxy",
            "/api/v1/namespaces/a/services/b/proxy/x",
            "/api/v1/nodes/a/proxy/logs",
            "/api/v1/proxy/nodes/a",
            "/api/v1/watch/secrets",
            "/api/v1/namespaces/a/finalize",
            "/metrics",
            "/logs",
            "/debug/pprof",
            "/openapi/v2",
            "/api/v1/namespaces/a/secrets/b/log",
        ] {
            rejected(path, "");
        }
        rejected("/api/v1/pods", "dryRun=All");
        rejected("/api/v1/pods", "%77atch=true");
    }

    #[test]
    fn disguised_paths_are_rejected() {
        for path in [
            "/api/v1/%73ecrets",
            "/api/v1/pods/../secrets",
            "/api/v1/./secrets",
            "/api/v1//secrets",
            "/api/v1/secrets/",
            "api/v1/pods",
            "/api/v1/pods\\..\\secrets",
            "/api/v1/se\u{441}rets",
            "",
            "/",
        ] {
            rejected(path, "");
        }
    }

    #[test]
    fn secrets_are_recognized() {
        for path in ["/api/v1/secrets", "/api/v1/namespaces/a/secrets", "/api/v1/namespaces/a/secrets/b"] {
            assert!(accepted(path, "").is_secret, "{path}");
            rejected(path, "watch=true");
            rejected(path, "watch");
        }
        assert!(!accepted("/api/v1/namespaces/secrets", "").is_secret);
        assert!(!accepted("/api/v1/namespaces/secrets/pods", "").is_secret);
        assert!(!accepted("/api/v1/namespaces/a/configmaps/secrets", "").is_secret);
    }
}
