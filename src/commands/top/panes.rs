//! What stands below the conversations, as lines: the feed, the models, or one conversation in full.

use jiff::Timestamp;
use ratatui::style::{Modifier, Style};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Span};

use super::conversations::short;
use super::gauge::{Paint, Rung, gauge, scale};
use super::model::{Conversation, Event, Load, Marks, Model};
use super::sentences::{cut, plain, sentence, wrapped};
use super::state::{Lower, State};

/// Wider than this, a gauge says no more.
const WIDEST_GAUGE: u16 = 102;

/// From here on, whole numbers of seconds fit.
const WITH_SECONDS: u16 = 60;

pub(super) fn title(lower: Lower) -> &'static str {
    match lower {
        Lower::Feed => "events (UTC)",
        Lower::Models => "models",
        Lower::Details => "conversation",
    }
}

pub(super) fn lines(state: &State, width: u16) -> Vec<Line<'static>> {
    match state.lower {
        Lower::Feed => feed(state, width),
        Lower::Models => models(state, width),
        Lower::Details => state.selected().map(|one| details(one, state, width)).unwrap_or_default(),
    }
}

/// Oldest first: the end is where it grows.
pub(super) fn feed(state: &State, width: u16) -> Vec<Line<'static>> {
    if state.overview.events.is_empty() {
        return vec![Line::styled("Nothing has happened yet: below the first mark it is quiet.", state.paint.faint())];
    }
    state.overview.events.iter().map(|event| happened(event, state.paint, width)).collect()
}

fn happened(event: &Event, paint: Paint, width: u16) -> Line<'static> {
    let at = clock(event.at, width >= WITH_SECONDS);
    let whose = event.conversation.map(|id| id.to_string()).unwrap_or_default();
    let head = format!("{at} {whose:>4}  ");
    let room = width.saturating_sub(head.chars().count() as u16);
    Line::from(vec![Span::styled(head, paint.faint()), Span::styled(cut(&sentence(event), room), manner(event, paint))])
}

/// What an event says is in its words; the colour only helps to find it.
fn manner(event: &Event, paint: Paint) -> Style {
    let text = event.more.get("text").and_then(|text| text.as_str()).unwrap_or_default();
    match event.kind.as_str() {
        "rollover" | "refused" | "checkpoint.failed" => paint.rung(Rung::Rollover),
        "compression" => paint.rung(Rung::Compression),
        "warning" if text.starts_with("CRITICAL") => paint.rung(Rung::Rollover),
        "warning" if text.starts_with("WARNING") => paint.rung(Rung::Compression),
        "warning" => paint.rung(Rung::Told),
        kind if kind.starts_with("checkpoint.") => paint.rung(Rung::Checkpoint),
        _ => Style::new(),
    }
}

pub(super) fn models(state: &State, width: u16) -> Vec<Line<'static>> {
    if state.overview.models.is_empty() {
        return vec![Line::styled("No model has been used since the server started.", state.paint.faint())];
    }
    state.overview.models.iter().flat_map(|model| wrapped(&about_model(model), width)).map(Line::from).collect()
}

fn about_model(model: &Model) -> String {
    let (name, basis, from) = (plain(&model.name), plain(&model.basis), plain(&model.window_from));
    let why = model.note.as_deref().map(|note| format!(": {}", plain(note))).unwrap_or_default();
    let trained =
        if model.trained_window > 0 { format!(", trained for {}", model.trained_window) } else { String::new() };
    format!("{name}: limit {} of window {} ({from}{trained}), {basis}{why}", model.limit, model.window)
}

fn details(one: &Conversation, state: &State, width: u16) -> Vec<Line<'static>> {
    let (marks, paint) = (&state.overview.marks, state.paint);
    let title = one.title.as_deref().unwrap_or("not yours to read");
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(cut(&format!("{}  {}", one.id, plain(title)), width), bold)];
    let mut say = |text: String| lines.extend(wrapped(&text, width).into_iter().map(Line::from));
    match &one.load {
        Some(load) => say(about_load(load)),
        None => say("No turn of it has been counted yet.".to_owned()),
    }
    say(format!(
        "{} since {}, with {}; messages {}, branches {}, checkpoints {}, snapshots {}",
        plain(&one.user),
        when(one.created_at),
        plain(&one.model),
        one.messages,
        one.branches,
        one.checkpoints,
        one.snapshots
    ));
    if let Some(percent) = one.percent() {
        let cells = width.min(WIDEST_GAUGE);
        lines.push(Line::styled(scale(marks, cells), paint.faint()));
        lines.push(gauge(percent, marks, cells, paint));
    }
    if !one.recent.is_empty() {
        lines.extend(recent(&one.recent, marks, width, paint));
    }
    let own = state.overview.events.iter().rev().filter(|event| event.conversation == Some(one.id));
    lines.extend(own.map(|event| happened(event, paint, width)));
    lines
}

fn about_load(load: &Load) -> String {
    let (dialect, status, action) = (plain(&load.dialect), plain(&load.status), plain(&load.action));
    let sent = load.sent_tokens.map(|sent| format!(", {sent} sent")).unwrap_or_default();
    let reported = load.reported_tokens.map(|read| format!(", {read} read by Ollama")).unwrap_or_default();
    let receipt = load.receipt.as_deref().map(|receipt| format!("; {}", plain(receipt))).unwrap_or_default();
    format!(
        "{} full: {} tokens arrived{sent}{reported}, the limit is {} ({}); turn {} by {dialect}: {status}, action {action}{receipt}",
        plain(&load.usage),
        load.arrived_tokens,
        load.limit_tokens,
        plain(&load.basis),
        load.turn
    )
}

/// The last turns as bars, and under each the letter of its rung: a bar cannot be higher than the limit.
fn recent(recent: &[f64], marks: &Marks, width: u16, paint: Paint) -> [Line<'static>; 2] {
    const HEAD: &str = "last turns ";
    let room = usize::from(width).saturating_sub(HEAD.len());
    let shown = &recent[recent.len().saturating_sub(room)..];
    let bars = shown.iter().map(|percent| Span::styled(bar(*percent), paint.rung(Rung::at(*percent, marks))));
    let letters: String = shown.iter().map(|percent| Rung::at(*percent, marks).letter()).collect();
    let blank = " ".repeat(HEAD.len());
    [Line::from_iter([Span::raw(HEAD)].into_iter().chain(bars)), Line::from(format!("{blank}{letters}"))]
}

fn bar(percent: f64) -> &'static str {
    let set = NINE_LEVELS;
    let levels = [
        set.one_eighth,
        set.one_quarter,
        set.three_eighths,
        set.half,
        set.five_eighths,
        set.three_quarters,
        set.seven_eighths,
        set.full,
    ];
    levels[((percent.max(0.0) / 100.0 * 8.0) as usize).min(7)]
}

fn clock(at: Option<Timestamp>, seconds: bool) -> String {
    let format = if seconds { "%H:%M:%S" } else { "%H:%M" };
    at.map(|at| at.strftime(format).to_string()).unwrap_or_else(|| "--:--".to_owned())
}

fn when(at: Option<Timestamp>) -> String {
    at.map(|at| at.strftime("%Y-%m-%d %H:%M").to_string()).unwrap_or_else(|| "some time".to_owned())
}

/// The header's numbers, those that need somebody's attention first.
pub(super) fn totals(state: &State, width: u16) -> Line<'static> {
    let totals = &state.overview.totals;
    let turns = totals.turns;
    let all = turns.none + turns.checkpoint + turns.compression + turns.rollover + turns.refused;
    let alarms = [
        (totals.overflows, "overflowed"),
        (totals.cut_by_upstream, "cut by Ollama"),
        (totals.exact_mismatches, "counted wrongly"),
    ];
    let alarms = alarms.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let alarms: Vec<String> = alarms.collect();
    let plainly = if width < 80 {
        format!("{all} turns, {} rollovers, {} tokens saved", turns.rollover, short(totals.tokens_saved))
    } else {
        format!(
            "{all} turns: {} checkpoint, {} compression, {} rollover, {} refused; tokens: {} arrived, {} sent, {} saved, {} recalled; {} in flight, {} checkpoints under way",
            turns.checkpoint,
            turns.compression,
            turns.rollover,
            turns.refused,
            short(totals.tokens_arrived),
            short(totals.tokens_forwarded),
            short(totals.tokens_saved),
            short(totals.tokens_recalled),
            totals.in_flight,
            totals.checkpoints_under_way
        )
    };
    if alarms.is_empty() {
        return Line::from(cut(&plainly, width));
    }
    let alarms = format!("{}! ", alarms.join(", "));
    let room = width.saturating_sub(alarms.chars().count() as u16);
    Line::from(vec![Span::styled(alarms, state.paint.rung(Rung::Rollover)), Span::raw(cut(&plainly, room))])
}
