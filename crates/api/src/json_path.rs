//! Kubernetes' dialect of JSONPath: printer columns, and the templates of `kubectl -o jsonpath`.
//!
//! A path is parsed once into a small tree and evaluated against values in place. Follows client-go's
//! `util/jsonpath`, oddities included: an error inside an existence filter counts as existing, `[]` means `[0]`.
//! Printing cells of a column's type is left to the tables.

mod eval;
mod parse;

use std::fmt::Write as _;

use crate::go_text::format_float;
use crate::json::{Value, write_value};

/// A parsed path or template.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    /// Texts, and lists of steps from between braces.
    nodes: Box<[Node]>,
    allow_missing_keys: bool,
}

/// A path that does not parse, or that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(String);

/// An element of the result of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Item<'a> {
    /// A part of the document.
    Value(&'a Value),
    /// A text of the template or a string of the path.
    Text(&'a str),
    /// A number of the path.
    Int(i64),
    /// A number of the path.
    Float(f64),
    /// A boolean of the path.
    Bool(bool),
    /// A byte of a string, which `*` takes apart.
    Byte(u8),
    /// The subject of an empty range.
    Nothing,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(Box<str>),
    List(Box<[Node]>),
    Field(Box<str>),
    Identifier(Box<str>),
    Slice(Slice),
    Filter(Box<Filter>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Wildcard,
    Recursive,
    Union(Box<[Box<[Node]>]>),
}

/// `[start:end:step]`; `end` is derived from `start` when only one number is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    end_is_derived: bool,
    step: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Box<[Node]>,
    operator: Operator,
    right: Box<[Node]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    Less,
    Greater,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    /// Any other run of `!<>=`: an error once it is evaluated.
    Unknown(Box<str>),
}

impl JsonPath {
    /// Reads a template: text with paths in braces.
    ///
    /// # Errors
    /// The first thing that is not understood.
    pub fn parse_template(text: &str) -> Result<Self, PathError> {
        Ok(Self { nodes: parse::parse_template(text)?, allow_missing_keys: false })
    }

    /// Reads the path of a printer column, which has no braces. Missing fields are not errors.
    ///
    /// # Errors
    /// The first thing that is not understood.
    pub fn parse_column(path: &str) -> Result<Self, PathError> {
        let nodes = parse::parse_template(&format!("{{{path}}}"))?;
        Ok(Self { nodes, allow_missing_keys: true })
    }

    /// Sets whether a missing field is allowed.
    #[must_use]
    pub fn allow_missing_keys(mut self, allow: bool) -> Self {
        self.allow_missing_keys = allow;
        self
    }

    /// Follows the path: one list of results for each text and each pair of braces, repeated inside ranges.
    ///
    /// # Errors
    /// The first step that cannot be taken.
    pub fn find<'a>(&'a self, value: &'a Value) -> Result<Vec<Vec<Item<'a>>>, PathError> {
        eval::find(self, value)
    }

    /// The one result that a printer column shows: the first of the first list. `None` also when a step fails.
    #[must_use]
    pub fn find_first<'a>(&'a self, value: &'a Value) -> Option<Item<'a>> {
        match &*self.nodes {
            [Node::List(steps)] if !eval::has_identifier(steps) => {
                eval::find_in_list(self, steps, value).ok()?.first().copied()
            }
            _ => self.find(value).ok()?.first()?.first().copied(),
        }
    }

    /// Fills a template: the texts of all results in a row.
    ///
    /// # Errors
    /// The first step that cannot be taken.
    pub fn execute(&self, value: &Value) -> Result<String, PathError> {
        let mut out = String::new();
        for results in self.find(value)? {
            print_results(&mut out, &results);
        }
        Ok(out)
    }
}

/// Appends the texts of results with a space between: objects and lists as JSON, other values as Go prints them.
pub fn print_results(out: &mut String, results: &[Item<'_>]) {
    for (index, item) in results.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        item.print(out);
    }
}

impl Item<'_> {
    /// Appends the text of a result. A string column shows this, except for null, which it shows as `<no value>`.
    pub fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self {
            Item::Value(Value::String(text)) => out.write_str(text),
            Item::Value(Value::Float(value)) => out.write_str(&format_float(value.get())),
            Item::Value(value @ (Value::Array(_) | Value::Object(_))) => {
                let mut sorted = (*value).clone();
                sorted.sort_keys();
                write_value(out, &sorted);
                Ok(())
            }
            Item::Value(value) => {
                write_value(out, value);
                Ok(())
            }
            Item::Text(text) => out.write_str(text),
            Item::Int(value) => write!(out, "{value}"),
            Item::Float(value) => out.write_str(&format_float(*value)),
            Item::Bool(value) => write!(out, "{value}"),
            Item::Byte(value) => write!(out, "{value}"),
            Item::Nothing => out.write_str("<no value>"),
        };
    }
}
