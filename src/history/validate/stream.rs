//! Cuts a stream into lines for the validator.
//!
//! A line that lies whole in the reader's buffer is not copied. A line beyond the
//! limit is skipped rather than stored, so no input can make memory grow.

use std::io::{BufRead, ErrorKind, Result};

use super::{Options, Report, Validator};

/// The buffer for lines that span reads is given back above this size.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Validates everything that `reader` gives. Only reading can fail.
pub fn validate(mut reader: impl BufRead, options: &Options) -> Result<Report> {
    let mut validator = Validator::new(options);
    // Room for the line end and a byte order mark, which do not count.
    let limit_bytes = options.max_line_bytes.saturating_add(8);
    let mut partial = Partial::default();
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            partial.finish_line(&mut validator);
            return Ok(validator.finish());
        }
        let read_bytes = buffer.len();
        let mut rest = buffer;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            if partial.is_empty() {
                validator.line(line);
            } else {
                partial.extend(line, limit_bytes);
                partial.finish_line(&mut validator);
            }
        }
        partial.extend(rest, limit_bytes);
        reader.consume(read_bytes);
    }
}

/// The beginning of a line whose end has not been read yet.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub(super) bytes: Vec<u8>,
    too_long: bool,
}

impl Partial {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.too_long
    }

    pub(super) fn extend(&mut self, bytes: &[u8], limit_bytes: usize) {
        if self.too_long || self.bytes.len() + bytes.len() > limit_bytes {
            self.too_long = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn finish_line(&mut self, validator: &mut Validator) {
        if self.too_long {
            validator.skipped_long_line();
        } else if !self.bytes.is_empty() {
            validator.line(&self.bytes);
        }
        self.too_long = false;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BUFFER_BYTES);
    }
}
