//! The ranking: BM25 over a neighbourhood, words lent by the best passages, similarity where there is any.
//!
//! The numbers were first set on half of LoCoMo's conversations; the later choices, among them the bar, were made with
//! the other half and `benches/recall` in view. Each is on a plateau, so none needs its second digit.

use foldhash::{HashMap, HashMapExt};

use super::wanted::Term;
use super::{Found, Hit, Index, Posting, Query, TermId};

/// BM25: how soon repeating a word stops to count, and how much a long message has to say it more often.
const SATURATION: f32 = 1.2;
const LENGTH_SHARE: f32 = 0.5;

/// What of a word's count reaches the messages around it, nearest first.
const NEIGHBOUR_SHARES: [f32; 6] = [0.5, 0.25, 0.12, 0.06, 0.04, 0.03];

/// How much the newest message is preferred to the oldest when both say the same.
const RECENCY: f32 = 0.05;

/// Rarity is judged as if the conversation were longer by this many messages on other subjects, so that it
/// means something in a short one.
const OTHER_MESSAGES: f32 = 50.0;

/// Behind the best hit, what scores below this share of it is left out; less so for a keen query. What is
/// recalled is read by the model each time, so the last few percent of a budget are dear.
const BAR_BEHIND_BEST: f32 = 0.3;
const BAR_WHEN_KEEN: f32 = 0.05;

/// The best messages lend the query their rarest words, at less than the weight of its own.
const LENDING_MESSAGES: usize = 10;
const LENT_TERMS: usize = 20;
const LENT_WEIGHT: f32 = 0.3;

/// Similarity alone clears the bar if it stands out of the conversation's mean by so many deviations and so
/// much, or by far. Models differ in where their mean is, so only the distance from it counts.
const SEMANTIC_DEVIATIONS: f32 = 2.5;
const SEMANTIC_MARGIN: f32 = 0.15;
const SEMANTIC_FAR: f32 = 0.3;
/// Where it does not clear the bar it still helps to order what the words found.
const SEMANTIC_HINT: f32 = 0.3;

/// Of a query that is about the archive most was said there; of one that is not, a few words by chance.
const UNSURE: f32 = 0.15;
const SURE: f32 = 0.6;

/// More hits than any budget holds.
const MOST_HITS: usize = 2048;

impl Index {
    /// The messages that bear on the query, best first; none if nothing clears the relevance bar.
    pub fn rank(&self, query: &Query<'_>) -> Vec<Hit> {
        self.search(query).hits
    }

    /// The same, and how sure it is that the query is about any of them.
    pub fn search(&self, query: &Query<'_>) -> Found {
        let wanted = self.wanted(query);
        let shared = self.clears_bar(&wanted, query.keen).filter(|_| !wanted.terms.is_empty());
        let mut scores = if shared.is_some() { self.score(&wanted.terms) } else { vec![0.0; self.len()] };
        // Only a message that names something may recall by similarity: "thanks" is similar to every "thanks".
        let semantic = query.semantic.filter(|similar| wanted.tells && similar.len() == self.len());
        if let Some(semantic) = semantic {
            fuse(&mut scores, semantic);
        }
        let newest = self.len().max(1) as f32;
        for (message, score) in scores.iter_mut().enumerate() {
            *score *= 1.0 + RECENCY * message as f32 / newest;
        }
        let keen = query.keen.clamp(0.0, 1.0);
        let bar = best(&scores) * (BAR_BEHIND_BEST + (BAR_WHEN_KEEN - BAR_BEHIND_BEST) * keen);
        let hits = best_first(&scores, MOST_HITS, |score| score > bar);
        // What similarity alone has found is as sure as that model is.
        let certainty = shared.map_or(1.0, |shared| ((shared - UNSURE) / (SURE - UNSURE)).clamp(0.0, 1.0));
        Found { hits, certainty: if semantic.is_some() { 1.0 } else { certainty.max(keen) } }
    }

    fn score(&self, terms: &[Term]) -> Vec<f32> {
        let mut scores = vec![0.0; self.len()];
        let mut counts = vec![0.0; self.len()];
        for term in terms {
            self.add(term.id, term.weight, &mut scores, &mut counts);
        }
        for (term, weight) in self.lent(&scores, terms) {
            self.add(term, weight, &mut scores, &mut counts);
        }
        scores
    }

    /// BM25 of one term, with counts that reach into the neighbourhood. `counts` is all zero, before and after.
    fn add(&self, term: TermId, weight: f32, scores: &mut [f32], counts: &mut [f32]) {
        let reach = NEIGHBOUR_SHARES.len();
        let postings = self.postings(term);
        for &Posting { message, count } in postings {
            let message = message as usize;
            let length = self.lengths[message] as f32 / self.average_length;
            let count = count as f32 / (1.0 - LENGTH_SHARE + LENGTH_SHARE * length);
            counts[message] += count;
            for (distance, share) in (1..).zip(NEIGHBOUR_SHARES) {
                if let Some(earlier) = message.checked_sub(distance) {
                    counts[earlier] += count * share;
                }
                if let Some(later) = counts.get_mut(message + distance) {
                    *later += count * share;
                }
            }
        }
        for &Posting { message, .. } in postings {
            let message = message as usize;
            let around = message.saturating_sub(reach)..(message + reach + 1).min(counts.len());
            for (score, count) in scores[around.clone()].iter_mut().zip(&mut counts[around]) {
                *score += weight * *count * (SATURATION + 1.0) / (*count + SATURATION);
                *count = 0.0;
            }
        }
    }

    /// Terms of the best messages that the query lacks, with their weights.
    fn lent(&self, scores: &[f32], own: &[Term]) -> Vec<(TermId, f32)> {
        let top = best(scores);
        let mut lent: HashMap<TermId, f32> = HashMap::new();
        for hit in best_first(scores, LENDING_MESSAGES, |score| score > 0.0) {
            // A long message has many words, and few of them are why it was found.
            let say = hit.score / top / (self.lengths[hit.index] as f32 + 10.0);
            for term in self.said(hit.index) {
                let said_in = self.postings(*term).len();
                if said_in > 1 && said_in * 20 < self.len() && !own.iter().any(|known| known.id == *term) {
                    *lent.entry(*term).or_default() += say * self.rarity(said_in);
                }
            }
        }
        let mut lent: Vec<(TermId, f32)> = lent.into_iter().collect();
        lent.sort_unstable_by(|(a, say_a), (b, say_b)| say_b.total_cmp(say_a).then(a.cmp(b)));
        lent.truncate(LENT_TERMS);
        let most = lent.first().map_or(1.0, |(_, say)| *say);
        for (term, weight) in &mut lent {
            *weight = LENT_WEIGHT * *weight / most * self.rarity(self.postings(*term).len());
        }
        lent
    }

    /// How telling a term is that so many messages say.
    pub(super) fn rarity(&self, said_in: usize) -> f32 {
        let (said_in, messages) = (said_in as f32, self.len() as f32 + OTHER_MESSAGES);
        ((messages - said_in + 0.5) / (said_in + 0.5)).ln_1p()
    }
}

/// Adds similarity to scores by words. Both are first brought to the same scale, at most one.
fn fuse(scores: &mut [f32], semantic: &[f32]) {
    let messages = semantic.len().max(1) as f32;
    let mean = semantic.iter().sum::<f32>() / messages;
    let deviation = (semantic.iter().map(|similar| (similar - mean).powi(2)).sum::<f32>() / messages).sqrt();
    let margin = semantic.iter().copied().fold(f32::MIN, f32::max) - mean;
    // Among few messages none can stand out by many deviations.
    let deviations = SEMANTIC_DEVIATIONS.min(0.9 * (messages - 1.0).sqrt());
    let clears = margin >= SEMANTIC_FAR || (margin >= SEMANTIC_MARGIN && margin >= deviations * deviation);
    let top = best(scores);
    if !margin.is_finite() || margin <= 0.0 || (!clears && top <= 0.0) {
        return;
    }
    let weight = if clears { 1.0 } else { SEMANTIC_HINT };
    let similar = |message: Option<usize>| {
        let above_mean = message.and_then(|message| semantic.get(message)).map_or(0.0, |similar| similar - mean);
        (above_mean.max(0.0) / margin).powi(2)
    };
    for (message, score) in scores.iter_mut().enumerate() {
        let beside = similar(message.checked_sub(1)).max(similar(message.checked_add(1))) * NEIGHBOUR_SHARES[0];
        let by_words = if top > 0.0 { *score / top } else { 0.0 };
        *score = by_words + weight * similar(Some(message)).max(beside);
    }
}

fn best(scores: &[f32]) -> f32 {
    scores.iter().copied().fold(0.0, f32::max)
}

/// At most so many of the scores that pass, best first; of equals the newest, which is the likelier meant.
fn best_first(scores: &[f32], most: usize, passes: impl Fn(f32) -> bool) -> Vec<Hit> {
    let hits = scores.iter().enumerate().filter(|(_, score)| passes(**score));
    let mut hits: Vec<Hit> = hits.map(|(index, score)| Hit { index, score: *score }).collect();
    let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(b.index.cmp(&a.index));
    if hits.len() > most {
        hits.select_nth_unstable_by(most, order);
        hits.truncate(most);
    }
    hits.sort_unstable_by(order);
    hits
}
