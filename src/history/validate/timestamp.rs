//! Reads the timestamps of session files.
//!
//! Taken are RFC 3339 and the ISO 8601 forms that JavaScript's `Date` reads: a
//! date and a time with `Z` or an offset. Also taken are a leap second, 24:00,
//! missing seconds and years of six digits. A date alone, or a time without an
//! offset, is refused, since it means another moment on another machine.

use jiff::Timestamp;

const MINUTE_SECONDS: i64 = 60;
const HOUR_SECONDS: i64 = 3600;
const DAY_SECONDS: i64 = 86_400;
const DAYS_TO_1970: i64 = 719_162;
const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// The moment that `text` names. Moments beyond the calendar of `Timestamp`
/// become its nearest end: they are well-formed, and odd enough to be warned of.
pub(in crate::history) fn parse(text: &str) -> Option<Timestamp> {
    let mut cursor = Cursor { rest: text.as_bytes() };
    let day = cursor.date()?;
    if !cursor.take_any(b"Tt ") {
        return None;
    }
    let (second, nanosecond) = cursor.time()?;
    let offset = cursor.offset()?;
    if !cursor.rest.is_empty() {
        return None;
    }
    let total = day * DAY_SECONDS + second - offset;
    let nearest_end = if total < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Some(Timestamp::new(total, nanosecond).unwrap_or(nearest_end))
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// Days since 1970.
    fn date(&mut self) -> Option<i64> {
        let year = match self.rest.first()? {
            b'+' => {
                self.skip(1);
                self.digits(6)?
            }
            b'-' => {
                self.skip(1);
                // There is no year minus zero.
                -self.digits(6).filter(|year| *year != 0)?
            }
            _ => self.digits(4)?,
        };
        self.expect(b'-')?;
        let month = self.digits(2).filter(|month| (1..=12).contains(month))?;
        self.expect(b'-')?;
        let day = self.digits(2).filter(|day| (1..=days_in_month(year, month)).contains(day))?;
        Some(days_since_1970(year, month, day))
    }

    /// Seconds into the day, and nanoseconds.
    fn time(&mut self) -> Option<(i64, i32)> {
        let hour = self.digits(2).filter(|hour| *hour <= 24)?;
        self.expect(b':')?;
        let minute = self.digits(2).filter(|minute| *minute <= 59)?;
        let (mut second, mut nanosecond) = (0, 0);
        if self.take_any(b":") {
            second = self.digits(2).filter(|second| *second <= 60)?;
            if self.take_any(b".") {
                nanosecond = self.fraction()?;
            }
        }
        // 24 is the end of the day and nothing after it.
        if hour == 24 && (minute, second, nanosecond) != (0, 0, 0) {
            return None;
        }
        Some((hour * HOUR_SECONDS + minute * MINUTE_SECONDS + second, nanosecond))
    }

    /// At least one digit; those after the ninth are dropped.
    fn fraction(&mut self) -> Option<i32> {
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return None;
        }
        let mut nanosecond = 0;
        for place in 0..9 {
            let digit = self.rest.get(place).filter(|_| place < length).map_or(0, |byte| i32::from(byte - b'0'));
            nanosecond = nanosecond * 10 + digit;
        }
        self.skip(length);
        Some(nanosecond)
    }

    /// Seconds ahead of UTC.
    fn offset(&mut self) -> Option<i64> {
        if self.take_any(b"Zz") {
            return Some(0);
        }
        let sign = if self.take_any(b"+") {
            1
        } else if self.take_any(b"-") {
            -1
        } else {
            // RFC 3339 writers with typographic taste use U+2212.
            self.rest = self.rest.strip_prefix("\u{2212}".as_bytes())?;
            -1
        };
        let hour = self.digits(2).filter(|hour| *hour <= 23)?;
        self.expect(b':')?;
        let minute = self.digits(2).filter(|minute| *minute <= 59)?;
        Some(sign * (hour * HOUR_SECONDS + minute * MINUTE_SECONDS))
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        let mut number = 0;
        for byte in digits {
            if !byte.is_ascii_digit() {
                return None;
            }
            number = number * 10 + i64::from(byte - b'0');
        }
        self.rest = rest;
        Some(number)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take_any(&[byte]).then_some(())
    }

    fn take_any(&mut self, bytes: &[u8]) -> bool {
        let found = self.rest.first().is_some_and(|byte| bytes.contains(byte));
        if found {
            self.skip(1);
        }
        found
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let past = year - 1;
    let leap_days = past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400);
    let before_month = usize::try_from(month - 1).ok().and_then(|index| DAYS_BEFORE_MONTH.get(index)).unwrap_or(&0);
    let leap_day = i64::from(month > 2 && is_leap(year));
    past * 365 + leap_days + before_month + leap_day + day - 1 - DAYS_TO_1970
}
