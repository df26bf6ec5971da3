//! Where something listens, and who answers there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::Value;

use crate::ollama::Upstream;

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);

/// A host and a port, as somebody wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    host: String,
    port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl Place {
    /// Of `http://host:port`; without a port it is the one of the scheme.
    pub(super) fn of_url(url: &str) -> Option<Self> {
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().ok()?;
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        Some(Self { host: uri.host()?.trim_matches(['[', ']']).to_lowercase(), port })
    }

    /// Of `OLLAMA_HOST`, which may leave out the scheme, the host and the port.
    pub(super) fn of_ollama_host(written: &str) -> Option<Self> {
        let written = written.trim().trim_matches(['"', '\'']);
        if written.contains("://") {
            return Self::of_url(written);
        }
        let written = written.split('/').next().unwrap_or_default();
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()?),
            _ => (written, 11434),
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Some(Self { host: host.trim_matches(['[', ']']).to_lowercase(), port })
    }

    /// Whether whoever goes to this place comes to a socket that listens at that address, as far as names tell.
    pub(super) fn is(&self, listen: SocketAddr) -> bool {
        self.port == listen.port() && (self.is_here() && is_here(listen.ip()) || self.ip() == Some(listen.ip()))
    }

    /// Whether two places are the same, as far as names tell.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.port == other.port && (self.host == other.host || self.is_here() && other.is_here())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    fn is_here(&self) -> bool {
        self.host == "localhost" || self.ip().is_some_and(is_here)
    }
}

/// Loopback, and the address that stands for all of a machine's.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// Who answers somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Who {
    Loadline(Health),
    Ollama,
    /// Something else, or something that does not answer in time.
    Other,
    Nobody,
}

/// What a running Loadline says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) version: String,
    pub(super) mode: String,
    pub(super) upstream: String,
    pub(super) store_healthy: bool,
    pub(super) compared: u64,
    pub(super) exact_mismatches: u64,
    pub(super) cut_by_upstream: u64,
}

impl Health {
    /// Of the body of `/loadline/health`; none if somebody else wrote it.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let number = |name: &str| body[name].as_u64();
        Some(Self {
            version: body["version"].as_str()?.to_owned(),
            mode: body["mode"].as_str().unwrap_or_default().to_owned(),
            upstream: body["upstream"].as_str()?.to_owned(),
            store_healthy: body["store_healthy"].as_bool()?,
            compared: number("counts_compared")?,
            exact_mismatches: number("exact_mismatches")?,
            cut_by_upstream: number("cut_by_upstream")?,
        })
    }
}

/// Asks who is there.
pub(super) async fn who(url: &str) -> Who {
    let Ok(there) = Upstream::new(url, CONNECT, ANSWER) else { return Who::Nobody };
    let health = match there.call(Method::GET, "/loadline/health", None).await {
        Err(crate::ollama::UpstreamError::Unreachable(..)) => return Who::Nobody,
        Err(_) => return Who::Other,
        Ok((_, body)) => Health::read(&body),
    };
    if let Some(health) = health {
        return Who::Loadline(health);
    }
    match there.call(Method::GET, "/api/version", None).await {
        Ok((StatusCode::OK, body)) if version(&body).is_some() => Who::Ollama,
        _ => Who::Other,
    }
}

/// Of the body of `/api/version`.
pub(super) fn version(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    Some(body["version"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("an address")
    }

    #[test]
    fn ollama_host_is_read_as_ollama_reads_it() {
        for (written, wanted) in [
            ("127.0.0.1:11435", "127.0.0.1:11435"),
            ("0.0.0.0", "0.0.0.0:11434"),
            (":8080", "127.0.0.1:8080"),
            ("http://box", "box:80"),
            ("http://box:11434/", "box:11434"),
            ("[::1]:11434", "::1:11434"),
            ("[::1]", "::1:11434"),
            ("", "127.0.0.1:11434"),
        ] {
            assert_eq!(
                Place::of_ollama_host(written).map(|place| place.to_string()).as_deref(),
                Some(wanted),
                "{written}"
            );
        }
        assert_eq!(Place::of_ollama_host("a:b"), None);
    }

    #[test]
    fn all_names_of_this_machine_s_loopback_are_one_place() {
        let place = |url: &str| Place::of_url(url).expect("a place");
        for url in ["http://127.0.0.1:11435", "http://localhost:11435/", "http://[::1]:11435", "LOCALHOST:11435"] {
            assert!(place(url).is(at("127.0.0.1:11435")) && place(url).is(at("0.0.0.0:11435")), "{url}");
        }
        for url in ["http://127.0.0.1:11434", "http://10.0.0.1:11435", "http://localhost.example:11435"] {
            assert!(!place(url).is(at("127.0.0.1:11435")), "{url}");
        }
        assert!(place("http://10.0.0.1:11435").is(at("10.0.0.1:11435")));
        assert!(place("http://localhost:1").is_same(&place("127.0.0.1:1")));
    }

    #[test]
    fn only_a_loadline_is_taken_for_one() {
        assert_eq!(Health::read(br#"{"status":"ok","version":"1"}"#), None);
        assert_eq!(Health::read(b"404 page not found"), None);
    }
}
