//! What each route asks for, and what a token is good for.

use http::Method;

use crate::dialect::Dialect;

/// What a token for chat opens at the upstream besides the gated routes. Everything else, such as making, sending
/// and deleting models, is for admins, also what the upstream may learn to do tomorrow.
const CHAT_ROUTES: [&str; 11] = [
    "/",
    "/api/tags",
    "/api/ps",
    "/api/show",
    "/api/version",
    "/api/embed",
    "/api/embeddings",
    "/v1/models",
    "/v1/embeddings",
    "/v1/messages/count_tokens",
    "/loadline",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Talk to models; import and delete one's own conversations.
    Chat,
    /// Read one's own history.
    Read,
    /// All of it, and manage models.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Read, Self::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> Self {
        let wanted: Vec<Scope> = scopes.into_iter().collect();
        Self(Scope::ALL.into_iter().filter(|scope| wanted.contains(scope)).collect())
    }

    /// As it is stored; a name that means nothing gives nothing.
    pub fn parse(stored: &str) -> Self {
        Self::new(Scope::ALL.into_iter().filter(|scope| stored.split(',').any(|name| name == scope.name())))
    }

    pub fn allow(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || self.0.contains(&Scope::Admin)
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(","))
    }
}

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: probes.
    Open,
    /// A token with that scope, unless nobody needs one here.
    Usual(Scope),
    /// A token with that scope, always.
    Token(Scope),
}

/// What a method on a path asks for.
pub(super) fn access(method: &Method, path: &str) -> Access {
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let reads = *method == Method::GET || *method == Method::HEAD;
    // A browser asks whether it may ask, and cannot show a token yet: the upstream answers that.
    let preflight = *method == Method::OPTIONS && !crate::api::is_ours(path) && !below("/loadline");
    if path == "/loadline/health" || path == "/loadline/ready" || preflight {
        Access::Open
    } else if crate::dashboard::is_ours(path) && reads {
        // The page itself says nothing; what it shows, it asks for with a token.
        Access::Open
    } else if below("/loadline/overview") || below("/loadline/turns") {
        Access::Token(Scope::Read)
    } else if below("/loadline/upstreams") {
        Access::Token(if reads { Scope::Read } else { Scope::Admin })
    } else if crate::api::is_ours(path) {
        Access::Token(if reads { Scope::Read } else { Scope::Chat })
    } else if path == "/metrics" || below("/loadline/events") || below("/loadline/receipts") {
        Access::Usual(Scope::Read)
    } else if Dialect::of_path(path).is_some()
        || CHAT_ROUTES.into_iter().any(|root| root == path || root != "/" && below(root))
    {
        Access::Usual(Scope::Chat)
    } else {
        Access::Usual(Scope::Admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_but_the_probes_asks_for_something() {
        for (method, path, wanted) in [
            (Method::GET, "/loadline/health", Access::Open),
            (Method::GET, "/api/conversations/1/messages", Access::Token(Scope::Read)),
            (Method::POST, "/api/conversations", Access::Token(Scope::Chat)),
            (Method::DELETE, "/api/conversations/1", Access::Token(Scope::Chat)),
            (Method::GET, "/api/snapshots/x/export", Access::Token(Scope::Read)),
            (Method::GET, "/loadline/events", Access::Usual(Scope::Read)),
            (Method::GET, "/loadline", Access::Open),
            (Method::GET, "/loadline/assets/app.js", Access::Open),
            (Method::POST, "/loadline", Access::Usual(Scope::Chat)),
            (Method::GET, "/loadline/overview", Access::Token(Scope::Read)),
            (Method::GET, "/loadline/turns/7", Access::Token(Scope::Read)),
            (Method::GET, "/loadline/upstreams", Access::Token(Scope::Read)),
            (Method::POST, "/loadline/upstreams/1/drain", Access::Token(Scope::Admin)),
            (Method::GET, "/metrics", Access::Usual(Scope::Read)),
            (Method::GET, "/metrics/other", Access::Usual(Scope::Admin)),
            (Method::DELETE, "/api/delete", Access::Usual(Scope::Admin)),
            (Method::POST, "/api/blobs/sha256:0", Access::Usual(Scope::Admin)),
            (Method::POST, "/api/chat", Access::Usual(Scope::Chat)),
            (Method::GET, "/api/conversationsx", Access::Usual(Scope::Admin)),
            (Method::POST, "/api/signout", Access::Usual(Scope::Admin)),
            (Method::GET, "/", Access::Usual(Scope::Chat)),
            (Method::GET, "/v1/models/llama", Access::Usual(Scope::Chat)),
            (Method::GET, "/loadline/healthy", Access::Usual(Scope::Chat)),
            (Method::OPTIONS, "/api/chat", Access::Open),
            (Method::OPTIONS, "/api/conversations", Access::Token(Scope::Chat)),
        ] {
            assert_eq!(access(&method, path), wanted, "{method} {path}");
        }
    }

    #[test]
    fn admin_may_do_everything_and_an_unknown_scope_nothing() {
        assert!(Scopes::parse("admin").allow(Scope::Read));
        assert!(!Scopes::parse("read").allow(Scope::Chat));
        assert!(!Scopes::parse("adminx,").allow(Scope::Read));
        assert_eq!(Scopes::parse("read,chat").to_string(), "chat,read");
    }
}
