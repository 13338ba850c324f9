//! `url`, `isURL` and the parts of a URL.
//!
//! A text is first read as the target of an HTTP request, which must be absolute, and then once more as a URL with a
//! fragment. Follows Kubernetes `apiserver/pkg/cel/library/urls.go`.

mod parse;

use std::collections::BTreeMap;

use cel::cost::{CallEstimate, Price, STRING_TRAVERSAL_FACTOR};
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Map, Value};

pub use parse::{ParseError, Url};

use super::{computed, library, native, opaque, opaque_eq, price, text};

/// The library.
pub fn urls() -> Library {
    library("kubernetes.urls", 0, OVERLOADS)
}

const PARSE: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        CallEstimate { cost: text.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(text) }
    },
    actual: |operands, _| price::read(price::size(operands, 0)),
    when_dynamic: true,
};

static OVERLOADS: &[Overload] = &[
    computed(native("string_to_url", "url(string) -> kubernetes.URL", PARSE, |operands| {
        match Url::parse(text(operands, 0)?) {
            Ok(url) => Ok(Value::opaque(url)),
            Err(error) => Err(EvalError::other(format!("URL parse error during conversion from string: {error}"))),
        }
    })),
    computed(native("is_url_string", "isURL(string) -> bool", Price::ONE, |operands| {
        Ok(Value::Bool(Url::check_request_target(text(operands, 0)?).is_ok()))
    })),
    computed(native("url_get_scheme", "kubernetes.URL.getScheme() -> string", Price::ONE, |operands| {
        Ok(Value::string(url(operands)?.scheme()))
    })),
    computed(native("url_get_host", "kubernetes.URL.getHost() -> string", Price::ONE, |operands| {
        Ok(Value::string(url(operands)?.host()))
    })),
    computed(native("url_get_hostname", "kubernetes.URL.getHostname() -> string", Price::ONE, |operands| {
        Ok(Value::string(url(operands)?.host_name()))
    })),
    computed(native("url_get_port", "kubernetes.URL.getPort() -> string", Price::ONE, |operands| {
        Ok(Value::string(url(operands)?.port()))
    })),
    computed(native("url_get_escaped_path", "kubernetes.URL.getEscapedPath() -> string", Price::ONE, |operands| {
        Ok(Value::string(url(operands)?.escaped_path()))
    })),
    computed(native(
        "url_get_query",
        "kubernetes.URL.getQuery() -> map(string, list(string))",
        Price::ONE,
        |operands| query(url(operands)?),
    )),
];

fn url<'o>(operands: &'o [Value<'_>]) -> Result<&'o Url, EvalError> {
    opaque(operands, 0)
}

fn query<'v>(url: &Url) -> Result<Value<'v>, EvalError> {
    let mut values: BTreeMap<String, Vec<Value<'v>>> = BTreeMap::new();
    for (key, value) in url.query() {
        values.entry(key).or_default().push(Value::string(value));
    }
    let entries = values.into_iter().map(|(key, values)| (Value::string(key), Value::list(values)));
    Map::from_entries(entries).map(Value::Map)
}

impl HostValue for Url {
    fn type_of(&self) -> Type {
        Type::object("kubernetes.URL")
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a.to_string() == b.to_string())
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn go_type_name(&self) -> &'static str {
        "cel.URL"
    }
}
