//! The table of conversations. It leaves columns out, the least needed first, until it fits.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{HighlightSpacing, Paragraph, Row, StatefulWidget, Table, TableState, Widget, Wrap};

use super::gauge::{LEAST_CELLS, Rung, gauge, scale};
use super::model::Conversation;
use super::sentences::{cut, plain};
use super::state::State;

/// What a gauge takes on a narrow screen, so that all marks can be told apart, and twice on wider ones.
const GAUGE_CELLS: u16 = 14;
const MORE_GAUGE_CELLS: u16 = 10;

/// Narrower than this, there is no gauge at all.
const WITH_GAUGE: u16 = 36;

/// What is left for a title before other columns get anything.
const TITLE_CELLS: u16 = 18;

/// The cursor and a space.
const CURSOR: &str = "> ";

enum Column {
    Id,
    Gauge(u16),
    Usage,
    Sent,
    Arrived,
    Limit,
    User,
    Model,
    Action,
    Age,
    Title(u16),
}

/// Draws the conversations, or how to get one. `cursor`: whether one is selected.
pub(super) fn draw(state: &mut State, area: Rect, buffer: &mut Buffer, cursor: bool) {
    state.rows.conversations = usize::from(area.height.saturating_sub(1));
    if state.overview.conversations.is_empty() {
        return teach(state, area, buffer);
    }
    let columns = columns(state, area.width);
    let rows = state.conversations().into_iter().map(|one| {
        let cells = columns.iter().map(|column| column.cell(one, state)).collect::<Vec<_>>();
        Row::new(cells)
    });
    let heads = columns.iter().map(|column| column.head(state)).collect::<Vec<_>>();
    let widths = columns.iter().map(|column| Constraint::Length(column.width())).collect::<Vec<_>>();
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .header(Row::new(heads).style(state.paint.faint()))
        .row_highlight_style(Style::new().add_modifier(Modifier::BOLD))
        .highlight_symbol(CURSOR)
        .highlight_spacing(HighlightSpacing::Always);
    let selected = state.cursor().filter(|_| cursor);
    let mut place = TableState::new().with_offset(state.offset).with_selected(selected);
    StatefulWidget::render(table, area, buffer, &mut place);
    state.offset = place.offset();
}

/// The columns that there is room for. What one needs most is asked for first.
fn columns(state: &State, width: u16) -> Vec<Column> {
    let gauge = if width >= WITH_GAUGE { GAUGE_CELLS } else { 0 };
    let always = [Column::Id, Column::Gauge(gauge), Column::Usage].iter().map(Column::taken).sum::<u16>();
    let room = width.saturating_sub(CURSOR.len() as u16 + always);
    let mut spare = room.saturating_sub(TITLE_CELLS);
    let mut afford = |wanted: u16| {
        let granted = spare >= wanted;
        spare -= if granted { wanted } else { 0 };
        granted
    };
    let action = afford(Column::Action.taken() + Column::Age.taken());
    let longer = afford(MORE_GAUGE_CELLS);
    let tokens = afford(3 * Column::Sent.taken());
    let model = afford(Column::Model.taken());
    let user = state.shows_all() && afford(Column::User.taken());
    let longest = longer && afford(MORE_GAUGE_CELLS);
    let gauge = gauge + MORE_GAUGE_CELLS * (u16::from(longer) + u16::from(longest));
    let all = [
        (true, Column::Id),
        (gauge >= LEAST_CELLS, Column::Gauge(gauge)),
        (true, Column::Usage),
        (tokens, Column::Sent),
        (tokens, Column::Arrived),
        (tokens, Column::Limit),
        (model, Column::Model),
        (user, Column::User),
        (action, Column::Action),
        (action, Column::Age),
    ];
    let mut columns: Vec<Column> = all.into_iter().filter_map(|(shown, column)| shown.then_some(column)).collect();
    let taken: u16 = columns.iter().map(Column::taken).sum();
    columns.push(Column::Title(width.saturating_sub(taken + CURSOR.len() as u16)));
    columns
}

impl Column {
    /// With the blank after it.
    fn taken(&self) -> u16 {
        self.width() + 1
    }

    fn width(&self) -> u16 {
        match self {
            Self::Gauge(cells) | Self::Title(cells) => *cells,
            Self::Id => 4,
            Self::Usage => 8,
            Self::Sent | Self::Arrived | Self::Limit => 7,
            Self::User => 10,
            Self::Model => 16,
            Self::Action => 11,
            Self::Age => 4,
        }
    }

    fn head(&self, state: &State) -> Line<'static> {
        match self {
            Self::Id => Line::from("id").right_aligned(),
            Self::Gauge(cells) => Line::from(scale(&state.overview.marks, *cells)),
            Self::Usage => Line::from("full  ").right_aligned(),
            Self::Sent => Line::from("sent").right_aligned(),
            Self::Arrived => Line::from("arrived").right_aligned(),
            Self::Limit => Line::from("limit").right_aligned(),
            Self::User => Line::from("user"),
            Self::Model => Line::from("model"),
            Self::Action => Line::from("last action"),
            Self::Age => Line::from("age").right_aligned(),
            Self::Title(_) => Line::from("title"),
        }
    }

    fn cell(&self, one: &Conversation, state: &State) -> Line<'static> {
        let load = one.load.as_ref();
        let marks = &state.overview.marks;
        let tokens = |count: Option<u64>| Line::from(count.map(short).unwrap_or_default()).right_aligned();
        let text = |text: &str| Line::from(cut(&plain(text), self.width()));
        match self {
            Self::Id => Line::from(one.id.to_string()).right_aligned(),
            Self::Gauge(cells) => match one.percent() {
                Some(percent) => gauge(percent, marks, *cells, state.paint),
                None => Line::styled("not counted yet", state.paint.faint()),
            },
            Self::Usage => usage(one, state),
            Self::Sent => tokens(load.and_then(|load| load.sent_tokens)),
            Self::Arrived => tokens(load.map(|load| load.arrived_tokens)),
            Self::Limit => tokens(load.map(|load| load.limit_tokens)),
            Self::User => text(&one.user),
            Self::Model => text(&one.model),
            Self::Action if one.writing_checkpoint => Line::from("writing…"),
            Self::Action => text(load.map_or("", |load| &load.action)),
            Self::Age => Line::from(age(state.overview.now, one.updated_at)).right_aligned(),
            Self::Title(_) => match &one.title {
                Some(title) => text(title),
                None => Line::styled(cut(&format!("({}'s)", plain(&one.user)), self.width()), state.paint.faint()),
            },
        }
    }
}

/// Percent, and the letter of the rung.
fn usage(one: &Conversation, state: &State) -> Line<'static> {
    let (Some(percent), Some(usage)) = (one.percent(), one.usage()) else {
        return Line::from("-  ").right_aligned();
    };
    let rung = Rung::at(percent, &state.overview.marks);
    let usage = if percent < 1000.0 { cut(&plain(&usage), 6) } else { ">999%".to_owned() };
    let text = format!("{usage} {}", rung.letter());
    Line::from(Span::styled(text, state.paint.rung(rung))).right_aligned()
}

/// What to do when there is nothing to see.
fn teach(state: &State, area: Rect, buffer: &mut Buffer) {
    let address = plain(&state.address);
    let whose = if state.all || !state.overview.caller.sees_all { "" } else { " of your own; `a` shows everybody's" };
    let lines = vec![
        Line::from(format!("No conversations yet{whose}.")),
        Line::from("Point a client here instead of at Ollama:"),
        Line::from(format!("  OLLAMA_HOST={address} ollama run MODEL")),
        Line::from("and it shows up with its first message."),
    ];
    Paragraph::new(lines).wrap(Wrap { trim: false }).render(area, buffer);
}

/// A number of up to five characters or so.
pub(super) fn short(number: u64) -> String {
    match number {
        0..100_000 => number.to_string(),
        100_000..10_000_000 => format!("{}k", number / 1_000),
        10_000_000..10_000_000_000 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// How long ago, in its largest unit.
pub(super) fn age(now: Option<Timestamp>, then: Option<Timestamp>) -> String {
    let (Some(now), Some(then)) = (now, then) else { return String::new() };
    match now.as_second().saturating_sub(then.as_second()).max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ages_are_short() {
        let numbers = [0, 99_999, 100_000, 812_345, 12_345_678, u64::MAX].map(short);
        assert_eq!(numbers, ["0", "99999", "100k", "812k", "12M", "18446744073G"]);
        let at = |second| Timestamp::from_second(second).ok();
        let ages = [0, 59, 60, 3_599, 3_600, 200_000].map(|seconds| age(at(1_000_000), at(1_000_000 - seconds)));
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "2d"]);
        assert_eq!(age(at(5), at(9)), "0s", "clocks differ");
        assert_eq!(age(None, at(9)), "");
    }
}
