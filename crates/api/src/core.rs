//! The core group, and what its objects share with others.

pub mod v1;
