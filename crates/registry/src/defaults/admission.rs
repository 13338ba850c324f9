//! Defaults of webhooks and policies of admission.

use api::json::Value;

pub(super) fn apply(name: &str, object: &mut Value) {
    match name {
        "ValidatingWebhook" | "MutatingWebhook" => {
            object.set_missing("failurePolicy", "Fail");
            match_everything(object);
            object.set_missing("timeoutSeconds", 10_i64);
            if name == "MutatingWebhook" {
                object.set_missing("reinvocationPolicy", "Never");
            }
        }
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => object.set_missing("failurePolicy", "Fail"),
        "MatchResources" => match_everything(object),
        // Both contain a rule.
        "RuleWithOperations" | "NamedRuleWithOperations" => object.set_missing("scope", "*"),
        "ServiceReference" => object.set_missing("port", 443_i64),
        _ => {}
    }
}

fn match_everything(object: &mut Value) {
    object.set_missing("matchPolicy", "Equivalent");
    object.set_missing("namespaceSelector", Value::object());
    object.set_missing("objectSelector", Value::object());
}
