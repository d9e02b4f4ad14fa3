//! `lockwarden top`: a live screen of locks, applications and refusals. One thread asks the proxies, this one draws and reads
//! keys, so that a proxy without a reply blocks nothing. `lists` builds the content, `screen` shows it and handles the keys,
//! `table` sorts and filters a list.

mod lists;
mod screen;
mod table;

use std::io;
use std::io::IsTerminal;
use std::panic;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::event::{self, Event, KeyEventKind};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::api_client::{ApiClient, ApiError, finish, path};
use super::arguments::parse_duration;
use super::fleet::{Answers, FleetArgs};
use super::output::Screen;
use lists::Look;
use screen::{After, Board};

/// The shortest pause between two queries.
const SHORTEST: Duration = Duration::from_millis(200);
/// A key is handled within this time, and ages are updated after it.
const TICK: Duration = Duration::from_millis(100);
/// The screen is redrawn after this time even without a change: it shows its age.
const REDRAW: Duration = Duration::from_secs(1);
/// Locks requested from each proxy; its reply begins with those that have problems.
const LOCKS: u32 = 1_000;
/// Refusals requested from each proxy.
const REFUSALS: u32 = 200;

#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// Between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// A message to the drawing thread.
enum News {
    Looked(Answers<Look>),
    /// The only proxy did not reply.
    Failed(ApiError),
    /// The process is told to end, by this signal.
    Signal(i32),
}

/// Shows the screen until the user quits.
pub(super) fn top(args: &TopArgs) -> ExitCode {
    finish(shown(args))
}

fn shown(args: &TopArgs) -> Result<ExitCode, ApiError> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() || is_dumb {
        let text = "top needs a terminal for its input and output; lockwarden locks list, clients and audit print once";
        return Err(ApiError::Usage(text.to_owned()));
    }
    // A wrong address is reported on the normal screen; a later outage is waited out.
    let first = args.fleet.ask(look)?;
    if first.answers.is_empty() {
        return Ok(first.end());
    }
    let mut board = Board::new(Screen::there_is().has_colours());
    board.show(&first);
    let (tell, news) = channel();
    let fleet = args.fleet.clone();
    let interval = args.interval.max(SHORTEST);
    let asker = tell.clone();
    thread::spawn(move || ask_on(&fleet, interval, &asker));
    thread::spawn(move || hear_signals(&tell));
    let signal = Window::open()?.run(&mut board, &news)?;
    Ok(match signal {
        // The code that a shell shows for the end by a signal.
        Some(signal) => ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(0))),
        None => ExitCode::SUCCESS,
    })
}

fn look(client: &ApiClient) -> Result<Look, ApiError> {
    Ok(Look {
        overview: client.get(&path(&["overview"], &()))?,
        locks: client.get(&path(&["locks"], &json!({ "limit": LOCKS })))?,
        applications: client.get(&path(&["clients"], &()))?,
        refusals: client.get(&path(&["decisions"], &json!({ "limit": REFUSALS })))?,
    })
}

/// Asks again and again, until the receiver is gone.
fn ask_on(fleet: &FleetArgs, interval: Duration, tell: &Sender<News>) {
    loop {
        thread::sleep(interval);
        let news = match fleet.ask(look) {
            Ok(answers) => News::Looked(answers),
            Err(error) => News::Failed(error),
        };
        if tell.send(news).is_err() {
            return;
        }
    }
}

/// Catches the signals that end a process, so that the terminal is restored first.
fn hear_signals(tell: &Sender<News>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let heard = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
            signal(SignalKind::hangup()),
            signal(SignalKind::quit()),
        );
        let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup), Ok(mut quit)) = heard else {
            return;
        };
        let signal = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = hangup.recv() => SignalKind::hangup(),
            _ = quit.recv() => SignalKind::quit(),
        };
        // The receiver is gone if the screen is closed already.
        let _ = tell.send(News::Signal(signal.as_raw_value()));
    });
}

/// Restores the terminal when dropped, also after a panic.
struct Window {
    terminal: Terminal<CrosstermBackend<io::Stdout>>,
}

impl Window {
    fn open() -> io::Result<Window> {
        let before = panic::take_hook();
        // Before the panic message, which would otherwise appear on the screen that goes away.
        panic::set_hook(Box::new(move |panic| {
            put_back();
            before(panic);
        }));
        enable_raw_mode()?;
        let opened = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match opened {
            Ok(terminal) => Ok(Window { terminal }),
            Err(error) => {
                put_back();
                Err(error)
            }
        }
    }

    /// Draws and reads keys until the user quits, or returns the signal that ends it.
    fn run(mut self, board: &mut Board, news: &Receiver<News>) -> io::Result<Option<i32>> {
        let mut drawn: Option<Instant> = None;
        loop {
            if drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
                // A terminal that is gone ends the program.
                if self.terminal.draw(|frame| board.draw(frame)).is_err() {
                    return Ok(None);
                }
                drawn = Some(Instant::now());
            }
            match event::poll(TICK) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                        match board.press(key) {
                            After::Ended => return Ok(None),
                            After::Cleared => {
                                if self.terminal.clear().is_err() {
                                    return Ok(None);
                                }
                            }
                            After::Changed => {}
                        }
                        drawn = None;
                    }
                    Ok(Event::Resize(..)) => drawn = None,
                    Ok(_) => {}
                    Err(_) => return Ok(None),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(None),
            }
            while let Ok(news) = news.try_recv() {
                drawn = None;
                match news {
                    News::Looked(answers) => board.show(&answers),
                    News::Failed(error) => board.fail(&error),
                    News::Signal(signal) => return Ok(Some(signal)),
                }
            }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        put_back();
    }
}

/// Restores the terminal. A failure is ignored.
fn put_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}
