//! What a token looks like: `ll_`, thirty random letters and digits, and a checksum of them.
//!
//! The prefix lets people and scanners recognise a leaked one, and the checksum tells a mistyped one without
//! asking the store. A token is shown once, when it is made; what is kept is a digest. It is no secret's job
//! to be short of entropy, so one round of SHA-256 is enough: there are 62^30 of them.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "ll_";
const RANDOM: usize = 30;
const CHECKSUM: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Characters after the prefix that may be shown: far too few to guess the rest.
const HINT: usize = 4;

/// A token that is well formed; whether it is anybody's is another question. Never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The system has no randomness to give.
#[derive(Debug, thiserror::Error)]
#[error("no random numbers from the system: {0}")]
pub struct NoRandomness(getrandom::Error);

impl Token {
    pub fn new() -> Result<Self, NoRandomness> {
        let mut text = String::from(PREFIX);
        let mut bytes = [0; 64];
        while text.len() < PREFIX.len() + RANDOM {
            getrandom::fill(&mut bytes).map_err(NoRandomness)?;
            // Beyond the last multiple of 62 the remainder would favour the first digits.
            let fair = bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(DIGITS[usize::from(byte % 62)]));
            text.extend(fair.take(PREFIX.len() + RANDOM - text.len()));
        }
        text.push_str(&checksum(&text[PREFIX.len()..]));
        Ok(Self(text))
    }

    /// Whether a text claims to be a token of ours, right or wrong.
    pub fn is_claimed(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Whether there is a token anywhere in some bytes, also one whose prefix is written in capitals.
    pub fn is_in(bytes: &[u8]) -> bool {
        memchr::memchr_iter(b'_', bytes).filter_map(|at| at.checked_sub(2)).any(|at| {
            let text =
                bytes.get(at..at + PREFIX.len() + RANDOM + CHECKSUM).and_then(|text| std::str::from_utf8(text).ok());
            text.and_then(|text| text.split_at_checked(PREFIX.len()))
                .is_some_and(|(prefix, rest)| Self::parse(&format!("{}{rest}", prefix.to_lowercase())).is_some())
        })
    }

    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX).filter(|rest| rest.len() == RANDOM + CHECKSUM)?;
        if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let (random, written) = rest.split_at(RANDOM);
        (checksum(random) == written).then(|| Self(text.to_owned()))
    }

    /// The token itself, for the one time that it is shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The beginning, for telling tokens apart.
    pub fn hint(&self) -> String {
        self.0[..PREFIX.len() + HINT].to_owned()
    }

    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// Whether this is the token with that digest; takes the same time whatever the answer.
    pub fn matches(&self, digest: &[u8; 32]) -> bool {
        self.digest().ct_eq(digest).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(secret)")
    }
}

fn checksum(random: &str) -> String {
    let mut rest = crc32fast::hash(random.as_bytes());
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_and_a_mistyped_one_is_not() {
        let token = Token::new().expect("randomness");
        let text = token.reveal();
        assert_eq!(text.len(), 39);
        assert_eq!(Token::parse(text).expect("well formed"), token);
        for at in 0..text.len() {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            let wrong = String::from_utf8(wrong).expect("ASCII");
            assert!(Token::parse(&wrong).is_none(), "{at}");
        }
        for hidden in [format!("a=b;{text}x"), text.replacen("ll_", "Ll_", 1), format!("é{text}é")] {
            assert!(Token::is_in(hidden.as_bytes()), "{hidden}");
        }
        assert!(!Token::is_in(b"_") && !Token::is_in("é_ll_ll_éééééééééééééééééééé".as_bytes()));
        assert!(Token::parse(&text[..38]).is_none() && Token::parse("").is_none() && Token::parse("ll_é").is_none());
    }

    #[test]
    fn two_tokens_differ_and_only_its_own_digest_matches() {
        let (one, other) = (Token::new().expect("randomness"), Token::new().expect("randomness"));
        assert_ne!(one.reveal(), other.reveal());
        assert!(one.matches(&one.digest()) && !one.matches(&other.digest()));
    }

    #[test]
    fn a_token_does_not_print_itself() {
        let token = Token::new().expect("randomness");
        assert!(!format!("{token:?}").contains(&token.reveal()[3..]));
    }
}
