//! A body that comes in pieces, read line by line.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::error::Error;
use crate::transport::Body;

/// Lines of a body. A piece that holds whole lines is not copied.
pub(crate) struct Lines {
    body: Body,
    /// Received data that was not read yet.
    piece: Bytes,
    /// The beginning of a line whose end has not come.
    partial: BytesMut,
}

impl Lines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, piece: Bytes::new(), partial: BytesMut::new() }
    }

    /// The next line without its end; `None` when the body has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.piece.iter().position(|&byte| byte == b'\n') {
                let line = self.piece.split_to(end);
                self.piece.advance(1);
                if self.partial.is_empty() {
                    return Ok(Some(line));
                }
                self.partial.extend_from_slice(&line);
                return Ok(Some(self.partial.split().freeze()));
            }
            self.partial.extend_from_slice(&self.piece);
            self.piece = Bytes::new();
            match self.body.frame().await {
                None => return Ok((!self.partial.is_empty()).then(|| self.partial.split().freeze())),
                Some(Err(error)) => return Err(Error::Transport(error)),
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
    }
}
