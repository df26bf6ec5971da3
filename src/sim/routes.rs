//! Which path leads where. A path is looked up as Ollama's router sees it: percent-decoded first.
//!
//! Doubled slashes and a slash at the end are answered with a redirect to the plain path, as measured on
//! 0.17.4; whether 0.33 redirects as well has not been looked at.
//! What is not here is not there: `404 page not found`, and the wrong method is a 405 in plain text.

use std::sync::Arc;

use axum::body::Body;
use http::header::{HeaderValue, LOCATION};
use http::{Method, Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::dialect::Route;
use super::respond::{self, Torn};
use super::runner::World;
use super::{catalogue, exchange, show};

pub(super) async fn dispatch(
    world: &Arc<World>,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Result<Response<Body>, Torn> {
    let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
    if let Some(redirect) = redirect(method, &path) {
        return Ok(redirect);
    }
    let reads = *method == Method::GET || *method == Method::HEAD;
    let posts = *method == Method::POST;
    if let Some(route) = Route::of_path(&path) {
        return if posts { exchange::serve(world, route, body).await } else { Ok(respond::wrong_method("POST")) };
    }
    let response = match path.as_str() {
        "/" | "/api/version" | "/api/tags" if !reads => respond::wrong_method("HEAD, GET"),
        "/api/ps" | "/v1/models" if *method != Method::GET => respond::wrong_method("GET"),
        "/api/show" | "/api/embed" | "/api/pull" if !posts => respond::wrong_method("POST"),
        "/" => respond::body("text/plain; charset=utf-8", "Ollama is running"),
        "/api/version" => catalogue::version(world),
        "/api/tags" => catalogue::tags(world),
        "/api/ps" => catalogue::loaded(world),
        "/v1/models" => catalogue::models(world),
        "/api/show" => show::show(world, body),
        "/api/embed" => catalogue::embed(world, body),
        "/api/pull" => catalogue::pull(body),
        other => match other.strip_prefix("/v1/models/").filter(|_| reads) {
            Some(name) => catalogue::model(world, name),
            None => respond::not_found(),
        },
    };
    Ok(response)
}

/// Where a path with surplus slashes should have gone.
fn redirect(method: &Method, path: &str) -> Option<Response<Body>> {
    let plain = without_surplus_slashes(path);
    if plain == path || !is_known(&plain) {
        return None;
    }
    // A doubled slash is put right before routing, with 307 for all; a final one by the router.
    let permanent = *method == Method::GET && !path.contains("//");
    let status = if permanent { StatusCode::MOVED_PERMANENTLY } else { StatusCode::TEMPORARY_REDIRECT };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(&plain).ok()?);
    Some(response)
}

fn is_known(path: &str) -> bool {
    const OTHERS: [&str; 8] =
        ["/", "/api/version", "/api/tags", "/api/ps", "/v1/models", "/api/show", "/api/embed", "/api/pull"];
    Route::of_path(path).is_some() || OTHERS.contains(&path)
}

fn without_surplus_slashes(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_slashes_are_redirected_as_ollama_does() {
        let go = |method: Method, path: &str| redirect(&method, path).map(|response| response.status().as_u16());
        assert_eq!(go(Method::POST, "/api/chat"), None);
        assert_eq!(go(Method::POST, "//api/chat"), Some(307));
        assert_eq!(go(Method::POST, "/api/chat/"), Some(307));
        assert_eq!(go(Method::GET, "//api/tags"), Some(307));
        assert_eq!(go(Method::GET, "/api/tags/"), Some(301));
        assert_eq!(go(Method::GET, "/nope/"), None);
    }
}
