//! The steps of a write as a request runs them: the rules of the kind, and those that depend on the user.

use api::field::Errors;
use api::json::Value;
use api::time::Timestamp;
use api::types::EmptyPositions;
use registry::pipeline::{Identity, Rejection, Rules, Update, Write};

use super::Call;
use crate::admission;
use crate::identity::User;
use crate::objects::strategy::KindRules;
use crate::resources::Resource;
use crate::wire::status::Failure;
use crate::wire::warnings;

/// The rules of a kind for one request.
pub(super) struct RequestRules<'a> {
    kind: KindRules<'a>,
    resource: &'a Resource<'a>,
    user: &'a User,
}

impl RequestRules<'_> {
    /// The time of the request, as objects show it.
    pub(super) fn now(&self) -> &str {
        self.kind.now()
    }

    /// Whether validation rejects wrong changes of metadata.
    pub(super) fn judges_metadata(&self) -> bool {
        self.kind.judges_metadata()
    }
}

impl Rules for RequestRules<'_> {
    fn fill_defaults(&self, object: &mut Value) {
        self.kind.fill_defaults(object);
    }

    fn prepare(&self, object: &mut Value, update: Option<Update<'_>>) {
        self.kind.prepare(object, update);
        if update.is_none() {
            admission::name_sender(self.resource, object, self.user);
        }
    }

    fn validate(&self, object: &Value, update: Option<Update<'_>>) -> Errors {
        let errors = self.kind.validate(object, update);
        if update.is_some() { errors } else { admission::complain(self.resource, object, errors) }
    }

    fn canonicalize(&self, object: &mut Value) {
        self.kind.canonicalize(object);
    }

    fn normalize(&self, object: &mut Value) {
        self.kind.normalize(object);
    }

    fn warnings(&self, object: &Value, update: Option<Update<'_>>) -> Vec<String> {
        self.kind.warnings(object, update)
    }
}

impl Call<'_> {
    /// The time in whole seconds, as fields of objects show it.
    pub(super) fn now(&self) -> Timestamp {
        self.server.clock().now_seconds()
    }

    /// The namespace that objects of this request have; empty for kinds without namespaces.
    pub(super) fn namespace(&self) -> &str {
        if self.resource.namespaced { &self.target.namespace } else { "" }
    }

    /// The rules of the kind of this request's objects.
    pub(super) fn rules(&self) -> RequestRules<'_> {
        let kind = self.server.meaning.rules(self.resource, self.namespace());
        RequestRules { kind, resource: self.resource, user: self.user }
    }

    /// An object of this request at the beginning of its steps.
    pub(super) fn write<'w>(
        &'w self,
        object: Value,
        given_empty: &'w EmptyPositions,
        update: Option<Update<'w>>,
        identity: Identity<'w>,
    ) -> Write<'w> {
        Write { object, given_empty, update, namespace: self.namespace(), identity, warnings: Vec::new() }
    }

    /// The response to a write that a step rejected.
    pub(super) fn rejected(&self, rejection: &Rejection, name: &str, object: &Value) -> Box<Failure> {
        match rejection {
            Rejection::Invalid(errors) => {
                warnings::add(self.server.meaning.hints(object, errors));
                Failure::invalid(self.resource.group, self.resource.kind, name, errors)
            }
            Rejection::WrongNamespace => Failure::bad_request(rejection.to_string()),
            Rejection::Skipped(_) => Failure::internal(rejection.to_string()),
        }
    }
}
