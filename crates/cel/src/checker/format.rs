//! Types as messages show them: `timestamp` where `Type`'s own `Display` says `google.protobuf.Timestamp`.

use std::fmt;

use crate::types::Type;

/// A type as cel-go's messages show it.
pub struct ShownType<'t>(pub &'t Type);

impl fmt::Display for ShownType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Any => f.write_str("any"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Null => f.write_str("null"),
            Type::List(element) => write!(f, "list({})", ShownType(element)),
            Type::Map(entry) => write!(f, "map({}, {})", ShownType(&entry.0), ShownType(&entry.1)),
            Type::Type(Some(of)) => write!(f, "type({})", ShownType(of)),
            Type::Opaque(opaque) if !opaque.parameters.is_empty() => {
                write!(f, "{}(", opaque.name)?;
                write_list(f, &opaque.parameters)?;
                f.write_str(")")
            }
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl fmt::Debug for ShownType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The operands of a call: `(int, string)`, or `string.(int)` with a receiver.
pub(super) struct Operands<'t> {
    pub(super) types: &'t [Type],
    pub(super) receiver: bool,
}

impl fmt::Display for Operands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut arguments = self.types;
        if self.receiver
            && let Some((receiver, rest)) = self.types.split_first()
        {
            write!(f, "{}.", ShownType(receiver))?;
            arguments = rest;
        }
        f.write_str("(")?;
        write_list(f, arguments)?;
        f.write_str(")")
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, types: &[Type]) -> fmt::Result {
    for (index, of) in types.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{}", ShownType(of))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(notation: &str, shown: &str) {
        assert_eq!(ShownType(&Type::parse(notation).unwrap()).to_string(), shown);
    }

    #[test]
    fn messages_have_their_own_names_for_types() {
        check("map(string, timestamp)", "map(string, timestamp)");
        check("optional(any)", "optional_type(any)");
        check("type(null)", "type(null)");
        check("wrapper(int)", "wrapper(int)");
        check("list(opaque(net.IP))", "list(net.IP)");
    }

    #[test]
    fn receivers_stand_before_the_arguments() {
        let types = [Type::String, Type::Int];
        assert_eq!(Operands { types: &types, receiver: true }.to_string(), "string.(int)");
        assert_eq!(Operands { types: &types, receiver: false }.to_string(), "(string, int)");
    }
}
