//! What was read of models, kept on disk: after a restart the first chat does not wait for a vocabulary to be told
//! and built once more.
//!
//! One file a model, named after the digest that Ollama gives a model, which changes whenever anything of the model
//! does. A file that is damaged, or of another version of Loadline, is as good as none; nothing depends on any of them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::tokenize::Tables;

/// The first bytes of a file. The number grows whenever what follows is to be read in another way.
const MAGIC: &[u8; 16] = b"loadline-model 2";
const DIGEST_BYTES: usize = 32;

/// Models that are kept; those that were kept longest ago go first.
const MAX_FILES: usize = 64;

/// A file that is larger was not written by us.
const MAX_BYTES: u64 = 256 << 20;

/// What is kept of a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) trained_window: Option<u32>,
    pub(super) num_ctx: Option<u32>,
    pub(super) modified_at: String,
    pub(super) architecture: String,
    pub(super) runs_elsewhere: bool,
    pub(super) sees: Option<bool>,
    pub(super) tables: Tables,
}

/// A directory of such files.
#[derive(Debug, Clone)]
pub struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    /// In a data directory. It is made when there is something to keep.
    pub fn in_data_dir(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("models") }
    }

    /// What was kept of the model with that digest.
    pub(super) fn take(&self, digest: &Digest) -> Option<Kept> {
        let path = self.path(digest);
        let there = fs::symlink_metadata(&path).ok()?;
        if !there.is_file() || there.len() > MAX_BYTES {
            return None;
        }
        let mut file = Vec::with_capacity(there.len() as usize);
        fs::File::open(&path).ok()?.take(MAX_BYTES).read_to_end(&mut file).ok()?;
        let (head, kept) = file.split_at_checked(MAGIC.len() + DIGEST_BYTES)?;
        let whole = head.starts_with(MAGIC) && head.ends_with(blake3::hash(kept).as_bytes());
        let kept = whole.then(|| postcard::from_bytes(kept).ok()).flatten();
        if kept.is_none() {
            tracing::info!(file = %path.display(), "of another version, or damaged: the model is asked for again");
        }
        kept
    }

    /// Keeps what was read of a model. It is there wholly or not at all.
    pub(super) fn put(&self, digest: &Digest, kept: &Kept) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let bytes = postcard::to_stdvec(kept).map_err(io::Error::other)?;
        let path = self.path(digest);
        let partial = path.with_extension("partial");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(&bytes).as_bytes())?;
        file.write_all(&bytes)?;
        fs::rename(&partial, &path)?;
        self.remove_oldest()
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let surplus = files.len().saturating_sub(MAX_FILES);
        files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(&digest.0)
    }
}

/// What Ollama calls a model's content by: 64 hexadecimal digits, good as a file's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Digest(String);

impl Digest {
    pub(super) fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let good = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        good.then(|| Self(digits.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenize::{Generation, Keys, Tokenizer, Vocabulary};

    fn digest(number: usize) -> Digest {
        Digest::read(&format!("{number:064x}")).expect("a digest")
    }

    fn kept() -> Kept {
        let keys = Keys { model: "gpt2".to_owned(), pre: Some("llama-bpe".to_owned()), ..Keys::default() };
        let mut vocabulary = Vocabulary::with_keys(keys).expect("known");
        let bytes = (0..=255).map(|byte| crate::tokenize::mapped_character(byte).to_string());
        vocabulary.tokens = bytes.chain(["he", "ll", "hell", "\u{120}w"].map(str::to_owned)).collect();
        vocabulary.merges = ["h e", "l l", "he ll", "\u{120} w", "o x"].map(str::to_owned).to_vec();
        Kept {
            trained_window: Some(8192),
            num_ctx: None,
            modified_at: "then".to_owned(),
            architecture: "llama".to_owned(),
            runs_elsewhere: false,
            sees: None,
            tables: Tables::new(vocabulary).expect("complete"),
        }
    }

    #[test]
    fn what_was_kept_counts_as_before_and_only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("directory");
        let shelf = Shelf::in_data_dir(dir.path());
        assert!(shelf.take(&digest(1)).is_none());
        let kept = kept();
        shelf.put(&digest(1), &kept).expect("kept");
        let read = shelf.take(&digest(1)).expect("there");
        assert_eq!((read.trained_window, read.architecture.as_str()), (Some(8192), "llama"));
        let (before, after) = (Tokenizer::from_tables(&kept.tables), Tokenizer::from_tables(&read.tables));
        let (before, after) = (before.expect("a tokenizer"), after.expect("a tokenizer"));
        for (text, tokens) in [("hello world", 7), ("hell", 1), ("ox", 2), ("", 0)] {
            let count = after.count(text, Generation::default());
            assert_eq!((count.tokens, count), (tokens, before.count(text, Generation::default())), "{text}");
        }
        let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(shelf.path(&digest(1))), mode(shelf.dir.clone())), (0o600, 0o700));
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().expect("directory");
        let shelf = Shelf::in_data_dir(dir.path());
        shelf.put(&digest(1), &kept()).expect("kept");
        let path = shelf.path(&digest(1));
        let whole = fs::read(&path).expect("bytes");
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        for bytes in [&whole[..whole.len() - 1], &whole[..20], &[], &changed] {
            fs::write(&path, bytes).expect("written");
            assert!(shelf.take(&digest(1)).is_none());
        }
        fs::write(&path, &whole).expect("written");
        assert!(shelf.take(&digest(1)).is_some());
    }

    #[test]
    fn no_more_than_so_many_are_kept_and_nothing_else_is_a_name() {
        let dir = tempfile::tempdir().expect("directory");
        let shelf = Shelf::in_data_dir(dir.path());
        let kept = kept();
        for number in 0..MAX_FILES + 3 {
            shelf.put(&digest(number), &kept).expect("kept");
        }
        assert_eq!(fs::read_dir(&shelf.dir).expect("directory").count(), MAX_FILES);
        assert!(shelf.take(&digest(MAX_FILES + 2)).is_some());
        for name in ["", "../../etc/passwd", "ABC", &"0".repeat(63), &"g".repeat(64)] {
            assert_eq!(Digest::read(name), None, "{name}");
        }
    }
}
