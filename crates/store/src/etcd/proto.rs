//! etcd's messages, generated from `proto/etcd.proto`.
#![allow(
    missing_docs,
    unreachable_pub,
    rust_2018_idioms,
    clippy::all,
    clippy::arithmetic_side_effects,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

tonic::include_proto!("etcdserverpb");
