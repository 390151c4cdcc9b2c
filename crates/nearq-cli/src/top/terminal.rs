//! The terminal: taken over, given back however the command ends, and what is heard meanwhile.
//!
//! Keys, signals and answers come from a thread each into one channel: the command sleeps until one of them has something. The
//! terminal is given back where the command ends by itself (`Screen` is dropped), where it panics (a hook, before the message is
//! printed; a panic of another thread ends the command), where it is stopped, and where a signal ends it: that is heard like a
//! key, and then handled as if it had not been caught, so that the parent sees which signal it was.

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

/// Whether we have the terminal. To give it back twice would put the cursor where it was, over what was printed since.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// What a thread of ours panicked with. It does not say so itself: the terminal is another thread's, which may be drawing.
static PANIC: Mutex<String> = Mutex::new(String::new());
/// Bytes of a screen that go out at once.
const AT_ONCE: usize = 64 * 1024;

/// Something to which the screen answers.
#[derive(Debug)]
pub(super) enum Happened {
    /// A key, or another size.
    Input(Event),
    /// The process answered.
    Answer(Answer),
    /// A signal came.
    Signal(i32),
    /// Keys cannot be read.
    Deaf(io::Error),
    /// A thread of ours panicked.
    Broken,
}

/// In a thread: tells when it panics.
pub(super) struct Guard(pub(super) Sender<Happened>);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            // Who does not listen has ended.
            let _ = self.0.send(Happened::Broken);
        }
    }
}

/// The terminal, while the command has it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Patient>>>,
}

impl Screen {
    /// Takes the terminal over, and hears keys and signals from now on.
    pub(super) fn open() -> Result<(Screen, Sender<Happened>, Receiver<Happened>), Failure> {
        let lack = match io::stdout().is_terminal() {
            false => "standard output is no terminal",
            true if !is_steered(&io::stdout()) => {
                "this terminal cannot clear its screen (TERM is `dumb`, or not set)"
            }
            true => "",
        };
        if !lack.is_empty() {
            return Err(Failure::input(format!(
                "{lack}; give --once for a table, --json for lines of JSON"
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
        hear_signals(sender.clone())?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(
            AT_ONCE,
            Patient::stdout().map_err(unusable)?,
        ));
        let viewport = Viewport::Fixed(area(size()));
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport });
        let mut screen = Screen { terminal: terminal.map_err(unusable)? };
        screen.enter().map_err(unusable)?;
        let keys = sender.clone();
        threads::start("keys", move || hear_keys(&keys))?;
        Ok((screen, sender, receiver))
    }

    fn enter(&mut self) -> io::Result<()> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.redraw()
    }

    /// Clears the screen; what is drawn next is all drawn.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`: that asks the terminal where the cursor is, and the answer comes to the thread that hears keys.
        self.terminal.backend_mut().clear()?;
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Draws, on the whole terminal as it is now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> Result<(), Failure> {
        let whole = area(size());
        if self.terminal.get_frame().area() != whole {
            self.terminal.resize(whole).map_err(unusable)?;
        }
        let drawn = self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()));
        drawn.map(drop).map_err(unusable)
    }

    /// Stops as a shell's job does, and takes the terminal over again when it goes on.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        leave();
        emulate_default_handler(SIGTSTP).map_err(unusable)?;
        self.enter().map_err(unusable)
    }

    /// Does what a signal says; with one that ends the command it does not come back.
    pub(super) fn obey(&mut self, signal: i32) -> Result<(), Failure> {
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

/// Columns and lines of the terminal; of one that does not know them, the usual ones.
pub(super) fn size() -> (u16, u16) {
    let told = crossterm::terminal::size().ok();
    told.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(UNKNOWN)
}

fn area((columns, lines): (u16, u16)) -> Rect {
    Rect::new(0, 0, columns, lines)
}

/// Gives the terminal back, if we have it; nothing is to be done where that fails.
fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// What using it failed with.
pub(super) fn unusable(error: io::Error) -> Failure {
    Failure::run(format!("the terminal cannot be used: {error}"))
}

fn hear_keys(sender: &Sender<Happened>) {
    let _guard = Guard(sender.clone());
    loop {
        let (heard, last) = match event::read() {
            Ok(event) => (Happened::Input(event), false),
            Err(error) => (Happened::Deaf(error), true),
        };
        if sender.send(heard).is_err() || last {
            return;
        }
    }
}

fn hear_signals(sender: Sender<Happened>) -> Result<(), Failure> {
    let heard = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(heard).map_err(unusable)?;
    threads::start("signals", move || {
        let _guard = Guard(sender.clone());
        for signal in signals.forever() {
            if sender.send(Happened::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

/// What reading keys failed with.
pub(super) fn deaf(error: &io::Error) -> Failure {
    Failure::run(format!("keys cannot be read: {error}"))
}

/// What a thread of ours ended with.
pub(super) fn broken() -> Failure {
    let what = PANIC.lock().map(|what| what.clone()).unwrap_or_default();
    Failure::run(format!("this should not have happened, please report it: {what}"))
}
