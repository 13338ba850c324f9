//! The columns that a definition adds to the table of its objects: by path, or by expression (KEP-4595).
//!
//! Paths and expressions are compiled once for the table; cells are typed by their column. An expression that fails
//! leaves its cell empty, as a path does that finds nothing. What expressions may cost is limited for each cell, and by
//! a [`Budget`] for all cells of a request. Headers and rows of the table itself are the server's part.

mod text;

use std::time::Duration;

use api::age::human_duration;
use api::go_text::quote;
use api::json::Value;
use api::json_path::{Item, JsonPath};
use api::structural_schema::Schema;
use api::time::Timestamp;
use cel::program::{Limits, ListEvaluation};
use cel::value::{ErrorKind, EvalError, Value as CelValue};
use cel_kubernetes::compile::{CompiledExpression, Environment};
use cel_kubernetes::environments::Languages;
use cel_kubernetes::environments::printer_column::{self, LIMITS, Object};
use cel_kubernetes::schema::TypedSchema;

/// Default cost limit for all table expressions of one request.
pub const REQUEST_COST_DEFAULT: u64 = 25_000_000;

/// Bytes of all cells of the tables of one request. Paths have no limit for one cell, as in Kubernetes, and a column may show
/// a large field of every object.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Estimated cost above which applying a definition yields a warning.
pub const ESTIMATE_WARNING: u64 = 10_000_000;

/// The columns of a table behind its name column.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    /// Schema of the object for expressions.
    schema: Option<TypedSchema>,
}

/// One column.
#[derive(Debug)]
pub struct Column {
    /// Header of the column.
    pub name: String,
    /// Type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub column_type: String,
    /// Format hint for clients.
    pub format: String,
    /// Description of the column.
    pub description: String,
    /// 0 if the column is always printed, more if only in wide tables.
    pub priority: i64,
    cells: CellType,
    source: Source,
}

/// Type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellType {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
    /// Not a type that a column can have.
    Other,
}

impl CellType {
    fn of(name: &str) -> Self {
        match name {
            "string" => Self::Text,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            _ => Self::Other,
        }
    }
}

#[derive(Debug)]
enum Source {
    Path(JsonPath),
    Expression { text: String, program: Box<CompiledExpression> },
}

/// Remaining cost budget of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    left: u64,
    is_exceeded: bool,
    bytes_left: usize,
}

impl Budget {
    /// A budget of so much.
    #[must_use]
    pub const fn new(cost: u64) -> Self {
        Self { left: cost, is_exceeded: false, bytes_left: REQUEST_BYTES_MAX }
    }

    /// Whether cells were left empty because it was spent.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Whether cells were left empty because those before them were too long.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.bytes_left == 0
    }

    /// Counts a cell.
    fn count(&mut self, cell: &Value) {
        if let Value::String(text) = cell {
            self.bytes_left = self.bytes_left.saturating_sub(text.len());
        }
    }
}

/// Statistics of a column's expressions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of evaluations.
    pub evaluations: u64,
    /// Number of failures.
    pub errors: u64,
    /// Total cost.
    pub cost: u64,
    /// Total duration.
    pub time: Duration,
    /// Number of cells that were left empty because the budget was used up.
    pub skipped: u64,
    /// The first failure, and its object.
    pub first_error: Option<Failure>,
}

/// An expression that failed on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Generation of the object.
    pub generation: i64,
    /// Error message.
    pub message: String,
}

/// External inputs for filling cells.
pub struct Request<'r> {
    /// Current time, for dates.
    pub now: Timestamp,
    /// Remaining cost budget.
    pub budget: Budget,
    /// Statistics by column, created with the first cell.
    pub tallies: Vec<Tally>,
    /// A clock that does not go back.
    pub clock: &'r dyn Fn() -> Duration,
    /// Buffer for the text of a cell.
    text: String,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("now", &self.now).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<'r> Request<'r> {
    /// With a whole budget and nothing done.
    pub fn new(now: Timestamp, cost: u64, clock: &'r dyn Fn() -> Duration) -> Self {
        Self { now, budget: Budget::new(cost), tallies: Vec::new(), clock, text: String::new() }
    }
}

impl Columns {
    /// The columns of a version of a definition. Without any, there is the age.
    ///
    /// The table ends before the first column that cannot be compiled, which the second result names. Columns with an
    /// expression are left out where those are not allowed.
    #[must_use]
    pub fn of_version(version: &Value, allows_expressions: bool, languages: &Languages) -> (Self, Option<String>) {
        let shown: Vec<&Value> = version
            .list("additionalPrinterColumns")
            .iter()
            .filter(|column| allows_expressions || column.text("expression").is_empty())
            .collect();
        if shown.is_empty() {
            let age = api::json!({
                "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": AGE
            });
            return Self::new(&[&age], None, languages);
        }
        let schema = version.field("schema").optional("openAPIV3Schema");
        Self::new(&shown, schema, languages)
    }

    /// The columns of a table, typed by the schema of the objects.
    #[must_use]
    pub fn new(definitions: &[&Value], schema: Option<&Value>, languages: &Languages) -> (Self, Option<String>) {
        let mut columns = Self { columns: Vec::with_capacity(definitions.len()), schema: None };
        let mut environment = None;
        for definition in definitions {
            let (path, expression) = (definition.text("jsonPath"), definition.text("expression"));
            let source = if expression.is_empty() {
                match JsonPath::parse_column(path) {
                    Ok(path) => Source::Path(path),
                    Err(_) => return (columns, Some(format!("unrecognized column definition {}", quote(path)))),
                }
            } else {
                if environment.is_none() {
                    match typed(schema, languages) {
                        Ok((schema, made)) => (columns.schema, environment) = (Some(schema), Some(made)),
                        Err(error) => return (columns, Some(compilation_error(&error))),
                    }
                }
                let compiled = environment.as_ref().map(|environment| environment.compile(expression));
                match compiled {
                    Some(Ok(program)) => Source::Expression { text: expression.to_owned(), program: Box::new(program) },
                    Some(Err(error)) => return (columns, Some(compilation_error(&error.to_string()))),
                    None => return (columns, None),
                }
            };
            let description = match (definition.text("description"), &source) {
                ("", Source::Path(_)) => format!("Custom resource definition column (in JSONPath format): {path}"),
                ("", Source::Expression { text, .. }) => {
                    format!("Custom resource definition column (in CEL format): {text}")
                }
                (text, _) => text.to_owned(),
            };
            columns.columns.push(Column {
                name: definition.text("name").to_owned(),
                column_type: definition.text("type").to_owned(),
                format: definition.text("format").to_owned(),
                description,
                priority: definition.int("priority"),
                cells: CellType::of(definition.text("type")),
                source,
            });
        }
        (columns, None)
    }

    /// The columns in order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The cells of an object, in the order of the columns.
    pub fn cells(&self, object: &Value, request: &mut Request<'_>) -> Vec<Value> {
        if request.tallies.len() < self.columns.len() {
            request.tallies.resize(self.columns.len(), Tally::default());
        }
        let mut cells = Vec::with_capacity(self.columns.len().saturating_add(1));
        let mut before = None;
        for (column, tally) in self.columns.iter().zip(&mut request.tallies) {
            if request.budget.is_too_long() {
                cells.push(Value::Null);
                continue;
            }
            let cell = match &column.source {
                Source::Path(path) => {
                    before = None;
                    path_cell(path.find_first(object), column.cells, request.now, &mut request.text)
                }
                Source::Expression { program, .. } => {
                    let Some(schema) = &self.schema else { continue };
                    if request.budget.is_exceeded {
                        tally.skipped = tally.skipped.saturating_add(1);
                        cells.push(Value::Null);
                        continue;
                    }
                    let start = before.unwrap_or_else(|| (request.clock)());
                    let input = Object { schema, document: object };
                    let printed = CellWriter { column, now: request.now, text: &mut request.text };
                    let cell = expression_cell(program, &input, printed, &mut request.budget, tally);
                    let end = (request.clock)();
                    tally.time = tally.time.saturating_add(end.saturating_sub(start));
                    before = Some(end);
                    cell
                }
            };
            request.budget.count(&cell);
            cells.push(cell);
        }
        cells
    }
}

impl Column {
    /// The expression, if it has one.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match &self.source {
            Source::Path(_) => None,
            Source::Expression { text, .. } => Some(text),
        }
    }

    /// Whether the column shows numbers and its expression yields text.
    #[must_use]
    pub fn stays_empty(&self) -> bool {
        let is_number = matches!(self.cells, CellType::Integer | CellType::Number);
        let is_text = |program: &CompiledExpression| *program.result_type() == cel::types::Type::String;
        is_number && matches!(&self.source, Source::Expression { program, .. } if is_text(program))
    }

    /// Maximum cost of one evaluation, as far as the schema bounds it.
    #[must_use]
    pub fn estimated_cost(&self) -> Option<u64> {
        match &self.source {
            Source::Path(_) => None,
            Source::Expression { program, .. } => Some(program.cost().max),
        }
    }
}

/// Kubernetes' description of the creation timestamp.
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn compilation_error(error: &str) -> String {
    format!("CEL compilation error {}", quote(error))
}

fn typed(schema: Option<&Value>, languages: &Languages) -> Result<(TypedSchema, Environment), String> {
    let no_type = || "the schema gives the object no type".to_owned();
    let schema = Schema::from_value(schema.ok_or_else(no_type)?).map_err(|error| error.to_string())?;
    let typed = TypedSchema::new(&schema, true, printer_column::TYPE_NAME).ok_or_else(no_type)?;
    let environment = languages.celplane().and_then(|language| printer_column::environment_in(language, &typed));
    let environment = environment.map_err(|error| error.to_string())?;
    Ok((typed, environment))
}

fn path_cell(found: Option<Item<'_>>, cells: CellType, now: Timestamp, text: &mut String) -> Value {
    let Some(found) = found else { return Value::Null };
    if cells == CellType::Text {
        return match found {
            Item::Value(Value::Null) => "<no value>".into(),
            Item::Value(value @ Value::String(_)) => value.clone(),
            found => {
                text.clear();
                found.print(text);
                text.as_str().into()
            }
        };
    }
    let Item::Value(value) = found else { return Value::Null };
    match (cells, value) {
        (CellType::Integer, Value::Int(number)) => (*number).into(),
        (CellType::Integer, Value::Float(number)) => go_integer(number.get()).into(),
        (CellType::Number, Value::Int(_) | Value::Float(_)) => value.as_f64().unwrap_or_default().into(),
        (CellType::Boolean, Value::Bool(truth)) => (*truth).into(),
        (CellType::Date, Value::String(text)) => match text.as_str() {
            // Kubernetes: these texts stand for no time.
            "" | "null" => "<unknown>".into(),
            text => Timestamp::parse(text).map_or_else(|_| "<invalid>".to_owned(), |time| age(time, now)).into(),
        },
        _ => Value::Null,
    }
}

/// A float as Go makes it an integer: toward zero, and the least one where it does not fit.
fn go_integer(number: f64) -> i64 {
    super::numbers::truncated(number).unwrap_or(i64::MIN)
}

fn age(time: Timestamp, now: Timestamp) -> String {
    if time.is_zero() {
        return "<unknown>".to_owned();
    }
    let nanos = i128::from(now.seconds)
        .saturating_sub(i128::from(time.seconds))
        .saturating_mul(1_000_000_000)
        .saturating_add(i128::from(now.nanos))
        .saturating_sub(i128::from(time.nanos));
    // Go counts whole seconds toward zero.
    let seconds = nanos.checked_div(1_000_000_000).unwrap_or_default();
    human_duration(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Conversion of a value to a cell.
struct CellWriter<'p> {
    column: &'p Column,
    now: Timestamp,
    text: &'p mut String,
}

fn expression_cell(
    program: &CompiledExpression,
    input: &Object<'_>,
    printing: CellWriter<'_>,
    budget: &mut Budget,
    tally: &mut Tally,
) -> Value {
    let limit = LIMITS.runtime_cost.min(budget.left);
    let mut cell = Value::Null;
    let (failure, cost) = print(program, input, limit, printing, &mut cell);
    tally.evaluations = tally.evaluations.saturating_add(1);
    tally.cost = tally.cost.saturating_add(cost);
    budget.left = budget.left.saturating_sub(cost);
    let error = match failure {
        None => return cell,
        Some(Misprint::Value(message)) => message,
        Some(Misprint::Evaluation(error)) if error.kind() == ErrorKind::CostLimit && limit < LIMITS.runtime_cost => {
            budget.left = 0;
            budget.is_exceeded = true;
            "the cost budget of the request's tables is exceeded".to_owned()
        }
        Some(Misprint::Evaluation(error)) => error.to_string(),
    };
    tally.errors = tally.errors.saturating_add(1);
    if tally.first_error.is_none() {
        let metadata = input.document.field("metadata");
        tally.first_error = Some(Failure {
            namespace: metadata.text("namespace").to_owned(),
            name: metadata.text("name").to_owned(),
            generation: metadata.int("generation"),
            message: error,
        });
    }
    Value::Null
}

/// A reason why a cell stays empty.
enum Misprint {
    /// The evaluation failed.
    Evaluation(EvalError),
    /// The value does not fit.
    Value(String),
}

/// Evaluates and prints; gives back what it cost.
fn print(
    program: &CompiledExpression,
    input: &Object<'_>,
    limit: u64,
    mut printing: CellWriter<'_>,
    cell: &mut Value,
) -> (Option<Misprint>, u64) {
    let limits = Limits::cost(limit);
    if printing.column.cells != CellType::Text || !program.makes_list() {
        let evaluation = program.eval_within(input, limits);
        let failure = match &evaluation.result {
            Ok(value) => printing.print(value, cell).err().map(Misprint::Value),
            Err(error) => Some(Misprint::Evaluation(error.clone())),
        };
        return (failure, evaluation.cost);
    }
    // A list that is only printed need not be made.
    printing.text.clear();
    let mut printer = text::Printer::new(printing.text);
    let ListEvaluation { result, cost } = program.eval_list(input, limits, &mut printer);
    let failure = match result {
        Ok(None) => printer.finish().map(|text| *cell = Value::String(text::cut(text))).err().map(Misprint::Value),
        Ok(Some(value)) => printing.print(&value, cell).err().map(Misprint::Value),
        Err(error) => Some(Misprint::Evaluation(error)),
    };
    (failure, cost)
}

impl CellWriter<'_> {
    /// Converts a value to a cell; the error states that the value does not fit the column's type.
    fn print(&mut self, value: &CelValue<'_>, cell: &mut Value) -> Result<(), String> {
        let of = &self.column.column_type;
        let misfit = || format!("a value of type {} does not fit a column of type {of}", value.type_name());
        match (self.column.cells, value) {
            (_, CelValue::Null | CelValue::Optional(None)) => {}
            (_, CelValue::Error(error)) => return Err(error.to_string()),
            (_, CelValue::Optional(Some(value))) => return self.print(value, cell),
            (CellType::Text, CelValue::String(text)) => *cell = Value::String(text::cut(text)),
            (CellType::Text, value) => {
                self.text.clear();
                if let Err(text::Stop::Error(error)) = text::write(self.text, value) {
                    return Err(error);
                }
                *cell = Value::String(text::cut(self.text));
            }
            (CellType::Integer | CellType::Number, CelValue::Int(number)) => *cell = Value::Int(*number),
            (CellType::Integer, CelValue::Uint(number)) => {
                *cell = i64::try_from(*number).map_err(|_| misfit())?.into();
            }
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is what a number column shows")]
            (CellType::Number, CelValue::Uint(number)) => *cell = (*number as f64).into(),
            (CellType::Number, CelValue::Double(number)) if number.is_finite() => *cell = (*number).into(),
            (CellType::Boolean, CelValue::Bool(truth)) => *cell = (*truth).into(),
            (CellType::Date, CelValue::Timestamp(time)) => {
                let time = Timestamp { seconds: time.seconds(), nanos: time.subsecond_nanoseconds() };
                *cell = age(time, self.now).into();
            }
            (CellType::Date, CelValue::String(text)) => {
                let time = Timestamp::parse(text).map_err(|error| error.to_string())?;
                *cell = age(time, self.now).into();
            }
            _ => return Err(misfit()),
        }
        Ok(())
    }
}
