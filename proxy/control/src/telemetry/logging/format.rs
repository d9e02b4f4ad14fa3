//! The text format: time, level, message, then fields as `name=value`; and logfmt, where the first three are pairs too.
//! A value that is ambiguous, or that could control a terminal, is quoted and escaped: keys are chosen by strangers.
//! JSON comes from the library; unusual characters in it are escaped too.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::text::escape::{is_plain, readable_json};

/// One event as one line for a person.
pub(super) struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level();
        if writer.has_ansi_escapes() {
            write!(writer, " \u{1b}[{}m{level:<5}\u{1b}[0m", colour(level))?;
        } else {
            write!(writer, " {level:<5}")?;
        }
        let mut parts = Parts::default();
        event.record(&mut parts);
        writeln!(writer, "{}{}", parts.message, parts.fields)
    }
}

/// One event as pairs.
pub(super) struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        writer.write_str("ts=")?;
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let mut parts = Parts { pairs_only: true, ..Parts::default() };
        event.record(&mut parts);
        writeln!(writer, " level={level}{}{}", parts.message, parts.fields)
    }
}

/// One event as JSON, with `\u` for characters that control a terminal or mislead a reader.
pub(super) struct JsonLine<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for JsonLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&readable_json(&line))
    }
}

fn colour(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

#[derive(Default)]
struct Parts {
    /// The message is one of the fields.
    pairs_only: bool,
    message: String,
    fields: String,
}

impl Parts {
    fn field(&mut self, field: &Field, value: &str) {
        let (target, name) = match field.name() {
            "message" if self.pairs_only => (&mut self.message, "msg"),
            name => (&mut self.fields, name),
        };
        // Writing to a String cannot fail.
        let _ = if name == "message" {
            write!(self.message, " {}", Escaped(value))
        } else if is_bare(value) {
            write!(target, " {name}={value}")
        } else {
            write!(target, " {name}=\"{}\"", Quoted(value))
        };
    }
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, &format!("{value:?}"));
    }
}

fn is_bare(value: &str) -> bool {
    let marks = |c: char| matches!(c, '"' | '=' | '\\' | ' ') || !is_plain(c);
    !value.is_empty() && !value.contains(marks)
}

/// For the message: readable, but without characters that control or move the displayed text.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if !is_plain(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// For a value between quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if !is_plain(c) || matches!(c, '"' | '\\') {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}
