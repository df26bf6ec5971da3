//! Headers that must not pass, and headers that we add.

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};

use crate::context::{Action, Basis, Usage};

/// Headers that speak of one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// Removes what belongs to the connection it came on, including what `Connection` names.
/// `Transfer-Encoding` goes too: the next hop is framed anew.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(http::header::TRANSFER_ENCODING);
}

/// What a gated answer says about its prompt.
#[derive(Debug, Clone)]
pub struct Report {
    pub conversation: Option<i64>,
    /// What left the gate, and the limit.
    pub sent: Usage,
    /// What arrived at the gate.
    pub arrived: Usage,
    pub basis: Basis,
    pub action: Action,
    pub warnings: Vec<String>,
    pub snapshot: Option<String>,
    pub receipt: Option<String>,
    pub observe: bool,
}

impl Report {
    pub fn write(&self, headers: &mut HeaderMap) {
        let mut add = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(HeaderName::from_static(name), value);
            }
        };
        if let Some(conversation) = self.conversation {
            add("x-loadline-conversation", &conversation.to_string());
        }
        add("x-loadline-tokens", &format!("{}/{}", self.sent.total, self.sent.limit));
        add("x-loadline-usage", &self.arrived.to_string());
        add("x-loadline-basis", self.basis.name());
        add("x-loadline-action", self.action.name());
        for warning in &self.warnings {
            add("x-loadline-warning", warning);
        }
        if let Some(snapshot) = &self.snapshot {
            add("x-loadline-snapshot", snapshot);
        }
        if let Some(receipt) = &self.receipt {
            add("x-loadline-receipt", receipt);
        }
        if self.observe {
            add("x-loadline-mode", "observe");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_do_not_pass() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("accept", "*/*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
