//! The dashboard at `/loadline/`: a page, its style and its scripts, as they are in `assets`.
//!
//! They say nothing about anybody and are open to all; what the page shows, it asks for with the token that was
//! typed into it. The browser is told to run nothing else and to talk to nobody else.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::proxy::respond::{self, Refusal, ResponseBody};

const ROOT: &str = "/loadline";
const ASSETS: &str = "/loadline/assets/";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file as it is served.
struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($name:literal: $kind:ident),* $(,)?) => {
        &[$(Asset { name: $name, kind: $kind, text: include_str!(concat!("assets/", $name)) }),*]
    };
}

const FILES: &[Asset] = assets! {
    "api.js": SCRIPT,
    "app.js": SCRIPT,
    "card.js": SCRIPT,
    "conversation.js": SCRIPT,
    "curve.js": SCRIPT,
    "dom.js": SCRIPT,
    "favicon.svg": SVG,
    "feed.js": SCRIPT,
    "gauge.js": SCRIPT,
    "home.js": SCRIPT,
    "index.html": HTML,
    "keys.js": SCRIPT,
    "live.js": SCRIPT,
    "messages.js": SCRIPT,
    "search.js": SCRIPT,
    "status.js": SCRIPT,
    "style.css": CSS,
    "theme.js": SCRIPT,
    "turn.js": SCRIPT,
    "words.js": SCRIPT,
};

/// Whether a path is of the dashboard.
pub fn is_ours(path: &str) -> bool {
    path == ROOT || path.starts_with(ASSETS)
}

/// Answers with a file.
pub fn answer(head: &Parts, path: &str) -> Result<Response<ResponseBody>, Refusal> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "the dashboard takes GET"));
    }
    let name = path.strip_prefix(ASSETS).unwrap_or("index.html");
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the dashboard has no such file"))?;
    let tag = format!("\"{}\"", &blake3::hash(file.text.as_bytes()).to_hex()[..16]);
    let known = head.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => respond::json(StatusCode::NOT_MODIFIED, String::new()),
        false => respond::json(StatusCode::OK, file.text.to_owned()),
    };
    let headers = response.headers_mut();
    let mut insert = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    insert(CONTENT_TYPE, file.kind);
    // Asked for each time, so that a new version is seen at once.
    insert(CACHE_CONTROL, "no-cache");
    insert(CONTENT_SECURITY_POLICY, POLICY);
    insert(X_CONTENT_TYPE_OPTIONS, "nosniff");
    insert(REFERRER_POLICY, "no-referrer");
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served_and_every_served_file_is_of_the_page() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dashboard/assets");
        let there = std::fs::read_dir(dir).expect("the directory").flatten();
        let mut there: Vec<String> = there.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let mut served: Vec<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        there.sort();
        served.sort();
        assert_eq!(there, served);
    }

    #[test]
    fn text_is_only_ever_text() {
        let unsafe_ways = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"];
        for file in FILES {
            for way in unsafe_ways {
                assert!(!file.text.contains(way), "{} uses {way}", file.name);
            }
        }
    }

    #[test]
    fn nothing_comes_from_elsewhere_and_nothing_is_inline() {
        for file in FILES {
            let text = file.text.replace("http://www.w3.org/", "");
            assert!(!text.contains("src=\"http") && !text.contains("url(http"), "{}", file.name);
        }
        let page = FILES.iter().find(|file| file.name == "index.html").expect("the page").text;
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains(" onclick"));
        assert!(
            page.split("<script")
                .skip(1)
                .all(|script| script.split('>').next().is_some_and(|tag| tag.contains("src=")))
        );
    }
}
