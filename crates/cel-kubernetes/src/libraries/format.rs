//! `format.named`, the formats that Kubernetes names, and `validate`.
//!
//! Follows Kubernetes `apiserver/pkg/cel/library/format.go`; the rules themselves are in `validate`.

mod validate;

use std::sync::Arc;

use cel::cost::{Price, STRING_TRAVERSAL_FACTOR};
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

use super::price::{self, REGEX_FACTOR};
use super::{computed, library, native, opaque, opaque_eq, text};

/// The library.
pub fn format() -> Library {
    library("kubernetes.format", 0, OVERLOADS)
}

/// A format that texts can be checked against.
#[derive(Debug)]
pub struct Format {
    /// The name in `format.named(name)` and `format.name()`.
    key: &'static str,
    /// The name it shows.
    name: &'static str,
    /// Length of its regular expression, or of an equivalent one: determines the cost.
    regex_size: u64,
    validate: fn(&str) -> Vec<String>,
}

/// A format as a CEL value.
#[derive(Clone, Copy, Debug)]
pub struct FormatValue(&'static Format);

static FORMATS: &[Format] = &[
    format_of("dns1123Label", "DNS1123Label", 30, |text| validate::dns1123_label(text.as_bytes())),
    format_of("dns1123Subdomain", "DNS1123Subdomain", 60, |text| validate::dns1123_subdomain(text.as_bytes())),
    format_of("dns1035Label", "DNS1035Label", 30, |text| validate::dns1035_label(text.as_bytes())),
    format_of("qualifiedName", "QualifiedName", 60, validate::qualified_name),
    format_of("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| validate::dns1123_label(&validate::prefix(text))),
    format_of("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        validate::dns1123_subdomain(&validate::prefix(text))
    }),
    format_of("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| validate::dns1035_label(&validate::prefix(text))),
    format_of("labelValue", "LabelValue", 40, validate::label_value),
    format_of("uri", "URI", 1103, validate::uri),
    format_of("uuid", "uuid", 70, validate::uuid),
    format_of("byte", "byte", 84, validate::base64),
    format_of("date", "date", 71, validate::date),
    format_of("datetime", "datetime", 71, validate::date_time),
];

const fn format_of(
    key: &'static str,
    name: &'static str,
    regex_size: u64,
    validate: fn(&str) -> Vec<String>,
) -> Format {
    Format { key, name, regex_size, validate }
}

/// The longest regular expression that the estimate counts on.
const REGEX_SIZE_MAX: f64 = 128.0;

const VALIDATE: Price = Price::Sized {
    estimate: |site| {
        let read = site.size(1).times_factor(STRING_TRAVERSAL_FACTOR);
        read.times_factor(REGEX_SIZE_MAX * REGEX_FACTOR).into()
    },
    actual: |operands, _| match opaque::<FormatValue>(operands, 0) {
        Ok(format) => price::regex(price::size(operands, 1), format.0.regex_size),
        Err(_) => 1,
    },
    when_dynamic: true,
};

static OVERLOADS: &[Overload] = &[
    native(
        "format-validate",
        "kubernetes.NamedFormat.validate(string) -> optional(list(string))",
        VALIDATE,
        |operands| {
            let messages = (opaque::<FormatValue>(operands, 0)?.0.validate)(text(operands, 1)?);
            Ok(match messages.as_slice() {
                [] => Value::NONE,
                _ => Value::some(Value::list(messages.into_iter().map(Value::string).collect())),
            })
        },
    ),
    computed(native(
        "format-named",
        ":format.named(string) -> optional(kubernetes.NamedFormat)",
        Price::ONE,
        |operands| Ok(find(text(operands, 0)?).map_or(Value::NONE, Value::some)),
    )),
    constant("format.dns1123Label", ":format.dns1123Label() -> kubernetes.NamedFormat", |_| named("dns1123Label")),
    constant("format.dns1123Subdomain", ":format.dns1123Subdomain() -> kubernetes.NamedFormat", |_| {
        named("dns1123Subdomain")
    }),
    constant("format.dns1035Label", ":format.dns1035Label() -> kubernetes.NamedFormat", |_| named("dns1035Label")),
    constant("format.qualifiedName", ":format.qualifiedName() -> kubernetes.NamedFormat", |_| named("qualifiedName")),
    constant("format.dns1123LabelPrefix", ":format.dns1123LabelPrefix() -> kubernetes.NamedFormat", |_| {
        named("dns1123LabelPrefix")
    }),
    constant("format.dns1123SubdomainPrefix", ":format.dns1123SubdomainPrefix() -> kubernetes.NamedFormat", |_| {
        named("dns1123SubdomainPrefix")
    }),
    constant("format.dns1035LabelPrefix", ":format.dns1035LabelPrefix() -> kubernetes.NamedFormat", |_| {
        named("dns1035LabelPrefix")
    }),
    constant("format.labelValue", ":format.labelValue() -> kubernetes.NamedFormat", |_| named("labelValue")),
    constant("format.uri", ":format.uri() -> kubernetes.NamedFormat", |_| named("uri")),
    constant("format.uuid", ":format.uuid() -> kubernetes.NamedFormat", |_| named("uuid")),
    constant("format.byte", ":format.byte() -> kubernetes.NamedFormat", |_| named("byte")),
    constant("format.date", ":format.date() -> kubernetes.NamedFormat", |_| named("date")),
    constant("format.datetime", ":format.datetime() -> kubernetes.NamedFormat", |_| named("datetime")),
];

const fn constant(id: &'static str, signature: &'static str, call: cel::env::NativeFunction) -> Overload {
    computed(native(id, signature, Price::ONE, call))
}

fn find<'v>(key: &str) -> Option<Value<'v>> {
    let format = FORMATS.iter().find(|format| format.key == key)?;
    Some(Value::Opaque(Arc::new(FormatValue(format))))
}

fn named<'v>(key: &str) -> Result<Value<'v>, EvalError> {
    find(key).ok_or_else(EvalError::no_such_overload)
}

impl HostValue for FormatValue {
    fn type_of(&self) -> Type {
        Type::object("kubernetes.NamedFormat")
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a.0.name == b.0.name)
    }

    fn text(&self) -> String {
        self.0.name.to_owned()
    }

    fn go_type_name(&self) -> &'static str {
        "cel.Format"
    }
}
