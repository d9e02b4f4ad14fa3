//! `--from-monitor`: observes `MONITOR` for a while. It costs the server a copy of every command, so it is used only below a
//! rate, and for a limited time.

use std::time::{Duration, Instant};

use lockwarden_console::view::api::Discovery;
use lockwarden_console::view::discovery::{Governed, Watched, told};
use lockwarden_control::config::GuardConfig;
use lockwarden_control::ruleset::activate;
use lockwarden_control::text::numbers::number;
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_discovery::monitor::Monitor;
use lockwarden_lock::data_guard::DataGuards;
use lockwarden_resp::Value;

use super::super::api_client::ApiError;
use super::arguments::DiscoverArgs;
use super::server::{on_a_runtime, server};
use crate::terminal::complain;

/// How often the rate is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The observations of this time, and whether they are complete: they end early if the server goes away.
pub(super) fn watch(args: &DiscoverArgs, time: Duration) -> Result<(Discovery, bool), ApiError> {
    let (config, address) = server(args)?;
    if address.authority.map().is_some() {
        let why = "the backend is a whole cluster, and MONITOR is of one server: name each node by --backend-url redis://host:port";
        return Err(ApiError::Usage(why.to_owned()));
    }
    let namespaces = activate::namespaces(&config);
    complain!(
        "MONITOR copies every command of {} to this machine for {} s; it is stopped above {} commands a second",
        address.url,
        time.as_secs(),
        number(args.max_rate)
    );
    let begun = Instant::now();
    let is_implied = config.namespaces.iter().any(|one| one.line.is_none());
    let is_claimed = |key: &[u8]| !is_implied && namespaces.find(key).is_some();
    let (monitor, gone) = on_a_runtime(watched(&address, args.max_rate, time, &is_claimed))?;
    let names: Vec<String> = config.namespaces.iter().map(|one| one.name.clone()).collect();
    let passed = begun.elapsed().as_millis();
    let watched = Watched {
        for_ms: u64::try_from(passed).unwrap_or(u64::MAX),
        unseen: 0,
        unreadable: monitor.unreadable(),
        // MONITOR shows the commands of a script.
        knows: &|_| true,
    };
    complain!("{} commands were seen", number(monitor.commands()));
    if let Some(error) = &gone {
        complain!(
            "the server went away: {error}; what follows is what was seen until then, so look again when it answers"
        );
    }
    let guards = config.guards.iter();
    let guard_names: Vec<String> = guards.clone().map(|guard| guard.name.clone()).collect();
    let governed = Governed {
        namespaces: &namespaces,
        is_implied,
        names: &names,
        guards: &DataGuards::new(guards.map(GuardConfig::guard).collect()),
        guard_names: &guard_names,
    };
    Ok((told(&monitor.collector, &governed, &watched), gone.is_none()))
}

async fn watched(
    address: &Address,
    max_rate: u64,
    time: Duration,
    is_claimed: &dyn Fn(&[u8]) -> bool,
) -> Result<(Monitor, Option<BackendError>), ApiError> {
    let mut own = address.converse().await?;
    let mut monitor = Monitor::default();
    if let Some(rate) = rate(&mut own).await?
        && rate > max_rate
    {
        return Err(too_fast(rate, max_rate));
    }
    let list = own.ask(&["CLIENT", "LIST"]).await?;
    if let Some(list) = list.as_bytes() {
        let list = String::from_utf8_lossy(list);
        let field = |line: &'_ str, name: &str| {
            let mut fields = line.split(' ');
            let found = fields.find_map(|field| field.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        let all: Vec<(String, String)> =
            list.lines().map(|line| (field(line, "addr="), field(line, "name="))).collect();
        for (from, name) in &all {
            monitor.name(from, name);
        }
        monitor.were_there(all.iter().map(|(from, _)| &from[..]));
    }
    if let Value::Error(text) = own.ask(&["MONITOR"]).await? {
        let text = String::from_utf8_lossy(&text).into_owned();
        return Err(ApiError::Declined(format!("the server refuses MONITOR: {text}")));
    }
    let end = Instant::now() + time;
    let (mut looked, mut before) = (Instant::now(), 0);
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok((monitor, None));
        }
        let until = end.min(looked + LOOK_EVERY).duration_since(now);
        match own.frame_within(until).await {
            Ok(Some(line)) => monitor.see(&line, is_claimed),
            Ok(None) => {}
            Err(error) => return Ok((monitor, Some(error))),
        }
        let passed = looked.elapsed();
        if passed >= LOOK_EVERY {
            let commands = monitor.commands() - before;
            let rate = (commands as f64 / passed.as_secs_f64()) as u64;
            if rate > max_rate {
                return Err(too_fast(rate, max_rate));
            }
            (looked, before) = (Instant::now(), monitor.commands());
        }
    }
}

fn too_fast(rate: u64, max_rate: u64) -> ApiError {
    ApiError::Declined(format!(
        "the server does {} commands a second, more than --max-rate {}: MONITOR would slow it down",
        number(rate),
        number(max_rate)
    ))
}

/// Commands a second, as the server reports them.
async fn rate(own: &mut Conversation) -> Result<Option<u64>, BackendError> {
    let info = own.ask(&["INFO", "stats"]).await?;
    let text = info.as_bytes().map(|info| String::from_utf8_lossy(info).into_owned());
    let text = text.unwrap_or_default();
    let mut lines = text.lines();
    let rate = lines.find_map(|line| line.strip_prefix("instantaneous_ops_per_sec:"));
    Ok(rate.and_then(|rate| rate.trim().parse().ok()))
}
