//! Runs that follow from a seed: the same runs every time, more of them in a soak, and a single one to repeat a
//! failure.

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A number out of the environment. Panics where the variable holds something else.
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Plays the run of each of these seeds, and of as many others as fit into `LOCKWARDEN_SOAK_SECONDS`. With
/// `LOCKWARDEN_SEED` it is the run of that seed alone.
pub fn for_each_seed(always: &[u64], mut run: impl FnMut(u64)) {
    if let Some(seed) = number("LOCKWARDEN_SEED") {
        return run(seed);
    }
    always.iter().for_each(|seed| run(*seed));
    let Some(seconds) = number("LOCKWARDEN_SOAK_SECONDS") else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut seed = now.expect("the clock is past 1970").as_secs();
    while Instant::now() < end {
        seed += 1;
        run(seed);
    }
}
