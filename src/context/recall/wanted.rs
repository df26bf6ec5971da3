//! What a query asks for, and whether anything that was said answers to it.
//!
//! This is the relevance bar: a turn that needs nothing recalls nothing, and keeps its prefix cache. A query
//! is weighed by how rare its words are in this conversation; words never said weigh most, and so a question
//! on a new subject stays below the bar even where it shares a word or two.

use foldhash::{HashSet, HashSetExt};

use super::words::{Form, Words, raw};
use super::{Index, Query, TermId, head, tail};

/// The bar. Some passage of so many messages has to share this much of the query's rarity...
const PASSAGE_MESSAGES: usize = 3;
const BAR_SHARE: f32 = 0.22;
/// ...or what about one very rare word weighs; more for a long query, in which chance matches add up...
const BAR_ENOUGH: f32 = 5.2;
const LONG_QUERY_WORDS: f32 = 8.0;
const LONG_AT_MOST: f32 = 2.0;
/// ...less for a keen query...
const KEEN_DISCOUNT: f32 = 0.4;
/// ...but never less than a fairly rare word.
const BAR_LEAST: f32 = 2.4;
/// What counts less than a word towards the bar: everyday words, and pairs of characters, of which each
/// unknown word makes several.
const BAR_EVERYDAY: f32 = 0.4;
const BAR_PAIR: f32 = 0.5;
const BAR_UNKNOWN_PAIR: f32 = 0.1;

/// A word in more than this share of the messages, and in more than a few, tells them apart no longer.
const TOO_COMMON: f32 = 0.25;
const A_FEW: usize = 3;

/// What was said before the newest message: how many of its words count, and how much. Alone they count
/// only for a question that refers back and names nothing itself.
const BEFORE_TERMS: usize = 8;
const BEFORE_WEIGHT: f32 = 0.25;
/// A query that names this many things needs no help from what was said before.
const NAMES_ENOUGH: usize = 3;
const REFERS_BACK: &[&str] = &[
    "other", "others", "another", "one", "ones", "same", "both", "former", "latter", "first", "second", "third", "he",
    "him", "his", "she", "her", "they", "them", "their", "those", "these", "previous", "earlier", "original",
];

/// A query is read at both ends, because people paste first or ask first, and only its rarest words count.
const QUERY_END_BYTES: usize = 8 * 1024;
const QUERY_TERMS: usize = 64;

impl Index {
    /// What the query asks for, its rarest terms first.
    pub(super) fn wanted(&self, query: &Query<'_>) -> Wanted {
        let mut wanted = Wanted::default();
        self.collect(query.newest, &mut wanted);
        wanted.keep_rarest(QUERY_TERMS);
        let Some(before) = query.before else { return wanted };
        let asks_back = query.newest.contains(['?', '？']) && refers_back(query.newest);
        let few = (1..NAMES_ENOUGH).contains(&wanted.terms.len());
        let names_nothing = asks_back && !wanted.tells;
        if !few && !names_nothing {
            return wanted;
        }
        let mut context = Wanted::default();
        self.collect(before, &mut context);
        context.terms.retain(|term| term.form != Form::Everyday && !wanted.terms.iter().any(|own| own.id == term.id));
        context.keep_rarest(BEFORE_TERMS);
        for term in &mut context.terms {
            term.weight *= BEFORE_WEIGHT;
        }
        if wanted.terms.is_empty() {
            return Wanted { total: context.terms.iter().map(|term| term.towards_bar).sum(), ..context };
        }
        for term in &mut context.terms {
            term.towards_bar = 0.0;
        }
        wanted.terms.extend(context.terms);
        wanted
    }

    fn collect(&self, text: &str, wanted: &mut Wanted) {
        let mut words = Words::default();
        let mut seen: HashSet<TermId> = HashSet::new();
        let mut unknown: HashSet<Box<str>> = HashSet::new();
        let ends = match text.len() > 2 * QUERY_END_BYTES {
            true => [head(text, QUERY_END_BYTES), tail(text, QUERY_END_BYTES)],
            false => [text, ""],
        };
        for word in ends.into_iter().flat_map(raw) {
            words.terms(word, |term, form| {
                wanted.tells |= matches!(form, Form::Word | Form::Pair);
                let Some(id) = self.terms.get(term).copied() else {
                    if form != Form::Whole && unknown.insert(term.into()) {
                        wanted.total += self.rarity(0) * share_of_bar(form, false);
                        wanted.said += usize::from(form != Form::Everyday);
                    }
                    return;
                };
                let said_in = self.postings(id).len();
                let common = said_in > A_FEW && said_in as f32 > TOO_COMMON * self.len() as f32;
                if !common && seen.insert(id) {
                    let weight = self.rarity(said_in);
                    let towards_bar = weight * share_of_bar(form, true);
                    wanted.total += towards_bar;
                    wanted.said += usize::from(form != Form::Everyday);
                    wanted.terms.push(Term { id, weight, towards_bar, form });
                }
            });
        }
    }

    /// How much of the query some passage shares, if that is enough for the query to be about it.
    pub(super) fn clears_bar(&self, wanted: &Wanted, keen: f32) -> Option<f32> {
        // A term counts once for a passage, however often it is said there. Passages are numbered by their first
        // message.
        let mut shared = vec![0.0; self.len()];
        for term in &wanted.terms {
            let mut counted_to = 0;
            for posting in self.postings(term.id) {
                let message = posting.message as usize;
                let first = (message + 1).saturating_sub(PASSAGE_MESSAGES).max(counted_to);
                for passage in &mut shared[first..=message] {
                    *passage += term.towards_bar;
                }
                counted_to = message + 1;
            }
        }
        let most = shared.into_iter().fold(0.0, f32::max);
        // A long message tells its own story: some of its words were said before by chance.
        let long = (wanted.said as f32 / LONG_QUERY_WORDS).max(1.0);
        let share = BAR_SHARE * long.min(LONG_AT_MOST);
        let bar = (wanted.total * share).min(BAR_ENOUGH * long * long).max(BAR_LEAST);
        let bar = bar * (1.0 - keen.clamp(0.0, 1.0) * KEEN_DISCOUNT);
        (most >= bar).then(|| most / wanted.total.max(most))
    }
}

/// What a query asks for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) terms: Vec<Term>,
    /// The rarity of all it says, said before or not.
    total: f32,
    /// How many words it says that are not everyday ones, said before or not.
    said: usize,
    /// Whether it has any word that is not an everyday one.
    pub(super) tells: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub(super) id: TermId,
    pub(super) weight: f32,
    towards_bar: f32,
    form: Form,
}

impl Wanted {
    fn keep_rarest(&mut self, most: usize) {
        self.terms.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id)));
        self.terms.truncate(most);
    }
}

fn share_of_bar(form: Form, known: bool) -> f32 {
    match form {
        Form::Word | Form::Whole => 1.0,
        Form::Everyday => BAR_EVERYDAY,
        Form::Pair if known => BAR_PAIR,
        Form::Pair => BAR_UNKNOWN_PAIR,
    }
}

fn refers_back(text: &str) -> bool {
    raw(head(text, QUERY_END_BYTES)).any(|word| REFERS_BACK.iter().any(|back| word.eq_ignore_ascii_case(back)))
}
