//! Which times are understood, and as which moment.

use jiff::Timestamp;

use super::super::timestamp::parse;

#[test]
fn the_usual_forms_name_the_right_moment() {
    for (text, same) in [
        ("2025-11-06T09:30:00Z", "2025-11-06T09:30:00Z"),
        ("2025-11-06t09:30:00z", "2025-11-06T09:30:00Z"),
        ("2025-11-06 09:30:00+00:00", "2025-11-06T09:30:00Z"),
        ("2025-11-06T09:30:00.1239999999999+01:30", "2025-11-06T08:00:00.123999999Z"),
        ("2025-11-06T09:30:00\u{2212}01:00", "2025-11-06T10:30:00Z"),
        ("2025-11-06T09:30Z", "2025-11-06T09:30:00Z"),
        ("2025-11-06T24:00:00Z", "2025-11-07T00:00:00Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("+002025-11-06T09:30:00.5Z", "2025-11-06T09:30:00.5Z"),
        ("-000001-03-01T00:00:00Z", "-000001-03-01T00:00:00Z"),
        ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"),
        ("1969-12-31T23:59:59.25Z", "1969-12-31T23:59:59.25Z"),
    ] {
        assert_eq!(parse(text), Some(same.parse::<Timestamp>().unwrap()), "{text}");
    }
}

#[test]
fn every_day_of_five_centuries_agrees_with_the_calendar() {
    let mut day = jiff::civil::date(1700, 1, 1);
    while day.year() < 2200 {
        let text = format!("{day}T12:34:56.789Z");
        assert_eq!(parse(&text), Some(text.parse::<Timestamp>().unwrap()), "{text}");
        day = day.tomorrow().unwrap();
    }
}

#[test]
fn moments_beyond_the_calendar_become_its_ends() {
    assert_eq!(parse("+275760-09-13T00:00:00Z"), Some(Timestamp::MAX));
    assert_eq!(parse("-271821-04-20T00:00:00Z"), Some(Timestamp::MIN));
}

#[test]
fn what_names_no_single_moment_is_refused() {
    for text in [
        "",
        "now",
        "1762421400",
        "2025-11-06",
        "2025-11-06T09:30:00",
        "2025-11-06T09:30:00.Z",
        "2025-11-06T09:30:00+0100",
        "2025-11-06T09:30:00+24:00",
        "2025-11-06T09:30:00Z ",
        "2025-11-06T09Z",
        "2025-11-06T24:00:01Z",
        "2025-11-06T09:60:00Z",
        "2025-11-06T09:30:61Z",
        "2025-02-29T09:30:00Z",
        "2025-13-01T09:30:00Z",
        "2025-00-01T09:30:00Z",
        "2025-11-00T09:30:00Z",
        "-000000-01-01T00:00:00Z",
        "25-11-06T09:30:00Z",
        "2025-11-06T09:30:00\u{2212}",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}
