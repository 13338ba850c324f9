//! What the server shows beside objects: discovery, OpenAPI, tables, certificates, what every cluster begins with.

pub(crate) mod api_services;
pub(crate) mod bootstrap;
pub mod certificates;
pub(crate) mod discovery;
pub mod openapi;
pub mod presence;
pub(crate) mod tables;
