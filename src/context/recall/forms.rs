//! Word lists: what says nothing, what says little, and what is another word's form.
//!
//! They are English, with the commonest function words of German, French and Spanish. They are data, kept
//! sorted for those who edit them.

use std::sync::LazyLock;

use foldhash::{HashMap, HashSet};

/// Words that never count, neither in a message nor in a question: function words, thanks and greetings,
/// and the verbs people steer a chat with ("go on", "tell me", "do you remember").
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "aber", "able", "about", "actually", "again", "against", "ah", "all", "almost", "already", "also",
    "although", "always", "am", "an", "and", "another", "answer", "any", "anybody", "anyone", "anything", "are", "as",
    "asked", "at", "auch", "auf", "aus", "avec", "awesome", "basically", "be", "because", "been", "bei", "being",
    "between", "bit", "bitte", "both", "but", "by", "bye", "ca", "can", "cant", "cheers", "come", "como", "con",
    "continue", "cool", "could", "danke", "dans", "das", "dem", "den", "der", "des", "dich", "did", "didnt", "dir",
    "discussed", "do", "doch", "does", "doesnt", "doing", "done", "dont", "down", "du", "during", "each", "earlier",
    "eg", "ein", "eine", "einem", "einen", "einer", "el", "elaborate", "elle", "else", "er", "es", "est", "et", "etc",
    "even", "ever", "every", "everybody", "everyone", "everything", "explain", "few", "fine", "for", "from", "fur",
    "further", "get", "gets", "getting", "give", "go", "going", "gonna", "good", "got", "gotta", "great", "habe",
    "haben", "had", "haha", "has", "hat", "hatte", "hatten", "have", "having", "he", "hello", "help", "her", "here",
    "hers", "herself", "hey", "hi", "him", "himself", "his", "hmm", "how", "i", "ich", "id", "ie", "if", "ihr", "il",
    "ill", "im", "in", "into", "is", "isnt", "ist", "it", "its", "itself", "ive", "ja", "je", "just", "kann", "kind",
    "know", "konnen", "las", "le", "least", "les", "less", "let", "lets", "like", "lol", "look", "looks", "los",
    "lot", "lots", "make", "mal", "man", "many", "maybe", "me", "mean", "mention", "mentioned", "mich", "might",
    "mine", "mir", "mit", "more", "most", "mr", "mrs", "ms", "much", "must", "my", "myself", "nach", "need", "nein",
    "never", "nice", "nicht", "no", "nobody", "noch", "none", "nope", "nor", "not", "nothing", "nous", "now", "oder",
    "of", "off", "oh", "ok", "okay", "on", "once", "one", "ones", "only", "onto", "or", "other", "others", "ought",
    "our", "ours", "ourselves", "out", "over", "own", "para", "pas", "per", "perfect", "perhaps", "pero", "please",
    "por", "pour", "previous", "previously", "probably", "proceed", "que", "question", "qui", "quite", "rather",
    "really", "recall", "remember", "remind", "said", "same", "say", "says", "schon", "see", "several", "shall",
    "she", "should", "sie", "since", "sind", "so", "some", "somebody", "someone", "something", "sorry", "sort",
    "still", "stuff", "such", "sur", "sure", "take", "talked", "tell", "than", "thank", "thanks", "that", "thats",
    "the", "their", "theirs", "them", "themselves", "then", "there", "these", "they", "thing", "things", "think",
    "this", "those", "though", "through", "thx", "to", "told", "too", "tu", "ty", "um", "un", "una", "und", "under",
    "une", "uns", "until", "up", "upon", "us", "very", "via", "von", "vous", "wann", "wanna", "want", "warum", "was",
    "wasnt", "way", "we", "welche", "welcher", "welches", "welcome", "well", "wer", "were", "what", "whats", "when",
    "where", "whether", "which", "while", "who", "whom", "whose", "why", "wie", "will", "wir", "wird", "with",
    "within", "without", "wo", "wont", "would", "wow", "wurde", "wurden", "yeah", "yep", "yes", "yet", "you", "your",
    "yours", "yourself", "yup", "zu", "zum", "zur",
];

/// Stems so common in talk on any subject that sharing one is no sign of a shared subject. They help to
/// rank, and count little when it is decided whether anything is relevant at all.
#[rustfmt::skip]
const EVERYDAY_STEMS: &[&str] = &[
    "add", "advic", "afternoon", "ago", "agre", "appear", "area", "around", "ask", "away", "back", "bad", "becom",
    "begin", "believ", "best", "better", "big", "bring", "call", "care", "case", "certain", "chang", "cheap", "check",
    "choos", "citi", "clear", "close", "cold", "color", "compani", "consid", "cost", "countri", "coupl", "cours",
    "creat", "current", "cut", "data", "day", "deal", "decid", "definit", "detail", "differ", "draft", "earli",
    "easi", "effect", "email", "end", "enjoy", "enough", "essay", "exact", "exampl", "expand", "expect", "expens",
    "eye", "fact", "fall", "fals", "famili", "father", "feel", "final", "find", "first", "fix", "follow", "form",
    "free", "friend", "full", "fun", "funni", "general", "group", "guess", "half", "hand", "happen", "happi", "hard",
    "hate", "high", "hold", "hope", "hot", "hour", "idea", "imagin", "import", "includ", "inform", "interest", "issu",
    "job", "joke", "keep", "larg", "last", "late", "lead", "learn", "leav", "letter", "life", "line", "list", "littl",
    "live", "long", "longer", "lose", "love", "low", "made", "main", "matter", "meet", "member", "mind", "minut",
    "moment", "month", "morn", "mother", "move", "name", "new", "news", "next", "night", "notic", "number", "offer",
    "old", "open", "opinion", "page", "paragraph", "part", "pass", "pay", "peopl", "person", "pick", "place", "plan",
    "play", "poem", "point", "possibl", "price", "problem", "pull", "put", "quick", "rais", "reach", "read", "readi",
    "real", "realiz", "reason", "recommend", "remain", "remov", "rephras", "report", "requir", "result", "rewrit",
    "riddl", "right", "run", "sad", "seem", "send", "sentenc", "serv", "set", "short", "shorten", "shorter", "show",
    "side", "simpl", "sit", "size", "slowli", "small", "song", "soon", "sound", "speak", "specif", "spend", "stand",
    "start", "state", "stay", "step", "stop", "stori", "street", "style", "suggest", "summar", "summari", "suppos",
    "talk", "team", "text", "thought", "time", "tip", "today", "togeth", "tomorrow", "tonight", "top", "town",
    "translat", "tri", "true", "turn", "type", "understand", "use", "version", "wait", "watch", "week", "weekend",
    "whole", "win", "woman", "wonder", "word", "work", "world", "worri", "worth", "write", "wrong", "year",
    "yesterday", "young",
];

/// "form base": forms that no stemmer finds (irregular verbs and plurals), number words, names of months and
/// days cut short, British spellings, and everyday pairs such as mum and mother.
#[rustfmt::skip]
const BASE_FORMS: &[&str] = &[
    "analyses analysis", "app application", "apr april", "ate eat", "aug august", "beaten beat", "became become",
    "began begin", "begun begin", "bent bend", "best good", "better good", "bigger big", "biggest big",
    "bike bicycle", "bitten bite", "bled bleed", "blew blow", "blown blow", "bore bear", "borne bear", "bought buy",
    "broke break", "broken break", "brought bring", "built build", "came come", "caught catch", "centre center",
    "children child", "chose choose", "chosen choose", "colour color", "config configuration", "dad father",
    "daddy father", "db database", "dealt deal", "dec december", "doc document", "docs document", "drank drink",
    "drawn draw", "dreamt dream", "drew draw", "driven drive", "drove drive", "drunk drink", "dug dig", "eaten eat",
    "eight 8", "eleven 11", "exam examination", "fallen fall", "favourite favorite", "feb february", "fed feed",
    "feet foot", "fell fall", "felt feel", "fifty 50", "first 1st", "five 5", "flew fly", "flies fly", "flown fly",
    "forgave forgive", "forgiven forgive", "forgot forget", "forgotten forget", "forty 40", "fought fight",
    "found find", "four 4", "fri friday", "fridge refrigerator", "froze freeze", "frozen freeze", "gave give",
    "geese goose", "given give", "goes go", "gone go", "gotten get", "grandma grandmother", "grandpa grandfather",
    "granny grandmother", "grew grow", "grey gray", "grown grow", "halves half", "heard hear", "held hold",
    "hid hide", "hidden hide", "hundred 100", "hung hang", "indexes index", "indices index", "info information",
    "jan january", "jul july", "jun june", "kept keep", "kid child", "kids child", "knew know", "knives knife",
    "known know", "laid lay", "lain lie", "lay lie", "learnt learn", "leaves leaf", "led lead", "left leave",
    "lent lend", "licence license", "lit light", "lives life", "lost lose", "made make", "meant mean", "men man",
    "met meet", "metre meter", "mice mouse", "mom mother", "mommy mother", "mon monday", "movie film", "mum mother",
    "neighbour neighbor", "nine 9", "nov november", "oct october", "older old", "oldest old", "organise organize",
    "organised organize", "outgrew outgrow", "overcame overcome", "paid pay", "people person", "phone telephone",
    "photo picture", "photograph picture", "pic picture", "programme program", "proved prove", "proven prove",
    "pw password", "pwd password", "ran run", "rang ring", "repo repository", "ridden ride", "risen rise",
    "rode ride", "rose rise", "rung ring", "sang sing", "sank sink", "sat sit", "saw see", "seen see", "sent send",
    "sep september", "sept september", "seven 7", "sewn sew", "shaken shake", "shelves shelf", "shook shake",
    "shot shoot", "showed show", "shown show", "six 6", "slept sleep", "slid slide", "sold sell", "sought seek",
    "spent spend", "spoke speak", "spoken speak", "spun spin", "stole steal", "stolen steal", "stood stand",
    "struck strike", "stuck stick", "sung sing", "sunk sink", "swam swim", "swept sweep", "swore swear",
    "sworn swear", "swum swim", "taken take", "taught teach", "teeth tooth", "ten 10", "theatre theater", "third 3rd",
    "thirty 30", "thought think", "thousand 1000", "three 3", "threw throw", "thrown throw", "thu thursday",
    "thurs thursday", "took take", "tore tear", "torn tear", "tue tuesday", "tues tuesday", "tv television",
    "twelve 12", "twenty 20", "two 2", "understood understand", "vet veterinarian", "went go", "withdrawn withdraw",
    "withdrew withdraw", "wives wife", "woke wake", "woken wake", "wolves wolf", "women woman", "won win",
    "wore wear", "worn wear", "worse bad", "worst bad", "wove weave", "woven weave", "written write", "wrote write",
];

/// Whether a word, in lower case, never counts.
pub(super) fn is_stop_word(word: &str) -> bool {
    matches!(LEXICON.get(word), Some(Entry::Stop))
}

/// Whether a stem says little about what a message is about.
pub(super) fn is_everyday(stem: &str) -> bool {
    EVERYDAY.contains(stem)
}

/// The base of an irregular form.
pub(super) fn base_form(word: &str) -> Option<&'static str> {
    match LEXICON.get(word)? {
        Entry::FormOf(base) => Some(base),
        Entry::Stop => None,
    }
}

enum Entry {
    Stop,
    FormOf(&'static str),
}

/// The lists as tables: every distinct word of a conversation is looked up in them.
static LEXICON: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(|| {
    let forms = BASE_FORMS.iter().filter_map(|entry| entry.split_once(' '));
    let forms = forms.map(|(form, base)| (form, Entry::FormOf(base)));
    forms.chain(STOP_WORDS.iter().map(|word| (*word, Entry::Stop))).collect()
});

static EVERYDAY: LazyLock<HashSet<&'static str>> = LazyLock::new(|| EVERYDAY_STEMS.iter().copied().collect());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_listed_twice() {
        assert_eq!(LEXICON.len(), STOP_WORDS.len() + BASE_FORMS.len());
        assert_eq!(EVERYDAY.len(), EVERYDAY_STEMS.len());
    }

    #[test]
    fn an_irregular_form_has_its_base() {
        assert_eq!(base_form("bought"), Some("buy"));
        assert_eq!(base_form("children"), Some("child"));
        assert_eq!(base_form("harbour"), None);
    }
}
