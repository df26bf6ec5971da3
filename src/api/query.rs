//! The part of an address after the question mark, read strictly: what is not understood is answered 422.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;

use crate::history::intake::Preset;
use crate::proxy::respond::Refusal;

/// Named values, in order.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn read(query: Option<&str>) -> Result<Self, Refusal> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        read.collect::<Result<_, Refusal>>().map(Self)
    }

    /// The value of a name; the last one if it comes twice.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name that may come several times, or with commas.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(known, _)| known == name);
        values.flat_map(|(_, value)| value.split(',')).filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// How many are wanted: `default` when nothing is said, at most `max`; it must be a whole number above 0.
    pub(crate) fn limit(&self, default: u32, max: u32) -> Result<u32, Refusal> {
        let Some(text) = self.get("limit") else { return Ok(default) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u32>() {
            Ok(0) => Err(invalid("limit", "must be at least 1")),
            Ok(number) => Ok(number.min(max)),
            // Too large for us is still a number.
            Err(_) if digits => Ok(max),
            Err(_) if text.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok()) => {
                Err(invalid("limit", "must be at least 1"))
            }
            Err(_) => Err(invalid("limit", "must be a whole number")),
        }
    }

    /// A whole number, if it is there.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<i64>, Refusal> {
        let read = |text: &str| text.parse().map_err(|_| invalid(name, "must be a whole number"));
        self.get(name).map(read).transpose()
    }

    /// How a history is cut.
    pub(crate) fn preset(&self) -> Result<Preset, Refusal> {
        let wrong = |_| invalid("preset", "must be requirements-first or reasoning-first");
        self.get("preset").map_or(Ok(Preset::default()), |name| name.parse().map_err(wrong))
    }

    /// Yes or no.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, Refusal> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(_) => Err(invalid(name, "must be true or false")),
        }
    }
}

pub(crate) fn invalid(name: &str, reason: &str) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{name}: {reason}"))
}

fn decode(text: &str) -> Result<String, Refusal> {
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| invalid("query", "must be UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(query: &str) -> Result<u32, u16> {
        let query = Query::read(Some(query)).map_err(|refusal| refusal.status.as_u16())?;
        query.limit(50, 200).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn a_limit_is_a_whole_number_above_nought_and_at_most_the_maximum() {
        for (query, wanted) in [
            ("", Ok(50)),
            ("limit=1", Ok(1)),
            ("limit=200", Ok(200)),
            ("limit=201", Ok(200)),
            ("limit=99999999999999999999999", Ok(200)),
            ("limit=5&limit=7", Ok(7)),
            ("limit=%31%30", Ok(10)),
            ("limit=0", Err(422)),
            ("limit=-1", Err(422)),
            ("limit=ten", Err(422)),
            ("limit=1.5", Err(422)),
            ("limit=", Err(422)),
            ("limit", Err(422)),
            ("limit=%ff", Err(422)),
            ("limit=1e2", Err(422)),
        ] {
            assert_eq!(limit(query), wanted, "{query}");
        }
    }

    #[test]
    fn plus_is_a_space_and_escapes_are_read() {
        let query = Query::read(Some("q=two+words%2B%C3%A9&full")).expect("readable");
        assert_eq!(query.get("q"), Some("two words+é"));
        assert!(query.flag("full").expect("a flag"));
        assert!(Query::read(Some("full=perhaps")).expect("readable").flag("full").is_err());
    }
}
