//! Points in time as Python's `datetime` reads and writes them.
//!
//! Read are the forms of ISO 8601 that `fromisoformat` takes since version 3.11: calendar and week dates, extended
//! and basic, any one character before the time, fractions, offsets. Whether a date exists is jiff's to say. Stray
//! characters before an offset, which Python overlooks, are not overlooked here. Nothing is converted: the offset is
//! checked and then forgotten.

use jiff::civil::{Date, DateTime, ISOWeekDate, Time, Weekday};

/// Local time without an offset, to the microsecond; whole seconds go without a fraction.
pub(super) fn isoformat(at: DateTime) -> String {
    let seconds = at.strftime("%Y-%m-%dT%H:%M:%S");
    match at.subsec_nanosecond() / 1000 {
        0 => seconds.to_string(),
        micros => format!("{seconds}.{micros:06}"),
    }
}

/// Whether the text is a point in time.
pub(super) fn is_valid(text: &str) -> bool {
    // A `Z` is taken for an offset wherever it stands, so that one in the wrong place is found out.
    if text.contains('Z') { time_of_day(&text.replace('Z', "+00:00")).is_some() } else { time_of_day(text).is_some() }
}

/// The time of day as it is written, in its own offset. A date alone is midnight.
pub(super) fn time_of_day(text: &str) -> Option<Time> {
    let rest = after_date(text)?;
    let mut after_separator = rest.chars();
    if after_separator.next().is_none() {
        return Some(Time::midnight());
    }
    let clock = after_separator.as_str();
    let (clock, offset) = match clock.find(['+', '-', 'Z']) {
        Some(at) => clock.split_at_checked(at)?,
        None => (clock, ""),
    };
    // A blank before an offset is common and accepted; elsewhere it is not.
    let clock = if offset.is_empty() { clock } else { clock.strip_suffix(' ').unwrap_or(clock) };
    offset_is_valid(offset).then_some(())?;
    let [hour, minute, second] = clock_fields(clock)?;
    Time::new(hour, minute, second, 0).ok()
}

/// What follows a valid date at the start of the text.
fn after_date(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let year = i16::try_from(number(bytes, 0, 4)?).ok().filter(|year| *year >= 1)?;
    let dashed = usize::from(bytes.get(4) == Some(&b'-'));
    let end = if bytes.get(4 + dashed) == Some(&b'W') {
        let week = i8::try_from(number(bytes, 5 + dashed, 2)?).ok()?;
        let (day, end) = week_day(bytes, 7 + dashed, dashed)?;
        let weekday = Weekday::from_monday_one_offset(day).ok()?;
        ISOWeekDate::new(year, week, weekday).ok()?;
        end
    } else {
        let month = i8::try_from(number(bytes, 4 + dashed, 2)?).ok()?;
        let day_at = 6 + 2 * dashed;
        (dashed == 0 || bytes.get(7) == Some(&b'-')).then_some(())?;
        let day = i8::try_from(number(bytes, day_at, 2)?).ok()?;
        Date::new(year, month, day).ok()?;
        day_at + 2
    };
    text.get(end..)
}

/// The day that may follow a week, Monday if there is none, and where the date ends.
///
/// A digit after the week may as well begin the time; so many digits as only a time can have decide for the time.
fn week_day(bytes: &[u8], at: usize, dashed: usize) -> Option<(i8, usize)> {
    let digits_from = |start: usize| bytes.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count();
    let has_day = if dashed == 1 {
        bytes.get(at) == Some(&b'-') && digits_from(at + 1) < 2
    } else {
        let digits = digits_from(at);
        digits % 2 == usize::from(digits < 2)
    };
    if !has_day {
        return Some((1, at));
    }
    let day_at = at + dashed;
    Some((i8::try_from(number(bytes, day_at, 1)?).ok()?, day_at + 1))
}

fn offset_is_valid(offset: &str) -> bool {
    const DAY_SECONDS: i32 = 24 * 60 * 60;
    match offset.strip_prefix(['+', '-']) {
        // Minutes and seconds may be any two digits here, as long as the whole is less than a day.
        Some(fields) => clock_fields(fields).is_some_and(|[hour, minute, second]| {
            i32::from(hour) * 3600 + i32::from(minute) * 60 + i32::from(second) < DAY_SECONDS
        }),
        None => offset.is_empty() || offset == "Z",
    }
}

/// Hour, minute and second of `HH[:MM[:SS]]` or `HH[MM[SS]]`, with a fraction at the end or without.
fn clock_fields(text: &str) -> Option<[i8; 3]> {
    let whole = match text.split_once(['.', ',']) {
        Some((whole, fraction)) => {
            (!fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit())).then_some(whole)?
        }
        None => text,
    };
    let bytes = whole.as_bytes();
    let colon = usize::from(bytes.get(2) == Some(&b':'));
    let mut fields = [0; 3];
    let mut at = 0;
    for (position, field) in fields.iter_mut().enumerate() {
        if position > 0 {
            if at == bytes.len() {
                break;
            }
            (colon == 0 || bytes.get(at) == Some(&b':')).then_some(())?;
            at += colon;
        }
        *field = i8::try_from(number(bytes, at, 2)?).ok()?;
        at += 2;
    }
    (at == bytes.len()).then_some(fields)
}

/// Exactly so many digits at a place, as a number.
fn number(bytes: &[u8], at: usize, digits: usize) -> Option<u16> {
    bytes
        .get(at..at + digits)?
        .iter()
        .try_fold(0, |number: u16, byte| byte.is_ascii_digit().then(|| number * 10 + u16::from(byte - b'0')))
}
