//! The controllers of the control plane, one folder each.
