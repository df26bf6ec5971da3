//! What the screen promises, on a terminal that is not there.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;
use serde_json::{Value, json};

use super::gauge::Paint;
use super::model::tests::{conversation, read, sample};
use super::screen;
use super::state::State;
use super::state::tests::state_of;

/// The screen as lines, each exactly as wide as the terminal.
fn drawn(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| screen::draw(state, frame.area(), frame.buffer_mut())).expect("drawn");
    if width == 0 {
        return Vec::new();
    }
    let screen = terminal.backend().to_string();
    // Each line is quoted; after it may stand what a wide character hides.
    let inside = |line: &str| line.split("\" Hidden by").next().unwrap_or_default().trim_matches('"').to_owned();
    screen.lines().map(inside).collect()
}

fn press(state: &mut State, code: KeyCode) {
    state.key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn with_conversations(conversations: Value) -> Value {
    let mut overview = sample();
    overview["conversations"] = conversations;
    overview
}

fn row_of<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no `{part}` in\n{}", lines.join("\n")))
}

#[test]
fn a_wide_screen_says_everything() {
    let lines = drawn(&mut state_of(&sample()), 160, 30);
    let all = lines.join("\n");
    for expected in [
        "loadline 0.1.0 enforce, Ollama up 0.17.4, store healthy 1 MB",
        "132 turns: 6 checkpoint, 2 compression, 3 rollover, 1 refused",
        "211k saved",
        "everybody's: 1, recent first",
        "How do I trim the sails?",
        "INFO: Context at 72.4% (5043/6963 tokens)",
        "? help",
    ] {
        assert!(all.contains(expected), "`{expected}` is missing in\n{all}");
    }
    let row = row_of(&lines, "How do I");
    for expected in ["> ", "7", "72.4% i", "5043", "6963", "smollm2", "none", "12s"] {
        assert!(row.contains(expected), "`{expected}` is missing in {row}");
    }
}

#[test]
fn the_numbers_of_the_scale_stand_over_their_marks() {
    let overview = with_conversations(json!([conversation(1, "empty", 0, 100), conversation(2, "full", 100, 100)]));
    let lines = drawn(&mut state_of(&overview), 160, 20);
    let cells = |part: &str| row_of(&lines, part).chars().collect::<Vec<_>>();
    let (scale, empty, full) = (cells("last action"), cells("empty"), cells("full "));
    let full = if full.contains(&'╋') { full } else { cells("100.0%") };
    let ends = |number: &str| {
        let text: String = scale.iter().collect();
        text[..text.find(number).expect("on the scale")].chars().count() + number.len() - 1
    };
    for number in ["70", "80"] {
        assert_eq!((empty[ends(number)], full[ends(number)]), ('┼', '┿'), "{number}");
    }
    assert_eq!((empty[ends("100")], full[ends("100")]), ('╂', '╋'));
    assert_eq!(empty.iter().filter(|cell| matches!(cell, '┼' | '╂')).count(), 4);
}

#[test]
fn hostile_titles_do_not_break_out_of_their_cells() {
    let hostile = [
        "\u{1b}[2J\u{1b}[31mred\u{7}",
        "\u{9b}31m\u{90}c1\r\n\ttwo lines",
        "\u{202e}desrever\u{2066}\u{200f}",
        "船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船船",
        "👩\u{200d}👩\u{200d}👧\u{200d}👦 ❤\u{fe0f} 🇵🇹 e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
        "\u{1b}]0;title\u{7}\u{1b}]52;c;Zm9v\u{7}",
    ];
    let list: Vec<Value> = (1..).zip(hostile).map(|(id, title)| conversation(id, title, 50, 100)).collect();
    let mut overview = with_conversations(list.into());
    overview["mode"] = json!("\u{1b}[5menforce");
    overview["upstream"]["version"] = json!("\u{9b}1m0");
    overview["models"][0]["name"] = json!("m\u{1b}c");
    overview["events"] = json!([{ "id": 1, "kind": "\u{1b}[2J", "who": "\u{202e}\u{1b}[H" }]);
    let mut state = state_of(&overview);
    for (width, height) in [(160, 30), (80, 24), (40, 12)] {
        for key in [KeyCode::Char('m'), KeyCode::Char('m'), KeyCode::Enter, KeyCode::Enter] {
            press(&mut state, key);
            let lines = drawn(&mut state, width, height);
            let all: String = lines.concat();
            let forbidden = |char: char| {
                char.is_control()
                    || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            assert!(!all.contains(forbidden), "{width}x{height}: {all:?}");
            assert_eq!(lines.len(), usize::from(height));
            for line in &lines {
                assert_eq!(Span::raw(line).width(), usize::from(width), "{line}");
            }
        }
    }
    let once = screen::once(&mut state, 100);
    assert!(!once.contains(|char: char| char.is_control() && char != '\n'), "{once:?}");
}

#[test]
fn wide_characters_are_cut_where_the_terminal_ends() {
    let title = "船".repeat(80);
    let overview = with_conversations(json!([conversation(1, &title, 50, 100)]));
    for width in 40..120 {
        let page = screen::once(&mut state_of(&overview), width);
        let row = page.lines().find(|line| line.contains('━')).expect("a row");
        let cells = Span::raw(row).width();
        assert!(cells <= usize::from(width), "{cells} in {width}: {row}");
        assert!(row.contains('…'), "{width}: {row}");
    }
}

#[test]
fn forty_by_twelve_is_still_readable() {
    let list: Vec<Value> = (1..=9).map(|id| conversation(id, "Trim the sails", 60 + 5 * id as u64, 100)).collect();
    let mut state = state_of(&with_conversations(list.into()));
    let lines = drawn(&mut state, 40, 12);
    assert!(lines[0].starts_with("loadline 0.1.0 enforce, Ollama up"), "{}", lines.join("\n"));
    assert!(lines[1].starts_with("132 turns, 3 rollovers"), "{}", lines.join("\n"));
    let row = row_of(&lines, "75.0% i");
    assert!(row.contains("┿╾┼┼╂") && row.contains("Trim"), "{row}");
    assert!(row_of(&lines, "events").contains('─'));
    assert!(lines.iter().any(|line| line.contains("Context at")), "{}", lines.join("\n"));
    press(&mut state, KeyCode::End);
    let lines = drawn(&mut state, 40, 12);
    assert!(row_of(&lines, "105.0% X").starts_with('>'), "the cursor is in sight:\n{}", lines.join("\n"));
    press(&mut state, KeyCode::Char('?'));
    let help = drawn(&mut state, 40, 12).join("\n");
    for expected in ["Ctrl-C  quit", "sort: recent or fullest first", "X rollover"] {
        assert!(help.contains(expected), "`{expected}` is missing in\n{help}");
    }
}

#[test]
fn no_size_is_too_small_to_live_with() {
    let list: Vec<Value> = (1..=30).map(|id| conversation(id, "船 Trim", 95, 100)).collect();
    let mut state = state_of(&with_conversations(list.into()));
    let mut empty = state_of(&json!({}));
    for width in [0, 1, 2, 3, 7, 15, 31, 39, 40, 200] {
        for height in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40] {
            for key in
                [KeyCode::Char('m'), KeyCode::Enter, KeyCode::Char('?'), KeyCode::Down, KeyCode::Tab, KeyCode::End]
            {
                press(&mut state, key);
                press(&mut empty, key);
                drawn(&mut state, width, height);
                drawn(&mut empty, width, height);
            }
        }
    }
}

#[test]
fn usage_over_the_limit_is_shown_as_it_is() {
    let overview =
        with_conversations(json!([conversation(1, "sunk", 7200, 6963), conversation(2, "deep", 99_000, 100)]));
    let lines = drawn(&mut state_of(&overview), 120, 20);
    assert!(row_of(&lines, "sunk").contains("103.4% X"), "{}", row_of(&lines, "sunk"));
    assert!(row_of(&lines, "sunk").contains("╋»"));
    assert!(row_of(&lines, "deep").contains("╋»  >999% X"), "{}", row_of(&lines, "deep"));
}

#[test]
fn an_empty_screen_teaches_what_to_do() {
    for (width, height) in [(40, 12), (80, 24)] {
        let lines = drawn(&mut state_of(&with_conversations(json!([]))), width, height);
        let all: String = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        for expected in ["No conversations yet.", "instead of at Ollama", "OLLAMA_HOST=http://127.0.0.1:11435"] {
            assert!(all.contains(expected), "`{expected}` is missing in\n{}", lines.join("\n"));
        }
    }
    let mut quiet = sample();
    quiet["events"] = json!([]);
    assert!(drawn(&mut state_of(&quiet), 80, 24).join("\n").contains("Nothing has happened yet"));
}

#[test]
fn a_conversation_that_was_never_counted_has_no_gauge_and_no_percent() {
    let mut one = conversation(4, "fresh", 0, 1);
    one["load"] = Value::Null;
    let mut theirs = conversation(5, "", 50, 100);
    theirs["title"] = Value::Null;
    theirs["user"] = json!("ada");
    let lines = drawn(&mut state_of(&with_conversations(json!([one, theirs]))), 120, 20);
    assert!(row_of(&lines, "fresh").contains("not counted yet"));
    assert!(!row_of(&lines, "fresh").contains('%'));
    assert!(row_of(&lines, "(ada's)").contains("50.0%"));
}

#[test]
fn a_server_that_is_gone_is_said_with_the_reason_over_what_was_known() {
    let mut state = state_of(&sample());
    state.take(Err("http://127.0.0.1:11435 does not answer: Connection refused".to_owned()));
    let lines = drawn(&mut state, 100, 20);
    assert!(lines[0].starts_with("reconnecting: http://127.0.0.1:11435 does not answer: Connection refused"));
    assert!(row_of(&lines, "How do I trim").contains("72.4% i"));
    state.take(Ok(read(&sample())));
    assert!(drawn(&mut state, 100, 20)[0].starts_with("loadline 0.1.0"));
}

#[test]
fn what_is_wrong_is_said_first() {
    let mut overview = sample();
    overview["upstream"] = json!({ "url": "http://127.0.0.1:11434", "up": false, "error": "Connection refused" });
    overview["store"]["healthy"] = json!(false);
    overview["totals"]["overflows"] = json!(2);
    let lines = drawn(&mut state_of(&overview), 100, 20);
    assert!(lines[0].starts_with("loadline 0.1.0 enforce, STORE FAILS (0 times), Ollama DOWN: Connection refused"));
    assert!(lines[1].starts_with("2 overflowed! 132 turns"), "{}", lines[1]);
}

#[test]
fn details_show_the_last_turns_with_their_rungs() {
    let mut one = conversation(7, "Trim", 5043, 6963);
    one["recent"] = json!([12.5, 50.0, 72.4, 81.0, 96.0, 103.4]);
    let mut state = state_of(&with_conversations(json!([one])));
    press(&mut state, KeyCode::Enter);
    let lines = drawn(&mut state, 120, 30);
    let bars = row_of(&lines, "last turns");
    assert!(bars.contains("last turns ▂▅▆▇██"), "{bars}");
    let letters = &lines[lines.iter().position(|line| line.contains("last turns")).expect("there") + 1];
    assert!(letters.starts_with("             ic!X"), "{letters}");
    let all = lines.join("\n");
    for expected in ["messages 42", "snapshots 1", "turn 118 by ollama-chat", "5043 read by Ollama"] {
        assert!(all.contains(expected), "`{expected}` is missing in\n{all}");
    }
}

#[test]
fn models_say_what_their_limit_comes_from() {
    let mut overview = sample();
    overview["models"][0]["basis"] = json!("calibrated");
    overview["models"][0]["note"] = json!("the template is unknown");
    let mut state = state_of(&overview);
    press(&mut state, KeyCode::Char('m'));
    let lines = drawn(&mut state, 140, 20);
    let row = row_of(&lines, "smollm2:latest");
    assert!(row.contains("limit 3481 of window 4096 (Ollama's default, trained for 8192)"), "{row}");
    assert!(row.contains("calibrated: the template is unknown"), "{row}");
}

#[test]
fn without_colours_no_cell_has_one() {
    let colours = |colours: bool| {
        let mut state = State::new(read(&sample()), String::new(), Paint { colours });
        let mut terminal = Terminal::new(TestBackend::new(120, 20)).expect("a terminal");
        terminal.draw(|frame| screen::draw(&mut state, frame.area(), frame.buffer_mut())).expect("drawn");
        let coloured = |cell: &&ratatui::buffer::Cell| cell.fg != ratatui::style::Color::Reset;
        terminal.backend().buffer().content().iter().filter(coloured).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 0);
}

#[test]
fn one_plain_page_has_every_part_and_no_escape_codes() {
    let page = screen::once(&mut state_of(&sample()), 120);
    for expected in [
        "loadline 0.1.0 enforce",
        "132 turns",
        "How do I trim",
        "models:",
        "smollm2:latest",
        "events (UTC):",
        "14:03:50",
    ] {
        assert!(page.contains(expected), "`{expected}` is missing in\n{page}");
    }
    assert!(!page.contains('\u{1b}') && !page.contains("> "), "{page}");
    assert!(page.lines().all(|line| line == line.trim_end()));
}
