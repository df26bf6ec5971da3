//! How full a conversation is, drawn as a ship's side: a line that fills from the left, with the four marks on it.
//!
//! The last mark is the load line itself; one cell beyond it shows that it is under water. A mark that was
//! reached is drawn differently from one that was not, so that the picture needs no colour.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::model::Marks;

/// Narrower than this, the marks run into each other.
pub(super) const LEAST_CELLS: u16 = 10;

/// Where on the ladder a conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    Clear,
    Told,
    Checkpoint,
    Compression,
    Rollover,
}

impl Rung {
    pub(super) fn at(percent: f64, marks: &Marks) -> Self {
        let reached = Self::marked(marks).into_iter().rev().find(|(_, mark)| percent >= *mark);
        reached.map_or(Self::Clear, |(rung, _)| rung)
    }

    /// The rungs that have a mark, lowest first.
    fn marked(marks: &Marks) -> [(Self, f64); 4] {
        [
            (Self::Told, marks.told),
            (Self::Checkpoint, marks.checkpoint),
            (Self::Compression, marks.compression),
            (Self::Rollover, marks.rollover),
        ]
    }

    /// One letter, for those who do not see colours.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Clear => " ",
            Self::Told => "i",
            Self::Checkpoint => "c",
            Self::Compression => "!",
            Self::Rollover => "X",
        }
    }
}

/// Colours by rung, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    pub(super) colours: bool,
}

impl Paint {
    /// As the environment wishes it: see <https://no-color.org>.
    pub(super) fn from_environment() -> Self {
        Self { colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(super) fn rung(self, rung: Rung) -> Style {
        match rung {
            Rung::Clear => self.fg(Color::Green),
            Rung::Told => self.fg(Color::Cyan),
            Rung::Checkpoint => self.fg(Color::Yellow),
            Rung::Compression => self.fg(Color::LightRed).add_modifier(Modifier::BOLD),
            Rung::Rollover => self.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn fg(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Beside the point, but there.
    pub(super) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// The gauge, `cells` wide.
pub(super) fn gauge(percent: f64, marks: &Marks, cells: u16, paint: Paint) -> Line<'static> {
    let (reached, ahead) = (paint.rung(Rung::at(percent, marks)), paint.faint());
    let place = |percent: f64| place(percent, marks, cells);
    let spans = (0..cells).map(|cell| {
        let mark = Rung::marked(marks).into_iter().rev().find(|(_, mark)| place(*mark).round() == f64::from(cell));
        let (symbol, wet) = match mark {
            Some((Rung::Rollover, mark)) if percent >= mark => ("╋", true),
            Some((Rung::Rollover, _)) => ("╂", false),
            Some((_, mark)) if percent >= mark => ("┿", true),
            Some(_) => ("┼", false),
            None if cell + 1 == cells => (if percent > marks.rollover { "»" } else { " " }, true),
            None if place(percent) >= f64::from(cell) + 0.5 => ("━", true),
            None if place(percent) >= f64::from(cell) => ("╾", true),
            None => ("─", false),
        };
        Span::styled(symbol, if wet { reached } else { ahead })
    });
    Line::from_iter(spans)
}

/// The numbers of the marks, each over its mark as far as there is room: the two ends of the ladder first.
pub(super) fn scale(marks: &Marks, cells: u16) -> String {
    let mut row = vec![' '; usize::from(cells)];
    for mark in [marks.rollover, marks.told, marks.checkpoint, marks.compression] {
        let number = format!("{mark:.0}");
        let end = (place(mark, marks, cells).round() as usize + 1).min(row.len());
        let Some(start) = end.checked_sub(number.len()) else { continue };
        // With a blank on either side, it can be read.
        let around = start.saturating_sub(1)..(end + 1).min(row.len());
        if row[around].iter().all(|char| *char == ' ') {
            row.splice(start..end, number.chars());
        }
    }
    row.into_iter().collect()
}

/// Where a share of the limit is, in cells from the left; the middle of a cell is its number. One cell is
/// left beyond the load line.
fn place(percent: f64, marks: &Marks, cells: u16) -> f64 {
    percent.max(0.0) / marks.rollover.max(1.0) * f64::from(cells.saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { colours: false };

    fn drawn(percent: f64, cells: u16) -> String {
        gauge(percent, &Marks::default(), cells, PLAIN).to_string()
    }

    #[test]
    fn the_marks_are_where_they_should_be() {
        // 100 cells and one on either side: a cell is a percent.
        let cells: Vec<char> = drawn(0.0, 102).chars().collect();
        let ticks: Vec<usize> = (0..cells.len()).filter(|cell| matches!(cells[*cell], '┼' | '╂')).collect();
        assert_eq!(ticks, [70, 80, 95, 100]);
        assert_eq!(cells[100], '╂');
        assert_eq!(drawn(0.0, 22), "╾─────────────┼─┼──┼╂ ");
        assert_eq!(scale(&Marks::default(), 32), "                    70 80   100 ");
    }

    #[test]
    fn a_mark_changes_exactly_when_it_is_reached() {
        assert_eq!(drawn(69.9, 22), "━━━━━━━━━━━━━━┼─┼──┼╂ ");
        assert_eq!(drawn(70.0, 22), "━━━━━━━━━━━━━━┿─┼──┼╂ ");
        assert_eq!(drawn(94.9, 22), "━━━━━━━━━━━━━━┿━┿━━┼╂ ");
        assert_eq!(drawn(95.0, 22), "━━━━━━━━━━━━━━┿━┿━━┿╂ ");
        assert_eq!(drawn(100.0, 22), "━━━━━━━━━━━━━━┿━┿━━┿╋ ");
    }

    #[test]
    fn over_the_load_line_there_is_one_cell_and_no_more() {
        for percent in [100.1, 103.4, 900.0, f64::INFINITY] {
            assert_eq!(drawn(percent, 22), "━━━━━━━━━━━━━━┿━┿━━┿╋»", "{percent}");
        }
    }

    #[test]
    fn every_width_is_kept_whatever_the_load() {
        for cells in 0..60 {
            for percent in [0.0, -3.0, 12.5, 70.0, 99.9, 250.0, f64::NAN] {
                assert_eq!(drawn(percent, cells).chars().count(), usize::from(cells), "{percent} in {cells}");
            }
            assert_eq!(scale(&Marks::default(), cells).chars().count(), usize::from(cells));
        }
    }

    #[test]
    fn the_line_never_has_a_hole_in_it() {
        for cells in LEAST_CELLS..50 {
            for tenths in 0..1100 {
                let line = drawn(f64::from(tenths) / 10.0, cells);
                let dry = line.find(['─', '┼', '╂']).unwrap_or(line.len());
                assert!(!line[dry..].contains(['━', '╾', '┿', '╋', '»']), "{line}");
            }
        }
    }

    #[test]
    fn rungs_differ_without_colours() {
        let marks = Marks::default();
        let letters = [0.0, 70.0, 80.0, 95.0, 100.0].map(|percent| Rung::at(percent, &marks).letter());
        assert_eq!(letters, [" ", "i", "c", "!", "X"]);
        assert_eq!(Rung::at(69.99, &marks), Rung::Clear);
        for rung in [Rung::Clear, Rung::Told, Rung::Checkpoint, Rung::Compression, Rung::Rollover] {
            assert_eq!(PLAIN.rung(rung).fg, None);
            assert!(Paint { colours: true }.rung(rung).fg.is_some());
        }
    }
}
