//! A chat template, learnt: what stands between the messages of a rendered prompt.
//!
//! Ollama renders a conversation through the model's template, and only the upstream knows how. But
//! it will show a rendering when asked. So each distinct *gap* between two messages is learnt once,
//! from a rendering in which every text is a marker; after that a prompt is composed here, without
//! asking, by putting texts and gaps together.
//!
//! A gap's key holds all that a template could look at: the roles on both sides, tools, thinking, how
//! near the end is, where the user's last message is, and the digest of any message that is more than
//! text (tool calls, thinking, images). Whatever a template depends on beyond that shows up as a
//! difference between the predicted and the reported count, and then nothing learnt is trusted.
//!
//! System messages float: some templates put them first, others beside the last user message. So they
//! are not slots of their own but parts of the gaps.
//!
//! A tool call is rendered by itself, and no two are alike: an agent's every step would be a new shape. So a
//! gap with calls in it is learnt twice, as it is and with arguments, thinking and content cut out of it (*inner* texts), under
//! a key that holds neither them nor any id. The latter serves for the next step, if its arguments can be written
//! as the upstream would.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use foldhash::HashMap;

use super::inner::{Inner, Spelling};
use super::remembered::Remembered;
use super::{Generation, Tokenizer};

/// Gaps of all shapes ever seen from one model. Past this, learning starts over.
const MAX_GAPS: usize = 20_000;
const MAX_BYTES: usize = 64 << 20;

/// What of a message the template may look at, and its text by a number: messages come again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub class: u64,
    /// The same without ids and without what is in tool calls.
    pub general: u64,
    pub opaque: bool,
    pub text_hash: u64,
}

/// The number of a text. Another one in each process, so that nobody can find two texts with the same.
pub fn text_hash(text: &str) -> u64 {
    static SEED: LazyLock<foldhash::fast::RandomState> = LazyLock::new(foldhash::fast::RandomState::default);
    SEED.hash_one(text)
}

/// One text of the prompt, in its place.
#[derive(Debug, Clone)]
pub struct Slot<'a> {
    /// Everything but the text that the template may look at, hashed; system slots float.
    pub class: u64,
    /// The same without ids and without the inner texts.
    pub general: u64,
    /// Texts within an opaque message, in the order in which they are written.
    pub inner: Vec<Inner>,
    /// Names that must not be in a gap for it to serve for others.
    pub ids: Vec<&'a str>,
    pub text: Cow<'a, str>,
    pub text_hash: u64,
    pub system: bool,
    /// Whether this is a message of the user.
    pub user: bool,
    /// Equal neighbours are joined by Ollama before the template sees them.
    pub role: u64,
    /// A message that is rendered by itself, not from its text: tool calls, thinking, nothing at all.
    /// Its text is then part of the class.
    pub opaque: bool,
}

/// A prompt's texts with the keys of the gaps around them.
#[derive(Debug)]
pub struct Shape<'a> {
    slots: Vec<Slot<'a>>,
    /// Indices of the slots whose text stands between gaps, in order.
    chain: Vec<usize>,
    systems: Vec<usize>,
    /// One more than `chain` has elements.
    keys: Vec<u64>,
    /// The keys without ids and inner texts, where they are others.
    general_keys: Vec<u64>,
}

/// What fills one gap.
#[derive(Debug, Clone)]
struct Gap {
    parts: Vec<Part>,
    /// The template strips the space around the text that follows.
    trims_next: bool,
}

#[derive(Debug, Clone)]
enum Part {
    Literal(Arc<Literal>),
    /// The text of the n-th system message.
    System(usize),
    /// The n-th inner text of the gap, as it was written or sorted.
    Inner(usize, Spelling),
}

#[derive(Debug)]
struct Literal {
    text: String,
    /// The text before the first special token, the tokens up to the last one, and the text from that
    /// one on; `None` when there is no special token in it.
    cut: Option<(usize, u32, usize)>,
    /// The numbers of the text before and of the text after, or twice that of the whole.
    hashes: [u64; 2],
}

/// All gaps learnt of one model's template.
#[derive(Debug, Default)]
pub struct Layout {
    gaps: HashMap<u64, Gap>,
    bytes: usize,
}

/// The gaps of one shape, read off a rendering.
#[derive(Debug)]
pub struct Learnt {
    gaps: Vec<(u64, Gap)>,
    bytes: usize,
}

impl Learnt {
    /// Reads the gaps of a shape off a rendering of its [`Shape::markers`]. `None` if the rendering does
    /// not hold each marker once and in order: then this shape cannot be learnt.
    pub fn read(shape: &Shape<'_>, rendered: &str, tokenizer: &Tokenizer, generation: Generation) -> Option<Self> {
        let found = locate(shape, rendered)?;
        let mut gaps = Vec::with_capacity(shape.keys.len());
        let mut from = 0;
        let mut systems = found.systems.iter().peekable();
        for (gap, key) in shape.keys.iter().enumerate() {
            let next = found.chain.get(gap);
            let to = next.map_or(rendered.len(), |place| place.start);
            let mut parts = Vec::new();
            let literal_until = |position: usize, parts: &mut Vec<Part>, end: usize| {
                if end > position {
                    parts.push(Part::Literal(literal(&rendered[position..end], tokenizer, generation)));
                }
            };
            while let Some((number, place)) = systems.next_if(|(_, place)| place.end <= to) {
                literal_until(from, &mut parts, place.start);
                parts.push(Part::System(*number));
                from = place.end;
            }
            literal_until(from, &mut parts, to);
            let gap_of = |parts| Gap { parts, trims_next: next.is_some_and(|place| place.trimmed) };
            if let Some(general) = shape.general_keys.get(gap).filter(|general| *general != key)
                && let Some(parts) = generalised(&parts, shape, gap, tokenizer, generation)
            {
                gaps.push((*general, gap_of(parts)));
            }
            gaps.push((*key, gap_of(parts)));
            from = next.map_or(rendered.len(), |place| place.end);
        }
        Some(Self { gaps, bytes: 2 * rendered.len() + shape.keys.len() * 128 })
    }
}

/// A gap without its inner texts. `None` if there is any doubt about where one of them is, or if it holds an id.
fn generalised(
    parts: &[Part],
    shape: &Shape<'_>,
    gap: usize,
    tokenizer: &Tokenizer,
    generation: Generation,
) -> Option<Vec<Part>> {
    let slots = &shape.slots[shape.around(gap)];
    let written: String = parts.iter().filter_map(Part::literal).collect::<Vec<_>>().join("\0");
    if slots.iter().flat_map(|slot| &slot.ids).any(|id| written.contains(id)) {
        return None;
    }
    let inner: Vec<&Inner> = shape.inner_of(gap).collect();
    let mut spelt = Vec::with_capacity(inner.len());
    for (number, text) in inner.iter().enumerate() {
        if let Some(spelling) = text.spelling_in(&written, &inner)? {
            spelt.push((number, spelling));
        }
    }
    let mut general = Vec::with_capacity(parts.len() + 2 * spelt.len());
    let mut spelt = spelt.into_iter().peekable();
    for part in parts {
        let Some(mut rest) = part.literal() else {
            general.push(part.clone());
            continue;
        };
        while let Some((number, spelling)) = spelt.peek().copied() {
            let text = inner[number].spelt(spelling);
            let Some(at) = rest.find(text) else { break };
            general.push(Part::Literal(literal(&rest[..at], tokenizer, generation)));
            general.push(Part::Inner(number, spelling));
            rest = &rest[at + text.len()..];
            spelt.next();
        }
        general.push(Part::Literal(literal(rest, tokenizer, generation)));
    }
    spelt.peek().is_none().then_some(general)
}

impl Part {
    fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(literal) => Some(&literal.text),
            Self::System(_) | Self::Inner(..) => None,
        }
    }
}

/// A prompt put together from what was learnt.
#[derive(Debug)]
pub struct Composed<'s> {
    pieces: Vec<Piece<'s>>,
}

#[derive(Debug)]
enum Piece<'s> {
    Literal(Arc<Literal>),
    Text(Text<'s>),
}

/// A text and its number.
#[derive(Debug, Clone, Copy)]
struct Text<'s> {
    text: &'s str,
    hash: u64,
}

impl<'s> Text<'s> {
    fn of(slot: &'s Slot<'_>) -> Self {
        Self { text: &slot.text, hash: slot.text_hash }
    }

    fn new(text: &'s str) -> Self {
        Self { text, hash: text_hash(text) }
    }

    fn trimmed(self) -> Self {
        let text = self.text.trim();
        if text.len() == self.text.len() { self } else { Self::new(text) }
    }
}

impl<'a> Shape<'a> {
    /// `setting` is the digest of what the whole request says: tools, thinking, kind of request.
    pub fn new(slots: Vec<Slot<'a>>, setting: u64) -> Self {
        let systems: Vec<usize> =
            (0..slots.len()).filter(|&index| slots[index].system && !slots[index].opaque).collect();
        let chain: Vec<usize> =
            (0..slots.len()).filter(|&index| !slots[index].system && !slots[index].opaque).collect();
        let first_is_system = slots.first().is_some_and(|slot| slot.system);
        let last_user = slots.iter().rposition(|slot| slot.user);
        let setting = digest((setting, systems.len(), first_is_system));
        let keys_by = |class: fn(&Slot<'_>) -> u64| {
            let around = Around { runs: Runs::new(&slots, class), class, last_user, setting };
            (0..=chain.len())
                .map(|gap| around.key(&slots, gap.checked_sub(1).map(|gap| chain[gap]), chain.get(gap).copied()))
                .collect()
        };
        let keys = keys_by(|slot| slot.class);
        let is_special = slots.iter().any(|slot| slot.class != slot.general);
        let general_keys = if is_special { keys_by(|slot| slot.general) } else { Vec::new() };
        Self { slots, chain, systems, keys, general_keys }
    }

    /// The slots that a gap lies between, and those within it.
    fn around(&self, gap: usize) -> Range<usize> {
        let from = gap.checked_sub(1).map_or(0, |before| self.chain[before]);
        let to = self.chain.get(gap).map_or(self.slots.len(), |after| after + 1);
        from..to
    }

    /// The inner texts of the messages within a gap.
    fn inner_of(&self, gap: usize) -> impl Iterator<Item = &Inner> {
        self.slots[self.around(gap)].iter().flat_map(|slot| slot.inner.iter())
    }

    /// The texts to render in place of the real ones, so that the gaps can be told apart from them.
    /// Opaque slots are rendered as they are and have no marker.
    pub fn markers(&self) -> Vec<Option<String>> {
        self.slots.iter().enumerate().map(|(index, slot)| (!slot.opaque).then(|| marker(index))).collect()
    }

    /// One number for the whole shape.
    pub fn digest(&self) -> u64 {
        digest(&self.keys)
    }
}

/// The space around a marker shows whether the template strips it.
const MARKER_EDGE: [&str; 2] = ["\n\t ", " \t\n"];

/// Markers differ from process to process, so that nobody can write one into a message.
static MARKER_SEED: LazyLock<String> =
    LazyLock::new(|| format!("{:016x}", foldhash::fast::RandomState::default().hash_one("marker")));

fn marker(index: usize) -> String {
    format!("{}Zq{}x{index}qZ{}", MARKER_EDGE[0], *MARKER_SEED, MARKER_EDGE[1])
}

/// Runs of neighbouring messages of one role. Ollama joins each run before most templates see it.
struct Runs {
    /// Number of the run that a slot belongs to.
    of_slot: Vec<usize>,
    /// Digest of all classes in a run.
    digests: Vec<u64>,
}

impl Runs {
    fn new(slots: &[Slot<'_>], class: fn(&Slot<'_>) -> u64) -> Self {
        let mut of_slot = Vec::with_capacity(slots.len());
        let mut digests: Vec<u64> = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            if index == 0 || slots[index - 1].role != slot.role {
                digests.push(0);
            }
            if let Some(run) = digests.last_mut() {
                *run = digest((*run, class(slot)));
            }
            of_slot.push(digests.len() - 1);
        }
        Self { of_slot, digests }
    }
}

/// What the keys of all gaps of a shape are made from.
struct Around {
    runs: Runs,
    class: fn(&Slot<'_>) -> u64,
    last_user: Option<usize>,
    setting: u64,
}

impl Around {
    fn key(&self, slots: &[Slot<'_>], before: Option<usize>, after: Option<usize>) -> u64 {
        let mut hasher = KEY_STATE.build_hasher();
        self.setting.hash(&mut hasher);
        let from = before.map_or(0, |index| index + 1);
        let to = after.unwrap_or(slots.len());
        // What lies in the gap: opaque messages and system messages, in order.
        for slot in &slots[from..to] {
            ((self.class)(slot), slot.opaque, slot.system).hash(&mut hasher);
        }
        for side in [before, after] {
            let Some(index) = side else {
                u64::MAX.hash(&mut hasher);
                continue;
            };
            let run = self.runs.of_slot[index];
            ((self.class)(&slots[index]), self.runs.digests[run]).hash(&mut hasher);
            (slots.len() - 1 - index).min(2).hash(&mut hasher);
            (self.runs.digests.len() - 1 - run).min(2).hash(&mut hasher);
            self.last_user.map(|user| run.cmp(&self.runs.of_slot[user])).hash(&mut hasher);
        }
        before.is_none_or(|index| index == 0).hash(&mut hasher);
        hasher.finish()
    }
}

/// Keys only live as long as the process, so any fixed seed will do.
const KEY_STATE: foldhash::fast::FixedState = foldhash::fast::FixedState::with_seed(0x10ad);

/// A digest for classes and settings, from the same hash as the keys.
pub fn digest(value: impl Hash) -> u64 {
    KEY_STATE.hash_one(value)
}

impl Layout {
    /// Adds what was learnt from one rendering.
    pub fn add(&mut self, learnt: Learnt) {
        self.bytes += learnt.bytes;
        if self.gaps.len() + learnt.gaps.len() > MAX_GAPS || self.bytes > MAX_BYTES {
            self.forget();
            self.bytes = learnt.bytes;
        }
        self.gaps.extend(learnt.gaps);
    }

    /// Forgets the gaps of one shape.
    pub fn forget_shape(&mut self, shape: &Shape<'_>) {
        for key in shape.keys.iter().chain(&shape.general_keys) {
            self.gaps.remove(key);
        }
    }

    pub fn forget(&mut self) {
        self.gaps.clear();
        self.bytes = 0;
    }

    /// Puts a prompt together; `None` if a gap is not known.
    pub fn compose<'s>(&self, shape: &'s Shape<'_>) -> Option<Composed<'s>> {
        self.composed(shape, |gap, key| {
            self.gaps.get(key).or_else(|| shape.general_keys.get(gap).and_then(|key| self.gaps.get(key)))
        })
    }

    /// The same, from gaps that serve for others too wherever there is one.
    pub fn compose_generally<'s>(&self, shape: &'s Shape<'_>) -> Option<Composed<'s>> {
        self.composed(shape, |gap, key| {
            shape.general_keys.get(gap).and_then(|key| self.gaps.get(key)).or_else(|| self.gaps.get(key))
        })
    }

    fn composed<'l, 's>(
        &'l self,
        shape: &'s Shape<'_>,
        known: impl Fn(usize, &u64) -> Option<&'l Gap>,
    ) -> Option<Composed<'s>> {
        let mut pieces = Vec::with_capacity(shape.keys.len() * 2);
        for (gap, key) in shape.keys.iter().enumerate() {
            let known = known(gap, key)?;
            for part in &known.parts {
                pieces.push(match part {
                    Part::Literal(literal) => Piece::Literal(Arc::clone(literal)),
                    Part::System(number) => Piece::Text(Text::of(&shape.slots[*shape.systems.get(*number)?])),
                    Part::Inner(number, spelling) => {
                        Piece::Text(Text::new(shape.inner_of(gap).nth(*number)?.spelt(*spelling)))
                    }
                });
            }
            if let Some(&index) = shape.chain.get(gap) {
                let text = Text::of(&shape.slots[index]);
                pieces.push(Piece::Text(if known.trims_next { text.trimmed() } else { text }));
            }
        }
        Some(Composed { pieces })
    }

    /// Forgets what of a shape was to serve for others.
    pub fn forget_general(&mut self, shape: &Shape<'_>) {
        for key in &shape.general_keys {
            self.gaps.remove(key);
        }
    }
}

struct Place {
    start: usize,
    end: usize,
    trimmed: bool,
}

struct Located {
    chain: Vec<Place>,
    /// Number of the system message, and its place.
    systems: Vec<(usize, Place)>,
}

/// Finds all markers in one pass.
fn locate(shape: &Shape<'_>, rendered: &str) -> Option<Located> {
    let mut places: Vec<Option<Place>> = (0..shape.slots.len()).map(|_| None).collect();
    let head = format!("Zq{}x", *MARKER_SEED);
    for start in memchr::memmem::find_iter(rendered.as_bytes(), &head) {
        let digits_at = start + head.len();
        let digits = rendered[digits_at..].bytes().take_while(u8::is_ascii_digit).count();
        let index: usize = rendered[digits_at..digits_at + digits].parse().ok()?;
        let end = digits_at + digits + 2;
        if rendered.get(end - 2..end) != Some("qZ") {
            return None;
        }
        let (before, after) =
            (rendered[..start].ends_with(MARKER_EDGE[0]), rendered[end..].starts_with(MARKER_EDGE[1]));
        let place = match (before, after) {
            (true, true) => {
                Place { start: start - MARKER_EDGE[0].len(), end: end + MARKER_EDGE[1].len(), trimmed: false }
            }
            (false, false) => Place { start, end, trimmed: true },
            _ => return None,
        };
        // A text that the template writes twice is beyond composing.
        if places.get_mut(index)?.replace(place).is_some() {
            return None;
        }
    }
    let chain: Vec<Place> = shape.chain.iter().map(|&index| places[index].take()).collect::<Option<_>>()?;
    if chain.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return None;
    }
    let mut systems: Vec<(usize, Place)> =
        shape.systems.iter().enumerate().filter_map(|(number, &index)| Some((number, places[index].take()?))).collect();
    // A system text that the template strips is not worth a rule of its own.
    if systems.iter().any(|(_, place)| place.trimmed) {
        return None;
    }
    systems.sort_by_key(|(_, place)| place.start);
    Some(Located { chain, systems })
}

fn literal(text: &str, tokenizer: &Tokenizer, generation: Generation) -> Arc<Literal> {
    let cut = tokenizer.cut_at_specials(text, generation);
    let (first, last) = cut.map_or((text.len(), 0), |(first, _, last)| (first, last));
    let hashes = [text_hash(&text[..first]), text_hash(&text[last..])];
    Arc::new(Literal { text: text.to_owned(), cut, hashes })
}

impl Composed<'_> {
    /// The prompt as one text.
    pub fn text(&self) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Literal(literal) => literal.text.as_str(),
                Piece::Text(text) => text.text,
            })
            .collect()
    }

    /// Counts the prompt. Segments between special tokens are counted one by one, and remembered.
    pub fn count(&self, tokenizer: &Tokenizer, generation: Generation, cache: &SegmentCache) -> Counted {
        let mut counted = Counted { tokens: tokenizer.ends(), ambiguous: false };
        let mut segment: Vec<Text<'_>> = Vec::with_capacity(4);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => segment.push(*text),
                Piece::Literal(literal) => match literal.cut {
                    None => segment.push(Text { text: &literal.text, hash: literal.hashes[0] }),
                    Some((first, between, last)) => {
                        segment.push(Text { text: &literal.text[..first], hash: literal.hashes[0] });
                        counted.add(cache.count(&segment, tokenizer, generation));
                        counted.tokens += between;
                        segment.clear();
                        segment.push(Text { text: &literal.text[last..], hash: literal.hashes[1] });
                    }
                },
            }
        }
        counted.add(cache.count(&segment, tokenizer, generation));
        counted
    }
}

/// A number of tokens, and whether the generations of llama.cpp might disagree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub tokens: u32,
    pub ambiguous: bool,
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.ambiguous |= other.ambiguous;
    }
}

/// How many tokens a segment has, for segments seen before.
#[derive(Debug)]
pub struct SegmentCache {
    counts: Remembered<24>,
    seed: foldhash::fast::RandomState,
}

const SEGMENTS: usize = 1 << 18;

impl Default for SegmentCache {
    fn default() -> Self {
        Self { counts: Remembered::new(SEGMENTS), seed: foldhash::fast::RandomState::default() }
    }
}

impl SegmentCache {
    fn count(&self, segment: &[Text<'_>], tokenizer: &Tokenizer, generation: Generation) -> Counted {
        if segment.iter().all(|part| part.text.is_empty()) {
            return Counted { tokens: 0, ambiguous: false };
        }
        let mut hasher = self.seed.build_hasher();
        generation.hash(&mut hasher);
        segment.iter().for_each(|part| part.hash.hash(&mut hasher));
        let hash = hasher.finish();
        if let Some(tokens) = self.counts.get(hash) {
            return Counted { tokens, ambiguous: false };
        }
        let text = match segment {
            [only] => Cow::Borrowed(only.text),
            parts => parts.iter().map(|part| part.text).collect::<String>().into(),
        };
        let count = tokenizer.count(&text, generation);
        let ambiguous = count.other_generation.is_some();
        // An ambiguous count is not remembered, so that it is found ambiguous again.
        if !ambiguous {
            self.counts.put(hash, count.tokens);
        }
        Counted { tokens: count.tokens, ambiguous }
    }
}
