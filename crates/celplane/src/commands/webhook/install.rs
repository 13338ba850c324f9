//! `celplane webhook install`: the manifests of all that runs on an existing cluster.

use std::process::ExitCode;

use anyhow::bail;
use api::names;

use crate::output::print_text;

/// The manifests, with words in capitals in place of what the flags give.
const MANIFESTS: &str = include_str!("manifests.yaml");

/// Print manifests for an existing cluster
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Image that contains `celplane`
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Namespace of scheduler, resolver and webhook
    #[arg(long, value_name = "NAME", default_value = "celplane-system")]
    namespace: String,
    /// `schedulerName` of the pods that are placed by annotations
    #[arg(long, value_name = "NAME", default_value = "celplane")]
    scheduler_name: String,
    /// Set this `schedulerName` for pods with annotations that name the default scheduler
    #[arg(long)]
    assign_scheduler: bool,
    /// Send pods with persistent volume claims to the webhook, which reads the annotations of their volumes
    #[arg(long)]
    volumes: bool,
}

/// Condition by which pods with volume claims reach the webhook, in both configurations.
const HAS_VOLUME_CLAIMS: &str = " ||\n      \
    request.operation == 'CREATE' && object.spec.?volumes.orValue([]).exists(v, has(v.persistentVolumeClaim))";
/// Permission to look up these claims and their volumes.
const VOLUME_RULE: &str =
    "- {apiGroups: [\"\"], resources: [persistentvolumeclaims, persistentvolumes], verbs: [get]}\n";

impl Arguments {
    /// Prints the manifests.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        for (flag, name) in [("--namespace", &self.namespace), ("--scheduler-name", &self.scheduler_name)] {
            if let Some(complaint) = names::dns1123_label(name).first() {
                bail!("{flag}: \"{name}\": {complaint}");
            }
        }
        if self.image.is_empty() || self.image.contains(|it: char| it.is_whitespace() || "\"'{}[],#&*!|>%`".contains(it)) {
            bail!("--image: \"{}\" is not the name of an image", self.image);
        }
        print_text!("{}", self.manifests())?;
        Ok(ExitCode::SUCCESS)
    }

    fn manifests(&self) -> String {
        let assign = if self.assign_scheduler { ", --assign-scheduler" } else { "" };
        let (volumes, condition, rule) =
            if self.volumes { (", --volumes", HAS_VOLUME_CLAIMS, VOLUME_RULE) } else { ("", "", "") };
        MANIFESTS
            .replace("SCHEDULERASSIGN", &format!("{}{assign}{volumes}", self.scheduler_name))
            .replace("HASVOLUMECLAIMS", condition)
            .replace("# VOLUMERULE\n", rule)
            .replace("SCHEDULER", &self.scheduler_name)
            .replace("NAMESPACE", &self.namespace)
            .replace("IMAGE", &self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_valid_and_complete() {
        let arguments = Arguments {
            image: "registry.example/celplane:1".to_owned(),
            namespace: "placement".to_owned(),
            scheduler_name: "celplane".to_owned(),
            assign_scheduler: true,
            volumes: true,
        };
        let text = arguments.manifests();
        assert!(text.contains("--scheduler-names, celplane, --assign-scheduler, --volumes]"));
        assert_eq!(text.matches("has(v.persistentVolumeClaim)").count(), 2);
        let plain = Arguments { assign_scheduler: false, volumes: false, ..arguments }.manifests();
        assert!(plain.contains("--scheduler-names, celplane]") && !plain.contains("persistentVolumeClaim)"));
        let (documents, error) = api::yaml::parse_documents(&text);
        assert!(error.is_none(), "{error:?}");
        let kinds: Vec<&str> = documents.iter().filter_map(|it| it.value.str_at(&["kind"])).collect();
        for kind in ["Service", "Secret", "ValidatingAdmissionPolicy", "MutatingWebhookConfiguration"] {
            assert!(kinds.contains(&kind), "{kind}");
        }
        for word in ["NAMESPACE", "IMAGE", "SCHEDULER", "VOLUME"] {
            assert!(!text.contains(word) && !plain.contains(word), "{word}");
        }
    }
}
