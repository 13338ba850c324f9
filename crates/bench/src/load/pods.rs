//! The requests, ready to be sent: pods of an ordinary shape, one namespace.

/// Namespace of all objects.
pub const NAMESPACE: &str = "load";

/// Length of the part that distinguishes the versions of a pod.
const ROUND_DIGITS: usize = 20;

/// Makes requests for one server.
#[derive(Debug, Clone)]
pub struct Requests {
    host: String,
    encoding: &'static str,
}

impl Requests {
    /// Requests for the server at `host:port`; `gzip` permits compressed responses.
    #[must_use]
    pub fn new(host: String, gzip: bool) -> Self {
        Self { host, encoding: if gzip { "gzip" } else { "identity" } }
    }

    /// A request without a body. The path begins at the root.
    #[must_use]
    pub fn get(&self, path: &str, accept: &str) -> Vec<u8> {
        let Self { host, encoding } = self;
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nAccept-Encoding: {encoding}\r\n\r\n")
            .into_bytes()
    }

    /// A request with a JSON body.
    #[must_use]
    pub fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Vec<u8> {
        let Self { host, encoding } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nAccept-Encoding: {encoding}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Makes the namespace.
    #[must_use]
    pub fn create_namespace(&self) -> Vec<u8> {
        let body = format!(r#"{{"kind":"Namespace","apiVersion":"v1","metadata":{{"name":"{NAMESPACE}"}}}}"#);
        self.send("POST", "/api/v1/namespaces", "application/json", &body)
    }

    /// Creates the service account that the admission plugin requires.
    #[must_use]
    pub fn create_service_account(&self) -> Vec<u8> {
        let body = r#"{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}"#;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        self.send("POST", &path, "application/json", body)
    }

    /// Makes a pod.
    #[must_use]
    pub fn create_pod(&self, name: &str) -> Vec<u8> {
        self.send("POST", &collection(), "application/json", &pod(name))
    }

    /// Reads a pod.
    #[must_use]
    pub fn get_pod(&self, name: &str) -> Vec<u8> {
        self.get(&format!("{}/{name}", collection()), "application/json")
    }

    /// Lists all pods, in the form that `accept` names.
    #[must_use]
    pub fn list_pods(&self, accept: &str) -> Vec<u8> {
        self.get(&collection(), accept)
    }

    /// Follows all pods from now on.
    #[must_use]
    pub fn watch_pods(&self, version: &str) -> Vec<u8> {
        let path = format!("{}?watch=1&resourceVersion={version}&timeoutSeconds=3600", collection());
        self.get(&path, "application/json")
    }

    /// Changes an annotation by a merge patch.
    #[must_use]
    pub fn patch_pod(&self, name: &str, round: u64) -> Vec<u8> {
        self.send("PATCH", &format!("{}/{name}", collection()), "application/merge-patch+json", &patch(round))
    }

    /// Replaces a pod by its state on the server, with another annotation.
    #[must_use]
    pub fn update_pod(&self, name: &str, document: &str, round: u64) -> Vec<u8> {
        let body = with_round(document, round);
        self.send("PUT", &format!("{}/{name}", collection()), "application/json", &body)
    }
}

/// The annotation that changes.
pub const ROUND: &str = "load.celplane.dev/round";

/// Text in front of the annotation's value.
#[must_use]
pub fn round_mark() -> String {
    format!("\"{ROUND}\":\"")
}

/// The value in the text of a pod that begins here.
#[must_use]
pub fn read_round(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.get(..ROUND_DIGITS)?).ok()?.parse().ok()
}

/// A pod with another round and without its version, so that the server replaces whatever it has.
#[must_use]
pub fn with_round(document: &str, round: u64) -> String {
    let mut text = document.trim_end().to_owned();
    if let Some(start) = text.find("\"resourceVersion\":\"") {
        let rest = text.get(start..).unwrap_or_default();
        let length = rest.find(',').map_or(0, |comma| comma.saturating_add(1));
        text.replace_range(start..start.saturating_add(length), "");
    }
    let mark = round_mark();
    if let Some(start) = text.find(&mark).map(|at| at.saturating_add(mark.len())) {
        text.replace_range(start..start.saturating_add(ROUND_DIGITS), &format!("{round:0ROUND_DIGITS$}"));
    }
    text
}

/// A merge patch that changes the round.
#[must_use]
pub fn patch(round: u64) -> String {
    format!(r#"{{"metadata":{{"annotations":{{"{ROUND}":"{round:0ROUND_DIGITS$}"}}}}}}"#)
}

/// The path of all pods.
#[must_use]
pub fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// The name of the pod with this number.
#[must_use]
pub fn name(number: usize) -> String {
    format!("web-7c5b8d9f6-{number:06}")
}

/// A pod as a Deployment makes it.
#[must_use]
pub fn pod(name: &str) -> String {
    let round = format!("{:0ROUND_DIGITS$}", 0);
    format!(
        concat!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","labels":{{"app":"web","tier":"front","#,
            r#""pod-template-hash":"7c5b8d9f6"}},"annotations":{{"{mark}":"{round}","prometheus.io/scrape":"true","#,
            r#""prometheus.io/port":"9090"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example.com/shop/web:1.42.0","#,
            r#""args":["--listen=:8080","--metrics=:9090"],"ports":[{{"name":"http","containerPort":8080}},"#,
            r#"{{"name":"metrics","containerPort":9090}}],"env":[{{"name":"REGION","value":"eu-west-1"}},"#,
            r#"{{"name":"NODE_NAME","valueFrom":{{"fieldRef":{{"fieldPath":"spec.nodeName"}}}}}}],"#,
            r#""resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"#,
            r#""livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http"}},"periodSeconds":10}},"#,
            r#""readinessProbe":{{"httpGet":{{"path":"/readyz","port":"http"}},"periodSeconds":5}},"#,
            r#""volumeMounts":[{{"name":"config","mountPath":"/etc/web"}}]}}],"#,
            r#""volumes":[{{"name":"config","configMap":{{"name":"web"}}}}],"#,
            r#""tolerations":[{{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}}]}}}}"#
        ),
        name = name,
        mark = ROUND,
        round = round,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_the_old_text_with_another_round_and_no_version() {
        let text = format!(r#"{{"metadata":{{"resourceVersion":"7","annotations":{{"{ROUND}":"{:020}"}}}}}}"#, 3);
        let expected = format!(r#"{{"metadata":{{"annotations":{{"{ROUND}":"{:020}"}}}}}}"#, 12);
        assert_eq!(with_round(&text, 12), expected);
        let at = expected.find(&round_mark()).unwrap() + round_mark().len();
        assert_eq!(read_round(&expected.as_bytes()[at..]), Some(12));
    }
}
