//! Streams of answers, cut into frames: one JSON text a line, or server-sent events.
//!
//! Bytes go in as they arrive, in pieces of any size; whole frames come out. Nothing here changes what
//! the client receives: it is a reader that runs beside the relay. A frame beyond the bound is given
//! up on, not buffered: then the stream is relayed without being understood.

/// Ollama's own Go client gives up at 8 MB a line.
const MAX_FRAME_BYTES: usize = 8 << 20;

/// An answer in one piece holds all that a stream brings in many.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// How an answer is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One JSON body.
    Whole,
    /// One JSON text a line.
    Ndjson,
    /// `data:` lines, an empty line after each event.
    Sse,
}

/// Collects bytes and hands out frames.
#[derive(Debug)]
pub struct Frames {
    framing: Framing,
    /// What has arrived of a line (or of the body) that is not finished.
    partial: Vec<u8>,
    /// The data of the event being read.
    data: Vec<u8>,
    gave_up: bool,
}

impl Frames {
    pub fn new(framing: Framing) -> Self {
        Self { framing, partial: Vec::new(), data: Vec::new(), gave_up: false }
    }

    /// Takes the next bytes and calls `each` for every frame they complete, with the place in these bytes
    /// where the frame begins (0 if it began earlier).
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], usize)) {
        if self.gave_up {
            return;
        }
        match self.framing {
            Framing::Whole => self.partial.extend_from_slice(bytes),
            Framing::Ndjson | Framing::Sse => self.lines(bytes, &mut each),
        }
        let most = if self.framing == Framing::Whole { MAX_WHOLE_BYTES } else { MAX_FRAME_BYTES };
        if self.partial.len() + self.data.len() > most {
            self.gave_up = true;
            self.partial = Vec::new();
            self.data = Vec::new();
        }
    }

    /// The stream has ended: a whole body is a frame now; half a line is not.
    pub fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if self.framing == Framing::Whole && !self.gave_up && !self.partial.is_empty() {
            each(&std::mem::take(&mut self.partial));
        }
    }

    /// Whether the last byte was within a frame. Of one that was given up on nobody knows.
    pub fn is_within(&self) -> bool {
        self.gave_up || !self.partial.is_empty() || !self.data.is_empty()
    }

    /// Whether a frame was too large to be read.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn lines(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8], usize)) {
        let (mut read, mut frame_at) = (0, 0);
        while let Some(end) = memchr::memchr(b'\n', &bytes[read..]).map(|end| read + end) {
            let mut complete = false;
            let mut each = |frame: &[u8]| {
                complete = true;
                each(frame, frame_at);
            };
            if self.partial.is_empty() {
                Self::line(self.framing, &mut self.data, &bytes[read..end], &mut each);
            } else {
                self.partial.extend_from_slice(&bytes[read..end]);
                let line = std::mem::take(&mut self.partial);
                Self::line(self.framing, &mut self.data, &line, &mut each);
            }
            read = end + 1;
            if complete {
                frame_at = read;
            }
        }
        self.partial.extend_from_slice(&bytes[read..]);
    }

    fn line(framing: Framing, data: &mut Vec<u8>, line: &[u8], each: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if framing == Framing::Ndjson {
            if !line.is_empty() {
                each(line);
            }
        } else if line.is_empty() {
            if !data.is_empty() {
                each(data);
                data.clear();
            }
        } else if let Some(rest) = line.strip_prefix(b"data:") {
            if !data.is_empty() {
                data.push(b'\n');
            }
            data.extend_from_slice(rest.strip_prefix(b" ").unwrap_or(rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(framing: Framing, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut reader = Frames::new(framing);
        let mut frames = Vec::new();
        for piece in pieces {
            reader.push(piece, |frame, _| frames.push(frame.to_vec()));
        }
        reader.finish(|frame| frames.push(frame.to_vec()));
        frames
    }

    #[test]
    fn half_a_line_at_the_end_is_no_frame() {
        assert_eq!(frames(Framing::Ndjson, &[b"{\"a\":1}\n{\"b\""]), [b"{\"a\":1}".to_vec()]);
    }

    #[test]
    fn events_join_their_data_lines() {
        assert_eq!(
            frames(Framing::Sse, &[b"event: x\ndata: a\ndata: b\n\ndata:c\n\n"]),
            [b"a\nb".to_vec(), b"c".to_vec()]
        );
    }

    #[test]
    fn a_frame_is_told_where_it_begins_among_the_new_bytes() {
        let begins = |framing, pieces: &[&str]| {
            let mut reader = Frames::new(framing);
            let mut places = Vec::new();
            for piece in pieces {
                reader.push(piece.as_bytes(), |_, at| places.push(at));
            }
            places
        };
        assert_eq!(begins(Framing::Ndjson, &["{}\n{\"a\":1}\n{", "}\n{}\n"]), [0, 3, 0, 2]);
        assert_eq!(begins(Framing::Sse, &["data: a\n\nevent: e\ndata: b\n\nda", "ta: c\n\n"]), [0, 9, 0]);
    }

    #[test]
    fn a_line_past_the_bound_is_given_up_not_kept() {
        let mut reader = Frames::new(Framing::Ndjson);
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..10 {
            reader.push(&piece, |_, _| {});
        }
        assert!(reader.gave_up() && reader.partial.is_empty());
    }

    proptest! {
        #[test]
        fn a_stream_split_at_any_byte_gives_the_same_frames(
            text in "(data: [a-z]{0,5}\n|\n|event: x\r\n|\\{\"a\":[0-9]\\}\n){0,12}",
            at in any::<prop::sample::Index>(),
        ) {
            let bytes = text.as_bytes();
            let at = at.index(bytes.len() + 1);
            for framing in [Framing::Ndjson, Framing::Sse, Framing::Whole] {
                prop_assert_eq!(frames(framing, &[bytes]), frames(framing, &[&bytes[..at], &bytes[at..]]));
            }
        }
    }
}
