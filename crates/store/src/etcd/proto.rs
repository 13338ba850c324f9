//! The part of etcd's API (v3) that the store uses: messages and methods.
//!
//! Names of services and methods, and field numbers, are etcd's; unused fields are omitted. The messages are
//! written by hand: a compiler for `.proto` files took longer to build than the store.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// Methods that take one message and give one back.
pub(super) mod methods {
    pub(in super::super) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(in super::super) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(in super::super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub(in super::super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub(in super::super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

/// Calls one of the [`methods`].
pub(super) async fn call<Q, A>(channel: Channel, method: &'static str, request: Q) -> Result<Response<A>, Status>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut client = ready(channel).await?;
    client.unary(Request::new(request), PathAndQuery::from_static(method), ProstCodec::default()).await
}

/// Opens the stream of watches.
pub(super) async fn watch(
    channel: Channel,
    requests: impl IntoStreamingRequest<Message = WatchRequest>,
) -> Result<Response<Streaming<WatchResponse>>, Status> {
    let mut client = ready(channel).await?;
    let method = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    client.streaming(requests.into_streaming_request(), method, ProstCodec::default()).await
}

/// A client for one call. How much an answer may hold is etcd's business.
async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    client.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    Ok(client)
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(super) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// Result of an operation; of all but a range only its completion.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(super) result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    /// One of several kinds of values in etcd's protocol, and sent even if it is zero.
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum CompareResult {
    Equal = 0,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchAction", tags = "1, 3")]
    pub(super) action: Option<WatchAction>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchAction {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(bool, tag = "6")]
    pub(super) prev_kv: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(super) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) prev_kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Put = 0,
    Delete = 1,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
}
