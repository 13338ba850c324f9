//! Tokens of service accounts.

use std::sync::LazyLock;

use api::json;
use apiserver::identity::jwt;
use apiserver::identity::keys::KeyRing;

use crate::bytes::text;

/// Issuer of the tokens.
const ISSUER: &str = "us";

static KEYS: LazyLock<KeyRing> = LazyLock::new(|| KeyRing::generate().unwrap_or_else(|error| panic!("{error}")));

/// Only the signer can create a token: any other text is rejected, and so is a token with one changed letter.
pub fn apiserver_tokens(data: &[u8]) {
    let words = text(data);
    assert!(jwt::verify(&KEYS, ISSUER, &words).is_err(), "{words:?}");
    let claims = json!({"iss": ISSUER, "sub": (words.as_str())});
    let Some(token) = jwt::sign(KEYS.signing(), &claims) else { return };
    match jwt::verify(&KEYS, ISSUER, &token) {
        Ok(found) => assert_eq!(found, claims),
        // Longer than any token may be.
        Err(error) => assert!(token.len() > 16 << 10, "{error}: {words:?}"),
    }
    let mut letters = token.clone().into_bytes();
    let place =
        data.iter().take(8).fold(0_usize, |place, byte| place.wrapping_mul(256).wrapping_add(usize::from(*byte)));
    let place = place % letters.len();
    let Some(letter) = letters.get_mut(place) else { return };
    *letter = data.last().copied().unwrap_or(b'A') & 0x7f;
    let forged = String::from_utf8_lossy(&letters);
    assert!(forged == token || jwt::verify(&KEYS, ISSUER, &forged).is_err(), "{forged}");
}
