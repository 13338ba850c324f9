//! The Common Expression Language: text → tree → types → cost → program → value.
//!
//! An engine with a type checker, static and metered costs, and evaluation on partly known input. Types, values, costs and
//! the texts of errors are those of cel-go 0.29; see also `docs/cel.md` in the repository.
//!
//! # Compile once, evaluate often
//!
//! An [`Env`](env::Env) declares the variables, types and functions of expressions. It starts empty: libraries
//! add operators, functions and macros. It compiles text into a checked tree, and a
//! [`Program`](program::Program) is planned from that, once. Both are immutable and can be used from many
//! threads.
//!
//! ```
//! use celplane_cel::env::Env;
//! use celplane_cel::library;
//! use celplane_cel::program::{Bindings, Program};
//! use celplane_cel::types::Type;
//!
//! let env = Env::builder()
//!     .library(&library::standard())
//!     .library(&library::strings(2))
//!     .variable("name", Type::String)
//!     .variable("ports", Type::list(Type::Int))
//!     .build()?;
//!
//! let typed = env.compile("name.startsWith('web-') && ports.exists(port, port < 1024)")?;
//! assert_eq!(*typed.result_type(), Type::Bool);
//! let program = Program::new(&typed)?;
//!
//! let input = Bindings::new().bind("name", "web-1").bind("ports", vec![8080_i64, 443]);
//! assert_eq!(program.eval(&input).result?.as_bool(), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A `program` that runs often on data of your own should not make a [`Bindings`](program::Bindings) each time: implement
//! [`Activation`](program::Activation), and lend the data through the traits in [`value::host`], which read it in place.
//!
//! # A function and a type of your own
//!
//! A function is a signature, a [`Price`](cost::Price) and a closure. An object type is a
//! [`TypeProvider`](env::TypeProvider), which declares its fields for the checker, and a
//! [`HostObject`](value::HostObject), which reads them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use celplane_cel::cost::Price;
//! use celplane_cel::env::{Env, FieldType, TypeProvider};
//! use celplane_cel::library;
//! use celplane_cel::program::{Activation, Program};
//! use celplane_cel::types::Type;
//! use celplane_cel::value::{EvalError, HostObject, Value};
//!
//! /// An object of the host: plain Rust.
//! #[derive(Debug)]
//! struct Server {
//!     host: String,
//!     cores: i64,
//! }
//!
//! /// The type of the object for the checker.
//! #[derive(Debug)]
//! struct Types;
//!
//! impl TypeProvider for Types {
//!     fn find_type(&self, name: &str) -> Option<Type> {
//!         (name == "Server").then(|| Type::object("Server"))
//!     }
//!
//!     fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
//!         let field_type = match (type_name, field) {
//!             ("Server", "host") => Type::String,
//!             ("Server", "cores") => Type::Int,
//!             _ => return None,
//!         };
//!         Some(FieldType { field_type })
//!     }
//! }
//!
//! /// Field access for evaluation, without a copy.
//! impl HostObject for Server {
//!     fn type_name(&self) -> &str {
//!         "Server"
//!     }
//!
//!     fn get(&self, field: &str) -> Option<Value<'_>> {
//!         match field {
//!             "host" => Some(Value::str(&self.host)),
//!             "cores" => Some(Value::Int(self.cores)),
//!             _ => None,
//!         }
//!     }
//!
//!     fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>) {
//!         if visit("host", Value::str(&self.host)).is_continue() {
//!             let _ = visit("cores", Value::Int(self.cores));
//!         }
//!     }
//! }
//!
//! /// Where the variable `server` comes from.
//! impl Activation for Server {
//!     fn resolve(&self, name: &str) -> Option<Value<'_>> {
//!         (name == "server").then_some(Value::Object(self))
//!     }
//! }
//!
//! let env = Env::builder()
//!     .library(&library::standard())
//!     .types(Arc::new(Types))
//!     .variable("server", Type::object("Server"))
//!     .function("string.domain() -> string", Price::Traversal { operand: 0 }, |operands| {
//!         let host = operands.first().and_then(Value::as_str).ok_or_else(EvalError::no_such_overload)?;
//!         match host.split_once('.') {
//!             Some((_, domain)) => Ok(Value::string(domain)),
//!             None => Err(EvalError::other(format!("`{host}` has no domain"))),
//!         }
//!     })
//!     .build()?;
//!
//! let program = Program::new(&env.compile("server.cores >= 8 && server.host.domain() == 'example.com'")?)?;
//! let server = Server { host: "db.example.com".to_owned(), cores: 16 };
//! assert_eq!(program.eval(&server).result?.as_bool(), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A value of a custom type, such as a version or an address, is a [`HostValue`](value::HostValue). Related
//! functions form a [`Library`](env::Library), with versions, macros and validators.
//!
//! # Errors, as data and as a picture
//!
//! Parser and checker find all that is wrong in one pass. An [`Issue`](source::Issue) has a place and a message; shown, all of
//! them are the picture that users of cel-go know.
//!
//! ```
//! # use celplane_cel::{env::Env, library, types::Type};
//! let env = Env::builder().library(&library::standard()).variable("name", Type::String).build()?;
//!
//! let issues = env.compile("name.size() > 'a' && nme == 'x'").unwrap_err();
//! let found: Vec<_> = issues.sorted().iter().map(|issue| (issue.location.column, issue.message.as_str())).collect();
//! assert_eq!(
//!     found,
//!     [
//!         (12, "found no matching overload for '_>_' applied to '(int, string)'"),
//!         (21, "undeclared reference to 'nme' (in container '')"),
//!     ]
//! );
//! assert_eq!(
//!     env.compile("nme == 'x'").unwrap_err().to_string(),
//!     "ERROR: <input>:1:1: undeclared reference to 'nme' (in container '')\n | nme == 'x'\n | ^"
//! );
//! # Ok::<(), celplane_cel::env::EnvError>(())
//! ```
//!
//! An evaluation fails with an [`EvalError`](value::EvalError): a kind for programs, a text for people. `&&`, `||`, `all` and
//! `exists` absorb it where another operand decides.
//!
//! ```
//! # use celplane_cel::{env::Env, library, program::{Bindings, Program}, types::Type, value::Value};
//! use celplane_cel::value::ErrorKind;
//!
//! let env = Env::builder()
//!     .library(&library::standard())
//!     .variable("labels", Type::map(Type::String, Type::String))
//!     .build()?;
//! let input = Bindings::new().bind("labels", Value::map([(Value::str("arch"), Value::str("arm64"))])?);
//!
//! let program = Program::new(&env.compile("labels['zone'] == 'a'")?)?;
//! let error = program.eval(&input).result.unwrap_err();
//! assert_eq!((error.kind(), error.message()), (ErrorKind::NoSuchKey, "no such key: zone"));
//!
//! let program = Program::new(&env.compile("labels['zone'] == 'a' || true")?)?;
//! assert_eq!(program.eval(&input).result?.as_bool(), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cost
//!
//! [`cost::estimate`] computes the minimum and maximum cost of an expression before its first run, given the
//! size of the input by [`SizeHints`](cost::SizeHints); an evaluation meters its actual cost and stops at a
//! limit.
//!
//! ```
//! # use celplane_cel::{env::Env, library, program::{Bindings, Program}, types::Type};
//! use celplane_cel::cost::{self, Cost, PathStep, Size, SizeHints};
//! use celplane_cel::program::Limits;
//! use celplane_cel::value::ErrorKind;
//!
//! struct TenNames;
//!
//! impl SizeHints for TenNames {
//!     fn size(&self, path: &[PathStep<'_>], _of: &Type) -> Option<Size> {
//!         match path {
//!             [PathStep::Variable("names")] => Some(Size::at_most(10)),
//!             [PathStep::Variable("names"), PathStep::Items] => Some(Size::at_most(63)),
//!             _ => None,
//!         }
//!     }
//! }
//!
//! let env = Env::builder()
//!     .library(&library::standard())
//!     .variable("names", Type::list(Type::String))
//!     .build()?;
//! let typed = env.compile("names.all(name, name.startsWith('web-'))")?;
//! assert_eq!(cost::estimate(&typed, &TenNames), Cost { min: 2, max: 52 });
//!
//! let program = Program::new(&typed)?;
//! let input = Bindings::new().bind("names", vec!["web-1", "web-2"]);
//! let evaluation = program.eval_within(&input, Limits::cost(52));
//! assert_eq!((evaluation.result?.as_bool(), evaluation.cost), (Some(true), 12));
//! let error = program.eval_within(&input, Limits::cost(5)).result.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::CostLimit);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Limits`](program::Limits) also take an interrupt, for deadlines. Whatever the limit is, an expression that would fill the
//! memory ends with [`ErrorKind::TooLarge`](value::ErrorKind::TooLarge).
//!
//! # Input that is only partly known
//!
//! [`Value::Unknown`](value::Value::Unknown) can be the value of a variable or of a part of one. The evaluation
//! continues as long as the known input decides; its [`Verdict`](program::Verdict) contains every result that a
//! completion of the input can have.
//!
//! ```
//! # use celplane_cel::{env::Env, library, program::{Bindings, Program}, types::Type, value::Value};
//! use celplane_cel::program::Verdict;
//!
//! let env = Env::builder()
//!     .library(&library::standard())
//!     .variable("spot", Type::Bool)
//!     .variable("zones", Type::list(Type::String))
//!     .build()?;
//! let program = Program::new(&env.compile("!spot && zones.exists(zone, zone == 'a')")?)?;
//!
//! let found = Bindings::new().bind("spot", false).bind("zones", vec![Value::str("a"), Value::unknown(1)]);
//! assert_eq!(program.eval(&found).verdict(), Verdict::TRUE);
//!
//! let open = Bindings::new().bind("spot", Value::unknown(0)).bind("zones", vec![Value::str("b"), Value::str("c")]);
//! let verdict = program.eval(&open).verdict();
//! // The input can itself turn out to be an error, one that no operator absorbs; it can never become true.
//! assert!(verdict.can_be(Verdict::FALSE) && !verdict.can_be(Verdict::TRUE));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! The modules are listed in the order of the phases; a phase uses only modules above it.
//!
//! | module | contents |
//! |---|---|
//! | [`source`] | text, positions, issues and their picture |
//! | [`syntax`] | text → tree and back, macros |
//! | [`types`] | types, and the notation of types and signatures |
//! | [`value`] | inputs and results of evaluation, and the interface for data of the host |
//! | [`mod@env`] | declarations: variables, types, functions with signature, price and code |
//! | [`checker`] | tree + environment → typed tree |
//! | [`cost`] | prices, estimates, sizes of input |
//! | [`program`] | typed tree → plan → value |
//! | [`library`] | libraries for environments |
//! | [`regex`] | regular expressions as Go's `regexp` reads them |

pub mod checker;
pub mod cost;
pub mod env;
pub mod library;
pub mod program;
pub mod regex;
pub mod source;
pub mod syntax;
pub mod types;
pub mod value;
