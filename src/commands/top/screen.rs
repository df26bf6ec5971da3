//! The screen: two lines on the server, the conversations, a pane below them, one line of keys.

use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Widget};

use super::conversations::{self, age};
use super::gauge::Rung;
use super::panes;
use super::sentences::{cut, plain};
use super::state::{Focus, Lower, Sort, State};

/// The events that one plain screen ends with.
const EVENTS_PRINTED: usize = 20;

/// Lower than this, there is no room for a second pane.
const WITH_LOWER: u16 = 9;

/// A heading, the columns' names and two conversations; a heading and two lines.
const LEAST_TABLE: u16 = 4;
const LEAST_LOWER: u16 = 3;

/// What keys and letters mean. Fits into 40 by 12, with a frame.
const HELP: [&str; 10] = [
    "j k ↓ ↑ PgUp PgDn Home End  move",
    "Tab    the other pane",
    "Enter  one conversation in full",
    "m      models",
    "s      sort: recent or fullest first",
    "a      everybody's, or one's own",
    "p      pause    q Esc Ctrl-C  quit",
    "",
    "full:  i told         c checkpoint",
    "       ! compression  X rollover",
];

pub(super) fn draw(state: &mut State, area: Rect, buffer: &mut Buffer) {
    let [header, totals, body, footer] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(area);
    head(state, area.width).render(header, buffer);
    panes::totals(state, area.width).render(totals, buffer);
    keys(state, area.width).render(footer, buffer);
    let (table, lower) = split(state, body);
    let (all, title) = (state.overview.conversations.len(), whose(state));
    let order = if state.sort == Sort::Recent { "recent first" } else { "fullest first" };
    let inside = heading(state, Focus::Conversations, &format!("{title}: {all}, {order}"), table, buffer);
    conversations::draw(state, inside, buffer, true);
    if let Some(lower) = lower {
        let inside = heading(state, Focus::Lower, panes::title(state.lower), lower, buffer);
        let lines = panes::lines(state, inside.width);
        let first = state.first_line(lines.len(), usize::from(inside.height));
        Paragraph::new(lines.into_iter().skip(first).collect::<Vec<_>>()).render(inside, buffer);
    }
    if state.help {
        help(area, buffer);
    }
}

/// How the body is shared: the table takes what it needs up to three fifths, less when one reads the rest.
fn split(state: &State, body: Rect) -> (Rect, Option<Rect>) {
    if body.height < WITH_LOWER - 3 {
        return (body, None);
    }
    let needed = match state.overview.conversations.len() {
        0 => 6,
        some => u16::try_from(some).unwrap_or(u16::MAX).saturating_add(2),
    };
    let share = if state.lower == Lower::Details { 2 } else { 3 };
    let most = (body.height * share / 5).min(body.height - LEAST_LOWER).max(LEAST_TABLE.min(body.height));
    let [table, lower] =
        Layout::vertical([Constraint::Length(needed.clamp(LEAST_TABLE.min(most), most)), Constraint::Fill(1)])
            .areas(body);
    (table, Some(lower))
}

/// A line with a title in it; gives what is below it.
fn heading(state: &State, of: Focus, title: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let focused = state.focus == of;
    let style = if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(state.paint.faint())
        .title(Span::styled(format!(" {} ", cut(title, area.width.saturating_sub(2))), style));
    let inside = block.inner(area);
    block.render(area, buffer);
    inside
}

fn whose(state: &State) -> String {
    if state.shows_all() { "everybody's".to_owned() } else { plain(&state.overview.caller.user) }
}

/// Who serves, and how it is. What is wrong comes first, where a narrow screen still shows it.
fn head(state: &State, width: u16) -> Line<'static> {
    let overview = &state.overview;
    let alarm = state.paint.rung(Rung::Rollover);
    if let Some(reason) = &state.trouble {
        let text = cut(&format!("reconnecting: {}", plain(reason)), width);
        return Line::styled(text, alarm.add_modifier(Modifier::REVERSED));
    }
    let mut line = vec![Span::styled(
        format!("loadline {} {}", plain(&overview.version), plain(&overview.mode)),
        Style::new().add_modifier(Modifier::BOLD),
    )];
    let (upstream, store) = (&overview.upstream, &overview.store);
    let version = plain(&upstream.version);
    let reason = upstream.error.as_deref().map(|error| format!(": {}", plain(error))).unwrap_or_default();
    let upstream_now = if upstream.up {
        Span::styled(format!(", Ollama up {version}"), state.paint.fg(Color::Green))
    } else {
        Span::styled(format!(", Ollama DOWN{reason}"), alarm)
    };
    let waiting =
        if store.waiting_changes > 0 { format!(", {} waiting", store.waiting_changes) } else { String::new() };
    let store_now = if store.healthy {
        Span::raw(format!(", store healthy {}{waiting}", bytes(store.size_bytes)))
    } else {
        Span::styled(format!(", STORE FAILS ({} times)", store.failed_commits), alarm)
    };
    let by_need = if store.healthy { [upstream_now, store_now] } else { [store_now, upstream_now] };
    line.extend(by_need);
    if let Some(free) = store.free_bytes {
        line.push(Span::raw(format!(", {} free", bytes(free))));
    }
    let up = age(overview.now, overview.started_at);
    if !up.is_empty() {
        line.push(Span::raw(format!(", running {up}")));
    }
    line.push(Span::raw(format!(", {} to {}", plain(&state.address), plain(&upstream.url))));
    Line::from(line)
}

/// The line of keys, or what there is to know about the last one.
fn keys(state: &State, width: u16) -> Line<'static> {
    if let Some(notice) = state.notice {
        return Line::from(cut(notice, width));
    }
    if state.paused {
        return Line::styled(cut("PAUSED: p goes on", width), Style::new().add_modifier(Modifier::REVERSED));
    }
    let text = if width < 80 {
        "? help  q quit  Enter one  m models"
    } else {
        "? help   q quit   Tab pane   Enter one conversation   m models   s sort   a everybody's or own   p pause"
    };
    Line::styled(cut(text, width), state.paint.faint())
}

fn help(area: Rect, buffer: &mut Buffer) {
    let [row] = Layout::vertical([Constraint::Length(HELP.len() as u16 + 2)]).flex(Flex::Center).areas(area);
    let [window] = Layout::horizontal([Constraint::Length(40)]).flex(Flex::Center).areas(row);
    Clear.render(window, buffer);
    let block = Block::bordered().title(" keys ");
    Paragraph::new(HELP.map(Line::from).to_vec()).block(block).render(window, buffer);
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// Everything once, as plain text for a pipe or a script.
pub(super) fn once(state: &mut State, width: u16) -> String {
    let mut page = String::new();
    let mut add = |height: usize, draw: &mut dyn FnMut(Rect, &mut Buffer)| {
        let area = Rect::new(0, 0, width, u16::try_from(height).unwrap_or(u16::MAX));
        let mut buffer = Buffer::empty(area);
        draw(area, &mut buffer);
        page.push_str(&text_of(&buffer));
    };
    let lines = |lines: Vec<Line<'static>>, area: Rect, buffer: &mut Buffer| Paragraph::new(lines).render(area, buffer);
    add(2, &mut |area, buffer| lines(vec![head(state, width), panes::totals(state, width)], area, buffer));
    let rows = state.overview.conversations.len().max(5) + 1;
    add(rows, &mut |area, buffer| conversations::draw(state, area, buffer, false));
    for (title, body) in [("models:", panes::models(state, width)), ("events (UTC):", panes::feed(state, width))] {
        let skipped = body.len().saturating_sub(if title == "models:" { body.len() } else { EVENTS_PRINTED });
        let body: Vec<_> = std::iter::once(Line::from(title)).chain(body.into_iter().skip(skipped)).collect();
        add(body.len() + 1, &mut |area, buffer| lines(body.clone(), area, buffer));
    }
    page
}

/// A buffer as text, without the blanks at the ends of lines and of the page.
fn text_of(buffer: &Buffer) -> String {
    let rows = buffer.content().chunks(usize::from(buffer.area.width).max(1)).map(|cells| {
        let mut row = String::new();
        let mut hidden = 0;
        for cell in cells {
            // A wide character hides the cell after it.
            if hidden == 0 {
                row.push_str(cell.symbol());
                hidden = cell.symbol().cell_width();
            }
            hidden = hidden.saturating_sub(1);
        }
        row.trim_end().to_owned()
    });
    let text = rows.collect::<Vec<_>>().join("\n");
    format!("{}\n\n", text.trim_end())
}
