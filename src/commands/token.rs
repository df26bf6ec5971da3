//! `loadline token`: who may use the API.

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Outcome;
use super::conversations::width;
use super::data::{DataDir, when};
use crate::api::auth::{Scope, Scopes, is_in_force};
use crate::api::token::Token;
use crate::api::views::time;
use crate::events::now_ms;
use crate::store::{Change, NewToken, TokenRow};

/// Make, list and revoke access tokens.
///
/// The history API always needs a token; with `auth.required = true` everything does. A token belongs to a user,
/// and sees and continues that user's conversations only. Without a token, on loopback, one is the user `local`.
/// Works beside a running `loadline serve`, which takes notice within two seconds.
#[derive(Debug, Args)]
pub(super) struct TokenCommand {
    #[command(flatten)]
    data: DataDir,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token; it is shown once, and only its hash is kept
    Create {
        /// A name for it: letters, digits and . _ @ -
        name: String,
        /// Whose it is [default: a user of the same name]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// What it is good for, several with commas between [default: chat,read]
        #[arg(long, value_enum, value_delimiter = ',', value_name = "SCOPE")]
        scope: Vec<ScopeName>,
        /// When it ends: 12h, 30d, 8w, 1y, or a date such as 2027-01-31 [default: never]
        #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
        expires: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens; none is ever shown again
    List {
        /// Those that are revoked or expired, too
        #[arg(long)]
        all: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// End a token, by its name
    Revoke {
        /// As `list` shows it
        name: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScopeName {
    /// Talk to models; import and delete one's own conversations
    Chat,
    /// Read one's own history and events
    Read,
    /// Both, and manage models and see everybody's events
    Admin,
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Chat => Self::Chat,
            ScopeName::Read => Self::Read,
            ScopeName::Admin => Self::Admin,
        }
    }
}

impl TokenCommand {
    pub(super) async fn run(self) -> Result<Outcome> {
        match self.what {
            What::Create { ref name, ref user, ref scope, ref expires, json } => {
                let user = user.as_deref().unwrap_or(name);
                check_name("token", name)?;
                check_name("user", user)?;
                let chosen: Vec<Scope> = scope.iter().map(|scope| (*scope).into()).collect();
                let chosen = if chosen.is_empty() { vec![Scope::Chat, Scope::Read] } else { chosen };
                let now = now_ms();
                let expires_at = expires.as_deref().map(|expires| end(expires, now)).transpose()?;
                let token = Token::new()?;
                let new = NewToken {
                    name: name.clone(),
                    user: user.to_owned(),
                    digest: token.digest(),
                    hint: token.hint(),
                    scopes: Scopes::new(chosen).to_string(),
                    at: now,
                    expires_at,
                };
                self.data.change_beside(Change::CreateToken(new.clone())).await?;
                show_new(&new, &token, json);
            }
            What::List { all, json } => list(&self.data.read()?.tokens()?, all, json),
            What::Revoke { ref name } => {
                let tokens = self.data.read()?.tokens()?;
                let found = tokens.iter().find(|row| row.name == *name && is_in_force(row));
                let found = found.ok_or_else(|| anyhow!("there is no token `{name}` in force; see `token list`"))?;
                self.data.change_beside(Change::RevokeToken { id: found.id, at: now_ms() }).await?;
                eprintln!("token `{name}` is revoked; a running server takes notice within two seconds");
            }
        }
        Ok(Outcome::Fine)
    }
}

fn show_new(new: &NewToken, token: &Token, json: bool) {
    if json {
        say!(
            "{}",
            json!({
                "name": new.name, "token": token.reveal(), "user": new.user,
                "scopes": new.scopes.split(',').collect::<Vec<_>>(), "expires_at": new.expires_at.map(time),
            })
        );
        return;
    }
    say!("{}", token.reveal());
    let ends = new.expires_at.map_or_else(|| "never expires".to_owned(), |at| format!("expires {} UTC", when(at)));
    eprintln!("This is the only time it is shown. User {}, scopes {}, {ends}.", new.user, new.scopes);
}

fn list(rows: &[TokenRow], all: bool, json: bool) {
    let rows: Vec<&TokenRow> = rows.iter().filter(|row| all || is_in_force(row)).collect();
    if json {
        say!("{}", Value::from(rows.into_iter().map(about).collect::<Vec<_>>()));
        return;
    }
    if rows.is_empty() {
        say!("No tokens: `loadline token create NAME` makes one.");
        return;
    }
    let names = width(rows.iter().map(|row| row.name.as_str()), "name");
    let users = width(rows.iter().map(|row| row.user.as_str()), "user");
    let line = |name: &str, user: &str, hint: &str, scopes: &str, ends: &str, used: &str, state: &str| {
        say!("{name:<names$}  {user:<users$}  {hint:<7}  {scopes:<15}  {ends:<19}  {used:<19}  {state}");
    };
    line("name", "user", "begins", "scopes", "expires (UTC)", "last used (UTC)", "state");
    for row in rows {
        let time = |at: Option<i64>, none: &str| at.map_or_else(|| none.to_owned(), when);
        let (ends, used) = (time(row.expires_at, "never"), time(row.last_used_at, "not yet"));
        line(&row.name, &row.user, &row.hint, &row.scopes, &ends, &used, state(row));
    }
}

fn about(row: &TokenRow) -> Value {
    json!({
        "name": row.name, "user": row.user, "begins": row.hint, "scopes": row.scopes.split(',').collect::<Vec<_>>(),
        "created_at": time(row.created_at), "expires_at": row.expires_at.map(time),
        "revoked_at": row.revoked_at.map(time), "last_used_at": row.last_used_at.map(time), "state": state(row),
    })
}

fn state(row: &TokenRow) -> &'static str {
    match (row.revoked_at, is_in_force(row)) {
        (_, true) => "in force",
        (Some(_), false) => "revoked",
        (None, false) => "expired",
    }
}

pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    let good = |char: char| char.is_alphanumeric() || "._@-".contains(char);
    if name.is_empty() || name.chars().count() > 64 || !name.chars().all(good) {
        bail!("a {what}'s name has 1 to 64 letters, digits or . _ @ -");
    }
    Ok(())
}

/// A duration from now, or a date.
fn end(text: &str, now_ms: i64) -> Result<i64> {
    let wrong = || anyhow!("--expires {text}: say 12h, 30d, 8w or 1y, or a date such as 2027-01-31");
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let hours = match &text[digits.len()..] {
        "h" => Some(1),
        "d" => Some(24),
        "w" => Some(24 * 7),
        "y" => Some(24 * 365),
        _ => None,
    };
    let at = match hours {
        Some(hours) => {
            let number: i64 = digits.parse().map_err(|_| wrong())?;
            let span = number.checked_mul(hours).and_then(|hours| hours.checked_mul(3_600_000));
            span.and_then(|span| now_ms.checked_add(span)).ok_or_else(wrong)?
        }
        None => date(text).ok_or_else(wrong)?,
    };
    let representable = jiff::Timestamp::from_millisecond(at).is_ok();
    if at <= now_ms || !representable {
        bail!("--expires {text}: that is not in the future");
    }
    Ok(at)
}

fn date(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_millisecond());
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    let at = jiff::tz::TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()?;
    Some(at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_duration_or_a_date_in_the_future() {
        const HOUR: i64 = 3_600_000;
        for (text, wanted) in [
            ("12h", Some(12 * HOUR)),
            ("30d", Some(720 * HOUR)),
            ("1w", Some(168 * HOUR)),
            ("1y", Some(8760 * HOUR)),
            ("1970-01-02", Some(24 * HOUR)),
            ("1970-01-01T02:00:00Z", Some(2 * HOUR)),
            ("0d", None),
            ("-1d", None),
            ("1969-01-01", None),
            ("soon", None),
            ("d", None),
            ("", None),
            ("99999999999999999d", None),
            ("12", None),
        ] {
            assert_eq!(end(text, 0).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn names_are_plain() {
        for good in ["alice", "a.b_c@d-e", "Zoë"] {
            check_name("token", good).expect("good");
        }
        for bad in ["", "a b", "a,b", "a\nb", "../x", &"x".repeat(65)] {
            check_name("token", bad).expect_err("bad");
        }
    }
}
