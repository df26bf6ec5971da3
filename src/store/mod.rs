//! What must outlive the process: snapshots of conversations, and the secret that identity is made with.
//!
//! Files in one directory that only its owner can read. A snapshot is written and synced before the
//! rollover that made it necessary is sent anywhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::context::Message;

#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct StoreError {
    path: PathBuf,
    source: io::Error,
}

/// The data directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens the directory, making it if it is not there.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let make = |path: &Path| {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|source| StoreError { path: path.to_owned(), source })
        };
        make(dir)?;
        make(&dir.join("snapshots"))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// The secret of this installation, made on first use.
    pub fn secret(&self) -> Result<[u8; 32], StoreError> {
        let path = self.dir.join("identity.key");
        let error = |source| StoreError { path: path.clone(), source };
        let mut secret = [0; 32];
        match File::open(&path) {
            Ok(mut file) => file.read_exact(&mut secret).map_err(error)?,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                for half in secret.chunks_mut(16) {
                    half.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
                }
                let key = blake3::derive_key("loadline identity chain", &secret);
                secret = key;
                self.write_new(&path, &secret).map_err(error)?;
            }
            Err(other) => return Err(error(other)),
        }
        Ok(secret)
    }

    /// Writes the full history as it was, one message a line, and waits until it is on disk.
    pub fn write_snapshot(&self, id: &str, lines: &str) -> Result<PathBuf, StoreError> {
        let path = self.dir.join("snapshots").join(format!("{id}.jsonl"));
        // A file under its name is whole, and its name says what is in it.
        if path.exists() {
            return Ok(path);
        }
        self.write_new(&path, lines.as_bytes()).map_err(|source| StoreError { path: path.clone(), source })?;
        Ok(path)
    }

    /// All or nothing: a file under its name is a whole file.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let partial = path.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        File::open(path.parent().unwrap_or(&self.dir))?.sync_all()
    }
}

/// A history as text, one message a line.
pub fn snapshot_lines(messages: &[Message<'_>]) -> String {
    messages.iter().map(|message| line(message) + "\n").collect()
}

fn line(message: &Message<'_>) -> String {
    let calls: Vec<_> = message
        .tool_calls
        .iter()
        .map(|call| serde_json::json!({ "id": call.id, "name": call.name, "arguments": call.arguments }))
        .collect();
    let mut line = serde_json::json!({ "role": message.role.name(), "content": message.text });
    if !message.thinking.is_empty() {
        line["thinking"] = message.thinking.as_ref().into();
    }
    if !calls.is_empty() {
        line["tool_calls"] = calls.into();
    }
    for (name, value) in [("tool_name", &message.tool_name), ("tool_call_id", &message.tool_call_id)] {
        if let Some(value) = value {
            line[name] = value.as_ref().into();
        }
    }
    if message.images > 0 {
        line["images"] = message.images.into();
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Role;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_snapshot_holds_every_message_and_is_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().expect("directory");
        let store = Store::open(&dir.path().join("data")).expect("store");
        let messages = [Message::plain(Role::User, "line\nbreak", 0), Message::plain(Role::Assistant, "ok", 1)];
        let path = store.write_snapshot("snapshot-1", &snapshot_lines(&messages)).expect("written");
        let text = fs::read_to_string(&path).expect("readable");
        assert_eq!(
            text,
            "{\"role\":\"user\",\"content\":\"line\\nbreak\"}\n{\"role\":\"assistant\",\"content\":\"ok\"}\n"
        );
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_secret_stays_the_same_and_differs_between_installations() {
        let dirs = [tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory")];
        let secrets =
            dirs.each_ref().map(|dir| Store::open(dir.path()).and_then(|store| store.secret()).expect("secret"));
        assert_ne!(secrets[0], secrets[1]);
        assert_eq!(Store::open(dirs[0].path()).and_then(|store| store.secret()).expect("secret"), secrets[0]);
    }
}
