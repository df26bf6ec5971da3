//! The token that the owner of the machine begins with: a file in the data directory that only they can read.
//!
//! The file is written before the store knows the token, and what is in the file is made known if it is not: a
//! crash in between leaves a token that works at the next start, or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::auth::{LOCAL_USER, Scope, Scopes, is_in_force};
use super::token::{NoRandomness, Token};
use crate::events::now_ms;
use crate::store::{Change, NewToken, Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum FirstTokenError {
    #[error("{path}")]
    File { path: String, source: io::Error },
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes the token if there is none yet. Returns where it is; none if the owner has made one and keeps it elsewhere.
pub async fn ensure(store: &Store, dir: &Path) -> Result<Option<PathBuf>, FirstTokenError> {
    let path = dir.join("token");
    let failed = |source| FirstTokenError::File { path: path.display().to_string(), source };
    let token = match fs::read_to_string(&path) {
        Ok(text) => match Token::parse(text.trim()) {
            Some(token) => token,
            // Somebody else's file: left as it is.
            None => return Ok(None),
        },
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            let named = |row: &crate::store::TokenRow| row.name == LOCAL_USER && is_in_force(row);
            if store.reader()?.tokens()?.iter().any(named) {
                return Ok(None);
            }
            let token = Token::new()?;
            write(dir, &path, token.reveal()).map_err(failed)?;
            token
        }
        Err(other) => return Err(failed(other)),
    };
    let known = store.reader()?.token(&token.digest())?;
    if known.as_ref().is_some_and(|row| !is_in_force(row)) {
        tracing::warn!(path = %path.display(), "the token in this file is revoked: remove the file to get a new one");
        return Ok(None);
    }
    if known.is_none() {
        let new = NewToken {
            name: LOCAL_USER.to_owned(),
            user: LOCAL_USER.to_owned(),
            digest: token.digest(),
            hint: token.hint(),
            scopes: Scopes::new(Scope::ALL).to_string(),
            at: now_ms(),
            expires_at: None,
        };
        match store.submit(Change::CreateToken(new)).await {
            // The owner has made another by that name meanwhile, or another replica has: that one counts.
            Err(StoreError::Rejected(_)) => {
                fs::remove_file(&path).map_err(failed)?;
                tracing::info!(
                    "the first token of the user `local` is elsewhere; `loadline token create NAME` makes more"
                );
                return Ok(None);
            }
            other => other?,
        }
    }
    Ok(Some(path))
}

/// All or nothing, and nobody else's to read at any moment.
fn write(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(dir)?.sync_all()
}
