//! Something to talk about: text of any size that is never the same twice, and always the same for a seed.
//!
//! Not random letters: those would be many more tokens a byte than what people write. Plain words, now and then one
//! that is not ASCII, a name that nobody has seen before, or a line of code.

/// Small numbers with a good spread; this is SplitMix64. Nothing here has to be hard to guess.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The numbers that belong to all of `parts` together.
    pub(super) fn of(parts: &[u64]) -> Self {
        let mut random = Self(0);
        for part in parts {
            random.0 = random.next() ^ part;
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`; the bias is far below anything that is measured here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// From 0 up to 1, never 0 itself.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number of the normal distribution, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Goes on with `text` until it has exactly so many bytes. What is longer already stays as it is.
pub(super) fn write(text: &mut String, bytes: usize, random: &mut Random) {
    while text.len() < bytes {
        match random.below(60) {
            0 => code(text, random),
            1 | 2 => text.push_str(random.pick(FOREIGN)),
            3 => text.push_str(&format!("n{:06x}", random.below(1 << 24))),
            _ => text.push_str(random.pick(PLAIN)),
        }
        text.push_str(random.pick(BETWEEN));
    }
    let end = text.floor_char_boundary(bytes.max(1));
    if text.len() > bytes && end < text.len() {
        text.truncate(end);
        // Half a letter was cut off with the last one.
        text.extend(std::iter::repeat_n('.', bytes - end));
    }
}

fn code(text: &mut String, random: &mut Random) {
    let (name, number) = (random.pick(PLAIN), random.below(10_000));
    text.push_str(&match random.below(4) {
        0 => format!("\n    let {name}_{number} = fetch(\"{name}\", {number})?;\n"),
        1 => format!("\nif {name}[{number}] != null {{ return \"{name}\\n\"; }}\n"),
        2 => format!("\nSELECT {name} FROM t{number} WHERE id = {number};\n"),
        _ => format!("\n$ {name} --level {number} | tail -n 5\n"),
    });
}

/// Mostly a space.
const BETWEEN: &[&str] = &[" ", " ", " ", " ", " ", " ", " ", " ", " ", " ", ", ", ". ", ".\n", "; ", " - ", "? "];

const PLAIN: &[&str] = &[
    "about", "after", "again", "anchor", "answer", "apple", "around", "barrel", "because", "before", "between",
    "bridge", "build", "cable", "captain", "careful", "cargo", "change", "chart", "clear", "cold", "compare", "could",
    "count", "crane", "deck", "deep", "delay", "detail", "draft", "early", "engine", "error", "every", "explain",
    "failed", "ferry", "figure", "first", "follow", "freight", "garden", "great", "harbour", "heavy", "index",
    "island", "journey", "keep", "ladder", "later", "letter", "light", "little", "lower", "manifest", "measure",
    "message", "middle", "morning", "never", "night", "north", "number", "often", "open", "order", "other", "paint",
    "paper", "people", "please", "point", "question", "queue", "quiet", "rather", "reason", "record", "river", "rope",
    "sailor", "second", "shelter", "should", "signal", "simple", "slowly", "south", "station", "storm", "summary",
    "table", "tide", "timber", "today", "under", "until", "vessel", "water", "weather", "wheel", "where", "which",
    "window", "winter", "without", "wonder", "would", "yellow", "the", "a", "of", "and", "to", "in", "is", "it",
    "that", "we",
];

const FOREIGN: &[&str] = &[
    "Größe",
    "Hafenmeister",
    "déjà",
    "français",
    "mañana",
    "canción",
    "łódź",
    "żagiel",
    "naïve",
    "smörgås",
    "ångström",
    "морской",
    "груз",
    "θάλασσα",
    "λιμάνι",
    "港口",
    "船荷",
    "항구",
    "שלום",
    "مرفأ",
    "⚓",
    "→",
    "½",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_exactly_the_size_that_was_asked_for() {
        let mut random = Random::of(&[7]);
        for bytes in 1..2000 {
            let mut text = String::new();
            write(&mut text, bytes, &mut random);
            assert_eq!(text.len(), bytes);
        }
    }

    #[test]
    fn the_normal_numbers_are_normal() {
        let mut random = Random::of(&[1, 2, 3]);
        let numbers: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let within_one = numbers.iter().filter(|number| number.abs() < 1.0).count() as f64 / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((within_one - 0.683).abs() < 0.02, "{within_one}");
    }
}
