//! The one place where our engine joins the comparison.
//!
//! It is `None` until the crate `cel` can compile and evaluate; the tables then show `–` for us.

use crate::engine::Engine;

/// Our engine.
pub const ENGINE: Option<Engine> = None;
