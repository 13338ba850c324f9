//! `format` before it runs: where format string and list are literals, clauses and arguments must fit.

use super::format::{Piece, Refusal, Style, Verb, missing, next_piece};
use crate::checker::{Reference, TypedAst};
use crate::source::Issues;
use crate::syntax::ast::{Ast, ExprId, ExprKind, ListElement, Literal};
use crate::types::Type;

/// An error in a call of `format`, and the node at which to report it.
#[derive(Debug, PartialEq, Eq)]
struct FormatIssue {
    /// The call, or the argument that does not fit its clause.
    node: ExprId,
    /// The reference's text.
    message: String,
}

/// Finds the error in a call of `string.format`, if format string and list are literals.
///
/// `version` is the version of the strings library that the environment holds. Calls of something else have no issues.
fn check_format_call(typed: &TypedAst, call: ExprId, version: u32) -> Option<FormatIssue> {
    let ast = typed.ast();
    let ExprKind::Call { function, target: Some(target), args } = &ast[call].kind else { return None };
    if function != "format" {
        return None;
    }
    if let Reference::Function { function, overloads, .. } = typed.reference(call)
        && !overloads.of(function).any(|overload| overload.id == "string_format")
    {
        return None;
    }
    let ExprKind::Literal(Literal::String(format)) = &ast[*target].kind else { return None };
    let [arguments] = args.as_slice() else { return None };
    let ExprKind::List(arguments) = &ast[*arguments].kind else { return None };
    let style = if version >= 4 { Style::Plain } else { Style::Localized };
    check(typed, call, format, arguments, style).err()
}

/// Reports the errors in calls of `string.format`: cel-go's `stringFormatValidator`.
pub(super) fn report(typed: &TypedAst, issues: &mut Issues, version: u32) {
    for call in typed.ast().postorder(typed.ast().root()) {
        if let Some(issue) = check_format_call(typed, call, version) {
            issues.report(typed.ast()[issue.node].position, issue.message);
        }
    }
}

fn check(
    typed: &TypedAst,
    call: ExprId,
    format: &str,
    arguments: &[ListElement],
    style: Style,
) -> Result<(), FormatIssue> {
    let at_call = |message: String| FormatIssue { node: call, message };
    let mut rest = format;
    let mut next = 0_usize;
    while let Some(piece) = next_piece(&mut rest, || Ok(())) {
        // A missing argument is reported before an invalid clause, but after a lone `%` at the end.
        let argument = arguments.get(next);
        let verb = match piece {
            Ok(Piece::Text(_)) => continue,
            Ok(Piece::Clause(verb)) => verb,
            Err(message) if argument.is_some() || message == "unexpected end of string" => {
                return Err(at_call(message));
            }
            Err(_) => return Err(at_call(missing(next))),
        };
        let argument = argument.ok_or_else(|| at_call(missing(next)))?;
        next = next.saturating_add(1);
        if let Some(misfit) = misfit(typed, verb, argument.value, style) {
            let refusal = Refusal::Type(verb, style, typed.type_of(misfit).name().to_owned());
            let message = format!("error during formatting: {}", refusal.message());
            return Err(FormatIssue { node: misfit, message });
        }
    }
    if arguments.len() > next {
        let count = arguments.len();
        return Err(at_call(format!("too many arguments supplied to string.format (expected {next}, got {count})")));
    }
    Ok(())
}

/// The node whose type the clause does not take.
fn misfit(typed: &TypedAst, verb: Verb, argument: ExprId, style: Style) -> Option<ExprId> {
    if verb == Verb::String {
        return string_misfit(typed, typed.ast(), argument);
    }
    let of = unwrapped(typed.type_of(argument));
    let plain = style == Style::Plain;
    let fits = match (verb, &of) {
        (_, Type::Dyn)
        | (Verb::Decimal | Verb::Binary | Verb::Hexadecimal { .. } | Verb::Octal, Type::Int | Type::Uint) => true,
        (Verb::Decimal, Type::Double) => plain,
        (Verb::Binary, Type::Bool) | (Verb::Hexadecimal { .. }, Type::String | Type::Bytes) => true,
        (Verb::Fixed(_) | Verb::Scientific(_), Type::Double) => true,
        (Verb::Fixed(_) | Verb::Scientific(_), Type::String) => !plain,
        (Verb::Fixed(_) | Verb::Scientific(_), Type::Int | Type::Uint) => plain,
        _ => false,
    };
    (!fits).then_some(argument)
}

/// A primitive that may be null counts as the primitive.
fn unwrapped(value_type: &Type) -> Type {
    match value_type {
        Type::Wrapper(primitive) => primitive.unwrapped(),
        other => other.clone(),
    }
}

/// Also looks into list and map literals.
fn string_misfit(typed: &TypedAst, ast: &Ast, node: ExprId) -> Option<ExprId> {
    let fits = matches!(
        unwrapped(typed.type_of(node)),
        Type::Dyn
            | Type::List(_)
            | Type::Map(_)
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::String
            | Type::Timestamp
            | Type::Bytes
            | Type::Duration
            | Type::Type(_)
            | Type::Null
    );
    if !fits {
        return Some(node);
    }
    match &ast[node].kind {
        ExprKind::List(elements) => elements.iter().find_map(|element| string_misfit(typed, ast, element.value)),
        ExprKind::Map(entries) => entries
            .iter()
            .find_map(|entry| string_misfit(typed, ast, entry.key).or_else(|| string_misfit(typed, ast, entry.value))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::source::{Source, Span};

    /// `'format'.format([…])` with arguments of the given types, each of which is a name.
    fn call(format: &str, arguments: &[&str]) -> (TypedAst, ExprId, Vec<ExprId>) {
        let mut ast = Ast::new(Source::new(""));
        let mut types = Vec::new();
        let mut add = |ast: &mut Ast, kind, of: Type| {
            types.push(of);
            ast.add(kind, 0, Span { start: 0, end: 0 })
        };
        let target = add(&mut ast, ExprKind::Literal(Literal::String(format.into())), Type::String);
        let names: Vec<ExprId> =
            arguments.iter().map(|of| add(&mut ast, ExprKind::Ident("x".into()), Type::parse(of).unwrap())).collect();
        let elements = names.iter().map(|value| ListElement { value: *value, optional: false }).collect();
        let list = add(&mut ast, ExprKind::List(elements), Type::list(Type::Dyn));
        let kind = ExprKind::Call { function: "format".into(), target: Some(target), args: vec![list] };
        let call = add(&mut ast, kind, Type::String);
        ast.set_root(call);
        let env = Env::builder().build().unwrap();
        (TypedAst { env, ast, types, references: Vec::new() }, call, names)
    }

    #[track_caller]
    fn check(version: u32, format: &str, arguments: &[&str], expected: Option<(Option<usize>, &str)>) {
        let (typed, call, names) = call(format, arguments);
        let issue = check_format_call(&typed, call, version);
        let expected = expected.map(|(argument, message)| FormatIssue {
            node: argument.map_or(call, |argument| names[argument]),
            message: message.to_owned(),
        });
        assert_eq!(issue, expected, "{format}");
    }

    #[test]
    fn clauses_and_arguments_fit() {
        check(
            2,
            "%s %d %f %e %x %X %o %b %%",
            &["list(int)", "int", "double", "string", "bytes", "uint", "int", "bool"],
            None,
        );
        check(2, "%d", &["dyn"], None);
        check(2, "%d", &["wrapper(int)"], None);
        check(4, "%d %f", &["double", "int"], None);
        let text = "error during formatting: decimal clause can only be used on integers, was given string";
        check(2, "%s %d", &["int", "string"], Some((Some(1), text)));
        let hex =
            "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given bool";
        check(2, "%x", &["bool"], Some((Some(0), hex)));
        let plain = "error during formatting: fixed-point clause can only be used on ints, uints, and doubles, was given string";
        check(4, "%f", &["string"], Some((Some(0), plain)));
        let optional = "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, \
                        maps, lists, types, durations, and timestamps, was given optional_type";
        check(2, "%s", &["optional(int)"], Some((Some(0), optional)));
    }

    #[test]
    fn formats_are_read_in_the_reference_order() {
        check(2, "%", &[], Some((None, "unexpected end of string")));
        check(2, "%s %s", &["int"], Some((None, "index 1 out of range")));
        check(2, "%z", &[], Some((None, "index 0 out of range")));
        check(
            2,
            "%z",
            &["int"],
            Some((None, "could not parse formatting clause: unrecognized formatting clause \"z\"")),
        );
        let many = "too many arguments supplied to string.format (expected 0, got 1)";
        check(2, "", &["int"], Some((None, many)));
    }

    #[test]
    fn other_calls_have_no_issues() {
        let (typed, call, names) = call("%d", &["string"]);
        assert_eq!(check_format_call(&typed, names[0], 2), None);
        assert!(check_format_call(&typed, call, 2).is_some());
    }
}
