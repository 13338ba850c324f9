//! Getting one object.

use super::Call;
use crate::wire::answer::Answer;
use crate::wire::status::{Failure, Result};

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
        // Kubernetes: only what may be old comes from the cache of the version.
        Some(object) if call.query.get("resourceVersion") == "0" => call.answer_shared(200, &object).await,
        Some(object) => call.answer_stored(200, &object).await,
        None => Err(Failure::not_found(call.resource, &call.target.name)),
    }
}
