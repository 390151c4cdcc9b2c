//! What each key does.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns;
use super::state::{Filter, Overlay, Question, State};

/// The keys and what they do, for help.
pub(super) const KEYS: [(&str, &str); 15] = [
    ("q, Ctrl-C", "end"),
    ("? h", "this help; any other key closes it"),
    ("up down j k", "move to the queue above or below; also PgUp, PgDn, Home, End"),
    ("< >", "sort by the column to the left or right; also the arrow keys"),
    ("r", "reverse the order"),
    ("/", "filter queues by a regular expression; Esc removes the filter"),
    ("Enter", "show a queue's counts, times, limits and pools; Esc goes back"),
    ("s", "change a setting of the queue"),
    ("S", "change a setting of the process"),
    ("t", "show totals since queues were created, instead of rates"),
    ("c", "show the columns that did not fit"),
    ("space", "update now"),
    ("+ -", "update more or less often"),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-Z", "stop the program; `fg` continues it"),
];

/// The shortest and longest interval that keys and options allow.
pub(super) const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_hours(1)];

/// What must be done after a key, besides drawing the changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// Nothing.
    Nothing,
    /// End the command.
    End,
    /// Stop until the shell continues the command.
    Stop,
    /// Draw the whole screen.
    Redraw,
    /// Send a question to the process.
    Ask(Question),
}

/// Carries out a key.
pub(super) fn press(state: &mut State, key: KeyEvent) -> Command {
    if key.kind == KeyEventKind::Release {
        return Command::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Command::End,
            KeyCode::Char('z') => return Command::Stop,
            KeyCode::Char('l') => return Command::Redraw,
            _ => {}
        }
    }
    state.message.clear();
    match std::mem::take(&mut state.overlay) {
        Overlay::Nothing => plain(state, key),
        Overlay::Help(first) => {
            help(state, key, first);
            Command::Nothing
        }
        Overlay::Filter(before) => {
            filter(state, key, before);
            Command::Nothing
        }
        Overlay::Form(_) if key.code == KeyCode::Esc => Command::Nothing,
        Overlay::Form(mut form) => {
            let mut command = Command::Nothing;
            match key.code {
                KeyCode::Tab | KeyCode::Down => form.step(true),
                KeyCode::BackTab | KeyCode::Up => form.step(false),
                KeyCode::Enter => {
                    if let Some(key) = form.setting().map(|setting| setting.key.clone()) {
                        form.outcome = "...".into();
                        let queue = form.queue.as_ref().map(|(id, _)| *id);
                        let value = form.value.trim().to_owned();
                        command = Command::Ask(Question::Set { queue, key, value });
                    }
                }
                _ => write(&mut form.value, key),
            }
            state.overlay = Overlay::Form(form);
            command
        }
    }
}

/// Handles a key while nothing covers the table or the queue.
fn plain(state: &mut State, key: KeyEvent) -> Command {
    let page = isize::from(state.size.1 as i16 / 2).max(1);
    match key.code {
        KeyCode::Char('q') => return Command::End,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => state.overlay = Overlay::Help(0),
        KeyCode::Up | KeyCode::Char('k') => step(state, -1),
        KeyCode::Down | KeyCode::Char('j') => step(state, 1),
        KeyCode::PageUp => step(state, -page),
        KeyCode::PageDown => step(state, page),
        KeyCode::Home => step(state, isize::MIN),
        KeyCode::End => step(state, isize::MAX),
        KeyCode::Char('<') | KeyCode::Left => state.sort_by_next(false),
        KeyCode::Char('>') | KeyCode::Right => state.sort_by_next(true),
        KeyCode::Char('r') => state.sort.reverse = !state.sort.reverse,
        KeyCode::Char('t') => state.totals = !state.totals,
        KeyCode::Char('c') => {
            let pages = columns::page_count(usize::from(state.size.0));
            state.page = (state.page + 1) % pages;
            if pages == 1 {
                state.message = "all columns are shown already".into();
            }
        }
        KeyCode::Char('/') => state.overlay = Overlay::Filter(state.filter.clone()),
        KeyCode::Enter if state.queue.is_none() => return open(state),
        KeyCode::Esc if state.queue.is_some() => {
            state.queue = None;
            return Command::Ask(Question::Pools(false));
        }
        KeyCode::Esc => state.filter = Filter::default(),
        KeyCode::Char('s') => {
            let queue = state.subject().map(|row| (row.id, row.name.clone()));
            return queue
                .and_then(|queue| state.open_form(Some(queue)))
                .map_or(Command::Nothing, Command::Ask);
        }
        KeyCode::Char('S') => return state.open_form(None).map_or(Command::Nothing, Command::Ask),
        KeyCode::Char(' ') => return Command::Ask(Question::Sample),
        KeyCode::Char('+') => return every(state, state.interval / 2),
        KeyCode::Char('-') => return every(state, state.interval * 2),
        _ => {}
    }
    Command::Nothing
}

fn step(state: &mut State, by: isize) {
    if state.queue.is_some() {
        state.first_pool =
            state.first_pool.saturating_add_signed(by).min(super::view::last_pool(state));
    } else {
        state.move_mark(by);
    }
}

fn open(state: &mut State) -> Command {
    state.queue = state.subject().map(|row| row.id);
    state.first_pool = 0;
    // Later samples keep the mark on that queue, wherever it is sorted by then.
    state.selected = state.queue;
    if state.queue.is_some() { Command::Ask(Question::Pools(true)) } else { Command::Nothing }
}

fn every(state: &mut State, interval: Duration) -> Command {
    let [least, greatest] = INTERVALS;
    state.interval = interval.clamp(least, greatest);
    Command::Ask(Question::Every(state.interval))
}

fn help(state: &mut State, key: KeyEvent, first: usize) {
    let last = super::view::last_line_of_help(state);
    let page = usize::from(state.size.1) / 2;
    let first = match key.code {
        KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => first + 1,
        KeyCode::PageUp => first.saturating_sub(page),
        KeyCode::PageDown | KeyCode::Char(' ') => first + page,
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => return,
    };
    state.overlay = Overlay::Help(first.min(last));
}

fn filter(state: &mut State, key: KeyEvent, before: Filter) {
    match key.code {
        KeyCode::Enter => {}
        KeyCode::Esc => state.filter = before,
        _ => {
            let mut text = state.filter.text.clone();
            write(&mut text, key);
            state.filter = Filter::new(&text);
            state.overlay = Overlay::Filter(before);
        }
    }
}

/// Appends a character, or deletes the last one or all.
fn write(text: &mut String, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('u') if control => text.clear(),
        KeyCode::Char(c) if !control => text.push(c),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
