//! Masks values that differ between any two runs, as in the recordings.

use std::collections::HashMap;

use regex::Regex;
use serde_json::{Value, json};

use super::record::Write;

/// Replacements for one scenario.
pub(crate) struct Mask {
    /// Replacements, the longest first.
    names: Vec<(String, String)>,
    /// Kind and masked name of each uid.
    uids: HashMap<String, String>,
    patterns: Vec<(Regex, &'static str)>,
}

impl Mask {
    /// Numbers what was created, in order.
    pub(crate) fn new(namespace: &str, log: &[Write]) -> Self {
        let mut names = vec![];
        let mut hashes: Vec<String> = Vec::new();
        let mut minutes: Vec<String> = Vec::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let created = log.iter().filter(|it| it.verb == "create" && it.code == 201 && it.subresource.is_empty());
        let created: Vec<&Write> = created.collect();
        let services = created.iter().filter(|write| write.resource == "services");
        for (number, ip) in services.filter_map(|write| write.answer["spec"]["clusterIP"].as_str()).enumerate() {
            if ip != "None" && !ip.is_empty() {
                names.push((ip.to_owned(), format!("{{clusterIP{}}}", number + 1)));
            }
        }
        for write in &created {
            let metadata = &write.answer["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let hash = match write.resource.as_str() {
                "replicasets.apps" => metadata["labels"]["pod-template-hash"].as_str(),
                "controllerrevisions.apps" => name.rsplit('-').next(),
                _ => None,
            };
            if let Some(hash) = hash.filter(|hash| !hashes.iter().any(|it| it == hash)) {
                hashes.push(hash.to_owned());
            }
            let owner = metadata["ownerReferences"][0]["kind"].as_str();
            if write.resource == "jobs.batch"
                && owner == Some("CronJob")
                && let Some((_, minute)) = name.rsplit_once('-')
                && !minutes.iter().any(|it| it == minute)
            {
                minutes.push(minute.to_owned());
            }
        }
        for (number, hash) in hashes.iter().enumerate() {
            names.push((hash.clone(), format!("{{hash{}}}", number + 1)));
        }
        for (number, minute) in minutes.iter().enumerate() {
            names.push((minute.clone(), format!("{{minute{}}}", number + 1)));
        }
        let without_random = Self { names: names.clone(), uids: HashMap::new(), patterns: Vec::new() };
        for write in &created {
            let metadata = &write.answer["metadata"];
            let (name, prefix) = (metadata["name"].as_str(), metadata["generateName"].as_str());
            // A pod of a set has a fixed name beside the prefix.
            let is_fixed = metadata["ownerReferences"][0]["kind"] == "StatefulSet";
            if let (Some(name), Some(prefix), false) = (name, prefix, is_fixed) {
                let count = counts.entry(prefix.to_owned()).or_default();
                *count += 1;
                let masked = without_random.text(prefix);
                names.push((name.to_owned(), format!("{masked}{{r{count}}}")));
            }
        }
        names.push((namespace.to_owned(), "{ns}".to_owned()));
        names.push((api::base64::encode(namespace.as_bytes()), "{base64 ns}".to_owned()));
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut mask = Self { names, uids: HashMap::new(), patterns: Vec::new() };
        for write in &created {
            let kind = write.answer["kind"].as_str().unwrap_or_default();
            let name = mask.text(write.answer["metadata"]["name"].as_str().unwrap_or_default());
            if let Some(uid) = write.answer["metadata"]["uid"].as_str() {
                mask.uids.insert(uid.to_owned(), format!("{{uid:{kind}/{name}}}"));
            }
        }
        let patterns = [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "T"),
            (r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----(\\n)?", "{pem}"),
            ("LS0tLS1CRUdJTi[A-Za-z0-9+/=]+", "{base64 pem}"),
            ("ZXlK[A-Za-z0-9+/=]{100,}", "{token}"),
            (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-{r}"),
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "{uuid}"),
            // Pools have the namespace behind their names here, so that scenarios do not meet.
            (r"\b([pq])-\{ns\}", "$1"),
            // The name of an object that was refused before it existed.
            (r#"(\\"[^"\\]*-)[b-z2-9]{5}(\\" is forbidden)"#, "${1}{r}$2"),
            (r"\bsim-\d+\b", "{node}"),
            (r"\b192\.168\.0\.\d+\b", "{hostIP}"),
        ];
        mask.patterns = patterns.map(|(pattern, name)| (Regex::new(pattern).unwrap(), name)).into();
        mask
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, masked) in &self.names {
            text = text.replace(name.as_str(), masked);
        }
        for (uid, masked) in &self.uids {
            if text.contains(uid.as_str()) {
                text = text.replace(uid.as_str(), masked);
            }
        }
        for (pattern, masked) in &self.patterns {
            text = pattern.replace_all(&text, *masked).into_owned();
        }
        text
    }

    fn value(&self, value: &Value) -> Value {
        serde_json::from_str(&self.text(&value.to_string())).unwrap()
    }

    pub(crate) fn object(&self, mut object: Value) -> Value {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["uid", "resourceVersion", "managedFields"] {
                metadata.remove(field);
            }
        }
        if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
            claim.remove("resourceVersion");
        }
        for active in object.pointer_mut("/status/active").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(reference) = active.as_object_mut() {
                reference.remove("resourceVersion");
            }
        }
        self.value(&object)
    }

    pub(crate) fn event(&self, event: &Value) -> Value {
        let about = &event["involvedObject"];
        let component = event["source"]["component"].as_str().filter(|it| !it.is_empty());
        let component = component.or(event["reportingComponent"].as_str());
        self.value(&json!({
            "type": event["type"],
            "reason": event["reason"],
            "regarding": format!("{}/{}", about["kind"].as_str().unwrap(), about["name"].as_str().unwrap()),
            "controller": component,
            "message": event["message"],
        }))
    }

    pub(crate) fn write(&self, write: &Write) -> Value {
        let mut value =
            json!({"controller": &*write.who, "verb": write.verb, "resource": write.resource, "name": write.name});
        value["code"] = write.code.into();
        value["subresource"] = write.subresource.as_str().into();
        value["version"] = write.answer["metadata"]["resourceVersion"].clone();
        self.value(&value)
    }
}
