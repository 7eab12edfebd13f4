//! The full screen of `connections --watch`: a table that keys sort and filter.
//!
//! [`ScreenView`] is what is shown, without a terminal; [`Screen`] is the terminal, which is restored
//! at the end, also after a panic.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use anyhow::Context;
use linerate_core::connection::{Connection, ConnectionsDocument};
use linerate_core::record::Cause;
use linerate_report::text::{self, ConnectionRow, GroupBy, Style};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style as Look, Stylize};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};

use super::sort;
use crate::args::SortKey;
use crate::failure::Failure;

/// The terminal, until this is dropped.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the whole screen.
    ///
    /// # Errors
    /// The terminal does not do what is asked of it.
    pub(super) fn open() -> Result<Self, Failure> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                // The terminal may be half set up.
                let _ = ratatui::try_restore();
                Err(failure(error))
            }
        }
    }

    pub(super) fn draw(&mut self, view: &mut ScreenView) -> Result<(), Failure> {
        let drawn = self.0.draw(|frame| view.draw(frame));
        drawn.map(drop).map_err(failure)
    }

    /// Waits for a key or a new size of the screen; `None` if neither came in time.
    pub(super) fn event(until: Instant) -> Result<Option<Event>, Failure> {
        let time = until.saturating_duration_since(Instant::now());
        if !event::poll(time.min(PATIENCE)).map_err(failure)? {
            return Ok(None);
        }
        event::read().map(Some).map_err(failure)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = ratatui::try_restore();
    }
}

fn failure(error: io::Error) -> Failure {
    let error = Err::<(), _>(error).context("the terminal");
    Failure::failed(error.expect_err("it is one"))
}

/// Longest time in which a signal is not noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether to go on after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScreenStep {
    Stay,
    Quit,
}

/// The table, and how it is shown.
pub(super) struct ScreenView {
    page: ConnectionsDocument,
    sort: SortKey,
    by: Option<GroupBy>,
    filter: String,
    is_typing: bool,
    pub(super) is_paused: bool,
    /// First row that is shown.
    top: usize,
    /// Number of rows that fit.
    height: usize,
    past: HashMap<Ends, Past>,
}

/// Local and remote end: the key of a connection.
type Ends = (String, String);

#[derive(Default)]
struct Past {
    rates_bps: VecDeque<f64>,
    cause: Option<Cause>,
    /// Its cause differs from that of the page before.
    has_changed: bool,
}

impl ScreenView {
    pub(super) fn new(page: ConnectionsDocument, sort: SortKey) -> Self {
        let mut view = Self {
            page: page.clone(),
            sort,
            by: None,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            top: 0,
            height: 1,
            past: HashMap::new(),
        };
        view.show(page);
        // All are new at first.
        view.past.values_mut().for_each(|past| past.has_changed = false);
        view
    }

    /// Takes a new page.
    pub(super) fn show(&mut self, page: ConnectionsDocument) {
        self.page = page;
        self.look_back();
    }

    /// Brings the page up to date.
    ///
    /// # Errors
    /// Fails as `change` does.
    pub(super) fn renew<E>(
        &mut self,
        change: impl FnOnce(&mut ConnectionsDocument) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.page)?;
        self.look_back();
        Ok(())
    }

    /// Notes the rates of active connections. Idle ones are forgotten, since there may be many.
    fn look_back(&mut self) {
        let mut before = std::mem::take(&mut self.past);
        for one in &self.page.connections {
            if one.bytes_sent + one.bytes_received > 0 {
                let mut past = before.remove(&ends(one)).unwrap_or_default();
                past.add(one);
                self.past.insert(ends(one), past);
            }
        }
        for (ends, mut past) in before {
            past.add_idle();
            if past.rates_bps.iter().any(|rate| *rate > 0.0) {
                self.past.insert(ends, past);
            }
        }
        sort(&mut self.page.connections, self.sort);
    }

    /// Handles an event of the terminal.
    pub(super) fn handle_event(&mut self, event: &Event) -> ScreenStep {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.handle(*key),
            _ => ScreenStep::Stay,
        }
    }

    pub(super) fn handle(&mut self, key: KeyEvent) -> ScreenStep {
        let is_interrupt =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if is_interrupt {
            return ScreenStep::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return ScreenStep::Stay;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return ScreenStep::Quit,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('g') => self.by = after(self.by),
            KeyCode::Char(letter) => {
                if let Some((_, key, _)) = SORTS.iter().find(|(key, _, _)| *key == letter) {
                    self.sort = *key;
                    sort(&mut self.page.connections, *key);
                }
            }
            code => self.scroll(code),
        }
        ScreenStep::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.top = 0;
    }

    fn scroll(&mut self, code: KeyCode) {
        self.top = match code {
            KeyCode::Up => self.top.saturating_sub(1),
            KeyCode::Down => self.top + 1,
            KeyCode::PageUp => self.top.saturating_sub(self.height),
            KeyCode::PageDown => self.top + self.height,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.top,
        };
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
        let [title, table, foot] = Layout::vertical(rows).areas(frame.area());
        let style = Style { width: usize::from(frame.area().width), ..Style::default() };
        self.height = usize::from(table.height.saturating_sub(1)).max(1);
        let lines = match self.by {
            Some(by) => self.grouped(by, style),
            None => self.table(style),
        };
        frame.render_widget(
            // The line is cut at the edge of the screen and not wrapped.
            Line::from(text::connections_headline(&self.page).replace('\u{a0}', " ")).bold(),
            title,
        );
        frame.render_widget(Paragraph::new(lines), table);
        frame.render_widget(Line::from(self.foot()).dim(), foot);
    }

    fn table(&mut self, style: Style) -> Vec<Line<'static>> {
        let all = self.page.connections.iter();
        let wanted: Vec<&Connection> = all.filter(|one| self.is_wanted(one)).collect();
        self.top = self.top.min(wanted.len().saturating_sub(self.height));
        let rows: Vec<ConnectionRow<'_>> = wanted
            .into_iter()
            .skip(self.top)
            .take(self.height)
            .map(|connection| ConnectionRow {
                connection,
                recent_bps: self
                    .past(connection)
                    .map_or_else(Vec::new, |past| past.rates_bps.iter().copied().collect()),
            })
            .collect();
        let (heads, lines) = text::connection_lines(&rows, style);
        let heads = heads.into_iter().map(|head| Line::from(head).bold());
        let lines = rows.iter().zip(lines).map(|(row, line)| {
            let past = self.past(row.connection);
            let has_changed = past.is_some_and(|past| past.has_changed);
            let is_marked = has_changed || row.connection.began;
            Line::from(line).style(look(row.connection, is_marked))
        });
        heads.chain(lines).collect()
    }

    fn past(&self, connection: &Connection) -> Option<&Past> {
        self.past.get(&ends(connection))
    }

    fn grouped(&mut self, by: GroupBy, style: Style) -> Vec<Line<'static>> {
        let page = text::connections_by(&self.page, by, style);
        // Without its headline, which the screen shows already.
        let lines: Vec<&str> = page.lines().skip(2).collect();
        self.top = self.top.min(lines.len().saturating_sub(self.height));
        let lines = lines.into_iter().skip(self.top);
        lines.map(|line| Line::from(line.to_owned())).collect()
    }

    fn is_wanted(&self, connection: &Connection) -> bool {
        self.filter.is_empty() || text::connection_words(connection).contains(&self.filter)
    }

    fn foot(&self) -> String {
        if self.is_typing {
            return format!("show those with: {}_  (Enter, Esc)", self.filter);
        }
        let keys = SORTS.iter().map(|(key, sort, name)| {
            let mark = if *sort == self.sort { "*" } else { "" };
            format!("{key} {name}{mark}")
        });
        let filter = match self.filter.as_str() {
            "" => "/ filter".to_owned(),
            filter => format!("/ {filter}"),
        };
        let pause = if self.is_paused { "PAUSED" } else { "space pause" };
        let keys: Vec<String> = keys.collect();
        format!("q quit  sort: {}  {filter}  g group  {pause}", keys.join(" "))
    }
}

impl Past {
    fn add(&mut self, connection: &Connection) {
        let cause = connection.verdict.as_ref().map(|verdict| verdict.cause);
        self.has_changed = self.rates_bps.is_empty() || self.cause != cause;
        self.cause = cause;
        self.push(connection.throughput_bps);
    }

    fn add_idle(&mut self) {
        self.has_changed = self.cause.take().is_some();
        self.push(0.0);
    }

    fn push(&mut self, rate_bps: f64) {
        if self.rates_bps.len() == MAX_RATES {
            self.rates_bps.pop_front();
        }
        self.rates_bps.push_back(rate_bps);
    }
}

fn ends(connection: &Connection) -> Ends {
    (connection.local.clone(), connection.remote.clone())
}

fn look(connection: &Connection, is_marked: bool) -> Look {
    match (connection.ended, is_marked) {
        (true, _) => Look::new().dim(),
        (_, true) => Look::new().yellow(),
        _ => Look::new(),
    }
}

fn after(by: Option<GroupBy>) -> Option<GroupBy> {
    match by {
        None => Some(GroupBy::Cause),
        Some(GroupBy::Cause) => Some(GroupBy::Process),
        Some(GroupBy::Process) => Some(GroupBy::Peer),
        Some(GroupBy::Peer) => None,
    }
}

/// Keys that sort.
const SORTS: [(char, SortKey, &str); 6] = [
    ('r', SortKey::Rate, "rate"),
    ('t', SortKey::Rtt, "rtt"),
    ('x', SortKey::Retransmitted, "retr"),
    ('c', SortKey::Cwnd, "cwnd"),
    ('n', SortKey::Process, "name"),
    ('p', SortKey::Peer, "peer"),
];
/// Length of a sparkline.
const MAX_RATES: usize = 12;

#[cfg(test)]
mod tests {
    use linerate_core::connection::{Process, Source, Vantage};
    use linerate_core::record::Verdict;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    use super::*;

    fn page(rates: [f64; 2], cause: Cause) -> ConnectionsDocument {
        let mut page = ConnectionsDocument::new(Source::Host { namespace: None });
        page.seconds = 1.0;
        let names = ["backup", "nginx"];
        page.connections = (names.iter().zip(rates).enumerate())
            .map(|(number, (name, rate))| {
                let remote = format!("198.18.0.{}:50000", 2 - number);
                let mut one = Connection::new("198.18.0.9:443", remote, Vantage::Sender);
                one.process = Some(Process { pid: 7, name: (*name).to_owned() });
                (one.seconds, one.throughput_bps) = (1.0, rate);
                one.bytes_sent = (rate / 8.0) as u64;
                one.verdict = Some(Verdict { cause, ..Verdict::default() });
                one
            })
            .collect();
        page
    }

    /// The lines of a small terminal.
    fn lines(view: &mut ScreenView) -> (Vec<String>, Terminal<TestBackend>) {
        let mut terminal = Terminal::new(TestBackend::new(90, 8)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = buffer.content().chunks(90);
        let lines = cells.map(|line| line.iter().map(|cell| cell.symbol()).collect());
        (lines.collect(), terminal)
    }

    fn press(view: &mut ScreenView, keys: &str) {
        for key in keys.chars() {
            assert_eq!(view.handle(KeyEvent::from(KeyCode::Char(key))), ScreenStep::Stay);
        }
    }

    #[test]
    fn keys_sort_and_filter_and_the_rest_stays_readable() {
        let mut view = ScreenView::new(page([1e6, 8e6], Cause::Congestion), SortKey::Rate);
        let (shown, _) = lines(&mut view);
        assert!(shown[0].starts_with("2 TCP connections, 2 active: 9.00 Mbit/s out"), "{shown:#?}");
        assert!(shown[3].contains("nginx/7") && shown[4].contains("backup/7"), "{shown:#?}");
        assert!(shown[3].contains("8.00M") && shown[3].contains("congestion"), "{shown:#?}");
        press(&mut view, "n");
        assert!(lines(&mut view).0[3].contains("backup/7"));
        // A letter of a filter is no command.
        press(&mut view, "/nginx q");
        view.handle(KeyEvent::from(KeyCode::Backspace));
        view.handle(KeyEvent::from(KeyCode::Backspace));
        view.handle(KeyEvent::from(KeyCode::Enter));
        let (shown, _) = lines(&mut view);
        assert!(shown[3].contains("nginx/7") && shown[4].trim().is_empty(), "{shown:#?}");
        press(&mut view, "g");
        assert!(lines(&mut view).0.concat().contains("connections  active"));
    }

    #[test]
    fn a_new_bottleneck_is_marked_until_the_next_page() {
        let mut view = ScreenView::new(page([1e6, 8e6], Cause::Congestion), SortKey::Rate);
        let colour = |view: &mut ScreenView| {
            let (_, terminal) = lines(view);
            let cell = terminal.backend().buffer().cell((4, 3));
            cell.map(|cell| cell.fg)
        };
        assert_eq!(colour(&mut view), Some(Color::Reset));
        view.show(page([1e6, 9e6], Cause::ReceiveWindow));
        assert_eq!(colour(&mut view), Some(Color::Yellow));
        view.show(page([1e6, 9e6], Cause::ReceiveWindow));
        assert_eq!(colour(&mut view), Some(Color::Reset));
    }

    #[test]
    fn q_escape_and_interrupt_quit_the_screen_and_escape_leaves_a_filter() {
        let mut view = ScreenView::new(page([1e6, 8e6], Cause::Congestion), SortKey::Rate);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.handle(KeyEvent::from(KeyCode::Char('q'))), ScreenStep::Quit);
        assert_eq!(view.handle(KeyEvent::from(KeyCode::Esc)), ScreenStep::Quit);
        press(&mut view, "/q");
        assert_eq!(view.handle(KeyEvent::from(KeyCode::Esc)), ScreenStep::Stay);
        press(&mut view, "/");
        assert_eq!(view.handle(interrupt), ScreenStep::Quit);
    }
}
