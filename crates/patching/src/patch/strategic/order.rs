//! Order of the items of merged lists.
//!
//! Items of the patch keep the patch's order, the others the server's; if two are compared, the server's order
//! counts if it contains both, else the patch's item comes first.

use api::json::{Object, Value};

use super::places::Places;
use super::{DIRECTIVE, ELEMENT_ORDER, Meta, Schema, failed, merge_lists, no_merge_key, without_directives};
use crate::patch::{Error, Result};

/// Merges the lists whose order the patch sets.
pub(super) fn merge_ordered_lists(original: &mut Object, patch: &mut Object, schema: Option<Schema>) -> Result<()> {
    let directives: Vec<String> =
        patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).map(ToOwned::to_owned).collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else {
            return Err(bad_type(&order));
        };
        let Some((ELEMENT_ORDER, key)) = directive.split_once('/') else {
            return Err(Error::malformed("invalid patch format of setElementOrder list"));
        };
        let meta = Meta::of(schema, key);
        let in_original = list(original.get(key))?;
        let in_patch = list(patch.get(key))?;
        check_order(in_patch.as_deref().unwrap_or_default(), &order, meta.merge_key)?;
        let server_order = in_original.clone().unwrap_or_default();
        let merged = match (in_original, in_patch) {
            (Some(original), None) => original,
            (None, Some(patch)) => match without_directives(Value::Array(patch)) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(original), Some(patch)) => merge_lists(original, patch, meta, false)?,
            (None, None) => continue,
        };
        let (in_order, server_only) = partition(merged, &order, meta.merge_key)?;
        let both = normalize(in_order, server_only, &order, &server_order, meta.merge_key)?;
        original.insert(key, both);
        patch.remove(key);
    }
    Ok(())
}

fn bad_type(value: &Value) -> Error {
    let found = match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::Object(_) => "map[string]interface {}",
        Value::Null | Value::Array(_) => "<nil>",
    };
    failed(format!("expected a []interface {{}}, but received a {found}"))
}

fn list(value: Option<&Value>) -> Result<Option<Vec<Value>>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(bad_type(other)),
    }
}

/// The items of the patch must be in the order that it sets.
fn check_order(patch: &[Value], order: &[Value], merge_key: &str) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let kept: Vec<&Value> = patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).collect();
    let mut next = kept.iter().peekable();
    for place in order {
        let Some(item) = next.peek() else { break };
        if same(item, place, merge_key)? {
            next.next();
        }
    }
    if next.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (Value::Array(patch.to_vec()), Value::Array(order.to_vec()));
    Err(failed(format!(
        "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
        api::go_text::plain(&patch),
        api::go_text::plain(&order)
    )))
}

fn same(left: &Value, right: &Value, merge_key: &str) -> Result<bool> {
    if merge_key.is_empty() {
        return Ok(left == right);
    }
    let key = |item: &Value| item.get(merge_key).cloned().ok_or_else(|| no_merge_key(item, merge_key));
    Ok(key(left)? == key(right)?)
}

/// Splits a list into the items that `by` names and the others.
pub(super) fn partition(list: Vec<Value>, by: &[Value], merge_key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    if !merge_key.is_empty()
        && let Some(item) = list.iter().find(|item| item.get(merge_key).is_none())
    {
        return Err(no_merge_key(item, merge_key));
    }
    let by = Places::of(by, merge_key);
    Ok(list.into_iter().partition(|item| by.get(item).is_some()))
}

/// Merges both parts of a list, in order.
pub(super) fn normalize(
    patch: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
) -> Result<Vec<Value>> {
    if !merge_key.is_empty() {
        for item in patch_order.iter().chain(server_order) {
            if item.get(merge_key).is_none() {
                return Err(no_merge_key(item, merge_key));
            }
        }
    }
    let sort = |mut items: Vec<Value>, order: &Places<'_>| {
        items.sort_by_cached_key(|item| order.get(item).unwrap_or(usize::MAX));
        items
    };
    let (patch_order, server_order) = (Places::of(patch_order, merge_key), Places::of(server_order, merge_key));
    let mut left = sort(server_only, &server_order).into_iter().peekable();
    let mut right = sort(patch, &patch_order).into_iter().peekable();
    let mut all = Vec::with_capacity(left.len().saturating_add(right.len()));
    loop {
        let server_first = match (left.peek(), right.peek()) {
            (None, None) => return Ok(all),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                let places = (server_order.get(left), server_order.get(right));
                matches!(places, (Some(left), Some(right)) if left < right)
            }
        };
        all.extend(if server_first { left.next() } else { right.next() });
    }
}
