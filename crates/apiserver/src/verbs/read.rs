//! Getting one object.

use super::Call;
use crate::http::answer::Answer;
use crate::http::status::{Failure, Result};

pub(super) async fn get(call: &Call<'_>) -> Result<Answer> {
    match call.query.get("resourceVersion") {
        "" => {
            call.wait_for_now().await?;
        }
        "0" => {}
        text => {
            let revision = text.parse().map_err(|_| {
                let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
                Failure::unclassified(format!("resourceVersion: Invalid value: \"{text}\": {why}"))
            })?;
            call.wait_for(revision).await?;
        }
    }
    match call.find_one().await? {
        Some(object) => call.answer(200, &object),
        None => Err(Failure::not_found(call.resource, &call.target.name)),
    }
}
