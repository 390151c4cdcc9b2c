//! The user's choices (which queues, their order, the page of columns), and the answers of the process.

use std::time::Duration;

use nearq_control::protocol::{Access, Dump, Process, Setting, Settings, Statistics};
use regex_lite::{Regex, RegexBuilder};

use super::columns::{self, Column};
use super::model::{Model, Row};

/// A question to the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Question {
    /// Take a sample now instead of at the end of the interval.
    Sample,
    /// Take samples at this interval from now on.
    Every(Duration),
    /// Whether to ask for the pools too from now on.
    Pools(bool),
    /// The settings of the queue with that number, or of the process.
    Settings(Option<u64>),
    /// Change a setting.
    Set {
        /// The queue's number, or the process.
        queue: Option<u64>,
        /// The key of the setting.
        key: String,
        /// The new value.
        value: String,
    },
}

/// An answer of the process.
#[derive(Debug)]
pub(super) enum Answer {
    /// A sample.
    Sample(Box<Statistics>),
    /// A dump.
    Dump(Box<Dump>),
    /// Settings, and the key that was just changed, if one was.
    Settings(Settings, Option<String>),
    /// The process refused a request; the text says why.
    Refused(String),
    /// There will be no more answers; the text says why.
    Gone(String),
}

/// Which queues are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// The text as typed; empty for all queues.
    pub(super) text: String,
    /// Whether the text is not a valid expression and is searched for literally.
    pub(super) literal: bool,
    pattern: Option<Regex>,
}

impl Filter {
    /// The regular expression that is searched for in names, ignoring case; if the text is not a valid expression, the text itself.
    pub(super) fn new(text: &str) -> Self {
        let insensitive = |pattern: &str| RegexBuilder::new(pattern).case_insensitive(true).build();
        let expression = insensitive(text);
        let literal = expression.is_err();
        let pattern = expression.or_else(|_| insensitive(&regex_lite::escape(text)));
        let pattern = pattern.ok().filter(|_| !text.is_empty());
        Filter { text: text.to_owned(), literal, pattern }
    }

    fn shows(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }
}

/// The order of the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    /// What they are sorted by.
    pub(super) column: Column,
    /// The reverse of the usual order: numbers from the smallest on, text from Z to A.
    pub(super) reverse: bool,
}

impl Sort {
    /// Whether the smallest is at the top.
    pub(super) fn rising(&self) -> bool {
        self.column.text != self.reverse
    }
}

/// Which rows there are, in which order.
pub(super) fn filtered_and_sorted<'a>(
    model: &'a Model,
    filter: &Filter,
    sort: Sort,
    totals: bool,
) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = model.rows.iter().filter(|row| filter.shows(&row.name)).collect();
    rows.sort_by(|one, other| {
        let order = sort.column.compare(one, other, totals);
        if sort.rising() { order } else { order.reverse() }.then(one.id.cmp(&other.id))
    });
    rows
}

/// A setting that is being changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    /// The queue's number and name; none for the process.
    pub(super) queue: Option<(u64, String)>,
    /// The current settings; empty until they are known.
    pub(super) settings: Vec<Setting>,
    /// The index of the setting that is being changed.
    pub(super) chosen: usize,
    /// Its new value.
    pub(super) value: String,
    /// The outcome.
    pub(super) outcome: String,
}

impl Form {
    /// The setting that is being changed.
    pub(super) fn setting(&self) -> Option<&Setting> {
        self.settings.get(self.chosen)
    }

    /// Moves to the next setting, or back to the one before.
    pub(super) fn step(&mut self, on: bool) {
        let count = self.settings.len().max(1);
        self.chosen = (self.chosen + if on { 1 } else { count - 1 }) % count;
        self.outcome.clear();
        self.prefill();
    }

    fn prefill(&mut self) {
        self.value = self.setting().map(|setting| setting.configured.clone()).unwrap_or_default();
    }
}

/// What covers the table.
#[derive(Clone, Debug, Default)]
pub(super) enum Overlay {
    /// Nothing.
    #[default]
    Nothing,
    /// Help, and its first line that is shown.
    Help(usize),
    /// A filter that is being typed; holds the previous filter.
    Filter(Filter),
    /// A setting that is being changed.
    Form(Form),
}

/// Everything that decides what is on the screen.
#[derive(Debug)]
pub(super) struct State {
    /// The process's number.
    pub(super) pid: u32,
    /// What the process reports about itself.
    pub(super) process: Process,
    /// The rates and histories of its queues.
    pub(super) model: Model,
    /// The time between samples.
    pub(super) interval: Duration,
    /// The order of the rows.
    pub(super) sort: Sort,
    /// Which rows.
    pub(super) filter: Filter,
    /// Show counts since queues were created, not per second.
    pub(super) totals: bool,
    /// The page of columns, if not all fit.
    pub(super) page: usize,
    /// The queue with the mark.
    pub(super) selected: Option<u64>,
    /// The queue whose pools are shown instead of the table, and the first of its pools on the screen.
    pub(super) queue: Option<u64>,
    /// See [`queue`](Self::queue).
    pub(super) first_pool: usize,
    /// What covers the table or the queue.
    pub(super) overlay: Overlay,
    /// A message for the last line.
    pub(super) message: String,
    /// Why there will be no more answers.
    pub(super) gone: Option<String>,
    /// Columns and lines of the terminal.
    pub(super) size: (u16, u16),
}

impl State {
    /// The state before the first sample.
    pub(super) fn new(
        pid: u32,
        process: Process,
        interval: Duration,
        sort: Sort,
        filter: Filter,
    ) -> Self {
        State {
            pid,
            process,
            model: Model::default(),
            interval,
            sort,
            filter,
            totals: false,
            page: 0,
            selected: None,
            queue: None,
            first_pool: 0,
            overlay: Overlay::Nothing,
            message: String::new(),
            gone: None,
            size: (80, 24),
        }
    }

    /// The rows to show, in order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        filtered_and_sorted(&self.model, &self.filter, self.sort, self.totals)
    }

    /// The index of the row with the mark; the first row if the queue is not among them.
    pub(super) fn marked(&self, rows: &[&Row]) -> usize {
        rows.iter().position(|row| Some(row.id) == self.selected).unwrap_or(0)
    }

    /// Moves the mark by `by` rows.
    pub(super) fn move_mark(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let place = self.marked(&rows).saturating_add_signed(by).min(last);
        self.selected = rows.get(place).map(|row| row.id);
    }

    /// The queue that keys act on: the queue whose pools are shown, or else the queue with the mark.
    pub(super) fn subject(&self) -> Option<&Row> {
        match self.queue {
            Some(id) => self.model.row(id),
            None => {
                let rows = self.rows();
                rows.get(self.marked(&rows)).copied()
            }
        }
    }

    /// Sorts by the next column on the screen, or by the one before.
    pub(super) fn sort_by_next(&mut self, on: bool) {
        let shown = columns::fit(usize::from(self.size.0), 0, self.page);
        let shown: Vec<Column> =
            shown.into_iter().map(|(column, _)| column).filter(Column::sortable).collect();
        let place = shown.iter().position(|column| *column == self.sort.column);
        let place = match (place, on) {
            (None, _) => 0,
            (Some(place), true) => (place + 1) % shown.len(),
            (Some(place), false) => (place + shown.len() - 1) % shown.len(),
        };
        if let Some(&column) = shown.get(place) {
            self.sort = Sort { column, reverse: false };
        }
    }

    /// Opens the form for settings, if changes are allowed; returns the question to send.
    pub(super) fn open_form(&mut self, queue: Option<(u64, String)>) -> Option<Question> {
        if let Some(why) = &self.gone {
            self.message = format!("settings cannot be changed: {why}");
            return None;
        }
        if self.process.allowed < Access::Full {
            self.message = "settings cannot be changed: the process allows reading only; \
                 start it with NEARQ_CONTROL=full, or run `nearq top` as root"
                .into();
            return None;
        }
        let question = Question::Settings(queue.as_ref().map(|(id, _)| *id));
        self.overlay = Overlay::Form(Form { queue, ..Form::default() });
        Some(question)
    }

    /// Takes in what the process answered.
    pub(super) fn learn(&mut self, answer: Answer) {
        match answer {
            Answer::Sample(statistics) => self.add_sample(*statistics),
            Answer::Dump(dump) => self.model.dump = Some(*dump),
            Answer::Settings(settings, changed) => self.settle(settings, changed),
            Answer::Refused(why) => match &mut self.overlay {
                Overlay::Form(form) => form.outcome = format!("refused: {why}"),
                _ => self.message = why,
            },
            Answer::Gone(why) => {
                self.gone = Some(why);
                // A change that is being made will never be answered.
                if let Overlay::Form(_) = self.overlay {
                    self.overlay = Overlay::Nothing;
                }
            }
        }
    }

    fn add_sample(&mut self, statistics: Statistics) {
        self.model.add_sample(statistics);
        if let Some(id) = self.queue
            && self.model.row(id).is_none()
        {
            self.queue = None;
            self.message = "the queue is gone".into();
        }
    }

    /// Takes in settings; `changed` is the key that was just changed, if one was.
    fn settle(&mut self, settings: Settings, changed: Option<String>) {
        let Overlay::Form(form) = &mut self.overlay else { return };
        let settings = match &form.queue {
            Some((id, _)) => settings
                .queues
                .into_iter()
                .find(|queue| queue.id == *id)
                .map(|queue| queue.settings),
            None => settings.process.map(|process| process.settings),
        };
        // The answer belongs to another form.
        let Some(settings) = settings else { return };
        form.settings = settings.into_iter().filter(|setting| setting.writable).collect();
        form.chosen = form.chosen.min(form.settings.len().saturating_sub(1));
        form.prefill();
        let now = changed.and_then(|key| form.settings.iter().find(|setting| setting.key == key));
        if let Some(now) = now {
            form.outcome = format!("set: {} is now {}", now.key, shown(&now.effective));
        } else if form.settings.is_empty() {
            form.outcome = "there are no settings that can be changed".into();
        }
    }
}

/// A value that may be empty.
pub(super) fn shown(value: &str) -> &str {
    if value.is_empty() { "(nothing)" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::invented;

    fn state() -> State {
        let sort = Sort { column: Column::named("items").unwrap(), reverse: false };
        let process = invented::process(Access::Full);
        let mut state = State::new(1, process, Duration::from_secs(1), sort, Filter::default());
        for call in 1..4 {
            state.learn(Answer::Sample(Box::new(invented::statistics(call, true))));
        }
        state
    }

    fn names(state: &State) -> Vec<&str> {
        state.rows().iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn a_filter_is_an_expression_or_plain_text() {
        let shows = |filter: &str, name| Filter::new(filter).shows(name);
        assert!(shows("", "anything") && shows("CRYPT", "kcryptd/253:0"));
        assert!(shows("^kc.*0$", "kcryptd/253:0") && !shows("^c", "kcryptd/253:0"));
        assert!(Filter::new("[").literal && !Filter::new("a+").literal);
        assert!(
            shows("[", "a[b") && !shows("[", "ab"),
            "an invalid expression is searched for literally"
        );
    }

    #[test]
    fn numbers_sort_descending_and_text_ascending() {
        let mut state = state();
        let rates = |state: &State| -> Vec<f64> {
            state.rows().iter().map(|row| row.per_second.completed).collect()
        };
        assert!(rates(&state).is_sorted_by(|one, next| one >= next));
        state.sort.reverse = true;
        assert!(rates(&state).is_sorted());
        state.sort = Sort { column: Column::named("name").unwrap(), reverse: false };
        assert!(names(&state).is_sorted());
        for key in Column::keys() {
            state.sort = Sort { column: Column::named(key).unwrap(), reverse: false };
            assert_eq!(state.rows().len(), state.model.rows.len());
        }
    }

    #[test]
    fn the_mark_follows_its_queue_when_rows_are_sorted() {
        let mut state = state();
        state.move_mark(2);
        let marked = state.subject().unwrap().id;
        state.sort.reverse = true;
        assert_eq!(state.subject().unwrap().id, marked);
        state.move_mark(1000);
        assert_eq!(state.subject().unwrap().id, state.rows().last().unwrap().id);
        state.move_mark(-1000);
        assert_eq!(state.subject().unwrap().id, state.rows()[0].id);
        state.filter = Filter::new("no queue has this name");
        state.move_mark(1);
        assert!(state.subject().is_none());
    }

    #[test]
    fn the_sort_key_cycles_through_the_visible_columns() {
        let mut state = state();
        let first = state.sort.column;
        let mut keys = Vec::new();
        loop {
            keys.push(state.sort.column.key);
            state.sort_by_next(true);
            if state.sort.column == first {
                break;
            }
        }
        assert_eq!(keys, ["items", "infl", "depth", "cpu", "p50", "p99", "moves", "name"]);
        state.sort_by_next(false);
        assert_eq!(state.sort.column.key, "name");
    }

    #[test]
    fn a_read_only_client_learns_how_to_get_more_rights() {
        let mut state = state();
        state.process.allowed = Access::Read;
        assert_eq!(state.open_form(None), None);
        assert!(state.message.contains("NEARQ_CONTROL=full"), "{}", state.message);
        assert!(matches!(state.overlay, Overlay::Nothing));
    }

    #[test]
    fn the_form_shows_values_refusals_and_changes() {
        let mut state = state();
        let question = state.open_form(Some((4, "kcryptd".into())));
        assert_eq!(question, Some(Question::Settings(Some(4))));
        let settings = |max_active: &str| invented::queue_settings(4, max_active);
        state.learn(Answer::Settings(settings("512"), None));
        let form = |state: &State| match &state.overlay {
            Overlay::Form(form) => form.clone(),
            other => panic!("{other:?}"),
        };
        assert!(form(&state).settings.iter().all(|setting| setting.writable));
        while form(&state).setting().unwrap().key != "max_active" {
            let Overlay::Form(form) = &mut state.overlay else { unreachable!() };
            form.step(true);
        }
        assert_eq!(form(&state).value, "512");
        state.learn(Answer::Refused("max_active cannot be `x`: 1 to 2048".into()));
        assert_eq!(form(&state).outcome, "refused: max_active cannot be `x`: 1 to 2048");
        state.learn(Answer::Settings(settings("8"), Some("max_active".into())));
        assert_eq!(form(&state).outcome, "set: max_active is now 8");
        assert_eq!(form(&state).value, "8");
    }

    #[test]
    fn the_table_returns_when_the_shown_queue_is_gone() {
        let mut state = state();
        state.queue = Some(state.rows()[0].id);
        state.learn(Answer::Sample(Box::new(Statistics {
            at_ns: u64::MAX,
            ..Statistics::default()
        })));
        assert_eq!((state.queue, state.message.as_str()), (None, "the queue is gone"));
    }
}
