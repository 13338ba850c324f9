//! The interface of evaluation to a cluster.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use api::json::Value;
use api::labels::Selector;
use cel_kubernetes::libraries::authorization::Authorizer;

use super::policy::{ParamRef, ParamTarget};
use super::request::{GroupVersionKind, GroupVersionResource, Request};

/// The kind of a policy's parameters, as the cluster serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamScope {
    /// Whether the objects live in namespaces.
    pub namespaced: bool,
}

/// A reason why parameters are unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// A refusal in Kubernetes' words.
    #[error("{0}")]
    Refused(String),
    /// The cluster does not know: only offline, where objects come from files.
    #[error("{0}")]
    Unknown(String),
}

/// A reason why a namespace is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingNamespace {
    /// The namespace does not exist.
    NotFound,
    /// Its existence is unknown: only offline, where objects come from files.
    Unknown,
}

/// A reason why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// An error of the policy, subject to its failure policy.
    Policy(String),
    /// An error that ends the request, whatever the failure policy: the HTTP code and the message.
    Final(u16, String),
}

/// Other objects, rights and schemas.
pub trait Cluster: Sync {
    /// A namespace.
    ///
    /// # Errors
    /// It does not exist, or it is not known whether it does.
    fn namespace(&self, name: &str) -> Result<Arc<Value>, MissingNamespace>;

    /// The resources and kinds under which the resource of a request is served as well, itself included.
    fn equivalents(&self, request: &Request) -> Arc<[(GroupVersionResource, GroupVersionKind)]>;

    /// A document of the request in another version.
    ///
    /// # Errors
    /// It cannot be converted.
    fn convert(&self, request: &Request, document: &Value, kind: &GroupVersionKind) -> Result<Value, String>;

    /// Whether a kind is built in, not defined by users.
    fn is_built_in(&self, kind: &GroupVersionKind) -> bool;

    /// The scope of a kind of parameters; none if it is not served.
    ///
    /// # Errors
    /// It is not known whether the kind is served.
    fn param_scope(&self, kind: &GroupVersionKind) -> Result<Option<ParamScope>, ParamError>;

    /// Returns a parameter resource by name.
    ///
    /// # Errors
    /// It is not known whether it exists.
    fn param(&self, kind: &GroupVersionKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, ParamError>;

    /// Returns the parameter resources that labels select, in a namespace or, if that is empty, in the whole cluster.
    ///
    /// # Errors
    /// It is not known which exist.
    fn params(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Vec<Arc<Value>>, ParamError>;

    /// Decides the authorization checks of expressions.
    fn authorizer(&self) -> Arc<dyn Authorizer>;

    /// The authorization check since the last call that could not be decided; only offline.
    fn undecided(&self) -> Option<String> {
        None
    }

    /// Merges an apply configuration into an object, as server-side apply does.
    ///
    /// # Errors
    /// The configuration does not fit the kind.
    fn apply(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
        object: &Value,
        patch: Value,
    ) -> Result<Value, PatchError>;

    /// Applies a JSON patch; none if one of its tests fails.
    ///
    /// # Errors
    /// The patch does not apply, or its result is no object of the kind.
    fn patch(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
        object: &Value,
        operations: Vec<Value>,
    ) -> Result<Option<Value>, PatchError>;
}

/// Checks that the kind of a policy's parameters is served.
///
/// # Errors
/// It is not, or that is not known.
pub(super) fn check_param_kind(kind: Option<&GroupVersionKind>, cluster: &dyn Cluster) -> Result<(), ParamError> {
    let Some(kind) = kind else { return Ok(()) };
    match cluster.param_scope(kind)? {
        Some(_) => Ok(()),
        None => Err(ParamError::Refused(format!("failed to find resource referenced by paramKind: '{kind}'"))),
    }
}

/// Kind, namespace and selector.
type Selection = (GroupVersionKind, String, String);

/// The objects of a selection.
type ParameterList = Result<Vec<Arc<Value>>, ParamError>;

/// The parameters of one request. Bindings that select the same share one lookup.
pub(super) struct Parameters<'c> {
    cluster: &'c dyn Cluster,
    selected: RefCell<HashMap<Selection, ParameterList>>,
}

impl<'c> Parameters<'c> {
    pub(super) fn new(cluster: &'c dyn Cluster) -> Self {
        Self { cluster, selected: RefCell::default() }
    }

    fn select(&self, kind: &GroupVersionKind, namespace: &str, selector: &Selector) -> ParameterList {
        let selection = (kind.clone(), namespace.to_owned(), selector.to_string());
        let find = || self.cluster.params(kind, namespace, selector);
        self.selected.borrow_mut().entry(selection).or_insert_with(find).clone()
    }

    /// The parameters that a binding refers to; none where they may be missing.
    ///
    /// # Errors
    /// The configuration is wrong, or a parameter is missing that must exist.
    pub(super) fn of(
        &self,
        kind: &GroupVersionKind,
        reference: &ParamRef,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, ParamError> {
        let refused = |why: &str| Err(ParamError::Refused(why.to_owned()));
        let Some(scope) = self.cluster.param_scope(kind)? else {
            return refused(&format!("paramKind kind `{kind}` not known"));
        };
        let own = &*reference.namespace;
        let namespace = match (scope.namespaced, own.is_empty()) {
            (true, false) => own,
            (true, true) if namespace.is_empty() => {
                return refused(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
                );
            }
            (true, true) => namespace,
            (false, false) => {
                return refused("paramRef.namespace must not be provided for a cluster-scoped `paramKind`");
            }
            (false, true) => "",
        };
        let found: Vec<Arc<Value>> = match &reference.target {
            ParamTarget::Name(name) => self.cluster.param(kind, namespace, name)?.into_iter().collect(),
            ParamTarget::Selector(selector) => {
                let selector = selector.as_ref().map_err(|why| ParamError::Refused(why.clone()))?;
                self.select(kind, namespace, selector)?
            }
            ParamTarget::Neither => return refused("one of name or selector must be provided"),
        };
        if found.is_empty() && reference.must_exist {
            return refused("no params found for policy binding with `Deny` parameterNotFoundAction");
        }
        Ok(found)
    }
}
