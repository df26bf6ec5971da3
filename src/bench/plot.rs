//! Lines on a grid, as SVG that stands in a page: no script, no font, no colour of its own.
//!
//! Colours come from the page's style by the classes `line0`, `line1`, …, so that light, dark and paper each have
//! theirs. Lines differ in their dashes too, for eyes and printers without colours.

use std::fmt::Write;

use super::units::round;

/// The drawing's own measure; the page scales it.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// So many looks there are; further lines begin again.
pub(super) const LOOKS: usize = 6;

/// One line. Where it has few points, each is marked.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) look: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// From where to where, and what stands beside it.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    name: &'static str,
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Even,
    Log,
}

impl Axis {
    /// With marks that are given.
    pub(super) fn marked(name: &'static str, from: f64, to: f64, ticks: Vec<(f64, String)>) -> Self {
        Self { name, scale: Scale::Even, from, to, ticks }
    }

    /// From nought to the largest of the values, with round marks.
    pub(super) fn from_nought(name: &'static str, values: impl Iterator<Item = f64>, show: fn(f64) -> String) -> Self {
        let most = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let step = round_step(most / 5.0);
        let steps = (most / step).ceil() as u32;
        let ticks = (0..=steps).map(|tick| f64::from(tick) * step).map(|at| (at, round(&show(at)))).collect();
        Self { name, scale: Scale::Even, from: 0.0, to: f64::from(steps) * step, ticks }
    }

    /// Each step the same number of times larger. Values are above nought.
    pub(super) fn log(name: &'static str, values: impl Iterator<Item = f64> + Clone, show: fn(f64) -> String) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        let (least, most) = if least <= most { (least.max(1e-3), most.max(1e-3)) } else { (1.0, 10.0) };
        let wide = most / least > 2e3;
        let digits: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = least.log10().floor() as i32 - 1..=most.log10().ceil() as i32 + 1;
        let marks: Vec<f64> =
            decades.flat_map(|ten| digits.iter().map(move |digit| digit * 10_f64.powi(ten))).collect();
        let from = marks.iter().copied().filter(|mark| *mark <= least).fold(marks[0], f64::max);
        let to = marks.iter().copied().find(|mark| *mark >= most && *mark > from).unwrap_or(most);
        let ticks = marks.into_iter().filter(|mark| (from..=to).contains(mark)).map(|mark| (mark, round(&show(mark))));
        Self { name, scale: Scale::Log, from, to, ticks: ticks.collect() }
    }

    /// How far along a value lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let (from, to, value) = match self.scale {
            Scale::Even => (self.from, self.to, value),
            Scale::Log => (self.from.log10(), self.to.log10(), value.max(f64::MIN_POSITIVE).log10()),
        };
        if to > from { ((value - from) / (to - from)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// Draws the lines. `about` says in words what is to be seen, for those who do not see it.
pub(super) fn draw(about: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let across = |value: f64| LEFT + x.share(value) * (WIDTH - LEFT - RIGHT);
    let up = |value: f64| HEIGHT - BOTTOM - y.share(value) * (HEIGHT - TOP - BOTTOM);
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut svg = format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, escape(about));
    for (at, text) in &y.ticks {
        let (at, text) = (up(*at), escape(text));
        let _infallible = write!(svg, r#"<path class="grid" d="M{LEFT} {at:.1}H{right}"/>"#);
        let _infallible = write!(svg, r#"<text class="tick end" x="{}" y="{:.1}">{text}</text>"#, LEFT - 6.0, at + 4.0);
    }
    for (at, text) in &x.ticks {
        let (at, text) = (across(*at), escape(text));
        let _infallible = write!(svg, r#"<path class="grid" d="M{at:.1} {TOP}V{bottom}"/>"#);
        let _infallible = write!(svg, r#"<text class="tick" x="{at:.1}" y="{}">{text}</text>"#, bottom + 16.0);
    }
    let (middle, below) = (f64::midpoint(LEFT, right), HEIGHT - 8.0);
    let _infallible = write!(svg, r#"<text class="axis" x="{middle}" y="{below}">{}</text>"#, escape(x.name));
    let beside = f64::midpoint(TOP, bottom);
    let _infallible =
        write!(svg, r#"<text class="axis" transform="translate(12 {beside}) rotate(-90)">{}</text>"#, escape(y.name));
    for line in lines {
        line_of(&mut svg, line, across, up);
    }
    svg.push_str("</svg>");
    svg
}

fn line_of(svg: &mut String, line: &Line, across: impl Fn(f64) -> f64, up: impl Fn(f64) -> f64) {
    let look = line.look % LOOKS;
    let _infallible = write!(svg, r#"<g class="line{look}"><title>{}</title>"#, escape(&line.name));
    let mut path = String::new();
    for (place, (x, y)) in line.points.iter().enumerate() {
        let letter = if place == 0 { 'M' } else { 'L' };
        let _infallible = write!(path, "{letter}{:.1} {:.1}", across(*x), up(*y));
    }
    let _infallible = write!(svg, r#"<path class="line" d="{path}"/>"#);
    if line.points.len() <= 24 {
        for (x, y) in &line.points {
            let _infallible = write!(svg, r#"<circle cx="{:.1}" cy="{:.1}" r="2.6"/>"#, across(*x), up(*y));
        }
    }
    svg.push_str("</g>");
}

/// Text as it may stand in a page and in quotes.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, sign| {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
        escaped
    })
}

/// One, two or five of a power of ten, and not less than asked.
fn round_step(least: f64) -> f64 {
    let ten = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * ten).find(|step| *step >= least * 0.999).unwrap_or(ten * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: f64) -> String {
        format!("{value}")
    }

    #[test]
    fn an_axis_holds_all_values_and_has_round_marks() {
        let axis = Axis::from_nought("", [120.0, 873.0].into_iter(), show);
        assert_eq!((axis.from, axis.to), (0.0, 1_000.0));
        assert_eq!(axis.ticks.len(), 6);
        let axis = Axis::log("", [0.3, 18.0].into_iter(), show);
        assert_eq!((axis.from, axis.to), (0.2, 20.0));
        assert_eq!(axis.share(0.2), 0.0);
        assert!((axis.share(2.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_nothing() {
        let axis = Axis::log("", std::iter::empty(), show);
        assert!(axis.from < axis.to);
        let one = Axis::log("", [5.0].into_iter(), show);
        assert!(one.from < one.to, "{one:?}");
        let nought = Axis::from_nought("", std::iter::empty(), show);
        assert!(nought.share(0.0).is_finite());
    }

    #[test]
    fn a_name_cannot_become_markup() {
        let line = Line { name: "<script>'\"&".to_owned(), look: 0, points: vec![(0.0, 1.0)] };
        let axis = Axis::marked("x", 0.0, 1.0, Vec::new());
        let svg = draw("a \"plot\"", &axis, &axis, &[line]);
        assert!(svg.contains("&lt;script&gt;&#39;&quot;&amp;") && !svg.contains("<script"), "{svg}");
    }
}
