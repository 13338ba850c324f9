//! The route table: paths that are not resources, with their methods and their handlers.
//!
//! A path is served, checked for its method and listed at `/` by its one row in [`ROUTES`]. Resources have no rows
//! here: `wire::request::route` recognizes their paths, and `resources` and `custom` know which of them exist.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Method;
use percent_encoding::percent_decode_str;

use super::{Server, backup, non_resource_paths as paths, not_found, openid};
use crate::authorization;
use crate::identity::User;
use crate::serving::discovery;
use crate::wire::answer::Answer;
use crate::wire::request::Query;
use crate::wire::status::{Failure, Result};

/// An authorized request for a non-resource path.
pub(super) struct PathRequest<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) parts: &'a http::request::Parts,
    pub(super) query: &'a Query,
    /// The decoded path as it was sent.
    pub(super) sent_path: &'a str,
    /// The decoded path without a slash at its end.
    pub(super) path: &'a str,
    /// The parts of `path` between slashes.
    pub(super) segments: &'a [&'a str],
}

impl PathRequest<'_> {
    /// A part of the path; empty if the path is shorter.
    pub(super) fn segment(&self, at: usize) -> &str {
        self.segments.get(at).copied().unwrap_or_default()
    }
}

type Handler = for<'a> fn(PathRequest<'a>) -> BoxFuture<'a, Result<Answer>>;

/// Methods that a route accepts. Others are answered with 405.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Methods {
    Any,
    Get,
    /// GET and HEAD.
    Read,
}

impl Methods {
    fn accept(self, method: &Method) -> bool {
        match self {
            Self::Any => true,
            Self::Get => method == Method::GET,
            Self::Read => matches!(*method, Method::GET | Method::HEAD),
        }
    }
}

/// One row of the table.
struct Route {
    /// Segments of the path. `*` matches one segment, `**` at the end any number of them, including none.
    // Kept apart, because splitting a text for every row and request took more than all else here.
    pattern: &'static [&'static str],
    methods: Methods,
    /// Whether the path is listed at `/`.
    listed: bool,
    handler: Handler,
}

/// A row whose handler is an expression of the request: synchronous by default, awaited after `async`.
macro_rules! route {
    ($pattern:expr, $methods:ident, $listed:ident, async |$request:ident| $answer:expr) => {
        Route {
            pattern: &$pattern,
            methods: Methods::$methods,
            listed: $listed,
            handler: |$request| Box::pin(async move { $answer }),
        }
    };
    ($pattern:expr, $methods:ident, $listed:ident, |$request:ident| $answer:expr) => {
        Route {
            pattern: &$pattern,
            methods: Methods::$methods,
            listed: $listed,
            handler: |$request| Box::pin(std::future::ready($answer)),
        }
    };
}

/// All routes. The first row that matches the path handles the request.
static ROUTES: &[Route] = &[
    route!([""], Any, false, |request| Ok(index(request.server))),
    route!([".well-known", "openid-configuration"], Any, true, |request| Ok(openid::configuration(request.server))),
    route!(["api"], Read, true, |request| paths::api(&request)),
    route!(["api", "*"], Read, false, |request| paths::core_version(&request)),
    route!(["api", "**"], Read, false, |_request| Ok(not_found())),
    // Kubernetes: the list of all groups accepts any method.
    route!(["apis"], Any, true, |request| paths::apis(&request)),
    route!(["apis", "*"], Read, false, |request| paths::group(&request)),
    route!(["apis", "*", "*"], Read, false, |request| paths::group_version(&request)),
    route!(["apis", "**"], Read, false, |_request| Ok(not_found())),
    route!(["healthz", "**"], Any, true, async |request| Ok(paths::health(&request).await)),
    route!(["livez", "**"], Any, true, async |request| Ok(paths::health(&request).await)),
    route!(["metrics"], Any, true, |request| Ok(paths::metrics(request.server))),
    route!(["metrics", "*"], Any, false, |request| Ok(paths::component_metrics(&request))),
    route!(["openapi", "v2"], Any, true, async |request| paths::openapi(&request).await),
    route!(["openapi", "v3", "**"], Any, true, async |request| paths::openapi(&request).await),
    route!(["openid", "v1", "jwks"], Any, true, |request| Ok(openid::keys(request.server))),
    route!(["readyz", "**"], Any, true, async |request| Ok(paths::health(&request).await)),
    route!(["store", "backup"], Get, true, async |request| backup::answer(request.server).await),
    route!(["version"], Get, true, |_request| Ok(paths::version())),
];

/// Answers a request for a path that is not a resource, if the user may make it.
pub(super) async fn answer(
    server: &Arc<Server>,
    parts: &http::request::Parts,
    query: &Query,
    user: &User,
) -> Result<Answer> {
    let sent_path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let sent_path = &*sent_path;
    let verb = parts.method.as_str().to_lowercase();
    let asked = authorization::Request::Path { verb: &verb, path: sent_path };
    if server.authorizer.authorize(user, asked).is_err() {
        server.catch_up().await;
        server.authorizer.authorize(user, asked)?;
    }
    let path = sent_path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(sent_path);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match ROUTES.iter().find(|route| matches(route.pattern, &segments)) {
        Some(route) if !route.methods.accept(&parts.method) => Err(Failure::method_not_allowed()),
        Some(route) => {
            (route.handler)(PathRequest { server, parts, query, sent_path, path, segments: &segments }).await
        }
        None => Ok(not_found()),
    }
}

fn matches(pattern: &[&str], segments: &[&str]) -> bool {
    let mut rest = segments.iter();
    for wanted in pattern {
        match (*wanted, rest.next()) {
            ("**", _) => return true,
            (_, None) => return false,
            ("*", Some(_)) => {}
            (wanted, Some(segment)) if wanted != *segment => return false,
            _ => {}
        }
    }
    rest.next().is_none()
}

/// The path of a row as it is listed.
fn shown(pattern: &[&str]) -> String {
    let segments = pattern.strip_suffix(&["**"]).unwrap_or(pattern);
    segments.iter().fold(String::new(), |path, segment| path + "/" + segment)
}

/// The list of all paths, served at `/`.
fn index(server: &Server) -> Answer {
    let listed = ROUTES.iter().filter(|route| route.listed);
    let mut paths: Vec<String> = listed.map(|route| shown(route.pattern)).collect();
    let snapshot = server.customs.snapshot();
    let (config, aggregated) = (&server.options.runtime_config, server.aggregator.snapshot());
    let served = discovery::ServedApis { config, customs: &snapshot, aggregated: &aggregated };
    for (group, versions) in discovery::all_groups(served) {
        for version in versions {
            paths.push(if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") });
        }
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
        }
    }
    paths.sort();
    let paths: Vec<api::json::Value> = paths.into_iter().map(Into::into).collect();
    Answer::json(200, &api::json!({"paths": paths}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, pattern: Option<&str>) {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let found = ROUTES.iter().find(|route| matches(route.pattern, &segments));
        let found = found.map(|route| format!("/{}", route.pattern.join("/")));
        assert_eq!(found.as_deref(), pattern, "{path}");
    }

    #[test]
    fn first_matching_row_handles_the_path() {
        check("/", Some("/"));
        check("/version", Some("/version"));
        check("/version/more", None);
        check("/api", Some("/api"));
        check("/api/v1", Some("/api/*"));
        check("/api/v1/a/b/c/d/e", Some("/api/**"));
        check("/apis/apps/v1", Some("/apis/*/*"));
        check("/apis/apps/v1/more", Some("/apis/**"));
        check("/healthz", Some("/healthz/**"));
        check("/readyz/etcd", Some("/readyz/**"));
        check("/metrics/scheduler", Some("/metrics/*"));
        check("/openapi/v3/apis/apps/v1", Some("/openapi/v3/**"));
        check("/openapi/v2/more", None);
        check("//", None);
    }

    #[test]
    fn no_row_hides_another() {
        for (at, route) in ROUTES.iter().enumerate() {
            let path = shown(route.pattern).replace('*', "x");
            let segments: Vec<&str> = path.split('/').skip(1).collect();
            let found = ROUTES.iter().position(|route| matches(route.pattern, &segments));
            let is_rest = route.pattern.ends_with(&["**"]) && found.is_some_and(|found| found < at);
            assert!(found == Some(at) || is_rest, "{path} is hidden");
        }
    }

    #[test]
    fn methods_are_limited_where_kubernetes_limits_them() {
        assert!(Methods::Any.accept(&Method::POST));
        assert!(Methods::Get.accept(&Method::GET) && !Methods::Get.accept(&Method::HEAD));
        assert!(Methods::Read.accept(&Method::HEAD) && !Methods::Read.accept(&Method::POST));
    }
}
