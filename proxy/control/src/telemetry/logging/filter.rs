//! Which lines are logged, and how to change that while the proxy runs. A filter is parsed strictly here: the library
//! would take a misspelled level for the name of a module, and all other lines would be lost.

use std::sync::{Mutex, PoisonError};

use tracing_subscriber::EnvFilter;

/// The longest filter in force, bytes.
const MAX_FILTER: usize = 1_000;

/// The names of levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Why the filter stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word that is neither a level nor a module with one.
    #[error(
        "{0:?} is neither off, error, warn, info, debug or trace nor a module with one of them, as in \
         lockwarden_dataplane::session=debug"
    )]
    Word(String),
    /// The order is empty.
    #[error("there is no level; try info or debug")]
    Nothing,
    /// Too many changes for single modules.
    #[error("the filter would be longer than {MAX_FILTER} bytes; give a level for all, such as info")]
    TooLong,
    /// The library refuses it.
    #[error("{0}")]
    Library(String),
}

/// Puts a filter into force.
pub(super) type Apply = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The filter of the process's log.
pub struct LogFilter {
    apply: Apply,
    /// The filter in force, as text.
    current: Mutex<String>,
}

impl LogFilter {
    pub(super) fn new(current: String, apply: Apply) -> LogFilter {
        LogFilter { apply, current: Mutex::new(current) }
    }

    /// The filter in force.
    pub fn current(&self) -> String {
        let current = self.current.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies an order, and returns the filters before and after it. A level for all modules replaces everything;
    /// levels for single modules are added to the filter in force.
    pub fn change(&self, order: &str) -> Result<(String, String), FilterError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let next = changed(&current, order)?;
        let filter = EnvFilter::try_new(&next).map_err(|error| FilterError::Library(error.to_string()))?;
        // Readers of the log must find the change in it, so it is logged while either filter lets it through.
        let is_told = tracing::enabled!(tracing::Level::WARN);
        let tell = || tracing::warn!(before = &**current, after = next, "log filter changed");
        if is_told {
            tell();
        }
        (self.apply)(filter).map_err(FilterError::Library)?;
        if !is_told {
            tell();
        }
        Ok((std::mem::replace(&mut current, next.clone()), next))
    }
}

/// The filter after an order.
fn changed(current: &str, order: &str) -> Result<String, FilterError> {
    let words = order.split(',').map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Err(FilterError::Nothing);
    }
    if let Some(wrong) = words.iter().find(|word| !is_directive(word)) {
        let shown = wrong.chars().take(64).collect();
        return Err(FilterError::Word(shown));
    }
    let is_for_all = words.iter().any(|word| module(word).is_none());
    let is_kept = |word: &&str| {
        let replaced = |new: &&str| module(new) == module(word);
        !is_for_all && !word.is_empty() && !words.iter().any(replaced)
    };
    let kept = current.split(',').map(str::trim).filter(is_kept);
    let all: Vec<&str> = kept.chain(words.iter().copied()).collect();
    let next = all.join(",");
    match next.len() <= MAX_FILTER {
        true => Ok(next),
        false => Err(FilterError::TooLong),
    }
}

/// The module that a word of a filter names; `None`: all modules.
fn module(word: &str) -> Option<&str> {
    word.split_once('=').map(|(module, _)| module)
}

fn is_directive(word: &str) -> bool {
    let is_level = |text: &str| LEVELS.contains(&text);
    let is_path = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        !text.is_empty() && text.bytes().all(plain)
    };
    match word.split_once('=') {
        Some((module, level)) => is_path(module) && is_level(level),
        None => is_level(word),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_level_for_all_replaces_and_a_module_is_put_over_what_is_there() {
        for (current, order, after) in [
            ("info", "debug", "debug"),
            ("info", " lockwarden_dataplane::session=debug ", "info,lockwarden_dataplane::session=debug"),
            ("info,a=debug,b=warn", "a=trace", "info,b=warn,a=trace"),
            ("info,a=debug", "warn,b=debug", "warn,b=debug"),
            ("info,a=debug", "info", "info"),
        ] {
            assert_eq!(changed(current, order).as_deref(), Ok(after), "{order}");
        }
    }

    #[test]
    fn what_is_no_level_changes_nothing() {
        for order in ["debg", "DEBUG!", "a=loud", "=debug", "a b=info", "[span]=info", "a=b=info"] {
            assert!(matches!(changed("info", order), Err(FilterError::Word(_))), "{order}");
        }
        assert_eq!(changed("info", " , "), Err(FilterError::Nothing));
        let long = format!("{}=info", "x".repeat(MAX_FILTER));
        assert_eq!(changed("info", &long), Err(FilterError::TooLong));
    }

    #[test]
    fn a_filter_that_cannot_be_applied_is_not_in_force() {
        let filter = LogFilter::new("info".to_owned(), Box::new(|_| Err("gone".to_owned())));
        assert_eq!(filter.change("debug"), Err(FilterError::Library("gone".to_owned())));
        assert_eq!(filter.current(), "info");
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = asked.clone();
        let apply = move |filter: EnvFilter| {
            *seen.lock().unwrap() = filter.to_string();
            Ok(())
        };
        let filter = LogFilter::new("info".to_owned(), Box::new(apply));
        let before_and_after = ("info".to_owned(), "debug".to_owned());
        assert_eq!(filter.change("debug"), Ok(before_and_after));
        assert_eq!(filter.current(), "debug");
        assert_eq!(*asked.lock().unwrap(), "debug");
    }
}
