//! What is on the screen and what a key does to it. Knows nothing of drawing but how many rows there were.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::gauge::Paint;
use super::model::{Conversation, Overview};

/// What follows from a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// The question has changed: ask at once.
    Ask,
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// As the server gives them: the one used last first.
    Recent,
    Fullest,
}

/// What stands below the conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lower {
    Feed,
    Models,
    Details,
}

/// Where the arrows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Conversations,
    Lower,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) overview: Overview,
    /// Where clients find the server.
    pub(super) address: String,
    /// Why there is no newer overview.
    pub(super) trouble: Option<String>,
    pub(super) paint: Paint,
    /// Whether everybody's conversations are asked for.
    pub(super) all: bool,
    pub(super) sort: Sort,
    pub(super) lower: Lower,
    pub(super) focus: Focus,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Something to know about the last key.
    pub(super) notice: Option<&'static str>,
    /// By its number: the list changes its order under the cursor.
    selected: Option<i64>,
    /// The first conversation on the screen.
    pub(super) offset: usize,
    /// Lines above the end of the feed, or below the beginning of another pane.
    scroll: usize,
    /// Rows that there were, as drawn last.
    pub(super) rows: Rows,
}

/// How much of the panes can be seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rows {
    pub(super) conversations: usize,
    pub(super) lower: usize,
    /// All lines of the lower pane.
    pub(super) lower_lines: usize,
}

impl State {
    pub(super) fn new(overview: Overview, address: String, paint: Paint) -> Self {
        let mut state = Self {
            overview: Overview::default(),
            address,
            trouble: None,
            paint,
            all: true,
            sort: Sort::Recent,
            lower: Lower::Feed,
            focus: Focus::Conversations,
            paused: false,
            help: false,
            notice: None,
            selected: None,
            offset: 0,
            scroll: 0,
            rows: Rows::default(),
        };
        state.take(Ok(overview));
        state
    }

    /// Takes what the server said, or why it did not. What was known stays on the screen meanwhile.
    pub(super) fn take(&mut self, answer: Result<Overview, String>) {
        match answer {
            Err(reason) => self.trouble = Some(reason),
            Ok(overview) => {
                let cursor = self.cursor();
                if self.lower == Lower::Feed && self.scroll > 0 {
                    // Whoever reads further up goes on reading the same lines.
                    let last = self.overview.events.last().map_or(0, |event| event.id);
                    self.scroll += overview.events.iter().filter(|event| event.id > last).count();
                }
                self.trouble = None;
                self.overview = overview;
                if self.selected().is_none() {
                    self.select(cursor.unwrap_or(0));
                }
            }
        }
    }

    /// The conversations in the order they are shown in.
    pub(super) fn conversations(&self) -> Vec<&Conversation> {
        let mut all: Vec<&Conversation> = self.overview.conversations.iter().collect();
        if self.sort == Sort::Fullest {
            let fullness = |one: &Conversation| one.percent().unwrap_or(-1.0);
            all.sort_by(|one, other| fullness(other).total_cmp(&fullness(one)));
        }
        all
    }

    /// The place of the selected conversation among those.
    pub(super) fn cursor(&self) -> Option<usize> {
        self.conversations().iter().position(|one| Some(one.id) == self.selected)
    }

    pub(super) fn selected(&self) -> Option<&Conversation> {
        self.overview.conversations.iter().find(|one| Some(one.id) == self.selected)
    }

    /// The first line of the lower pane to show.
    pub(super) fn first_line(&mut self, lines: usize, rows: usize) -> usize {
        self.rows.lower = rows;
        self.rows.lower_lines = lines;
        let most = lines.saturating_sub(rows);
        self.scroll = self.scroll.min(most);
        if self.lower == Lower::Feed { most - self.scroll } else { self.scroll }
    }

    /// Whether other people's conversations are shown, too.
    pub(super) fn shows_all(&self) -> bool {
        self.all && self.overview.caller.sees_all
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Stay;
        }
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Next::Quit } else { Next::Stay };
        }
        if self.help {
            // Any key closes it; those that end everything still do.
            self.help = false;
            return if key.code == KeyCode::Char('q') { Next::Quit } else { Next::Stay };
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc if self.lower == Lower::Details => self.show(Lower::Feed),
            KeyCode::Esc => return Next::Quit,
            KeyCode::Char('?') | KeyCode::Char('h') => self.help = true,
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                return if self.paused { Next::Stay } else { Next::Ask };
            }
            KeyCode::Char('s') => {
                self.sort = if self.sort == Sort::Recent { Sort::Fullest } else { Sort::Recent };
            }
            KeyCode::Char('a') => return self.change_whose(),
            KeyCode::Char('m') => self.toggle(Lower::Models),
            KeyCode::Enter if self.selected().is_some() => self.toggle(Lower::Details),
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Lower { Focus::Conversations } else { Focus::Lower };
            }
            other => self.go(other),
        }
        Next::Stay
    }

    fn change_whose(&mut self) -> Next {
        if !self.overview.caller.sees_all {
            self.notice = Some("this token sees its user's own conversations only");
            return Next::Stay;
        }
        self.all = !self.all;
        Next::Ask
    }

    fn toggle(&mut self, lower: Lower) {
        self.show(if self.lower == lower { Lower::Feed } else { lower });
    }

    fn show(&mut self, lower: Lower) {
        self.lower = lower;
        self.scroll = 0;
    }

    /// Moves the cursor, or the lower pane.
    fn go(&mut self, key: KeyCode) {
        let page = match self.focus {
            Focus::Conversations => self.rows.conversations,
            Focus::Lower => self.rows.lower,
        };
        let page = page.max(1) as isize;
        let by = match key {
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::PageUp => -page,
            KeyCode::Home | KeyCode::Char('g') => -isize::MAX,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            _ => return,
        };
        match self.focus {
            Focus::Conversations => {
                let last = self.overview.conversations.len().saturating_sub(1);
                self.select(self.cursor().unwrap_or(0).saturating_add_signed(by).min(last));
            }
            Focus::Lower => {
                let by = if self.lower == Lower::Feed { -by } else { by };
                let most = self.rows.lower_lines.saturating_sub(self.rows.lower);
                self.scroll = self.scroll.saturating_add_signed(by).min(most);
            }
        }
    }

    /// Selects by place; beyond the end is the last.
    fn select(&mut self, place: usize) {
        let conversations = self.conversations();
        let found = conversations.get(place).or(conversations.last()).map(|one| one.id);
        self.selected = found;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::model::tests::{conversation, read, sample};
    use super::*;
    use serde_json::{Value, json};

    pub(in super::super) fn state_of(overview: &Value) -> State {
        State::new(read(overview), "http://127.0.0.1:11435".to_owned(), Paint { colours: false })
    }

    /// Three conversations: 3 was used last, 1 is the fullest.
    fn fleet() -> Value {
        let mut overview = sample();
        overview["conversations"] = json!([
            conversation(3, "three", 10, 100),
            conversation(2, "two", 50, 100),
            conversation(1, "one", 90, 100)
        ]);
        overview
    }

    fn press(state: &mut State, code: KeyCode) -> Next {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn at(state: &State) -> Option<i64> {
        state.selected().map(|one| one.id)
    }

    #[test]
    fn q_escape_and_control_c_quit() {
        let mut state = state_of(&sample());
        assert_eq!(press(&mut state, KeyCode::Char('q')), Next::Quit);
        assert_eq!(press(&mut state, KeyCode::Esc), Next::Quit);
        assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Quit);
        assert_eq!(press(&mut state, KeyCode::Char('c')), Next::Stay);
    }

    #[test]
    fn escape_closes_what_is_open_first() {
        let mut state = state_of(&sample());
        press(&mut state, KeyCode::Char('?'));
        assert!(state.help);
        assert_eq!((press(&mut state, KeyCode::Esc), state.help), (Next::Stay, false));
        press(&mut state, KeyCode::Enter);
        assert_eq!(state.lower, Lower::Details);
        assert_eq!((press(&mut state, KeyCode::Esc), state.lower), (Next::Stay, Lower::Feed));
        press(&mut state, KeyCode::Char('?'));
        assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Quit);
    }

    #[test]
    fn the_cursor_moves_and_stops_at_the_ends() {
        let mut state = state_of(&fleet());
        assert_eq!(at(&state), Some(3));
        let walk: [(KeyCode, i64); 9] = [
            (KeyCode::Up, 3),
            (KeyCode::Char('j'), 2),
            (KeyCode::Down, 1),
            (KeyCode::Down, 1),
            (KeyCode::Char('k'), 2),
            (KeyCode::Home, 3),
            (KeyCode::End, 1),
            (KeyCode::PageUp, 2),
            (KeyCode::PageDown, 1),
        ];
        for (key, expected) in walk {
            press(&mut state, key);
            assert_eq!(at(&state), Some(expected), "{key:?}");
        }
    }

    #[test]
    fn the_cursor_stays_on_its_conversation_when_the_order_changes() {
        let mut state = state_of(&fleet());
        press(&mut state, KeyCode::Down);
        assert_eq!((at(&state), state.cursor()), (Some(2), Some(1)));
        let mut next = fleet();
        next["conversations"].as_array_mut().expect("a list").insert(0, conversation(9, "new", 1, 100));
        state.take(Ok(read(&next)));
        assert_eq!((at(&state), state.cursor()), (Some(2), Some(2)));
        press(&mut state, KeyCode::Char('s'));
        let order: Vec<i64> = state.conversations().iter().map(|one| one.id).collect();
        assert_eq!((order.as_slice(), state.cursor()), ([1, 2, 3, 9].as_slice(), Some(1)));
    }

    #[test]
    fn a_conversation_that_goes_leaves_the_cursor_at_its_place() {
        let mut state = state_of(&fleet());
        press(&mut state, KeyCode::End);
        let mut next = fleet();
        next["conversations"].as_array_mut().expect("a list").pop();
        state.take(Ok(read(&next)));
        assert_eq!(at(&state), Some(2));
        next["conversations"] = json!([]);
        state.take(Ok(read(&next)));
        assert_eq!(at(&state), None);
        for key in [KeyCode::Down, KeyCode::Up, KeyCode::End, KeyCode::Enter, KeyCode::Char('s')] {
            press(&mut state, key);
        }
        assert_eq!(state.lower, Lower::Feed);
    }

    #[test]
    fn a_server_that_goes_away_leaves_its_last_words_on_the_screen() {
        let mut state = state_of(&fleet());
        state.take(Err("Connection refused".to_owned()));
        assert_eq!((state.trouble.as_deref(), state.conversations().len()), (Some("Connection refused"), 3));
        state.take(Ok(read(&fleet())));
        assert_eq!(state.trouble, None);
    }

    #[test]
    fn whose_conversations_are_shown_is_asked_anew_if_one_may_ask() {
        let mut state = state_of(&fleet());
        assert!(state.shows_all());
        assert_eq!((press(&mut state, KeyCode::Char('a')), state.all), (Next::Ask, false));
        let mut own = fleet();
        own["caller"]["sees_all"] = json!(false);
        let mut state = state_of(&own);
        assert_eq!((press(&mut state, KeyCode::Char('a')), state.shows_all()), (Next::Stay, false));
        assert!(state.notice.is_some());
    }

    #[test]
    fn pausing_stops_and_going_on_asks_at_once() {
        let mut state = state_of(&sample());
        assert_eq!((press(&mut state, KeyCode::Char('p')), state.paused), (Next::Stay, true));
        assert_eq!((press(&mut state, KeyCode::Char('p')), state.paused), (Next::Ask, false));
    }

    #[test]
    fn the_feed_follows_its_end_until_one_scrolls_up_and_then_stands_still() {
        let event = |id: i64| json!({ "id": id, "kind": "warning", "text": "x" });
        let mut overview = sample();
        overview["events"] = (1..=20).map(event).collect();
        let mut state = state_of(&overview);
        press(&mut state, KeyCode::Tab);
        assert_eq!((state.focus, state.first_line(20, 5)), (Focus::Lower, 15));
        press(&mut state, KeyCode::Up);
        press(&mut state, KeyCode::PageUp);
        assert_eq!(state.first_line(20, 5), 9);
        overview["events"] = (1..=23).map(event).collect();
        state.take(Ok(read(&overview)));
        assert_eq!(state.first_line(23, 5), 9);
        press(&mut state, KeyCode::Home);
        assert_eq!(state.first_line(23, 5), 0);
        press(&mut state, KeyCode::End);
        assert_eq!(state.first_line(23, 5), 18);
        press(&mut state, KeyCode::Char('m'));
        assert_eq!((state.lower, state.first_line(9, 5)), (Lower::Models, 0));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.first_line(9, 5), 1);
    }

    #[test]
    fn a_key_let_go_is_not_a_key_pressed() {
        let mut state = state_of(&sample());
        let released = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(state.key(released), Next::Stay);
    }
}
