//! Figures as people read them.

/// A time in the unit that leaves it three digits or so.
pub fn time_us(us: f64) -> String {
    match us.abs() {
        size if size < 9.95 => format!("{us:.1} µs"),
        size if size < 999.5 => format!("{us:.0} µs"),
        size if size < 9_995.0 => format!("{:.2} ms", us / 1e3),
        size if size < 99_950.0 => format!("{:.1} ms", us / 1e3),
        size if size < 9_999_500.0 => format!("{} ms", whole(us / 1e3)),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// The same with its sign.
pub fn added_us(us: f64) -> String {
    if us < 0.0 { format!("−{}", time_us(-us)) } else { format!("+{}", time_us(us)) }
}

pub fn bytes(bytes: f64) -> String {
    match bytes {
        size if size < 1e3 => format!("{size:.0} B"),
        size if size < 99.95e3 => format!("{:.1} kB", size / 1e3),
        size if size < 1e6 => format!("{:.0} kB", size / 1e3),
        size if size < 99.95e6 => format!("{:.1} MB", size / 1e6),
        size => format!("{} MB", whole(size / 1e6)),
    }
}

/// `8,120`.
pub fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// Requests a second: slow ones have digits behind the point.
pub fn rate(per_second: f64) -> String {
    if per_second < 9.95 { format!("{per_second:.2}") } else { whole(per_second) }
}

/// A ratio with as many digits as mean something.
pub fn ratio(ratio: f64) -> String {
    if ratio < 0.0995 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

/// A figure that is round itself, without the noughts behind its point: `50 ms` for `50.0 ms`.
pub fn round(figure: &str) -> String {
    let (number, unit) = figure.split_once(' ').map_or((figure, None), |(number, unit)| (number, Some(unit)));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    unit.map_or_else(|| number.to_owned(), |unit| format!("{number} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        assert_eq!(
            [1.0, 84.4, 1_234.0, 45_670.0, 700_000.0, 12e6].map(time_us),
            ["1.0 µs", "84 µs", "1.23 ms", "45.7 ms", "700 ms", "12.0 s"]
        );
        assert_eq!([84.0, -3.0].map(added_us), ["+84 µs", "−3.0 µs"]);
        assert_eq!([12.0, 1_500.0, 34.56e6, 1.2e9].map(bytes), ["12 B", "1.5 kB", "34.6 MB", "1,200 MB"]);
        assert_eq!(
            [0.0, 999.0, 1_000.0, 1_234_567.0, -1_000.0].map(whole),
            ["0", "999", "1,000", "1,234,567", "-1,000"]
        );
        assert_eq!([0.5, 8_120.4].map(rate), ["0.50", "8,120"]);
        assert_eq!([0.742, 0.0034].map(ratio), ["0.74", "0.0034"]);
        assert_eq!(["50.0 ms", "0.00", "1,000", "2.50 ms"].map(round), ["50 ms", "0", "1,000", "2.5 ms"]);
    }
}
