//! Answers on their way out, counted by user until they are sent.

use http::Response;

use super::connections::Carrier;
use super::too_many_requests;
use crate::state::Server;
use crate::wire::answer::Answer;
use crate::wire::body::Body;

/// Shorter answers are not counted by user.
pub(super) const COUNTED_BYTES_MIN: usize = 16 << 10;
/// A list waits for its user to read others: this part of the time that a request may take.
const BUDGET_PATIENCE: u32 = 6;

impl Server {
    /// Counts the bytes of an answer until they are sent; an answer that refuses if the user has too many unread ones.
    pub(super) async fn count(
        &self,
        response: &mut Response<Body>,
        parts: &http::request::Parts,
        user: &str,
    ) -> std::result::Result<(), Answer> {
        let is_read = matches!(parts.method, http::Method::GET | http::Method::HEAD | http::Method::OPTIONS);
        let body = response.body_mut();
        let bytes = body.own_bytes();
        let mut charge = match is_read {
            true => self.budgets.take(user, bytes),
            // What was written is written: a refusal would be wrong.
            false => self.budgets.force(user, bytes),
        };
        if let Body::Listing(listing) = body {
            if let Some(Carrier(connection)) = parts.extensions.get().cloned() {
                listing.when_stalled(Box::new(move || connection.stall()));
            }
            if charge.is_none() {
                // Nothing of it has been sent yet. It waits without a seat, which other requests may need.
                listing.release();
                let patience = self.options.request_timeout.checked_div(BUDGET_PATIENCE).unwrap_or_default();
                charge = self.budgets.wait(user, bytes, patience).await;
            }
        }
        body.charge(charge.ok_or_else(too_many_requests)?);
        Ok(())
    }
}
