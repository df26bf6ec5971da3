//! Who is asking, and what they may do: one gate before every route.
//!
//! On loopback nobody has to say who they are, and is the user `local`; the history API asks for a token all
//! the same, and with `auth.required` everything does. A token may come as a bearer token, as OpenAI's clients
//! send their key, or as `x-api-key`, as Anthropic's do. What is no token of ours is the upstream's business
//! and passes; what is ours never does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use dashmap::DashMap;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::access::{Access, access};
pub use super::access::{Scope, Scopes};
use super::token::Token;
use crate::events::now_ms;
use crate::proxy::respond::Refusal;
use crate::store::{Change, Store, TokenRow};

/// Whose conversation it is when nobody has to say who they are.
pub const LOCAL_USER: &str = "local";

/// A token that was looked up is looked up again after this: a revoked one works no longer than that.
const TRUSTED_FOR: Duration = Duration::from_millis(1500);

/// Tokens remembered; more than this and all are looked up again.
const MAX_KNOWN: usize = 10_000;

/// The last use is written down this often.
const USE_NOTED_EVERY_MS: i64 = 60_000;

/// As lenient as whoever reads it upstream may be.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Where a token may be.
const OTHER_HEADERS: [HeaderName; 2] = [HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];

/// Somebody who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    pub user: Arc<str>,
    pub scopes: Scopes,
    /// The token's digest; none: nobody had to say who they are.
    pub token: Option<[u8; 32]>,
}

impl Caller {
    fn anonymous() -> Self {
        Self { user: LOCAL_USER.into(), scopes: Scopes::new([Scope::Chat, Scope::Read]), token: None }
    }

    /// Whether everybody's events are theirs to see.
    pub fn sees_all(&self) -> bool {
        self.scopes.allow(Scope::Admin)
    }
}

/// The tokens that are in use.
#[derive(Debug)]
pub struct Keys {
    store: Arc<Store>,
    required: bool,
    known: Arc<DashMap<[u8; 32], Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    looked_up: Instant,
    row: Arc<TokenRow>,
}

/// Tokens that were looked up lately.
#[derive(Debug)]
pub(crate) struct KnownTokens(Arc<DashMap<[u8; 32], Known>>);

impl KnownTokens {
    /// All of them are looked up again.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}

impl Keys {
    pub fn new(store: Arc<Store>, required: bool) -> Self {
        Self { store, required, known: Arc::default() }
    }

    /// What was looked up lately, for whoever hears that it may be so no longer.
    pub(crate) fn known(&self) -> KnownTokens {
        KnownTokens(Arc::clone(&self.known))
    }

    /// Lets a request in, or says why not. Takes tokens of ours out of its headers.
    pub async fn admit(&self, method: &Method, path: &str, headers: &mut HeaderMap) -> Result<Caller, Refusal> {
        let given = take_tokens(headers);
        let access = access(method, path);
        let scope = match access {
            Access::Open => return Ok(Caller::anonymous()),
            Access::Usual(scope) | Access::Token(scope) => scope,
        };
        let caller = match given {
            Given::Nothing if access == Access::Usual(scope) && !self.required => return Ok(Caller::anonymous()),
            Given::Nothing | Given::Wrong => return Err(unauthorised()),
            Given::Token(token) => self.caller(token).await?,
        };
        if caller.scopes.allow(scope) { Ok(caller) } else { Err(forbidden(scope)) }
    }

    /// Whether a token that was good is good no more. A store that is busy says nothing against it.
    pub async fn is_over(&self, digest: [u8; 32]) -> bool {
        self.look_up(digest).await.is_ok_and(|row| !row.is_some_and(|row| is_in_force(&row)))
    }

    async fn caller(&self, token: Token) -> Result<Caller, Refusal> {
        let digest = token.digest();
        let row = self.look_up(digest).await?.filter(|row| token.matches(&row.digest) && is_in_force(row));
        let row = row.ok_or_else(unauthorised)?;
        Ok(Caller { user: row.user.as_str().into(), scopes: Scopes::parse(&row.scopes), token: Some(digest) })
    }

    async fn look_up(&self, digest: [u8; 32]) -> Result<Option<Arc<TokenRow>>, Refusal> {
        if let Some(known) = self.known.get(&digest)
            && known.looked_up.elapsed() < TRUSTED_FOR
        {
            return Ok(Some(Arc::clone(&known.row)));
        }
        let looked_up = Instant::now();
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || store.reader().and_then(|reader| reader.token(&digest))).await;
        let row = read.ok().and_then(Result::ok).ok_or_else(|| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "tokens cannot be looked up right now: see Loadline's log")
        })?;
        let Some(row) = row.map(Arc::new) else {
            self.known.remove(&digest);
            return Ok(None);
        };
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(digest, Known { looked_up, row: Arc::clone(&row) });
        self.note_use(&row);
        Ok(Some(row))
    }

    fn note_use(&self, row: &TokenRow) {
        let now = now_ms();
        if is_in_force(row) && row.last_used_at.is_none_or(|at| now - at > USE_NOTED_EVERY_MS) {
            // Nobody waits for it, and a use that is not noted is no harm.
            drop(self.store.submit(Change::TokenUsed { id: row.id, at: now }));
        }
    }
}

pub fn is_in_force(row: &TokenRow) -> bool {
    row.revoked_at.is_none() && row.expires_at.is_none_or(|at| at > now_ms())
}

enum Given {
    Nothing,
    Token(Token),
    /// Something that claims to be a token of ours and is not, or two different ones.
    Wrong,
}

/// The token among the headers. Every header that has one in it, wherever and however, is removed, so that none
/// is forwarded; one that is not where it belongs counts as wrong, not as absent.
fn take_tokens(headers: &mut HeaderMap) -> Given {
    let mut given = Given::Nothing;
    for name in [AUTHORIZATION].into_iter().chain(OTHER_HEADERS) {
        let values: Vec<String> = headers.get_all(&name).iter().map(|value| claimed(value.as_bytes())).collect();
        if !values.iter().any(|value| Token::is_claimed(value)) {
            continue;
        }
        headers.remove(&name);
        for value in values {
            given = match (Token::parse(&value), given) {
                (Some(token), Given::Nothing) => Given::Token(token),
                (Some(token), Given::Token(same)) if token == same => Given::Token(same),
                (Some(_) | None, _) => Given::Wrong,
            };
        }
    }
    let elsewhere = |(name, value): (&HeaderName, &HeaderValue)| Token::is_in(value.as_bytes()).then(|| name.clone());
    let elsewhere: Vec<HeaderName> = headers.iter().filter_map(elsewhere).collect();
    for name in elsewhere {
        headers.remove(&name);
        if matches!(given, Given::Nothing) {
            given = Given::Wrong;
        }
    }
    given
}

/// What may be a token in a header's value. `Basic` is what comes of an address like `http://user:token@host`.
fn claimed(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once(char::is_whitespace) else { return text.to_owned() };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(pair) = FORGIVING.decode(rest.trim_end_matches('='))
    {
        let pair = String::from_utf8_lossy(&pair);
        let token = pair.split(':').find(|part| Token::is_claimed(part));
        return token.unwrap_or_default().to_owned();
    }
    if scheme.eq_ignore_ascii_case("bearer") || !Token::is_claimed(rest) {
        return rest.to_owned();
    }
    // A token under a scheme that it has no business under must not pass, and is no token.
    format!("{rest} under {scheme}")
}

/// The same for all reasons: whoever guesses learns nothing.
fn unauthorised() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "a valid token is needed: send it as `Authorization: Bearer ll_…` (`loadline token create NAME` makes one)",
    )
}

pub(super) fn forbidden(scope: Scope) -> Refusal {
    let scope = scope.name();
    Refusal::new(StatusCode::FORBIDDEN, format!("this token may not do that: it needs the scope `{scope}`"))
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn a_token_is_found_in_every_spelling_and_never_stays() {
        let token = Token::new().expect("randomness");
        let text = token.reveal();
        for (name, value) in [
            ("authorization", format!("Bearer {text}")),
            ("authorization", format!("bearer   {text} ")),
            ("authorization", text.to_owned()),
            ("authorization", format!("Basic {}", BASE64_STANDARD.encode(format!("anyone:{text}")))),
            ("authorization", format!("basic {}", BASE64_STANDARD.encode(format!("{text}:")))),
            ("x-api-key", text.to_owned()),
            ("api-key", text.to_owned()),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.trim_end().parse().expect("a value"));
            assert!(matches!(take_tokens(&mut headers), Given::Token(found) if found == token), "{name}");
            assert!(headers.is_empty(), "{name}");
        }
    }

    #[test]
    fn foreign_keys_pass_and_wrong_or_doubled_tokens_do_not() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer ollama".parse().expect("a value"));
        assert!(matches!(take_tokens(&mut headers), Given::Nothing));
        assert_eq!(headers.len(), 1);
        for wrong in ["Bearer ll_short", "Digest ll_short", "ll_"] {
            headers.insert("authorization", wrong.parse().expect("a value"));
            assert!(matches!(take_tokens(&mut headers), Given::Wrong), "{wrong}");
            assert!(headers.is_empty(), "{wrong}");
        }
        headers.insert("authorization", "Basic b3RoZXI6a2V5".parse().expect("a value"));
        assert!(matches!(take_tokens(&mut headers), Given::Nothing));
        for name in ["authorization", "x-api-key"] {
            let token = Token::new().expect("randomness");
            headers.insert(name, token.reveal().parse().expect("a value"));
        }
        assert!(matches!(take_tokens(&mut headers), Given::Wrong));
        assert!(headers.is_empty());
    }

    #[test]
    fn a_token_in_the_wrong_place_is_taken_away_and_is_wrong() {
        let token = Token::new().expect("randomness");
        let text = token.reveal();
        for (name, value) in [
            ("authorization", format!("Bearer \"{text}\"")),
            ("authorization", format!("Token {text}")),
            ("authorization", format!("Bearer Bearer {text}")),
            ("authorization", format!("Bearer x, Bearer {text}")),
            ("x-api-key", format!("key={text}")),
            ("x-goog-api-key", text.to_owned()),
            ("cookie", format!("session={text}; a=b")),
            ("referer", format!("http://localhost/?token={text}")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a value"));
            assert!(matches!(take_tokens(&mut headers), Given::Wrong), "{name}: {value}");
            assert!(headers.is_empty(), "{name}");
        }
        // Words that only look like the beginning of one are nobody's business.
        let mut headers = HeaderMap::new();
        headers.insert(
            "user-agent",
            "ll_thing/1.0 (ll_0123456789012345678901234567890123456789)".parse().expect("a value"),
        );
        assert!(matches!(take_tokens(&mut headers), Given::Nothing) && headers.len() == 1);
    }
}
