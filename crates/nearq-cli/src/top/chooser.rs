//! A list from which the user chooses a process if there are several.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nearq_control::protocol::Process;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{HighlightSpacing, Row, StatefulWidget, Table, TableState, Widget as _};

use super::format;
use super::paint::{self, DIM, HEADING, MARKED, TITLE};
use super::terminal::{self, Screen, UiEvent};
use crate::attach;
use crate::output::Failure;

/// How long a process may take to answer with its identity.
const PATIENCE: Duration = Duration::from_millis(500);

/// A process, and its answer, if it has answered.
type Candidate = (u32, Option<Process>);

/// The decision that a key makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// No decision yet.
    Open,
    /// Watch this process.
    Chosen(u32),
    /// Choose no process, and end the command.
    None,
    /// Search for processes again.
    Again,
    /// Stop until the shell continues the command.
    Stop,
}

/// The list.
#[derive(Debug)]
struct Chooser {
    candidates: Vec<Candidate>,
    marked: usize,
}

impl Chooser {
    fn press(&mut self, key: KeyEvent) -> Choice {
        if key.kind == KeyEventKind::Release {
            return Choice::Open;
        }
        let last = self.candidates.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Choice::None,
            KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => Choice::Stop,
            KeyCode::Char('q') | KeyCode::Esc => Choice::None,
            KeyCode::Char(' ') => Choice::Again,
            KeyCode::Enter => self
                .candidates
                .get(self.marked)
                .map_or(Choice::Again, |(pid, _)| Choice::Chosen(*pid)),
            code => {
                self.marked = match code {
                    KeyCode::Up | KeyCode::Char('k') => self.marked.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => (self.marked + 1).min(last),
                    KeyCode::Home => 0,
                    KeyCode::End => last,
                    _ => self.marked,
                };
                Choice::Open
            }
        }
    }

    fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let heights = [Constraint::Length(2), Constraint::Min(2), Constraint::Length(1)];
        let [title, list, keys] = Layout::vertical(heights).areas(area);
        paint::text("nearq top: which process?", TITLE).render(title, buffer);
        let cells = |[pid, queues, workers, command]: [&str; 4]| {
            let numbers = [pid, queues, workers];
            let numbers = numbers.map(|text| paint::text(text, Style::new()).right_aligned());
            let command = paint::text(command, Style::new());
            numbers.into_iter().chain([command]).collect::<Row<'_>>()
        };
        let rows = self.candidates.iter().map(|(pid, process)| {
            let pid = pid.to_string();
            let Some(process) = process else { return cells([&pid, "", "", "(does not answer)"]) };
            let [queues, workers] = [process.queues, process.workers].map(format::count);
            cells([&pid, &queues, &workers, &process.command])
        });
        let lines = usize::from(list.height).saturating_sub(1).max(1);
        let first = self.marked / lines * lines;
        let mut place = TableState::new().with_offset(first).with_selected(self.marked);
        let widths = [8, 6, 7].map(Constraint::Length);
        let table = Table::new(rows, widths.into_iter().chain([Constraint::Fill(1)]))
            .column_spacing(2)
            .header(cells(["PID", "QUEUES", "WORKERS", "COMMAND"]).style(HEADING))
            .highlight_symbol(">")
            .highlight_spacing(HighlightSpacing::Always)
            .row_highlight_style(MARKED);
        StatefulWidget::render(table, list, buffer, &mut place);
        paint::text("up down  Enter choose  space refresh  q end", DIM).render(keys, buffer);
    }
}

/// Lets the user choose a process; none if the user ends the command.
pub(super) fn choose(
    screen: &mut Screen,
    happened: &Receiver<UiEvent>,
) -> Result<Option<u32>, Failure> {
    let mut chooser = Chooser { candidates: candidates()?, marked: 0 };
    loop {
        screen.draw(|area, buffer| chooser.draw(area, buffer))?;
        let choice = match happened.recv() {
            Ok(UiEvent::Input(Event::Key(key))) => chooser.press(key),
            Ok(UiEvent::Input(_) | UiEvent::Answer(_)) => Choice::Open,
            Ok(UiEvent::Signal(signal)) => {
                screen.handle_signal(signal)?;
                Choice::Open
            }
            Ok(UiEvent::KeysUnreadable(error)) => return Err(terminal::keys_unreadable(&error)),
            Ok(UiEvent::Broken) => return Err(terminal::broken()),
            Err(_) => Choice::None,
        };
        match choice {
            Choice::Open => {}
            Choice::Chosen(pid) => return Ok(Some(pid)),
            Choice::None => return Ok(None),
            Choice::Again => chooser = Chooser { candidates: candidates()?, marked: 0 },
            Choice::Stop => screen.stop()?,
        }
    }
}

/// The processes that can be inspected. All are asked at once, because a stopped one does not answer.
fn candidates() -> Result<Vec<Candidate>, Failure> {
    let found = attach::processes()?;
    let answers = attach::ask_all(&found, PATIENCE, Instant::now() + PATIENCE);
    Ok(found.iter().zip(answers).map(|(found, answer)| (found.pid, answer.ok())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::invented;
    use nearq_control::protocol::Access;

    fn chooser() -> Chooser {
        let process = invented::process(Access::Read);
        Chooser {
            candidates: vec![(12, Some(process.clone())), (3456, None), (99999, Some(process))],
            marked: 0,
        }
    }

    fn press(chooser: &mut Chooser, code: KeyCode) -> Choice {
        chooser.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn enter_chooses_the_marked_process() {
        let mut chooser = chooser();
        for _ in 0..5 {
            assert_eq!(press(&mut chooser, KeyCode::Down), Choice::Open);
        }
        assert_eq!(press(&mut chooser, KeyCode::Enter), Choice::Chosen(99999));
        press(&mut chooser, KeyCode::Home);
        assert_eq!(press(&mut chooser, KeyCode::Enter), Choice::Chosen(12));
        assert_eq!(press(&mut chooser, KeyCode::Char('q')), Choice::None);
        chooser.candidates.clear();
        assert_eq!(press(&mut chooser, KeyCode::Enter), Choice::Again);
    }

    #[test]
    fn processes_that_do_not_answer_are_listed() {
        let mut chooser = chooser();
        press(&mut chooser, KeyCode::Down);
        let area = Rect::new(0, 0, 60, 8);
        let mut buffer = Buffer::empty(area);
        chooser.draw(area, &mut buffer);
        let text: Vec<String> = (0..8)
            .map(|y| {
                (0..60).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned()
            })
            .collect();
        assert_eq!(
            text,
            [
                "nearq top: which process?",
                "",
                "      PID  QUEUES  WORKERS  COMMAND",
                "       12      12       52  /usr/bin/invented --as-if-it-wer",
                ">    3456                   (does not answer)",
                "    99999      12       52  /usr/bin/invented --as-if-it-wer",
                "",
                "up down  Enter choose  space refresh  q end",
            ]
        );
    }
}
