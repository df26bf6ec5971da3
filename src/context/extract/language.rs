//! What sentences and words are, and which of them announce something: the language side of the notes.
//!
//! Works by form and by short lists of phrases; it refuses to understand.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Phrases that announce something later turns need, by kind. They match where a word begins, whatever follows.
/// The first two kinds are wishes, which are the user's to have.
pub(super) const CUES: [&str; 8] = [
    "from now on|my name|call me|i prefer|remember that|remember to|please remember|please always|please never|\
     please use|please answer|please reply|please call|make sure you|keep in mind|allergic to|i want you to|merk dir|\
     ich heiße|nenn mich|je m'appelle|souviens|me llamo|recuerda|我叫|记住|請記|务必|覚えて|私の名前|меня зовут|запомни",
    "always |never |do not |don't |must |only |immer |niemals |toujours |jamais |siempre |nunca |总是|不要|必ず|всегда|никогда",
    "decided|decision|instead|agreed|we'll use|we will use|let's use|let's go with|going with|switch to|switched|\
     correction|chose |entschieden|stattdessen|décidé|plutôt|decidi|en lugar|决定|改用|決め|решили|вместо",
    "error|failed|fails|failure|exception|panic|a bug|fixed|the fix|solved|solution|root cause|crash|timed out|timeout|\
     denied|not found|fehler|erreur|fallo|错误|修复|エラー|原因|ошибк",
    "todo|deadline|due |need to|have to|has to|next step|still open|remaining|until |scheduled|muss |il faut|hay que|\
     截止|需要|締め切り|нужно",
    "is called|means |stands for|refers to|defined as|consists of|lives in|lives at|works at|works as|located|is set to|\
     runs on|depends on|heißt|s'appelle|se llama|意思是|住在|という",
    "yesterday|last week|last month|last year|last night|ago|tomorrow|next week|next month|next year|gestern|morgen|\
     hier |demain|ayer|mañana|昨天|明天|昨日|明日|вчера|завтра",
    "my |i am |i'm |i've |we've |our |mein |ich bin |mon |mi |我|私|僕|мой|моя",
];
/// What each kind is worth beside a rare word's 1.0.
const CUE_WORTH: [f32; CUES.len()] = [3.0, 0.7, 1.5, 1.5, 1.0, 1.0, 0.7, 0.5];
const WISHES: usize = 2;
pub(super) const ERRORS: usize = 3;

/// Words that say nothing alone: grammar, greetings, thanks, applause.
pub(super) const EMPTY: &str = "a about after again ah all also alright am amazing an and any anything are as assist at awesome be \
    been before being best but by bye can can't could course day did do does doing don't evening every feel first for \
    from get go going good got great had happy has have he hello help her here hey hi him his hope how i i'd i'll i'm \
    i've if in interesting into is it it's its just keep kind know let let's like little look lot lots make may me \
    more morning much my need nice night no not now of off ok okay on one only or other our out over perfect please \
    pretty quite really right said same say see she should so some something sounds still such sure take talk than \
    thank thanks that that's the their them then there these they thing things think this those though to today too \
    totally up us very wait want was way we we're welcome well were what what's when where which while who why will \
    with wonderful would wow yeah yep yes yet you you'd you'll you're you've your";

/// What the phrases in a sentence are worth, by kind.
pub(super) fn cues(sentence: &str, is_user: bool) -> [f32; CUES.len()] {
    static PHRASES: LazyLock<Option<(AhoCorasick, Vec<usize>)>> = LazyLock::new(|| {
        let phrases =
            CUES.iter().enumerate().flat_map(|(kind, list)| list.split('|').map(move |phrase| (phrase, kind)));
        let (phrases, kinds): (Vec<_>, Vec<_>) = phrases.unzip();
        let mut builder = AhoCorasick::builder();
        builder.kind(Some(AhoCorasickKind::DFA)).ascii_case_insensitive(true).match_kind(MatchKind::LeftmostLongest);
        builder.build(phrases).ok().map(|finder| (finder, kinds))
    });
    let mut found = [0.0; CUES.len()];
    let Some((finder, kinds)) = &*PHRASES else { return found };
    for hit in finder.find_iter(sentence) {
        let kind = kinds[hit.pattern().as_usize()];
        // A sentence that begins with "always" is a rule; one that has it inside is a story.
        let stress = match kind {
            ..WISHES if !is_user => 0.2,
            1 if hit.start() == 0 => 2.0,
            _ => 1.0,
        };
        if hit.start() == 0 || !sentence.as_bytes()[hit.start() - 1].is_ascii_alphanumeric() {
            found[kind] = CUE_WORTH[kind] * stress;
        }
    }
    found
}

/// Calls `each` with the sentences of a line.
pub(super) fn sentences<'a>(line: &'a str, mut each: impl FnMut(&'a str)) {
    const SHORT: [&str; 12] = ["e.g", "i.e", "dr", "mr", "mrs", "ms", "st", "vs", "no", "approx", "z.b", "bzw"];
    let is_ascii = line.is_ascii();
    let may_end = |rest: &[u8]| match is_ascii {
        true => memchr::memchr3(b'.', b'!', b'?', rest),
        false => rest.iter().position(|byte| matches!(byte, b'.' | b'!' | b'?' | 0xC0..)),
    };
    let closes =
        |c: char| matches!(c, '"' | '\'' | ')' | ']' | '”' | '’' | '」' | '』' | '）' | '.' | '!' | '?' | '！' | '？');
    let (mut start, mut next) = (0, 0);
    while let Some(step) = may_end(&line.as_bytes()[next..]) {
        let at = next + step;
        let Some(c) = line[at..].chars().next() else { break };
        next = at + c.len_utf8();
        let is_full = matches!(c, '。' | '！' | '？' | '｡' | '।' | '؟' | '۔');
        if !is_full && !matches!(c, '.' | '!' | '?' | '…') {
            continue;
        }
        let rest = line[next..].trim_start_matches(closes);
        next = line.len() - rest.len();
        let is_gap = is_full || rest.is_empty() || rest.starts_with(char::is_whitespace);
        let last = line[start..at].rsplit(' ').next().unwrap_or_default();
        let is_short = c == '.'
            && (last.len() < 2
                || SHORT.iter().any(|short| last.eq_ignore_ascii_case(short))
                || rest.trim_start().starts_with(char::is_lowercase));
        if is_gap && !is_short {
            each(&line[start..next]);
            start = next;
        }
    }
    each(&line[start..]);
}

/// Calls `each` with the words of a sentence and what their form is worth: a number, a name or an identifier most.
/// Scripts without spaces give pairs of characters instead.
pub(super) fn words<'a>(sentence: &'a str, mut each: impl FnMut(&'a str, f32)) {
    let char_at = |at: usize| sentence.get(at..).and_then(|rest| rest.chars().next());
    let (mut end, mut is_first) = (0, true);
    while let Some(c) = char_at(end) {
        let start = end;
        end += c.len_utf8();
        if is_unspaced(c) {
            let next = char_at(end).filter(|next| is_unspaced(*next)).map_or(0, char::len_utf8);
            each(&sentence[start..end + next], 0.6);
            continue;
        }
        if !c.is_alphanumeric() {
            continue;
        }
        // Digits, inner capitals and joints are signs of a number or an identifier: the more, the rarer.
        let (mut capitals, mut has_small, mut signs) =
            (usize::from(c.is_uppercase()), c.is_lowercase(), usize::from(c.is_numeric()));
        while let Some(c) = char_at(end).filter(|c| !is_unspaced(*c)) {
            let after = end + c.len_utf8();
            if c.is_lowercase() {
                has_small = true;
            } else if c.is_alphanumeric() {
                signs += usize::from(c.is_numeric() || (has_small && c.is_uppercase()));
                capitals += usize::from(c.is_uppercase());
            } else {
                let joins = matches!(c, '_' | '-' | '.' | ':' | '/' | '@' | '\'' | '’' | '+' | '#' | '=');
                if !joins || !char_at(after).is_some_and(|next| next.is_alphanumeric() || matches!(next, '/' | ':')) {
                    break;
                }
                signs += usize::from(!matches!(c, '-' | '\'' | '’' | '+'));
            }
            end = after;
        }
        let is_name = capitals > 0 && (!is_first || (capitals > 1 && !has_small));
        let form = if signs > 0 || is_name { 2.0 + 0.5 * signs.min(4) as f32 } else { 1.0 };
        each(&sentence[start..end], form);
        is_first = false;
    }
}

/// Scripts that write no spaces between words: East Asian ones, Thai, Lao, Burmese, Khmer.
fn is_unspaced(c: char) -> bool {
    let is_south_east = matches!(c as u32, 0xE00..=0xEFF | 0x1000..=0x109F | 0x1780..=0x17FF);
    let is_east = matches!(c as u32, 0x3040..=0x30FF | 0x3400..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF);
    is_south_east || is_east
}
