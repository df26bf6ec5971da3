//! Tokens: which are in force, which have ended, and the one that the first start leaves in a file. None is shown.

use std::fs;
use std::path::Path;

use super::finding::Check;
use super::store::DAY_MS;
use crate::api::auth::is_in_force;
use crate::api::token::Token;
use crate::events::now_ms;
use crate::store::{ReadOnly, TokenRow};

/// The token in the file that the first start has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileToken {
    None,
    /// A file that is no token of ours.
    Foreign,
    InForce,
    /// Revoked or expired.
    Ended,
    Unknown,
}

pub(super) fn file_token(dir: &Path, store: &ReadOnly) -> FileToken {
    let Ok(text) = fs::read_to_string(dir.join("token")) else { return FileToken::None };
    let Some(token) = Token::parse(text.trim()) else { return FileToken::Foreign };
    match store.token(&token.digest()) {
        Ok(Some(row)) if is_in_force(&row) => FileToken::InForce,
        Ok(Some(_)) => FileToken::Ended,
        Ok(None) | Err(_) => FileToken::Unknown,
    }
}

pub(super) fn first_token(found: FileToken) -> Check {
    const NAME: &str = "first-token";
    match found {
        FileToken::None => Check::ok(NAME, "no token is kept in the directory"),
        FileToken::InForce => Check::ok(NAME, "the token of the user `local` is in the file `token`, and in force"),
        FileToken::Unknown => {
            Check::ok(NAME, "the token in the file `token` is made known at the next `loadline serve`")
        }
        FileToken::Ended => Check::warn(
            NAME,
            "the token in the file `token` is revoked or expired",
            "remove that file and restart `loadline serve` to get a new one",
        ),
        FileToken::Foreign => Check::warn(
            NAME,
            "the file `token` holds no token of Loadline's",
            "move it away and restart `loadline serve` to get one",
        ),
    }
}

pub(super) fn tokens(rows: &[TokenRow], auth_required: bool) -> Check {
    const NAME: &str = "tokens";
    let in_force = rows.iter().filter(|row| is_in_force(row)).count();
    let expired: Vec<&str> =
        rows.iter().filter(|row| row.revoked_at.is_none() && !is_in_force(row)).map(|row| row.name.as_str()).collect();
    let seen = match expired.as_slice() {
        [] => format!("{in_force} in force"),
        names => format!("{in_force} in force; expired: {}", names.join(", ")),
    };
    if in_force == 0 && auth_required {
        return Check::fail(
            NAME,
            format!("{seen}, and everybody needs one (auth.required)"),
            "`loadline token create NAME` makes one",
        );
    }
    let soon = now_ms() + 7 * DAY_MS;
    let ending = |row: &&TokenRow| {
        is_in_force(row) && row.expires_at.is_some_and(|at| at < soon && at - row.created_at > DAY_MS)
    };
    let ending: Vec<&str> = rows.iter().filter(ending).map(|row| row.name.as_str()).collect();
    if ending.is_empty() {
        return Check::ok(NAME, seen);
    }
    Check::warn(
        NAME,
        format!("{seen}; ending within a week: {}", ending.join(", ")),
        "`loadline token create OTHER-NAME --user USER --expires 1y` makes the next one, before they end",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn token(name: &str, expires_at: Option<i64>, revoked_at: Option<i64>) -> TokenRow {
        TokenRow {
            id: 1,
            name: name.to_owned(),
            user: name.to_owned(),
            digest: [0; 32],
            hint: "ll_abcd".to_owned(),
            scopes: "chat".to_owned(),
            created_at: 0,
            expires_at,
            revoked_at,
            last_used_at: None,
        }
    }

    #[test]
    fn tokens_that_have_ended_or_soon_will_are_told_by_name_and_never_shown() {
        assert_eq!(tokens(&[], false).status, Status::Ok);
        let check = tokens(&[token("bob", Some(1), None)], true);
        assert!(check.status == Status::Fail && check.seen.contains("bob") && !check.seen.contains("ll_"), "{check:?}");
        assert_eq!(tokens(&[token("bob", Some(1), None), token("eve", None, None)], true).status, Status::Ok);
        let check = tokens(&[token("carol", Some(now_ms() + DAY_MS), None)], false);
        assert!(check.status == Status::Warn && check.seen.contains("carol"), "{check:?}");
        assert_eq!(tokens(&[token("dan", Some(1), Some(1))], false).seen, "0 in force");
    }

    #[test]
    fn an_ended_first_token_is_told() {
        assert_eq!(first_token(FileToken::InForce).status, Status::Ok);
        assert!(first_token(FileToken::Ended).mend.is_some_and(|mend| mend.contains("remove that file")));
    }
}
