//! What an expression costs: before running it as a range, while running it as a number.
//!
//! Both read the [`Price`] that stands beside each function. The unit and all numbers are cel-go's.

mod amount;
mod estimate;
mod hints;
mod path;
mod price;

pub use amount::{Cost, Size};
pub use estimate::estimate;
pub use hints::{NoHints, PathStep, SizeHints};
pub use price::{CallEstimate, CallSite, Outcome, Price, STRING_TRAVERSAL_FACTOR, traversal_cost};
