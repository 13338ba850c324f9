//! Node selectors that must both match.

use api::field::{Errors, Path};
use api::json::Value;

/// Maximum number of terms of a merged selector.
const TERMS_MAX: usize = 256;

const LISTS: [&str; 3] = ["matchExpressions", "matchFields", "matchCELExpressions"];

/// Sets `object.field`, which may be a selector already, to one that matches where both match.
///
/// A selector matches if one of its terms does, so the merged one has a term for each pair. A term without requirements
/// matches nothing, and is no term of a pair.
pub(super) fn both(object: &mut Value, field: &str, added: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(own) = object.optional(field) else {
        object.set(field, added.clone());
        return;
    };
    let is_set = |term: &&Value| LISTS.iter().any(|list| !term.list(list).is_empty());
    let own_terms: Vec<&Value> = own.list("nodeSelectorTerms").iter().filter(is_set).collect();
    let added_terms: Vec<&Value> = added.list("nodeSelectorTerms").iter().filter(is_set).collect();
    let count = own_terms.len().saturating_mul(added_terms.len());
    if count > TERMS_MAX {
        let detail =
            format!("with the terms of the field, {count} node selector terms exceed the limit of {TERMS_MAX}");
        errors.forbidden(at.child("nodeSelectorTerms"), detail);
        return;
    }
    let mut terms = Vec::with_capacity(count.max(1));
    for one in &own_terms {
        for other in &added_terms {
            let mut term = Value::object();
            for list in LISTS {
                let requirements: Vec<Value> = one.list(list).iter().chain(other.list(list)).cloned().collect();
                if !requirements.is_empty() {
                    term.set(list, requirements);
                }
            }
            terms.push(term);
        }
    }
    if terms.is_empty() {
        // One of them matches nothing, so the merged one does not either.
        terms.push(Value::object());
    }
    object.make(field).set("nodeSelectorTerms", terms);
}
