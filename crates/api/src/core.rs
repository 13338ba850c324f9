//! The core group, and types that its objects share with others.

pub mod v1;
