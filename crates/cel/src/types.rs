//! Types: cel-go's gradual type system as data.
//!
//! Assignability and unification belong to the checker; here are only the shapes, their names, and a small
//! notation for them, used by function signatures: `map(K, list(V))`, `optional(T)`, `kubernetes.Quantity`.

use std::fmt;
use std::sync::Arc;

use crate::syntax::ast::Name;

/// A CEL type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Checked only at run time.
    Dyn,
    /// `google.protobuf.Any`: like `dyn`, under its own name.
    Any,
    /// The type of an expression that did not check.
    Error,
    /// `null_type`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A primitive that may be null.
    Wrapper(Primitive),
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<(Type, Type)>),
    /// The type of types: `type`, or `type(T)` where it is known.
    Type(Option<Arc<Type>>),
    /// A type parameter of a signature, such as `T`.
    Param(Name),
    /// A type variable that the checker has yet to bind.
    Var(u32),
    /// A named type without fields, with parameters; `optional_type(T)` is one.
    Opaque(Arc<OpaqueType>),
    /// A named type whose fields the host declares.
    Object(Name),
}

/// The primitives that have a nullable wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
}

/// A named type without fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpaqueType {
    /// The name that `type(x)` shows.
    pub name: Name,
    /// The type's parameters.
    pub parameters: Vec<Type>,
}

const OPTIONAL: Name = Name::from_static("optional_type");

impl Type {
    /// `list(element)`
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// `map(key, value)`
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// `optional_type(value)`
    pub fn optional(value: Type) -> Type {
        Type::Opaque(Arc::new(OpaqueType { name: OPTIONAL, parameters: vec![value] }))
    }

    /// `type(of)`
    pub fn type_of(value_type: Type) -> Type {
        Type::Type(Some(Arc::new(value_type)))
    }

    /// A named type without fields and parameters.
    pub fn opaque(name: impl Into<Name>) -> Type {
        Type::Opaque(Arc::new(OpaqueType { name: name.into(), parameters: Vec::new() }))
    }

    /// A named type whose fields the host declares.
    pub fn object(name: impl Into<Name>) -> Type {
        Type::Object(name.into())
    }

    /// The value's type, if this is an optional.
    pub fn as_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(opaque) if opaque.name == OPTIONAL => opaque.parameters.first(),
            _ => None,
        }
    }

    /// Whether the type is `dyn` or `any`: everything is assignable to and from it.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    /// Whether the type is `dyn`, `any` or that of a part that did not type-check.
    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The name without parameters, as `type(x)` shows it at run time.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Any => "google.protobuf.Any",
            Type::Error => "!error!",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Wrapper(primitive) => primitive.wrapper_name(),
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Param(name) | Type::Object(name) => name,
            Type::Var(_) => "_var",
            Type::Opaque(opaque) => &opaque.name,
        }
    }

    /// Reads the notation of function signatures.
    ///
    /// Built-in names are `bool int uint double string bytes null dyn any duration timestamp type` and `list(…)`, `map(…, …)`,
    /// `optional(…)`, `type(…)`, `wrapper(…)`; a single upper-case letter is a type parameter; `opaque(name)` and
    /// `name(parameter, …)` are types without fields, any other name one that has fields.
    pub fn parse(text: &str) -> Option<Type> {
        let mut rest = text.trim();
        let parsed = parse_type(&mut rest)?;
        rest.trim().is_empty().then_some(parsed)
    }
}

impl Primitive {
    /// The primitive's own type.
    pub fn unwrapped(self) -> Type {
        match self {
            Primitive::Bool => Type::Bool,
            Primitive::Int => Type::Int,
            Primitive::Uint => Type::Uint,
            Primitive::Double => Type::Double,
            Primitive::String => Type::String,
            Primitive::Bytes => Type::Bytes,
        }
    }

    /// The name of the nullable type.
    pub fn wrapper_name(self) -> &'static str {
        match self {
            Primitive::Bool => "google.protobuf.BoolValue",
            Primitive::Int => "google.protobuf.Int64Value",
            Primitive::Uint => "google.protobuf.UInt64Value",
            Primitive::Double => "google.protobuf.DoubleValue",
            Primitive::String => "google.protobuf.StringValue",
            Primitive::Bytes => "google.protobuf.BytesValue",
        }
    }
}

/// Prints a type as cel-go's `Type.String()` does: `map(string, google.protobuf.Timestamp)`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Wrapper(primitive) => write!(f, "wrapper({})", primitive.unwrapped()),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Type(Some(of)) => write!(f, "type({of})"),
            Type::Var(number) => write!(f, "_var{number}"),
            Type::Opaque(opaque) if !opaque.parameters.is_empty() => {
                write!(f, "{}(", opaque.name)?;
                for (index, parameter) in opaque.parameters.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{parameter}")?;
                }
                f.write_str(")")
            }
            _ => f.write_str(self.name()),
        }
    }
}

/// A function's parameters and result, read from `string.startsWith(string) -> bool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The function's name.
    pub function: Name,
    /// Whether the first parameter is the receiver: `target.function(…)`.
    pub receiver: bool,
    /// The parameters, the receiver first.
    pub parameters: Vec<Type>,
    /// The result.
    pub result: Type,
}

impl Signature {
    /// Reads `receiver.function(parameter, …) -> result` or `function(parameter, …) -> result`.
    ///
    /// The receiver's type ends at the last dot before the arguments, so a function with a qualified name and no receiver,
    /// such as `math.abs`, is written `:math.abs(int) -> int`. Operators are written by their mangled name: `_+_(int, int) -> int`.
    pub fn parse(text: &str) -> Option<Signature> {
        let (call, result) = text.rsplit_once("->")?;
        let result = Type::parse(result)?;
        let call = call.trim();
        let open = matching_open(call)?;
        let (head, arguments) = call.split_at_checked(open)?;
        let arguments = arguments.strip_prefix('(')?.strip_suffix(')')?;
        let mut parameters = Vec::new();
        let (receiver, function) = match (head.strip_prefix(':'), receiver_dot(head)) {
            (Some(qualified), _) => (false, qualified),
            (None, Some(dot)) => {
                let (receiver, function) = head.split_at_checked(dot)?;
                parameters.push(Type::parse(receiver)?);
                (true, function.strip_prefix('.')?)
            }
            (None, None) => (false, head),
        };
        let mut rest = arguments.trim();
        while !rest.is_empty() {
            parameters.push(parse_type(&mut rest)?);
            rest = rest.trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start(),
                None if rest.is_empty() => {}
                None => return None,
            }
        }
        Some(Signature { function: function.into(), receiver, parameters, result })
    }
}

/// The opening parenthesis of the last, balanced argument list.
fn matching_open(call: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, byte) in call.bytes().enumerate().rev() {
        match byte {
            b')' => depth = depth.saturating_add(1),
            b'(' if depth == 1 => return Some(index),
            b'(' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// The dot between receiver and function. Operators such as `_?._` have no receiver.
fn receiver_dot(head: &str) -> Option<usize> {
    if head.starts_with('_') { None } else { head.rfind('.') }
}

fn parse_type(rest: &mut &str) -> Option<Type> {
    let text = rest.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_' || c == '@')).unwrap_or(text.len());
    let (name, after) = text.split_at_checked(end)?;
    *rest = after;
    let plain = match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null" => Type::Null,
        "dyn" => Type::Dyn,
        "any" => Type::Any,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" if !after.starts_with('(') => Type::Type(None),
        "type" => Type::type_of(parse_one(rest)?),
        "list" => Type::list(parse_one(rest)?),
        "optional" => Type::optional(parse_one(rest)?),
        "wrapper" => Type::Wrapper(match parse_one(rest)? {
            Type::Bool => Primitive::Bool,
            Type::Int => Primitive::Int,
            Type::Uint => Primitive::Uint,
            Type::Double => Primitive::Double,
            Type::String => Primitive::String,
            Type::Bytes => Primitive::Bytes,
            _ => return None,
        }),
        "opaque" => match parse_one(rest)? {
            Type::Object(name) | Type::Param(name) => Type::opaque(name),
            _ => return None,
        },
        "map" => {
            *rest = rest.strip_prefix('(')?;
            let key = parse_type(rest)?;
            *rest = rest.trim_start().strip_prefix(',')?;
            let value = parse_type(rest)?;
            *rest = rest.trim_start().strip_prefix(')')?;
            Type::map(key, value)
        }
        "" => return None,
        _ if after.starts_with('(') => {
            let mut parameters = Vec::new();
            *rest = rest.strip_prefix('(')?;
            loop {
                parameters.push(parse_type(rest)?);
                match rest.trim_start().strip_prefix(',') {
                    Some(more) => *rest = more,
                    None => break,
                }
            }
            *rest = rest.trim_start().strip_prefix(')')?;
            Type::Opaque(Arc::new(OpaqueType { name: name.into(), parameters }))
        }
        _ if name.len() == 1 && name.bytes().all(|b| b.is_ascii_uppercase()) => Type::Param(name.into()),
        _ => Type::object(name),
    };
    Some(plain)
}

fn parse_one(rest: &mut &str) -> Option<Type> {
    *rest = rest.strip_prefix('(')?;
    let parsed = parse_type(rest)?;
    *rest = rest.trim_start().strip_prefix(')')?;
    Some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(notation: &str, printed: &str) {
        assert_eq!(Type::parse(notation).unwrap().to_string(), printed);
    }

    #[test]
    fn notation_prints_as_cel_go_prints_types() {
        check("map(string, list(T))", "map(string, list(T))");
        check("optional(duration)", "optional_type(google.protobuf.Duration)");
        check("type(int)", "type(int)");
        check("kubernetes.Quantity", "kubernetes.Quantity");
        check("wrapper(int)", "wrapper(int)");
        check("tuple(T, list(int))", "tuple(T, list(int))");
        assert_eq!(Type::parse("list(int"), None);
        assert_eq!(Type::parse("map(int)"), None);
    }

    #[test]
    fn signatures_name_receiver_parameters_and_result() {
        let plain = Signature::parse("map(K, V).get(K, optional(V)) -> V").unwrap();
        assert_eq!(plain.function, "get");
        assert!(plain.receiver);
        assert_eq!(plain.parameters.len(), 3);
        let qualified = Signature::parse(":math.greatest(list(int)) -> int").unwrap();
        assert_eq!((qualified.function.as_str(), qualified.receiver), ("math.greatest", false));
        let operator = Signature::parse("_?._(dyn, string) -> dyn").unwrap();
        assert_eq!((operator.function.as_str(), operator.receiver), ("_?._", false));
        assert!(Signature::parse("net.IP.family() -> int").unwrap().receiver);
        assert_eq!(Signature::parse("size() -> int").unwrap().parameters, Vec::new());
    }
}
