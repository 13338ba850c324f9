//! The scheduler's shell: informers, binding, events and metrics around the pure core.
