//! Signatures by the Standard Webhooks convention: `v1,` and the base64 of an HMAC-SHA256 over
//! `id.timestamp.body`. Its libraries verify them, and so do ten lines of anything.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize, Serializer};
use sha2::Sha256;

/// What the convention writes before a key in base64.
const PREFIX: &str = "whsec_";

/// A secret as it was written. It is never shown: not for debugging, and not as configuration either.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it is; for those who use it, not for those who tell.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn hidden(&self) -> &'static str {
        if self.is_empty() { "" } else { "(not shown)" }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.hidden())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.hidden())
    }
}

/// A secret that is no key. It does not say what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what follows `whsec_` must be base64, such as `openssl rand -base64 32` prints")]
pub struct NotBase64;

/// What calls are signed with.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(not shown)")
    }
}

impl Key {
    /// None without a secret.
    pub fn of(secret: &Secret) -> Result<Option<Self>, NotBase64> {
        let bytes = match secret.0.strip_prefix(PREFIX) {
            Some(encoded) => BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty()).ok_or(NotBase64)?,
            None if secret.is_empty() => return Ok(None),
            None => secret.0.clone().into_bytes(),
        };
        // A key may have any length, so this does not fail.
        Ok(Hmac::new_from_slice(&bytes).ok().map(Self))
    }

    /// The value of `webhook-signature`. `timestamp` is in seconds.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str) -> Key {
        Key::of(&Secret::new(secret)).expect("a key").expect("not empty")
    }

    #[test]
    fn signatures_are_those_of_the_standard() {
        let standard = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = standard.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_without_the_prefix_is_taken_as_it_is() {
        // As `hmac.new(b"plain words", b"evt_1.1.{}", "sha256")` has it in Python.
        assert_eq!(key("plain words").sign("evt_1", 1, b"{}"), "v1,OhsLnGpqJz36QX8SkqMNPbSvao53NujwXhYjPALijto=");
    }

    #[test]
    fn a_prefix_without_base64_is_refused_and_an_empty_secret_is_none() {
        for wrong in ["whsec_", "whsec_not base64", "whsec_abc"] {
            assert_eq!(Key::of(&Secret::new(wrong)).err(), Some(NotBase64), "{wrong}");
        }
        assert!(Key::of(&Secret::default()).expect("fine").is_none());
    }

    #[test]
    fn a_secret_is_shown_nowhere() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let shown = format!("{secret:?} {key:?} {} {:#?}", serde_json::to_string(&secret).expect("json"), Some(&key));
        assert!(!shown.contains("MfKQ") && !shown.contains("whsec_"), "{shown}");
    }
}
