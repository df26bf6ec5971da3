//! Who is called when something happens, and how. A secret and the addresses, which may hold one, stay unsaid.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;

use super::{ConfigError, raw, seconds};
use crate::events::{KINDS, is_of};
use crate::webhooks::{Key, Secret};

/// Each receiver has a task and a connection of its own.
const MAX_URLS: usize = 16;

#[derive(Debug, Clone)]
pub struct Webhooks {
    pub receivers: Vec<Receiver>,
    pub secret: Secret,
    /// Read when the server starts: other commands have no use for what is in it.
    pub secret_file: Option<PathBuf>,
    /// Empty: all.
    pub kinds: Vec<String>,
    pub timeout: Duration,
    pub max_attempts: u32,
}

/// An address that is called.
#[derive(Clone)]
pub struct Receiver {
    pub uri: Uri,
    /// As it was written, for recognising it after a restart.
    written: String,
    /// Its place among the addresses, from 1.
    number: usize,
}

impl Webhooks {
    pub(super) fn check(raw: raw::Webhooks) -> Result<Self, ConfigError> {
        let value = |key, reason: String| ConfigError::Value { key, reason };
        let urls = "webhooks.urls";
        if raw.urls.len() > MAX_URLS {
            return Err(value(urls, format!("there can be {MAX_URLS} at most")));
        }
        let numbered = raw.urls.iter().enumerate();
        let receivers = numbered.map(|(at, url)| {
            if raw.urls[..at].contains(url) {
                return Err(value(urls, format!("number {} is there twice", at + 1)));
            }
            Receiver::new(url, at + 1).map_err(|reason| value(urls, format!("number {} {reason}", at + 1)))
        });
        let receivers = receivers.collect::<Result<_, _>>()?;
        Key::of(&raw.secret).map_err(|error| value("webhooks.secret", error.to_string()))?;
        if !raw.secret.is_empty() && !raw.secret_file.is_empty() {
            return Err(value("webhooks.secret_file", "webhooks.secret is set, too: only one can be".to_owned()));
        }
        if let Some(kind) = raw.kinds.iter().find(|kind| !KINDS.iter().any(|known| is_of(known, kind))) {
            return Err(value("webhooks.kinds", format!("`{kind}` is not a kind of event")));
        }
        if !(1..=300).contains(&raw.timeout_s) {
            return Err(value("webhooks.timeout_s", "must be between 1 and 300".to_owned()));
        }
        if !(1..=100).contains(&raw.max_attempts) {
            return Err(value("webhooks.max_attempts", "must be between 1 and 100".to_owned()));
        }
        Ok(Self {
            receivers,
            secret: raw.secret,
            secret_file: Some(PathBuf::from(raw.secret_file)).filter(|path| !path.as_os_str().is_empty()),
            kinds: raw.kinds,
            timeout: seconds(raw.timeout_s),
            max_attempts: raw.max_attempts,
        })
    }
}

impl Receiver {
    /// The error is the end of a sentence, and does not quote the address.
    fn new(url: &str, number: usize) -> Result<Self, &'static str> {
        let not_a_url = "is not an address like https://example.org/hook";
        let uri: Uri = url.parse().map_err(|_| not_a_url)?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(not_a_url)?;
        if !uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
            return Err("is neither http:// nor https://");
        }
        if authority.as_str().contains('@') {
            return Err("has a user name or password in it, which would end up in logs: use webhooks.secret");
        }
        Ok(Self { uri, written: url.to_owned(), number })
    }

    pub fn is_https(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// The name in the store of how far it has come.
    pub fn cursor(&self) -> String {
        format!("webhook:{}", blake3::hash(self.written.as_bytes()).to_hex())
    }
}

/// For logs: paths and queries of such addresses are often secrets themselves.
impl fmt::Display for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) =
            (self.uri.scheme_str().unwrap_or_default(), self.uri.authority().map(|host| host.as_str()));
        write!(formatter, "number {}, {scheme}://{}", self.number, host.unwrap_or_default())
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Receiver({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags};

    fn load(written: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("loadline.toml");
        std::fs::write(&path, format!("[webhooks]\n{written}\n")).expect("file");
        Config::load(Some(&path), [], Flags::default())
    }

    #[test]
    fn what_cannot_be_called_is_an_error_that_names_the_key_and_not_the_address() {
        for (written, key) in [
            (r#"urls = ["ftp://h/hidden"]"#, "webhooks.urls: number 1 is neither"),
            (r#"urls = ["/hidden"]"#, "webhooks.urls: number 1 is not an address"),
            (r#"urls = ["h/hidden"]"#, "webhooks.urls: number 1 is not an address"),
            (r#"urls = ["http://"]"#, "webhooks.urls: number 1 is not an address"),
            (r#"urls = ["http://ok/", "https://me:hidden@h/"]"#, "webhooks.urls: number 2 has a user name"),
            (r#"urls = ["http://h/hidden", "http://h/hidden"]"#, "webhooks.urls: number 2 is there twice"),
            (r#"secret = "whsec_hidden!""#, "webhooks.secret: "),
            ("secret = \"hidden\"\nsecret_file = \"x\"", "webhooks.secret_file: "),
            (r#"kinds = ["rolover"]"#, "webhooks.kinds: `rolover`"),
            ("timeout_s = 0", "webhooks.timeout_s: "),
            ("max_attempts = 0", "webhooks.max_attempts: "),
        ] {
            let error = load(written).expect_err(written).to_string();
            assert!(error.starts_with(key) && !error.contains("hidden"), "{error}");
        }
        let many: Vec<_> = (0..=MAX_URLS).map(|number| format!("\"http://h/{number}\"")).collect();
        assert!(load(&format!("urls = [{}]", many.join(","))).is_err());
    }

    #[test]
    fn neither_a_secret_nor_the_secret_parts_of_an_address_are_shown() {
        let written = "urls = [\"https://h:1/hidden?token=hidden\"]\nsecret = \"hidden\"";
        let config = load(written).expect("valid");
        let shown = format!("{config:?} {:#?}", config.webhooks);
        assert!(shown.contains("https://h:1") && !shown.contains("hidden"), "{shown}");
        let raw: raw::Raw = toml::from_str("[webhooks]\nsecret = \"hidden\"").expect("valid");
        let shown = format!("{raw:?} {}", toml::to_string(&raw).expect("a table"));
        assert!(!shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn an_error_in_the_line_of_a_secret_does_not_quote_it() {
        for written in ["secret = hidden", "secret = [\"hidden\"]", "secret = \"hidden"] {
            let error = load(written).expect_err(written).to_string();
            assert!(error.contains("line 2") && !error.contains("hidden"), "{error}");
        }
    }
}
