//! The scheduler's core: framework, plugins, queue, cache and one cycle.
