//! Takes over the terminal, restores it however the command ends, and receives keys and signals meanwhile.
//!
//! Keys, signals and answers come from one thread each, into one channel: the command sleeps until the channel has an event. The terminal
//! is restored in four cases. The command ends by itself: `Screen` is dropped. It panics: a hook runs before the message is printed, and a
//! panic of another thread ends the command. It is stopped. A signal ends it: the signal is received like a key, and then handled as if it
//! had not been caught, so that the parent sees which signal it was.

use std::io::{self, BufWriter, IsTerminal as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nearq_command::screen::{UNKNOWN, is_steered};
use nearq_command::{Patient, threads};
use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::state::Answer;
use crate::output::Failure;

/// Whether we have taken over the terminal. Restoring it twice would move the cursor back, over what was printed since.
static TERMINAL_TAKEN: AtomicBool = AtomicBool::new(false);
/// The panic of one of our threads. That thread does not print it: the terminal belongs to another thread, which may be drawing.
static PANIC: Mutex<String> = Mutex::new(String::new());
/// The number of bytes of a screen that are written at once.
const AT_ONCE: usize = 64 * 1024;

/// An event that the screen reacts to.
#[derive(Debug)]
pub(super) enum UiEvent {
    /// A key, or a new size.
    Input(Event),
    /// The process answered.
    Answer(Answer),
    /// A signal arrived.
    Signal(i32),
    /// Keys cannot be read.
    KeysUnreadable(io::Error),
    /// One of our threads panicked.
    Broken,
}

/// Created in a thread: reports if that thread panics.
pub(super) struct Guard(pub(super) Sender<UiEvent>);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            // If the receiver is gone, the command has ended.
            let _ = self.0.send(UiEvent::Broken);
        }
    }
}

/// The terminal, while the command uses it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Patient>>>,
}

impl Screen {
    /// Takes over the terminal, and receives keys and signals from now on.
    pub(super) fn open() -> Result<(Screen, Sender<UiEvent>, Receiver<UiEvent>), Failure> {
        let lack = match io::stdout().is_terminal() {
            false => "standard output is not a terminal",
            true if !is_steered(&io::stdout()) => {
                "this terminal cannot clear its screen (TERM is `dumb`, or not set)"
            }
            true => "",
        };
        if !lack.is_empty() {
            return Err(Failure::input(format!(
                "{lack}; use --once for a table, or --json for lines of JSON"
            )));
        }
        let before = std::panic::take_hook();
        let main = thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == main {
                leave();
                before(panic);
            } else if let Ok(mut what) = PANIC.lock() {
                *what = panic.to_string();
            }
        }));
        let (sender, receiver) = mpsc::channel();
        read_signals(sender.clone())?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(
            AT_ONCE,
            Patient::stdout().map_err(unusable)?,
        ));
        let viewport = Viewport::Fixed(area(size()));
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport });
        let mut screen = Screen { terminal: terminal.map_err(unusable)? };
        screen.enter().map_err(unusable)?;
        let keys = sender.clone();
        threads::start("keys", move || read_keys(&keys))?;
        Ok((screen, sender, receiver))
    }

    fn enter(&mut self) -> io::Result<()> {
        TERMINAL_TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.redraw()
    }

    /// Clears the screen, so that the next drawing draws everything.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`: that asks the terminal for the cursor's position, and the thread that reads keys would get the answer.
        self.terminal.backend_mut().clear()?;
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Draws on the whole terminal, at its present size.
    pub(super) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> Result<(), Failure> {
        let whole = area(size());
        if self.terminal.get_frame().area() != whole {
            self.terminal.resize(whole).map_err(unusable)?;
        }
        let drawn = self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()));
        drawn.map(drop).map_err(unusable)
    }

    /// Stops like a shell's job, and takes over the terminal again when it continues.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        leave();
        emulate_default_handler(SIGTSTP).map_err(unusable)?;
        self.enter().map_err(unusable)
    }

    /// Acts on a signal; does not return if it ends the command.
    pub(super) fn handle_signal(&mut self, signal: i32) -> Result<(), Failure> {
        match signal {
            SIGTSTP => self.stop(),
            SIGCONT => {
                // The process that stopped us may have changed the terminal.
                leave();
                self.enter().map_err(unusable)
            }
            _ => {
                leave();
                emulate_default_handler(signal).map_err(unusable)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Columns and lines of the terminal; if it does not know them, the usual ones.
pub(super) fn size() -> (u16, u16) {
    let reported = crossterm::terminal::size().ok();
    reported.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(UNKNOWN)
}

fn area((columns, lines): (u16, u16)) -> Rect {
    Rect::new(0, 0, columns, lines)
}

/// Restores the terminal, if we have taken it over. Nothing can be done if that fails.
fn leave() {
    if !TERMINAL_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The failure if the terminal cannot be used.
pub(super) fn unusable(error: io::Error) -> Failure {
    Failure::run(format!("the terminal cannot be used: {error}"))
}

fn read_keys(sender: &Sender<UiEvent>) {
    let _guard = Guard(sender.clone());
    loop {
        let (event, last) = match event::read() {
            Ok(event) => (UiEvent::Input(event), false),
            Err(error) => (UiEvent::KeysUnreadable(error), true),
        };
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

fn read_signals(sender: Sender<UiEvent>) -> Result<(), Failure> {
    let handled = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(handled).map_err(unusable)?;
    threads::start("signals", move || {
        let _guard = Guard(sender.clone());
        for signal in signals.forever() {
            if sender.send(UiEvent::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

/// The failure if keys cannot be read.
pub(super) fn keys_unreadable(error: &io::Error) -> Failure {
    Failure::run(format!("keys cannot be read: {error}"))
}

/// The failure if one of our threads panicked.
pub(super) fn broken() -> Failure {
    let what = PANIC.lock().map(|what| what.clone()).unwrap_or_default();
    Failure::run(format!("internal error, please report it: {what}"))
}
