//! One command to several proxies: each has its reply, or a line with the reason for its absence. Proxies do not talk to each
//! other; their replies are shown one after the other.

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use clap::Args;
use lockwarden_control::text::numbers::counted;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::api_client::{ApiArgs, ApiClient, ApiError};
use super::output::plain;
use crate::app::exit_code;
use crate::terminal::complain;

/// The most proxies in one command; each is asked by its own thread.
const MAX_FLEET: usize = 64;

/// Which proxies are meant.
#[derive(Args, Clone, Debug)]
pub(super) struct FleetArgs {
    /// Ask all these proxies instead of one: their admin addresses, with commas between them or the flag
    /// repeated. One admin token serves for all of them
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    fleet: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// The reply of one proxy.
pub(super) struct Answer<T> {
    /// Its address, if several proxies were asked.
    pub(super) proxy: Option<String>,
    pub(super) answer: T,
}

/// The replies of all proxies.
pub(super) struct Answers<T> {
    pub(super) answers: Vec<Answer<T>>,
    /// Those without a reply.
    silent: Vec<(String, ApiError)>,
}

impl FleetArgs {
    /// The proxies at these addresses, for a command that has its own flags.
    pub(super) fn of(fleet: &[String], config: Option<&Path>) -> FleetArgs {
        FleetArgs { fleet: fleet.to_vec(), api: ApiArgs::of(None, config) }
    }

    /// The single proxy, if there is no fleet.
    pub(super) fn api(&self) -> &ApiArgs {
        &self.api
    }

    /// Asks all proxies the same at once. Without a fleet it asks the single proxy, whose failure is returned as the error.
    pub(super) fn ask<T: Send>(
        &self,
        ask: impl Fn(&ApiClient) -> Result<T, ApiError> + Sync,
    ) -> Result<Answers<T>, ApiError> {
        if self.fleet.is_empty() {
            let answer = ask(&ApiClient::new(&self.api)?)?;
            return Ok(Answers::of_one(answer));
        }
        if self.fleet.len() > MAX_FLEET {
            let text = format!("--fleet: more than {MAX_FLEET} proxies");
            return Err(ApiError::Usage(text));
        }
        // A wrong address is a usage error, found before any proxy is asked.
        let clients = self.fleet.iter().map(|url| ApiClient::new(&self.api.at(url)));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let asked: Vec<Result<T, ApiError>> = thread::scope(|scope| {
            let asked = clients.iter().map(|client| scope.spawn(|| ask(client)));
            let asked: Vec<_> = asked.collect();
            asked
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| {
                        let text = "asking it failed: please report this".to_owned();
                        Err(ApiError::Declined(text))
                    })
                })
                .collect()
        });
        let mut all = Answers { answers: Vec::new(), silent: Vec::new() };
        for (client, answer) in clients.iter().zip(asked) {
            let address = client.address();
            match answer {
                Ok(answer) => all.answers.push(Answer { proxy: Some(address), answer }),
                Err(error) => all.silent.push((address, error)),
            }
        }
        Ok(all)
    }
}

impl<T> Answers<T> {
    /// The reply without a fleet.
    pub(super) fn of_one(answer: T) -> Answers<T> {
        let proxy = None;
        Answers { answers: vec![Answer { proxy, answer }], silent: Vec::new() }
    }

    /// The replies of a fleet in which all proxies replied.
    #[cfg(test)]
    pub(super) fn of_fleet(answers: Vec<Answer<T>>) -> Answers<T> {
        Answers { answers, silent: Vec::new() }
    }

    /// Whether several proxies were asked.
    pub(super) fn are_of_fleet(&self) -> bool {
        !self.silent.is_empty() || self.answers.iter().any(|one| one.proxy.is_some())
    }

    /// Those without a reply, with the reason.
    pub(super) fn silent(&self) -> impl Iterator<Item = (&str, &ApiError)> {
        self.silent.iter().map(|(proxy, error)| (proxy.as_str(), error))
    }

    /// The exit code of a command that succeeded as far as proxies replied.
    pub(super) fn end(&self) -> ExitCode {
        for (proxy, error) in &self.silent {
            complain!("lockwarden: {}: {}", plain(proxy), plain(&error.to_string()));
        }
        match self.silent.first() {
            None => ExitCode::SUCCESS,
            Some((_, error)) if self.answers.is_empty() => error.exit(),
            Some(_) => exit_code::findings(),
        }
    }

    /// The same, for a command that exits with 1 if it found something.
    pub(super) fn end_with_findings(&self, found: bool) -> ExitCode {
        match (self.end(), found && !self.answers.is_empty()) {
            (_, true) => exit_code::findings(),
            (end, false) => end,
        }
    }

    /// A part for each proxy, under its address.
    pub(super) fn parts(&self, words: impl Fn(&T) -> String, mark: &str) -> String {
        let part = |one: &Answer<T>| match &one.proxy {
            Some(proxy) => format!("{mark}proxy {}\n{}\n", plain(proxy), words(&one.answer)),
            None => words(&one.answer),
        };
        self.answers.iter().map(part).collect()
    }

    /// The last line of a fleet, which sums up the parts.
    pub(super) fn verdict(&self, words: impl Fn() -> String) -> String {
        match self.are_of_fleet() && !self.answers.is_empty() {
            true => format!("{}: {}\n", counted(self.answers.len() as u64, "proxy", "proxies"), plain(&words())),
            false => String::new(),
        }
    }

    /// One line for each proxy.
    pub(super) fn lines(&self, words: impl Fn(&T) -> String) -> String {
        let line = |one: &Answer<T>| match &one.proxy {
            Some(proxy) => format!("{}: {}\n", plain(proxy), plain(&words(&one.answer))),
            None => format!("{}\n", plain(&words(&one.answer))),
        };
        self.answers.iter().map(line).collect()
    }
}

/// The reply of a single proxy, or the replies of a fleet by proxy.
impl<T: Serialize> Serialize for Answers<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.answers[..] {
            [one] if !self.are_of_fleet() => one.answer.serialize(serializer),
            _ => json!({ "proxies": self.proxies() }).serialize(serializer),
        }
    }
}

impl<T: Serialize> Answers<T> {
    /// The replies of a fleet, for JSON.
    pub(super) fn proxies(&self) -> Vec<serde_json::Value> {
        let answered = self.answers.iter();
        let answered = answered.map(|one| json!({ "proxy": one.proxy, "answer": one.answer }));
        let silent = self.silent.iter();
        let silent = silent.map(|(proxy, error)| json!({ "proxy": proxy, "error": error.to_string() }));
        answered.chain(silent).collect()
    }
}
