//! Whole screens, character for character: the expected ones are in `screens/*.txt`, without trailing spaces. `UPDATE_SCREENS=1` rewrites
//! them; check them afterwards.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nearq_control::protocol::{Access, Settings};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use unicode_width::UnicodeWidthStr as _;

use super::columns::Column;
use super::invented;
use super::keys::{self, Command};
use super::paint::Paint;
use super::state::{Answer, Filter, Question, Sort, State};
use super::view;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// A state after `samples` samples of the invented process.
fn state(samples: u64, size: (u16, u16)) -> State {
    let sort = Sort { column: Column::named("items").unwrap(), reverse: false };
    let process = invented::process(Access::Full);
    let mut state = State::new(4711, process, Duration::from_secs(1), sort, Filter::default());
    state.size = size;
    for call in 1..=samples {
        state.learn(Answer::Sample(Box::new(invented::statistics(call, true))));
    }
    state
}

fn press(state: &mut State, code: KeyCode) -> Command {
    keys::press(state, KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(state: &mut State, text: &str) {
    for c in text.chars() {
        press(state, KeyCode::Char(c));
    }
}

/// What is drawn: the text, and the colours used.
fn draw(state: &State, paint: &Paint) -> (String, Vec<Color>) {
    let mut terminal = Terminal::new(TestBackend::new(state.size.0, state.size.1)).unwrap();
    terminal.draw(|frame| view::draw(state, paint, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..state.size.1 {
        let mut line = String::new();
        let mut x = 0;
        while x < state.size.0 {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character takes the next column too.
            x += symbol.width().max(1) as u16;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let colours = buffer.content.iter().map(|cell| cell.fg).filter(|fg| *fg != Color::Reset);
    (text, colours.collect())
}

/// Compares a screen with its expected text; each size has a file.
#[track_caller]
fn shows(name: &str, state: &State) {
    let (text, _) = draw(state, &Paint::new(true, true));
    let (columns, lines) = state.size;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/screens");
    let path = folder.join(format!("{name}-{columns}x{lines}.txt"));
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} expects\n{expected}\nand it is\n{text}", path.display());
    assert_eq!(draw(state, &Paint::new(false, true)), (text, Vec::new()), "colours add nothing");
}

#[test]
fn the_screen_before_the_second_snapshot() {
    shows("first", &state(1, SIZES[0]));
}

#[test]
fn the_table() {
    for size in SIZES {
        shows("table", &state(30, size));
    }
}

#[test]
fn totals_and_the_other_columns() {
    let mut state = state(30, SIZES[0]);
    write(&mut state, "tc");
    shows("totals-second-page", &state);
    write(&mut state, "c");
    shows("totals-third-page", &state);
}

#[test]
fn sorted_and_filtered() {
    let mut state = state(30, SIZES[0]);
    write(&mut state, "<rj/CRYPT|mail");
    shows("filter-is-written", &state);
    press(&mut state, KeyCode::Enter);
    shows("filtered", &state);
    press(&mut state, KeyCode::Esc);
    assert!(state.filter.text.is_empty());
    write(&mut state, "/nothing has that name");
    press(&mut state, KeyCode::Enter);
    shows("nothing-matches", &state);
    press(&mut state, KeyCode::Esc);
    write(&mut state, "/t[");
    shows("no-expression", &state);
}

#[test]
fn a_queue() {
    for size in SIZES {
        let mut state = state(30, size);
        write(&mut state, "/^kcryptd/");
        press(&mut state, KeyCode::Enter);
        assert_eq!(press(&mut state, KeyCode::Enter), Command::Ask(Question::Pools(true)));
        if size == SIZES[0] {
            shows("queue-before-pools", &state);
        }
        state.learn(Answer::Dump(Box::new(invented::dump())));
        shows("queue", &state);
        write(&mut state, "jjjjjjjjjjjjjjjjjjjjjjjjjj");
        assert_eq!(state.first_pool, 19, "the list stops at the last pool");
        assert_eq!(press(&mut state, KeyCode::Esc), Command::Ask(Question::Pools(false)));
    }
}

#[test]
fn a_per_cpu_queue() {
    let mut state = state(30, SIZES[0]);
    write(&mut state, "/^events$");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Enter);
    state.learn(Answer::Dump(Box::new(invented::dump())));
    shows("queue-percpu", &state);
}

#[test]
fn help() {
    for size in SIZES {
        let mut state = state(30, size);
        write(&mut state, "?");
        shows("help", &state);
        press(&mut state, KeyCode::End);
        if size == SIZES[0] {
            shows("help-end", &state);
        }
        press(&mut state, KeyCode::Char('x'));
        assert!(matches!(state.overlay, super::state::Overlay::Nothing));
    }
}

#[test]
fn the_screen_after_a_refused_and_an_accepted_setting() {
    for size in SIZES {
        let mut state = state(30, size);
        assert_eq!(
            press(&mut state, KeyCode::Char('s')),
            Command::Ask(Question::Settings(Some(11)))
        );
        state.learn(Answer::Settings(invented::queue_settings(11, "512"), None));
        for _ in 0..4 {
            press(&mut state, KeyCode::Down);
        }
        keys::press(&mut state, KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        write(&mut state, "many");
        let set = |value: &str| {
            let (key, value) = ("max_active".to_owned(), value.to_owned());
            Command::Ask(Question::Set { queue: Some(11), key, value })
        };
        assert_eq!(press(&mut state, KeyCode::Enter), set("many"));
        let why = "max_active cannot be `many`: it must be a number from 1 to 2048, or 0 for 1024";
        state.learn(Answer::Refused(why.into()));
        shows("refused", &state);
        keys::press(&mut state, KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        write(&mut state, "89");
        press(&mut state, KeyCode::Backspace);
        assert_eq!(press(&mut state, KeyCode::Enter), set("8"));
        state.learn(Answer::Settings(invented::queue_settings(11, "8"), Some("max_active".into())));
        if size == SIZES[0] {
            shows("set", &state);
        }
    }
}

#[test]
fn read_only_access_is_shown() {
    let mut state = state(30, SIZES[0]);
    state.process.allowed = Access::Read;
    assert_eq!(press(&mut state, KeyCode::Char('s')), Command::Nothing);
    shows("read-only", &state);
}

#[test]
fn the_last_screen_stays_when_the_process_is_gone() {
    let mut state = state(30, SIZES[0]);
    state.learn(Answer::Gone("process 4711 has ended".into()));
    shows("gone", &state);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Command::End);
}

#[test]
fn hundreds_of_pools() {
    for size in SIZES {
        let mut state = state(0, size);
        for call in 1..3 {
            let mut statistics = invented::statistics(call, false);
            let pods: Vec<_> = (0..700)
                .map(|pool| {
                    let mut pod = statistics.pods[pool % 20].clone();
                    pod.pool = pool as u64;
                    pod
                })
                .collect();
            statistics.pods = pods;
            state.learn(Answer::Sample(Box::new(statistics)));
        }
        shows("many-pools", &state);
    }
}

#[test]
fn a_terminal_without_block_characters() {
    let (text, colours) = draw(&state(30, SIZES[0]), &Paint::new(false, false));
    let names = text.replace("日本語の待ち行列", "");
    assert!(names.is_ascii(), "{names}");
    assert!(colours.is_empty());
}

#[test]
fn any_size_can_be_drawn() {
    let sizes = [(0, 0), (1, 1), (3, 2), (10, 4), (20, 5), (40, 10), (81, 25), (500, 200)];
    for size in sizes {
        for keys in ["", "t", "c", "?", "/x", "s", "S"] {
            let mut state = state(3, size);
            write(&mut state, keys);
            state.learn(Answer::Settings(invented::queue_settings(11, "1"), None));
            draw(&state, &Paint::new(true, true));
            state.learn(Answer::Settings(Settings::default(), None));
            draw(&state, &Paint::new(true, true));
        }
        let mut state = state(3, size);
        press(&mut state, KeyCode::Enter);
        state.learn(Answer::Dump(Box::new(invented::dump())));
        draw(&state, &Paint::new(true, true));
    }
}
