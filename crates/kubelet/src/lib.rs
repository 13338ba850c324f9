//! The node agent: one node, or a fleet of simulated ones.
