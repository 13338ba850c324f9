//! Operations on resources: one file per verb, over the store and the watch cache.

mod apply;
mod converted;
mod create;
mod delete;
mod list;
mod modify;
mod ownership;
mod patch;
mod read;
mod reviews;
mod rules;
mod services;
pub(crate) mod subresources;
pub(crate) mod tables;
mod update;
pub(crate) mod watch;

use std::sync::Arc;

use api::json::Value;
use api::labels;
use bytes::Bytes;
use http::HeaderMap;
use store::Revision;

use crate::admission::{Attributes, Kind, Operation};
use crate::custom::rows::Row;
use crate::custom::serving::ServedVersion;
use crate::identity::User;
use crate::objects::conversion::convert;
use crate::resources::{self, Resource};
use crate::state::Server;
use crate::wire::answer::Answer;
use crate::wire::negotiation::{AcceptedEncoding, Form};
use crate::wire::payload::{self, DecodedBody, Payload};
use crate::wire::request::{Query, Target, Verb};
use crate::wire::status::{Failure, Result, too_large_version};
use cache::field_selectors;
use cache::stored::ServedObject;
use cache::{FoundObjects, IndexKey, Interest, ResourceCache, View};
use registry::conversion;

/// A longer name of a field manager is refused.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// To read, check and change what is longer than this takes a while.
pub(crate) const HEAVY: usize = 256 << 10;

/// A request for a resource that exists.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) target: &'a Target,
    /// Owner of the resource, for work that continues after the response.
    pub(crate) row: &'a Row,
    pub(crate) resource: &'a Resource<'a>,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a User,
    pub(crate) body: Bytes,
    pub(crate) accepted: AcceptedEncoding,
    /// The connection, for requests that change its protocol.
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
    /// The head of the request; none for a call that is part of another request.
    pub(crate) parts: Option<&'a http::request::Parts>,
}

impl<'a> Call<'a> {
    /// A call about another object, as a part of this request.
    pub(crate) fn about<'b>(&self, row: &'b Row, resource: &'b Resource<'b>, target: &'b Target) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            row,
            resource,
            target,
            server: self.server,
            query: self.query,
            headers: self.headers,
            user: self.user,
            body: self.body.clone(),
            accepted: self.accepted.clone(),
            upgrade: None,
            parts: None,
        }
    }
}

impl Call<'_> {
    /// Definition of a custom resource.
    pub(crate) fn custom(&self) -> Option<&Arc<ServedVersion>> {
        self.row.custom()
    }

    /// Whether it takes a while: long bodies and objects, and expressions, of which a short body holds many.
    pub(crate) fn is_heavy(&self, verb: Verb, writes: bool) -> bool {
        if !writes {
            return verb == Verb::List && self.custom().is_some() && self.accepted.form == Form::Table;
        }
        let has_expressions =
            crate::custom::is_definition(self.resource) || self.resource.group == "admissionregistration.k8s.io";
        let is_long = || self.cache().get(&self.key()).is_some_and(|object| object.json.len() > HEAVY);
        has_expressions || self.body.len() > HEAVY || !self.target.name.is_empty() && is_long()
    }

    /// Runs the request.
    pub(crate) async fn run(self, verb: Verb) -> Result<Answer> {
        let writes = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
        if writes && matches!(self.resource.group, "rbac.authorization.k8s.io" | "certificates.k8s.io") {
            // What may be granted or signed depends on what was granted a moment ago.
            self.server.catch_up().await;
        }
        let part = self.target.subresource.as_str();
        if part.is_empty() || self.resource.subresource(part).is_some() {
            self.check_name()?;
        }
        if !part.is_empty() {
            return subresources::run(&self, verb).await;
        }
        if self.custom().is_some() {
            self.check_media_type(verb)?;
        } else if self.resource.verbs == ["create"] && !self.target.name.is_empty() {
            // Reviews and bindings are not kept: no path names one.
            return Err(Failure::no_resource());
        } else if !self.resource.verbs.contains(&verb.name()) {
            return Err(Failure::method_not_allowed());
        }
        if self.resource.plural == "bindings" {
            return subresources::bind(&self).await;
        }
        if reviews::is_review(self.resource.group) {
            return reviews::review(&self).await;
        }
        match verb {
            Verb::Get => read::get(&self).await,
            Verb::List => list::list(&self).await,
            Verb::Watch => watch::watch(&self).await,
            Verb::Create => create::create(&self).await,
            Verb::Update => update::update(&self, "").await,
            Verb::Patch => patch::patch(&self, "").await,
            Verb::Delete => delete::delete(&self).await,
            Verb::DeleteCollection => delete::delete_collection(&self).await,
        }
    }

    /// Refuses names that no object can have.
    fn check_name(&self) -> Result<()> {
        if self.target.name.is_empty() { Ok(()) } else { Failure::check_name_parameter(&self.target.name) }
    }

    /// Custom resources have no protobuf form.
    fn check_media_type(&self, verb: Verb) -> Result<()> {
        let content_type = self.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_protobuf = content_type.is_some_and(|it| it.starts_with("application/vnd.kubernetes.protobuf"));
        if is_protobuf && matches!(verb, Verb::Create | Verb::Update) {
            return Err(Failure::unsupported_media_type(&["application/json", "application/yaml"]));
        }
        Ok(())
    }

    /// The request as admission sees it: about a subresource, with options of that kind.
    fn attributes<'a>(
        &'a self,
        operation: Operation,
        subresource: &'a str,
        dry_run: bool,
        options: &'a (dyn Fn() -> Value + Sync),
    ) -> Attributes<'a> {
        let (resource, version) = (self.resource, self.target.version.as_str());
        let own = Kind { group: resource.group, version, kind: resource.kind };
        let part = resource.subresource(subresource).map(|part| part.kind).filter(|(_, _, kind)| !kind.is_empty());
        // Kinds of the core group have the version of the request.
        let version_of = |given: &'static str| if given.is_empty() { version } else { given };
        let kind = part.map_or(own, |(group, version, kind)| Kind { group, version: version_of(version), kind });
        let is_namespace = resource.is(resources::NAMESPACES);
        Attributes {
            operation,
            resource,
            version,
            subresource,
            kind,
            name: &self.target.name,
            path_name: &self.target.name,
            // Kubernetes: a namespace lies in itself.
            namespace: if is_namespace { &self.target.name } else { &self.target.namespace },
            object: None,
            old: None,
            user: self.user,
            dry_run,
            options,
        }
    }

    /// The options of the request in the form that admission sees, for example `CreateOptions`.
    fn options(&self, kind: &str) -> Value {
        let mut options = api::json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if let Some(fields) = options.as_object_mut() {
            let dry: Vec<Value> = self.query.all("dryRun").map(Into::into).collect();
            if !dry.is_empty() {
                fields.insert("dryRun", dry);
            }
            for field in ["fieldManager", "fieldValidation"] {
                if self.query.has(field) {
                    fields.insert(field, self.query.get(field));
                }
            }
        }
        options
    }

    fn cache(&self) -> Arc<ResourceCache> {
        self.server.cache.resource(&self.resource.prefix())
    }

    /// The object that the request is about, from the cache, or from the store where the cache does not hold any.
    async fn find_one(&self) -> Result<Option<Arc<ServedObject>>> {
        let (cache, key) = (self.cache(), self.key());
        if cache.keeps_objects() {
            return Ok(cache.get(&key));
        }
        let entry = self.server.store.get(&key, 0).await?.entry;
        Ok(entry.and_then(|entry| ServedObject::new(&entry.value, entry.revision)).map(Arc::new))
    }

    /// The objects in which everything lies that is selected, from the cache or from the store.
    async fn find(&self, selection: &Selection) -> Result<FoundObjects> {
        let cache = self.cache();
        if cache.keeps_objects() {
            let interest = self.prepared_interest(selection).await?;
            return Ok(cache.find(&interest, self.server.cache.revision()));
        }
        let page = self.server.store.list(&self.range(), store::ListOptions::default()).await?;
        let served =
            |entry: store::Entry| Some((entry.key, Arc::new(ServedObject::new(&entry.value, entry.revision)?)));
        let objects = page.entries.into_iter().filter_map(served).collect();
        Ok(FoundObjects { revision: page.revision, objects: View::of(objects) })
    }

    fn key(&self) -> String {
        self.resource.key(&self.target.namespace, &self.target.name)
    }

    /// The start of the keys of everything that the request is about.
    fn range(&self) -> String {
        let prefix = self.resource.prefix();
        if self.resource.namespaced && !self.target.namespace.is_empty() {
            format!("{prefix}{}/", self.target.namespace)
        } else {
            prefix
        }
    }

    /// The part of the resource in which everything lies that is selected.
    fn interest(&self, selection: &Selection) -> Interest {
        let range = self.range();
        if let Some(name) = selection.fields.required("metadata.name")
            && (!self.resource.namespaced || !self.target.namespace.is_empty())
        {
            return Interest::Key(format!("{range}{name}"));
        }
        let range = if range == self.resource.prefix() { String::new() } else { range };
        match self.value(selection) {
            Some((by, value)) => Interest::Value { range, by, value: value.to_owned() },
            None if range.is_empty() => Interest::Everything,
            None => Interest::Range(range),
        }
    }

    /// The same, once the index is there that finds it.
    async fn prepared_interest(&self, selection: &Selection) -> Result<Interest> {
        let (cache, interest) = (self.cache(), self.interest(selection));
        if cache.wants_index(&interest) {
            let wanted = interest.clone();
            self.run_apart(move || cache.make_index(&wanted)).await?;
        }
        Ok(interest)
    }

    /// Runs long work on the threads for blocking work, so that it does not delay other requests.
    async fn run_apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let failed = || Failure::internal("the request could not be handled");
        self.server.threads().run(work).await.ok_or_else(failed)
    }

    /// The label or field whose index finds the selected objects, with its required value. The most selective one comes
    /// first.
    fn value<'s>(&self, selection: &'s Selection) -> Option<(IndexKey, &'s str)> {
        if self.webhook().is_some() {
            // Labels and fields are those of the converted object, which no index knows.
            return None;
        }
        let by_label = || selection.labels.required().map(|(label, value)| (IndexKey::Label(label.into()), value));
        match self.resource.custom {
            Some(custom) => by_label().or_else(|| {
                let mut all = custom.fields.iter();
                all.find_map(|field| {
                    Some((IndexKey::CustomField(field.as_str().into()), selection.fields.required(field)?))
                })
            }),
            None => {
                let by_field = |field: &str| Some((IndexKey::Field(field.into()), selection.fields.required(field)?));
                let by_node = self.resource.offers("spec.nodeName").then(|| by_field("spec.nodeName")).flatten();
                let by_field = || self.resource.fields.iter().find_map(|field| by_field(field));
                by_node.or_else(by_label).or_else(by_field)
            }
        }
    }

    /// Waits until the cache contains all earlier writes.
    async fn wait_for_now(&self) -> Result<Revision> {
        let current = self.server.store.current_revision().await?;
        let reached = self.server.cache.reach(current).await;
        reached.map_err(|reached| too_large_version(current, reached))?;
        Ok(current)
    }

    /// Waits until the cache contains a version that the client has seen.
    async fn wait_for(&self, revision: Revision) -> Result<()> {
        let reached = self.server.cache.reach(revision).await;
        reached.map_err(|reached| too_large_version(revision, reached))
    }

    /// Whether the request is a dry run.
    fn is_dry_run(&self) -> Result<bool> {
        let mut errors = api::field::Errors::new();
        let (manager, at) = (self.query.get("fieldManager"), api::field::Path::new("fieldManager"));
        if manager.len() > FIELD_MANAGER_BYTES_MAX {
            errors.too_long(at, FIELD_MANAGER_BYTES_MAX);
        }
        for (index, letter) in manager.char_indices().filter(|(_, letter)| !api::go_text::is_printable(*letter)) {
            let detail = format!("invalid character U+{:04X} (at position {index})", u32::from(letter));
            errors.invalid(at, manager, detail);
        }
        // What is not a dry run would be a write: it must be clear.
        let values: Vec<&str> = self.query.all("dryRun").collect();
        if values.iter().any(|value| *value != "All") {
            let shown = Value::Array(values.iter().map(|value| (*value).into()).collect());
            errors.not_supported(api::field::Path::new("dryRun"), shown, &["All"]);
        }
        if errors.is_empty() {
            return Ok(!values.is_empty());
        }
        Err(Failure::invalid("meta.k8s.io", self.options_kind(), "", &errors))
    }

    fn options_kind(&self) -> &'static str {
        match self.target.verb {
            Some(Verb::Create) => "CreateOptions",
            Some(Verb::Patch) => "PatchOptions",
            Some(Verb::Delete | Verb::DeleteCollection) => "DeleteOptions",
            _ => "UpdateOptions",
        }
    }

    /// A stored object as the verbs see it: in the stored version, or in the client's if users defined the resource.
    fn decode(&self, object: &ServedObject) -> Value {
        match self.custom() {
            Some(custom) => custom.decode(object),
            None => object.decode(),
        }
    }

    /// Brings a document into the normal form of the resource.
    fn read(&self, payload: Payload) -> Result<DecodedBody> {
        let version = &self.target.version;
        let Some(custom) = self.custom() else { return payload::decode(self.resource, version, payload) };
        self.check_type(&payload.value)?;
        let mut decoded = payload::decode_kind(self.resource.group, version, self.resource.kind, None, payload)?;
        let document = custom.meaning.read(&decoded.object).map_err(|refused| {
            let kind = self.resource.kind;
            Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {refused}"))
        })?;
        decoded.object = document.object;
        decoded.complaints.extend(document.strict_errors);
        Ok(decoded)
    }

    /// Refuses an object of another kind than the custom resource that a request is about.
    fn check_type(&self, object: &Value) -> Result<()> {
        let expected = self.resource.api_version(&self.target.version);
        let given = |field: &str| object.str_at(&[field]).filter(|it| !it.is_empty());
        if let Some(kind) = given("kind").filter(|it| *it != self.resource.kind) {
            let mut errors = api::field::Errors::new();
            errors.invalid(api::field::Path::new("kind"), kind, format!("must be {}", self.resource.kind));
            return Err(Failure::invalid(self.resource.group, kind, api::metadata::name(object), &errors));
        }
        match given("apiVersion").filter(|it| *it != expected) {
            Some(version) => Err(self.other_version(object, version, &expected)),
            None => Ok(()),
        }
    }

    /// Rejection of a document of another version. Kubernetes parses it first, and fails differently if the
    /// version does not exist.
    fn other_version(&self, object: &Value, version: &str, expected: &str) -> Box<Failure> {
        let known = version.strip_prefix(self.resource.group).and_then(|it| it.strip_prefix('/'));
        let is_served =
            |it: &str| self.server.customs.snapshot().find(self.resource.group, it, self.resource.plural).is_some();
        if !known.is_some_and(is_served) && matches!(self.query.get("fieldValidation"), "" | "Warn") {
            let fields = object.as_object().into_iter().flat_map(api::json::Object::keys);
            let unknown = fields.filter(|field| !matches!(*field, "apiVersion" | "kind" | "metadata"));
            crate::wire::warnings::add(unknown.map(|field| format!("unknown field \"{field}\"")));
        }
        Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        ))
    }

    /// A stored object in the version of the client.
    fn shown(&self, object: &ServedObject) -> Bytes {
        if let Some(custom) = self.custom() {
            return custom.text(object);
        }
        if conversion::is_stored(self.resource, &self.target.version) {
            return object.json.clone();
        }
        let mut value = object.decode();
        self.convert(&mut value);
        api::json::to_string(&value).into()
    }

    /// Converts a stored document to the version of the client, in its normal form.
    fn convert(&self, value: &mut Value) {
        convert(self.resource, &self.target.version, value);
    }

    /// Returns one object in the requested form.
    fn answer(&self, code: u16, object: &ServedObject) -> Result<Answer> {
        match self.accepted.form {
            Form::Object | Form::GroupDiscovery => Ok(Answer::encoded(code, self.shown(object))),
            Form::Table => tables::of_one(self, code, self.decode(object)),
            Form::Metadata => {
                let metadata = partial_metadata(&object.decode(), self.accepted.version);
                Ok(Answer::json(code, &metadata))
            }
            Form::MetadataList => {
                let kind = self.resource.kind;
                let group = if self.resource.group.is_empty() { "core" } else { self.resource.group };
                let package = group.split('.').next().unwrap_or(group);
                let message = format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{kind})"
                );
                Err(Failure::new(406, "NotAcceptable", message))
            }
        }
    }

    /// The answer that shows a document which is not stored.
    fn answer_value(&self, code: u16, object: &Value) -> Result<Answer> {
        match self.accepted.form {
            Form::Table => tables::of_one(self, code, object.clone()),
            Form::Metadata => Ok(Answer::json(code, &partial_metadata(object, self.accepted.version))),
            _ => {
                let mut object = object.clone();
                self.convert(&mut object);
                Ok(Answer::json(code, &object))
            }
        }
    }
}

/// Whether the result can be shown as a table: objects, their status and their scale, but no reviews and
/// actions.
pub(crate) fn has_table(target: &Target) -> bool {
    let is_object = matches!(target.subresource.as_str(), "" | "status" | "scale");
    is_object && target.resource != "bindings" && !reviews::is_review(&target.group)
}

/// Kubernetes keeps a count of templates in an internal field, and shows it as an annotation of whole objects
/// only.
fn hide_internal(metadata: &mut Value) {
    let Some(fields) = metadata.as_object_mut() else { return };
    let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty() {
        fields.remove("annotations");
    }
}

/// The metadata of an object, as a separate object.
pub(crate) fn partial_metadata(object: &Value, version: &str) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(Value::object);
    if object.str_at(&["kind"]) == Some("DaemonSet") {
        hide_internal(&mut metadata);
    }
    let api_version = format!("meta.k8s.io/{version}");
    api::json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata})
}

/// Selectors of a collection.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    labels: labels::Selector,
    fields: field_selectors::Selector,
}

impl Selection {
    pub(crate) fn from_query(query: &Query, resource: &Resource<'_>) -> Result<Self> {
        let labels = labels::Selector::parse(query.get("labelSelector"))
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let fields = field_selectors::Selector::parse(query.get("fieldSelector"), resource)?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected. It is not decoded if what was taken out of it suffices.
    pub(crate) fn matches_served(&self, key: &str, object: &ServedObject) -> bool {
        (self.labels.is_empty() || self.labels.matches(object.attributes(self.fields.offered())))
            && self.fields.matches_served(key, object)
    }
}
