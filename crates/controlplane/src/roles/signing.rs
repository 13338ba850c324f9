//! Signers of the controllers: certificates with the key of an authority, tokens with that of service accounts.

use std::sync::Arc;

use api::x509::request::Request;
use apiserver::Server;
use apiserver::identity::keys::KeyRing;
use apiserver::identity::legacy_tokens::{self, Subject};
use apiserver::serving::certificates::Authority;
use apiserver::serving::certificates::issue::Terms;
use controllers::settings::{CertificateSigner, Order, TokenSource, TokenSubject};

/// Signs certificates as an authority.
pub struct Certificates(pub Authority);

impl CertificateSigner for Certificates {
    fn sign(&self, request: &Request<'_>, order: &Order<'_>) -> Result<String, String> {
        let terms = Terms { usages: order.usages, seconds: order.seconds, now: order.now };
        self.0.issue(request, &terms).map_err(|error| error.to_string())
    }
}

/// Key for service account tokens.
pub enum Tokens {
    /// The server's own: it may change while it runs.
    Server(Arc<Server>),
    /// Keys from files.
    Keys(Box<KeyRing>),
}

impl TokenSource for Tokens {
    fn token(&self, account: &TokenSubject<'_>) -> Option<String> {
        let TokenSubject { namespace, account, account_uid, secret } = *account;
        let subject = Subject { namespace, account, account_uid, secret };
        match self {
            Tokens::Server(server) => legacy_tokens::issue(server.keys().signing(), &subject),
            Tokens::Keys(keys) => legacy_tokens::issue(keys.signing(), &subject),
        }
    }
}
