//! Kubernetes' additions to the language: its scalars, and types from schemas.

use std::sync::LazyLock;

use api::json::{self, Value};
use api::quantity::{Format, Quantity};
use api::semver::Version;
use api::structural_schema::{Schema, SchemaOrBool, SchemaOrList};
use cel::program::Program;
use cel_kubernetes::compile::ResultRule;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::validation_rule::{self, Change};
use cel_kubernetes::schema::TypedSchema;

use crate::bytes::{Choices, text};
use crate::cel_text::{BASE, evaluate_on};
use crate::expressions::expression;

/// Expressions that read `s` as one of Kubernetes' own kinds of values; the ones that are predicates come out as truths.
static READERS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let expressions = [
        "isQuantity(s) && quantity(s) == quantity(s) && quantity(s).compareTo(quantity(s)) == 0",
        "isQuantity(s) ? [string(quantity(s).isInteger()), string(quantity(s).asApproximateFloat())] : []",
        "isSemver(s) && semver(s) == semver(s) && semver(s).compareTo(semver(s)) == 0",
        "isSemver(s, true) && semver(s, true).major() >= 0",
        "semver.compare(s, '>=1.2.3 <2 || !=3') || semver.compare('1.2.3', s)",
        "isIP(s) && ip(s).isUnspecified() || ip.isCanonical(s)",
        "isIP(s) ? string(ip(s)) : ''",
        "isCIDR(s) && cidr(s).containsCIDR(cidr(s).masked()) && cidr(s).containsIP(cidr(s).ip())",
        "isCIDR(s) ? string(cidr(s)) : ''",
        "isURL(s) && url(s) == url(s)",
        "isURL(s) ? [url(s).getScheme(), url(s).getHost(), url(s).getHostname(), url(s).getPort(), url(s).getEscapedPath()] : []",
        "isURL(s) ? url(s).getQuery() : {}",
        "format.named(s).optMap(f, f.validate(s))",
        "['dns1123Label', 'dns1123Subdomain', 'dns1035Label', 'qualifiedName', 'dns1123LabelPrefix', 'labelValue', 'uri', 'uuid', 'byte', 'date', 'datetime'].map(n, format.named(n).value().validate(s))",
        "duration(s)",
        "timestamp(s)",
        "s.format([s])",
        "int(s) + int(double(s))",
        "ts.getHours(s)",
    ];
    let compile = |text: &&str| {
        let typed = BASE.env.compile(text).unwrap_or_else(|issues| panic!("{issues}"));
        Program::new(&typed).unwrap_or_else(|error| panic!("{error}"))
    };
    expressions.iter().map(compile).collect()
});

/// Any text is a scalar or an error with a reason; what is read and written is read again as the same.
pub fn kubernetes_scalars(data: &[u8]) {
    let text = text(data);
    if let Ok(quantity) = Quantity::parse(&text) {
        let written = quantity.to_string();
        let again = Quantity::parse(&written).unwrap_or_else(|error| panic!("{text:?} became {written:?}: {error}"));
        assert_eq!(again.to_string(), written, "{text:?}");
        // Kubernetes has no suffix above E, and leaves it out where one is needed.
        let whole_digits = quantity.to_plain_string().split('.').next().map_or(0, str::len);
        let writable = quantity.format() != Format::DecimalSi || whole_digits <= 21;
        assert!(!writable || again == quantity, "{text:?} became {written:?}");
    }
    for parse in [Version::parse, Version::parse_normalized, Version::parse_tolerant] {
        if let Ok(version) = parse(&text) {
            let written = version.to_string();
            let again = Version::parse(&written).unwrap_or_else(|error| panic!("{text:?} became {written:?}: {error}"));
            assert_eq!(again.to_string(), written, "{text:?}");
        }
    }
    let input = cel::program::Bindings::new()
        .bind("s", text.as_str())
        .bind("ts", cel::value::Timestamp::new(1, 1).map_or(cel::value::Value::Null, cel::value::Value::Timestamp));
    for program in READERS.iter() {
        evaluate_on(program, &input);
    }
}

/// Any schema types its documents or is refused; any expression over any document then ends.
pub fn kubernetes_schema(data: &[u8]) {
    let mut choices = Choices::new(data);
    let root = schema(&mut choices, 0);
    let Some(typed) = TypedSchema::new(&root, choices.is_odd(), "selfType") else {
        return;
    };
    let optional_old_self = choices.is_odd();
    let Ok(environment) = validation_rule::environment(Dialect::CELPLANE, &typed, optional_old_self, ResultRule::Any)
    else {
        return;
    };
    let new = document(&mut choices, Some(&root), 0);
    let old = choices.is_odd().then(|| document(&mut choices, Some(&root), 0));
    let change = Change { schema: &typed, new: &new, old: old.as_ref(), optional_old_self };
    let expression = expression(choices.rest());
    let read_all = ["self", "self == self", "self == oldSelf", "has(self.spec) && has(self.spec.list)"];
    for text in read_all.into_iter().chain([expression.as_str()]) {
        if let Ok(typed) = environment.env.compile(text)
            && let Ok(program) = Program::new(&typed)
        {
            let _ = cel::cost::estimate(&typed, environment.hints.as_ref());
            evaluate_on(&program, &change);
        }
    }
}

const PROPERTIES: &[&str] =
    &["spec", "list", "map", "text", "x", "a-b", "in", "namespace", "metadata", "kind", "é", ""];
const TYPES: &[&str] = &["object", "array", "string", "integer", "number", "boolean", "", "other"];
const FORMATS: &[&str] = &["", "date-time", "date", "duration", "byte", "int64", "quantity", "other"];
const DEPTH_MAX: usize = 5;

fn schema(choices: &mut Choices<'_>, depth: usize) -> Schema {
    let below = |choices: &mut Choices<'_>| schema(choices, depth + 1);
    let limit = |choices: &mut Choices<'_>| match choices.below(4) {
        0 => Some(i64::from(choices.byte())),
        1 => Some([i64::MIN, -1, 0, i64::MAX][choices.below(4)]),
        _ => None,
    };
    let mut it = Schema { type_name: choices.pick(TYPES).to_owned(), ..Schema::default() };
    it.format = choices.pick(FORMATS).to_owned();
    let flags = choices.byte();
    it.nullable = flags & 1 != 0;
    it.x_int_or_string = flags & 6 == 2;
    it.x_embedded_resource = flags & 24 == 8;
    it.x_preserve_unknown_fields = (flags & 96 == 32).then_some(flags & 128 == 0);
    it.max_length = limit(choices);
    it.max_items = limit(choices);
    it.max_properties = limit(choices);
    if depth < DEPTH_MAX && !choices.is_over() {
        for _ in 0..choices.below(4) {
            let property = choices.pick(PROPERTIES);
            let of = below(choices);
            it.properties.insert(property.to_owned(), of);
            if choices.is_odd() {
                it.required.push(property.to_owned());
            }
        }
        match choices.below(4) {
            0 => it.items = Some(SchemaOrList::Schema(Box::new(below(choices)))),
            1 => it.additional_properties = Some(SchemaOrBool::Schema(Box::new(below(choices)))),
            2 => it.additional_properties = Some(SchemaOrBool::Bool(choices.is_odd())),
            _ => {}
        }
        it.x_list_type = [None, Some("set"), Some("map"), Some("other")][choices.below(4)].map(str::to_owned);
        it.x_list_map_keys = (0..choices.below(3)).map(|_| choices.pick(PROPERTIES).to_owned()).collect();
        if choices.below(4) == 0 {
            it.enumeration = (0..choices.below(3)).map(|_| document(choices, None, DEPTH_MAX)).collect();
        }
    }
    it
}

/// A document that mostly fits the schema.
fn document(choices: &mut Choices<'_>, schema: Option<&Schema>, depth: usize) -> Value {
    let fits = choices.below(8) != 1;
    let kind = match schema {
        Some(schema) if fits => TYPES.iter().position(|name| *name == schema.type_name).unwrap_or(7),
        _ => choices.below(8),
    };
    let schema = schema.filter(|_| fits);
    let mut text = String::new();
    match kind {
        0 | 1 if depth > DEPTH_MAX => text.push_str("null"),
        0 => {
            let mut entries = Vec::new();
            for (name, of) in schema.into_iter().flat_map(|schema| &schema.properties) {
                if choices.below(4) != 1 {
                    entries.push((name.clone(), document(choices, Some(of), depth + 1)));
                }
            }
            let other = schema.and_then(Schema::additional_properties_schema);
            for _ in 0..choices.below(3) {
                let name = choices.pick(PROPERTIES).to_owned();
                entries.push((name, document(choices, other, depth + 1)));
            }
            let shown = |(name, value): &(String, Value)| format!("{name:?}:{value}");
            text = format!("{{{}}}", entries.iter().map(shown).collect::<Vec<_>>().join(","));
        }
        1 => {
            let of = schema.and_then(Schema::items_schema);
            let items = (0..choices.below(5)).map(|_| document(choices, of, depth + 1).to_string()).collect::<Vec<_>>();
            text = format!("[{}]", items.join(","));
        }
        2 => {
            let words = ["a", "", "2024-02-29", "2024-02-29T01:02:03.5Z", "1h30m", "aGVsbG8=", "10Gi", "é"];
            text = format!("{:?}", choices.pick(&words));
        }
        3 => text = i64::from_le_bytes(choices.number().to_le_bytes()).to_string(),
        4 => text.push_str(choices.pick(&["1.5", "-0.0", "1e308", "3", "1e-400", "18446744073709551616"])),
        5 => text.push_str(choices.pick(&["true", "false"])),
        6 => text.push_str("null"),
        _ => text.push('7'),
    }
    json::parse(text.as_bytes()).unwrap_or_default()
}
