//! Who may talk to us at all: no web page that was not invited, no method that has no use here.
//!
//! A browser will send a request to 127.0.0.1 for any page that asks it to, and a page can point its
//! own host name at 127.0.0.1. So both `Host` and `Origin` must be names we know.

use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, EXPECT, HOST, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, StatusCode};

use super::respond::Refusal;

/// Schemes of desktop programs that embed a browser and name themselves in `Origin`, as Ollama allows them.
const APP_SCHEMES: [&str; 5] = ["app", "file", "tauri", "vscode-webview", "vscode-file"];

/// Refuses what must not reach any route.
pub fn check(head: &Parts, allowed_hosts: &[String]) -> Result<(), Refusal> {
    if head.method == Method::CONNECT || head.method == Method::TRACE {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here"));
    }
    if head.headers.get_all(HOST).iter().count() > 1 {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "more than one Host header"));
    }
    if head.headers.get(EXPECT).is_some_and(|expected| !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refusal::new(StatusCode::EXPECTATION_FAILED, "only `Expect: 100-continue` can be met"));
    }
    let host = head.headers.get(HOST).map(|host| host.to_str().unwrap_or(""));
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str));
    let absolute = head.uri.authority().map(http::uri::Authority::as_str);
    for named in [host, absolute].into_iter().flatten() {
        if !is_known_host(host_of(named), allowed_hosts) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                format!("host `{}` is not known here; add it to server.allowed_hosts if it is yours", printable(named)),
            ));
        }
    }
    if host.is_none() && head.version == http::Version::HTTP_11 {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "missing Host header"));
    }
    if let Some(origin) = head.headers.get(ORIGIN)
        && !is_known_origin(origin.to_str().unwrap_or(""), allowed_hosts)
    {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "this origin is not known here; if it is yours, add its host to server.allowed_hosts, or for another scheme than http the whole origin (chrome-extension://…)",
        ));
    }
    Ok(())
}

/// The origin of a request, if it is one that we know: a page there may read the answer.
pub fn known_origin(headers: &HeaderMap, allowed_hosts: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    is_known_origin(origin.to_str().ok()?, allowed_hosts).then(|| origin.clone())
}

/// What an answer says of itself.
const OUR_HEADERS: &str = "X-Loadline-Conversation, X-Loadline-Tokens, X-Loadline-Usage, X-Loadline-Basis, \
    X-Loadline-Action, X-Loadline-Warning, X-Loadline-Snapshot, X-Loadline-Receipt, X-Loadline-Mode";

/// Lets a page of a known origin read an answer, where Ollama has not said so already, and our headers in it.
pub fn let_read(origin: HeaderValue, headers: &mut HeaderMap) {
    if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if headers.contains_key("x-loadline-tokens") && !headers.contains_key(ACCESS_CONTROL_EXPOSE_HEADERS) {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(OUR_HEADERS));
    }
}

fn is_known_origin(origin: &str, allowed_hosts: &[String]) -> bool {
    match origin.split_once("://") {
        Some(("http" | "https", host)) => is_known_host(host_of(host), allowed_hosts),
        Some((scheme, _)) => APP_SCHEMES.contains(&scheme) || allowed_hosts.contains(&origin.to_lowercase()),
        None => false,
    }
}

fn is_known_host(host: &str, allowed_hosts: &[String]) -> bool {
    let host = host.to_lowercase();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let address = bare.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback()) || allowed_hosts.contains(&host)
}

/// The host without its port.
fn host_of(authority: &str) -> &str {
    // The port is what follows the last colon, if it is a number; a colon inside brackets is the address's.
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = http::Request::builder().uri("/api/tags");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        check(&head, &["chat.example".to_owned(), "chrome-extension://abcdef".to_owned()])
            .err()
            .map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn loopback_names_and_invited_hosts_pass() {
        for host in ["localhost", "localhost:11435", "127.0.0.1:1", "[::1]:80", "chat.example", "LOCALHOST"] {
            assert_eq!(status(&[("host", host)]), None, "{host}");
        }
        assert_eq!(status(&[("host", "localhost"), ("origin", "http://localhost:3000")]), None);
        assert_eq!(status(&[("host", "localhost"), ("origin", "vscode-webview://abc")]), None);
        assert_eq!(status(&[("host", "localhost"), ("origin", "chrome-extension://abcdef")]), None);
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil.example",
            "[::1].evil.example",
            "localhost:80@evil.example",
        ] {
            assert_eq!(status(&[("host", host)]), Some(403), "{host}");
        }
        for origin in ["http://evil.example", "null", "https://localhost.evil.example", "chrome-extension://other"] {
            assert_eq!(status(&[("host", "localhost"), ("origin", origin)]), Some(403), "{origin}");
        }
        assert_eq!(status(&[("host", "localhost"), ("host", "localhost")]), Some(400));
        assert_eq!(status(&[]), Some(400));
    }
}
