//! One reading of a request's path, used for every decision about it.
//!
//! Ollama's router reads `/api%2fchat` and `//api/chat` as `/api/chat`. If we decided on the path as
//! written, such a request would slip past the gate. So the path is decoded and cleaned once, and both
//! the decision and what is sent upstream come from the result.

use percent_encoding::percent_decode_str;

/// A path that no router would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is too long")]
    TooLong,
    #[error("the path contains characters that no path has")]
    Forbidden,
}

/// Longer ones are nobody's.
const MAX_BYTES: usize = 8 << 10;

/// Decodes percent escapes, joins repeated slashes, resolves `.` and `..`, drops a slash at the end.
pub fn normalise(path: &str) -> Result<String, PathError> {
    if path.len() > MAX_BYTES {
        return Err(PathError::TooLong);
    }
    let decoded = percent_decode_str(path).decode_utf8().map_err(|_| PathError::Forbidden)?;
    if decoded.chars().any(char::is_control) {
        return Err(PathError::Forbidden);
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    Ok(format!("/{}", segments.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_gated_path_is_that_path() {
        for spelling in [
            "/api/chat",
            "/api%2fchat",
            "/api%2Fchat",
            "//api/chat",
            "/api/%63hat",
            "/api/chat/",
            "/x/../api/chat",
            "/./api//chat",
        ] {
            assert_eq!(normalise(spelling).as_deref(), Ok("/api/chat"), "{spelling}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        assert_eq!(normalise("/api/chat%00"), Err(PathError::Forbidden));
        assert_eq!(normalise("/%ff"), Err(PathError::Forbidden));
        assert_eq!(normalise(&"/a".repeat(5000)), Err(PathError::TooLong));
    }

    #[test]
    fn nothing_climbs_above_the_root() {
        assert_eq!(normalise("/../../etc").as_deref(), Ok("/etc"));
        assert_eq!(normalise("/").as_deref(), Ok("/"));
    }
}
