//! The log: one line per event on standard error, as text at a terminal and as JSON otherwise, unless the operator sets
//! a format. Writing never waits for the reader of the log. Formats are in `logging/format.rs`, the queue in
//! `logging/queue.rs`, folding of repeated refusals in `logging/fold_refusals.rs` and of observations in
//! `logging/fold_findings.rs`, the filter in `logging/filter.rs`. Which events are logged is decided where they happen.

mod filter;
mod fold_findings;
mod fold_refusals;
mod format;
mod pace;
mod queue;

use crate::config::LogFormat;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::reload::Handle;

use filter::Apply;

pub use filter::LogFilter;
pub use fold_findings::{Example, ObservationFolder};
pub use fold_refusals::{Refusal, RepeatFolder};
pub use pace::Pace;
pub use queue::LogGuard;

/// The environment variable with the filter, for example `debug` or `info,lockwarden_console::admin=debug`.
pub(crate) const FILTER: &str = "LOCKWARDEN_LOG";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("LOCKWARDEN_LOG={filter:?} is not a filter ({problem}); try info or debug")]
    Filter {
        /// As given.
        filter: String,
        /// The error in it.
        problem: String,
    },
    /// The writing thread could not be started.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
    /// A log was set up before.
    #[error("the log was set up twice")]
    Twice,
}

type BoxedSubscriber = Box<dyn Subscriber + Send + Sync>;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Text { colours: bool },
    Json,
    Logfmt,
}

/// Sets up the log of the process. Keep the guard until the end of `main`: dropping it waits (at most a second) until
/// all lines are written.
pub fn init(format: LogFormat) -> Result<(LogGuard, LogFilter), LoggingError> {
    let filter = read_filter(std::env::var(FILTER).ok())?;
    let in_force = filter.to_string();
    // https://no-color.org: present and not empty means no colours.
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style = choose(format, io::stderr().is_terminal(), no_colour);
    let (queue, guard) = queue::start(io::stderr()).map_err(LoggingError::Thread)?;
    let (subscriber, apply) = subscriber(style, filter, queue);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Twice)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok((guard, LogFilter::new(in_force, apply)))
}

/// Logs a panic as an ordinary line, wherever it is caught.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    tracing::error!(
        what = panic.payload_as_str(),
        place,
        thread = thread.name(),
        "a part of the proxy failed: please report this"
    );
}

fn choose(format: LogFormat, terminal: bool, no_colour: bool) -> Style {
    match (format, terminal) {
        (LogFormat::Text, _) | (LogFormat::Auto, true) => Style::Text { colours: terminal && !no_colour },
        (LogFormat::Json, _) | (LogFormat::Auto, false) => Style::Json,
        (LogFormat::Logfmt, _) => Style::Logfmt,
    }
}

fn read_filter(given: Option<String>) -> Result<EnvFilter, LoggingError> {
    let filter = given.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "info".to_owned());
    EnvFilter::try_new(&filter).map_err(|error| LoggingError::Filter { filter, problem: error.to_string() })
}

/// The receiver of events, and a function that changes its filter.
fn subscriber<W>(style: Style, filter: EnvFilter, writer: W) -> (BoxedSubscriber, Apply)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match style {
        Style::Text { colours } => {
            let lines = lines.with_ansi(colours).event_format(format::Text);
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            (Box::new(lines.finish()), applied(handle))
        }
        Style::Logfmt => {
            let lines = lines.with_ansi(false).event_format(format::Logfmt);
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            (Box::new(lines.finish()), applied(handle))
        }
        Style::Json => {
            let lines = lines
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .map_event_format(format::JsonLine)
                .with_filter_reloading();
            let handle = lines.reload_handle();
            (Box::new(lines.finish()), applied(handle))
        }
    }
}

fn applied<S: 'static>(handle: Handle<EnvFilter, S>) -> Apply {
    Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(style: Style, filter: &str, act: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let filter = read_filter(Some(filter.to_owned())).unwrap();
        let (subscriber, _) = subscriber(style, filter, move || writer.clone());
        tracing::subscriber::with_default(subscriber, act);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn refuse() {
        tracing::warn!(key = %"lock:\u{1b}[2J a\nb", reason = "not-owner", held_ms = 812, "refused");
    }

    #[test]
    fn json_is_flat_and_one_line_per_event() {
        let log = logged(Style::Json, "info", refuse);
        assert_eq!(log.matches('\n').count(), 1, "{log}");
        let line: serde_json::Value = serde_json::from_str(&log).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "refused");
        assert_eq!(line["key"], "lock:\u{1b}[2J a\nb");
        assert_eq!(line["held_ms"], 812);
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        assert!(line["target"].as_str().unwrap().starts_with("lockwarden"));
    }

    #[test]
    fn text_is_one_line_and_nothing_in_it_moves_the_cursor() {
        let log = logged(Style::Text { colours: false }, "info", refuse);
        let (time, rest) = log.split_once(' ').unwrap();
        assert!(time.ends_with('Z'), "{time}");
        let expected = "WARN  refused key=\"lock:\\u{1b}[2J a\\nb\" reason=not-owner held_ms=812\n";
        assert_eq!(rest, expected);
    }

    /// CSI in one character, DEL, and a mark that turns the direction of writing.
    #[test]
    fn nothing_odd_stands_raw_in_any_format() {
        let odd = "a\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{a0}\u{e0001}b";
        for style in [Style::Text { colours: false }, Style::Logfmt, Style::Json] {
            let log = logged(style, "info", || tracing::warn!(key = %odd, "met {odd} größe"));
            let printable = |c: char| matches!(c, ' '..='~' | '\n' | 'ö' | 'ß');
            assert!(log.chars().all(printable), "{style:?}: {log:?}");
            assert!(log.contains("größe"), "{log}");
            if style == Style::Json {
                let line: serde_json::Value = serde_json::from_str(&log).unwrap();
                assert_eq!(line["key"], odd);
                assert_eq!(line["message"], format!("met {odd} größe"));
            }
        }
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let log = logged(Style::Text { colours: true }, "info", refuse);
        assert!(log.contains("\u{1b}[33mWARN \u{1b}[0m refused"), "{log:?}");
    }

    #[test]
    fn a_format_that_was_asked_for_is_used_whoever_reads() {
        let text = |colours| Style::Text { colours };
        for (format, terminal, no_colour, expected) in [
            (LogFormat::Auto, true, true, text(false)),
            (LogFormat::Auto, true, false, text(true)),
            (LogFormat::Auto, false, false, Style::Json),
            (LogFormat::Text, false, false, text(false)),
            (LogFormat::Text, true, false, text(true)),
            (LogFormat::Json, true, false, Style::Json),
            (LogFormat::Logfmt, true, false, Style::Logfmt),
        ] {
            let style = choose(format, terminal, no_colour);
            assert_eq!(style, expected, "{format:?} {terminal} {no_colour}");
        }
    }

    #[test]
    fn logfmt_is_pairs_on_one_line() {
        let log = logged(Style::Logfmt, "info", refuse);
        let (time, rest) = log.split_once(' ').unwrap();
        assert!(time.starts_with("ts=20") && time.ends_with('Z'), "{time}");
        let expected = "level=warn msg=refused key=\"lock:\\u{1b}[2J a\\nb\" reason=not-owner held_ms=812\n";
        assert_eq!(rest, expected);
        let log = logged(Style::Logfmt, "info", || tracing::info!("two words"));
        assert!(log.ends_with(" level=info msg=\"two words\"\n"), "{log}");
    }

    #[test]
    fn the_filter_can_be_changed_in_every_style() {
        for style in [Style::Json, Style::Logfmt, Style::Text { colours: false }] {
            let page = Page::default();
            let writer = page.clone();
            let filter = read_filter(Some("info".to_owned())).unwrap();
            let (subscriber, apply) = subscriber(style, filter, move || writer.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::debug!("too small");
                apply(EnvFilter::new("debug")).unwrap();
                tracing::debug!("large enough");
                apply(EnvFilter::new("warn")).unwrap();
                tracing::info!("too small again");
            });
            let log = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
            assert!(log.contains("large enough") && !log.contains("too small"), "{style:?}: {log}");
        }
    }

    #[test]
    fn the_filter_decides_what_is_logged() {
        let act = || {
            tracing::debug!("small");
            tracing::info!("large");
        };
        assert!(!logged(Style::Json, "info", act).contains("small"));
        assert!(logged(Style::Json, "debug", act).contains("small"));
        assert!(!logged(Style::Json, "warn", act).contains("large"));
        assert!(read_filter(None).is_ok());
        let error = read_filter(Some("lockwarden=loud".to_owned())).unwrap_err().to_string();
        assert!(error.contains("lockwarden=loud") && !error.contains('\n'), "{error}");
    }
}
