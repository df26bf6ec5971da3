//! The secret of an installation, which identity is made with. A file of its own beside the database,
//! so that a copy of the database alone does not give it away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::StoreError;

const FILE: &str = "identity.key";

/// Reads the secret, or makes it on first use.
pub(super) fn read_or_make(dir: &Path) -> Result<[u8; 32], StoreError> {
    let path = dir.join(FILE);
    let error = |source| StoreError::file(&path, source);
    let mut secret = [0; 32];
    match File::open(&path) {
        Ok(mut file) => file.read_exact(&mut secret).map_err(error)?,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            secret = new();
            write_new(dir, &path, &secret).map_err(error)?;
        }
        Err(other) => return Err(error(other)),
    }
    Ok(secret)
}

/// The secret, if there is one.
pub(super) fn read(dir: &Path) -> Result<Option<[u8; 32]>, StoreError> {
    match dir.join(FILE).exists() {
        true => read_or_make(dir).map(Some),
        false => Ok(None),
    }
}

/// Keeps a secret that was made elsewhere.
pub(super) fn write(dir: &Path, secret: &[u8; 32]) -> Result<(), StoreError> {
    let path = dir.join(FILE);
    write_new(dir, &path, secret).map_err(|error| StoreError::file(&path, error))
}

/// One that nobody has.
pub(super) fn new() -> [u8; 32] {
    let mut random = [0; 32];
    for half in random.chunks_mut(16) {
        half.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    }
    blake3::derive_key("loadline identity chain", &random)
}

/// All or nothing: a file under its name is a whole file.
fn write_new(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(dir)?.sync_all()
}
