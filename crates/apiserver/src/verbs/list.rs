//! Listing a collection: from the cache, or page by page from the store at one revision.

pub(super) mod chunks;
mod messages;
mod writer;

use std::sync::Arc;

use api::field::{Errors, Path};
use api::json::Object;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use store::{ListOptions, Revision};

use self::chunks::{Chunks, Pages};
pub(super) use self::writer::Filter;
use self::writer::Writer;
use super::{Call, Selection};
use crate::verbs::tables;
use crate::wire::answer::Answer;
use crate::wire::negotiation::{self, Form};
use crate::wire::status::{Failure, Result};
use cache::stored::ServedObject;
use cache::{Entry, FoundObjects, Snapshot, View};
use registry::conversion;

/// A list of more objects is long: it is made while it is sent.
const LONG: usize = 500;
/// The same where the objects are not sent as they are stored.
const LONG_OTHERWISE: usize = 50;
/// A list of more bytes is long, whatever the number of its objects.
const LARGE_BYTES: usize = 256 << 10;

/// Number of objects in the first read from the store. The next one is twice as large if few objects were selected.
const PAGE_MIN: usize = 500;
/// Maximum number of objects in one read from the store.
const PAGE_MAX: usize = 2_000;
/// A page of a list ends early when it has this many bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// A list that can neither be made while it is sent nor be continued is refused when it has more bytes.
const WHOLE_BYTES_MAX: usize = 32 << 20;

pub(super) async fn list(call: &Call<'_>) -> Result<Answer> {
    let selection = Selection::from_query(call.query, call.resource)?;
    let limit = call.query.number("limit")?.filter(|limit| *limit > 0);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    check_options(call, "ListOptions")?;
    let token = call.query.get("continue");
    let version = call.query.get("resourceVersion");
    let exact = call.query.get("resourceVersionMatch") == "Exact";
    let parsed: Option<Revision> = match version {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
            let why = format!("resourceVersion: Invalid value: \"{text}\": {why}");
            Failure::bad_request(format!("invalid resource version: {why}"))
        })?),
    };
    if !token.is_empty() {
        if parsed.is_some() && version != "0" {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (revision, start) = decode_token(token)?;
        return page(call, selection, limit, revision, Some(start)).await;
    }
    match parsed {
        Some(revision) if exact => return page(call, selection, limit, Some(revision), None).await,
        Some(0) => {}
        Some(revision) => call.wait_for(revision).await?,
        None => {
            call.wait_for_now().await?;
        }
    }
    // Kubernetes: a list at "any" version comes from the cache as a whole.
    let limit = limit.filter(|_| parsed != Some(0));
    if !call.cache().keeps_objects() {
        return page(call, selection, limit, None, None).await;
    }
    let found = call.find(&selection).await?;
    // Kubernetes: the cache of a version lacks what cannot be converted, and a list at "any" version shows what is there.
    let found = call.all_converted(found, parsed == Some(0)).await?;
    let is_all = limit.is_none_or(|limit| limit >= found.objects.len());
    if is_all && can_be_long(call) && (found.objects.len() > long_min(call) || is_large(&found.objects)) {
        check_form(call)?;
        let mut metadata = Object::new();
        metadata.insert("resourceVersion", found.revision.to_string());
        let filter = Arc::new(Filter::new(call.range(), selection));
        return Ok(long(call, metadata, Chunks::View(found.objects.clone()), filter, found.objects.len()));
    }
    let filter = Arc::new(Filter::new(call.range(), selection));
    let snapshot = select(call, found, limit, &filter).await?;
    show(call, snapshot, filter.selection())
}

/// Whether objects have too many bytes to be gathered before they are sent.
fn is_large(objects: &View) -> bool {
    let (mut objects, mut bytes) = (objects.clone(), 0_usize);
    while bytes <= LARGE_BYTES {
        let Some((_, object)) = objects.next_entry() else { return false };
        bytes = bytes.saturating_add(object.json.len());
    }
    true
}

/// Number of objects that are examined on the calling thread; more are examined on the threads for long work,
/// that many at a time.
const SELECT_CHUNK: usize = 256;

/// Returns the selected objects of a snapshot.
pub(super) async fn select(
    call: &Call<'_>,
    mut found: FoundObjects,
    limit: Option<usize>,
    filter: &Arc<Filter>,
) -> Result<Snapshot> {
    let mut selected = Snapshot { revision: found.revision, objects: Vec::new(), remaining: 0 };
    // To take all of them is less work than to look at them.
    let short = if filter.selection().is_everything() { LONG } else { SELECT_CHUNK };
    let is_first = filter.selection().is_everything() && limit.is_some_and(|limit| limit <= LONG);
    let is_short = found.objects.len() <= short || is_first;
    while !found.objects.is_empty() {
        let mut chunk = Vec::with_capacity(found.objects.len().min(SELECT_CHUNK));
        while chunk.len() < SELECT_CHUNK
            && let Some(entry) = found.objects.next_entry()
        {
            chunk.push(entry);
        }
        let (filter, wanted) = (filter.clone(), missing(limit, &selected));
        let look = move || choose(chunk.into_iter(), wanted, &filter);
        let chosen = if is_short { look() } else { call.run_apart(look).await? };
        selected.objects.extend(chosen.objects);
        if missing(limit, &selected) == 0 {
            selected.remaining = chosen.left.saturating_add(found.objects.len());
            break;
        }
    }
    Ok(selected)
}

/// Number of objects still wanted.
fn missing(limit: Option<usize>, selected: &Snapshot) -> usize {
    limit.map_or(usize::MAX, |limit| limit.saturating_sub(selected.objects.len()))
}

/// Selected objects.
struct SelectedObjects {
    objects: Vec<Entry>,
    /// Number of objects that were not examined any more.
    left: usize,
}

/// Selects no more objects than wanted. Kubernetes: the check for further objects precedes the selection.
fn choose(entries: impl Iterator<Item = Entry>, wanted: usize, filter: &Filter) -> SelectedObjects {
    let mut chosen = SelectedObjects { objects: Vec::new(), left: 0 };
    for (key, object) in entries {
        if chosen.objects.len() >= wanted {
            chosen.left = chosen.left.saturating_add(1);
        } else if filter.selects(&key, &object) {
            chosen.objects.push((key, object));
        }
    }
    chosen
}

/// Validates combinations of list and watch options.
pub(super) fn check_options(call: &Call<'_>, kind: &str) -> Result<()> {
    let mut errors = Errors::new();
    let version = call.query.get("resourceVersion");
    let matching = call.query.get("resourceVersionMatch");
    let at = Path::new("resourceVersionMatch");
    let watching = call.query.flag("watch") || call.target.verb == Some(crate::wire::request::Verb::Watch);
    let initial = call.query.has("sendInitialEvents");
    if initial && !watching {
        errors.forbidden(Path::new("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    } else if watching {
        if initial && matching != "NotOlderThan" {
            errors.forbidden(at, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        } else if !initial && !matching.is_empty() {
            errors.forbidden(at, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        if !matches!(matching, "" | "NotOlderThan") {
            errors.not_supported(at, matching, &["NotOlderThan"]);
        }
        if !matching.is_empty() && !call.query.get("continue").is_empty() {
            errors.forbidden(at, "resourceVersionMatch is forbidden when continue is provided");
        }
    } else if !matching.is_empty() {
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.not_supported(at, matching, &["Exact", "NotOlderThan", ""]);
        } else if version.is_empty() {
            errors.forbidden(at, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        } else if !call.query.get("continue").is_empty() {
            errors.forbidden(at, "resourceVersionMatch is forbidden when continue is provided");
        } else if matching == "Exact" && version == "0" {
            errors.forbidden(at, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", kind, "", &errors)) }
}

/// One page at one revision, from the store.
async fn page(
    call: &Call<'_>,
    selection: Selection,
    limit: Option<usize>,
    revision: Option<Revision>,
    start: Option<String>,
) -> Result<Answer> {
    let (range, filter) = (call.range(), Arc::new(Filter::new(call.range(), selection)));
    let mut after_key = start.map(|start| format!("{}{start}", call.resource.prefix()));
    let mut snapshot = Snapshot { revision: 0, objects: Vec::new(), remaining: 0 };
    let (mut revision, mut size, mut bytes) = (revision, limit.unwrap_or(PAGE_MIN).min(PAGE_MIN), 0_usize);
    loop {
        let bytes_max = Some(PAGE_BYTES_MAX.saturating_sub(bytes));
        let options = ListOptions { revision, limit: Some(size), after_key: after_key.clone(), bytes_max };
        let page = match call.server.store.list(&range, options).await {
            Ok(page) => page,
            Err(store::Error::Compacted { .. }) if after_key.is_some() => {
                return Err(expired_token(call, after_key.as_deref().unwrap_or_default()));
            }
            Err(error) => return Err(error.into()),
        };
        revision = Some(page.revision);
        snapshot.revision = page.revision;
        after_key = page.entries.last().map(|entry| entry.key.to_string());
        let remaining = usize::try_from(page.remaining).unwrap_or(usize::MAX);
        let is_short = page.entries.len() <= SELECT_CHUNK || filter.selection().is_everything();
        let entries = page.entries;
        let (filtering, wanted) = (filter.clone(), missing(limit, &snapshot));
        let served =
            |entry: store::Entry| Some((entry.key, Arc::new(ServedObject::new(&entry.value, entry.revision)?)));
        let chosen = if call.webhook().is_some() {
            let entries = call.entries_converted(entries.into_iter().filter_map(served).collect(), false).await?;
            choose(entries.into_iter(), wanted, &filtering)
        } else {
            let look = move || choose(entries.into_iter().filter_map(served), wanted, &filtering);
            if is_short { look() } else { call.run_apart(look).await? }
        };
        bytes = chosen.objects.iter().map(|(_, object)| object.json.len()).fold(bytes, usize::saturating_add);
        snapshot.objects.extend(chosen.objects);
        snapshot.remaining = remaining.saturating_add(chosen.left);
        let is_full = limit.is_some_and(|limit| snapshot.objects.len() >= limit || bytes >= PAGE_BYTES_MAX);
        if snapshot.remaining == 0 || is_full {
            return show(call, snapshot, filter.selection());
        }
        // What the rest of the list would show is not converted yet.
        if limit.is_none() && can_be_long(call) && call.webhook().is_none() {
            return rest(call, snapshot, after_key, filter);
        }
        if limit.is_none() && bytes > WHOLE_BYTES_MAX {
            let message = "the list is too large to be answered as a whole; ask for a part of it with `limit`";
            return Err(Failure::new(413, "RequestEntityTooLarge", message));
        }
        size = size.saturating_mul(2).min(PAGE_MAX);
        tokio::task::yield_now().await;
    }
}

/// The answer that shows what was read of the store, and then all that follows after a key.
fn rest(call: &Call<'_>, snapshot: Snapshot, after_key: Option<String>, filter: Arc<Filter>) -> Result<Answer> {
    check_form(call)?;
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", snapshot.revision.to_string());
    let count = snapshot.objects.len().saturating_add(snapshot.remaining);
    let pages = Pages::new(call.server.store.clone(), call.range(), snapshot.revision);
    let pages = pages.after(snapshot.objects, after_key);
    Ok(long(call, metadata, Chunks::Pages(pages), filter, count))
}

fn expired_token(call: &Call<'_>, after_key: &str) -> Box<Failure> {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let mut failure = Failure::expired(message);
    failure.continue_token = Some(encode_token(call, -1, after_key));
    failure
}

/// A continue token: where the next page starts, and at which revision.
fn encode_token(call: &Call<'_>, revision: i64, last_key: &str) -> String {
    let prefix = call.resource.prefix();
    let start = last_key.strip_prefix(prefix.as_str()).unwrap_or(last_key);
    let start = format!("{start}\u{0}");
    let token = api::json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
    URL_SAFE_NO_PAD.encode(api::json::to_string(&token))
}

/// Like Go's decoder, which ignores trailing bits.
const FORGIVING: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

fn decode_token(token: &str) -> Result<(Option<Revision>, String)> {
    let invalid = |why: &str| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let text = FORGIVING.decode(token.trim_end_matches('=')).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => token.len(),
        };
        invalid(&format!("illegal base64 data at input byte {at}"))
    })?;
    let value = api::json::parse(&text).map_err(|error| invalid(&error.message))?;
    if value.str_at(&["v"]) != Some("meta.k8s.io/v1") {
        let version = value.text("v");
        return Err(invalid(&format!("server does not recognize this encoded version \"{version}\"")));
    }
    let start = value.text("start");
    let revision = value.int("rv");
    if revision == 0 || start.is_empty() {
        return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    Ok((Revision::try_from(revision).ok(), start.trim_end_matches('\u{0}').to_owned()))
}

fn list_metadata(call: &Call<'_>, snapshot: &Snapshot, selection: &Selection) -> Object {
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", snapshot.revision.to_string());
    if let (Some((last, _)), true) = (snapshot.objects.last(), snapshot.remaining > 0) {
        let revision = i64::try_from(snapshot.revision).unwrap_or(i64::MAX);
        metadata.insert("continue", encode_token(call, revision, last));
        if selection.is_everything() {
            metadata.insert("remainingItemCount", i64::try_from(snapshot.remaining).unwrap_or(i64::MAX));
        }
    }
    metadata
}

/// Whether the answer can be made in parts. The cells of custom tables are expressions over the whole request's budget, and
/// some tables are sorted.
fn can_be_long(call: &Call<'_>) -> bool {
    call.accepted.form != Form::Table || call.custom().is_none() && !tables::is_sorted(call.resource)
}

/// Number of objects above which a list is long.
fn long_min(call: &Call<'_>) -> usize {
    let is_as_stored = match call.accepted.form {
        Form::Table => false,
        Form::Metadata | Form::MetadataList => true,
        Form::Object | Form::GroupDiscovery => {
            let is_stored = call.custom().is_some() || conversion::is_stored(call.resource, &call.target.version);
            !call.accepted.yaml && !wants_messages(call) && is_stored
        }
    };
    if is_as_stored { LONG } else { LONG_OTHERWISE }
}

/// Whether the objects are to be messages of protobuf.
fn wants_messages(call: &Call<'_>) -> bool {
    call.accepted.form == Form::Object && !call.accepted.yaml && negotiation::wants_protobuf(call.headers, 200)
}

/// The answer that shows about `count` objects, made while it is sent.
fn long(call: &Call<'_>, metadata: Object, chunks: Chunks, filter: Arc<Filter>, count: usize) -> Answer {
    let (all, bytes) = call.cache().size();
    let bytes = usize::try_from(bytes.checked_div(all).unwrap_or_default()).unwrap_or(usize::MAX);
    let bytes = bytes.saturating_mul(count);
    let messages = wants_messages(call).then(|| messages::long(call, &metadata, &chunks, &filter, bytes)).flatten();
    if let Some(messages) = messages {
        return Answer::bytes(200, negotiation::PROTOBUF, messages);
    }
    Answer::bytes(200, content_type(call), Writer::of(call, metadata).long(chunks, filter, bytes))
}

fn content_type(call: &Call<'_>) -> &'static str {
    let is_yaml = call.accepted.yaml && matches!(call.accepted.form, Form::Object | Form::GroupDiscovery);
    if is_yaml { "application/yaml" } else { "application/json" }
}

/// A list is not one object.
fn check_form(call: &Call<'_>) -> Result<()> {
    if call.accepted.form != Form::Metadata {
        return Ok(());
    }
    let kind = call.resource.kind;
    let group = if call.resource.group.is_empty() { "core" } else { call.resource.group };
    let package = group.split('.').next().unwrap_or(group);
    let message =
        format!("you requested PartialObjectMetadata, but the requested object is a list (*{package}.{kind}List)");
    Err(Failure::new(406, "NotAcceptable", message))
}

/// Returns a snapshot in the requested form.
pub(super) fn show(call: &Call<'_>, mut snapshot: Snapshot, selection: &Selection) -> Result<Answer> {
    let metadata = list_metadata(call, &snapshot, selection);
    if call.accepted.form == Form::Table && call.custom().is_some() {
        let objects = snapshot.objects.iter().map(|(_, object)| call.decode(object));
        return tables::of_list(call, 200, objects, metadata);
    }
    check_form(call)?;
    if call.accepted.form == Form::Table {
        tables::sort(call.resource, &mut snapshot.objects);
    }
    if snapshot.objects.len() > long_min(call) {
        let count = snapshot.objects.len();
        return Ok(long(call, metadata, Chunks::View(View::of(snapshot.objects)), Arc::new(Filter::none()), count));
    }
    let body = Writer::of(call, metadata).whole(snapshot.objects.iter().map(|(_, object)| &**object));
    Ok(Answer::bytes(200, content_type(call), body))
}
