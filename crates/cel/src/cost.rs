//! Cost of expressions: a range before evaluation, a number during it.
//!
//! Both use the [`Price`] of each function, which its declaration in the environment holds. The unit and all numbers are
//! cel-go's.

mod estimate;
mod hints;
mod path;

pub use crate::env::{CallEstimate, CallSite, Cost, Outcome, Price, STRING_TRAVERSAL_FACTOR, Size, traversal_cost};
pub(crate) use crate::env::{LIST_CREATION, MAP_CREATION, STRUCT_CREATION};
pub use estimate::estimate;
pub use hints::{NoHints, PathStep, SizeHints};
