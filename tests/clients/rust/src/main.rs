//! Runs the lock libraries named as arguments, against the server that the environment names, and prints a
//! JSON line for each check. Start at `checks.rs`; each library has its own file.

use std::env;

use checks::Server;

mod checks;
mod cluster;
mod raw;
mod redlock;
mod rslock;

fn main() {
    let told = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let server = Server::at(&told("LOCK_HOST"), &told("LOCK_PORT"));
    let prefix = told("LOCK_PREFIX");
    for library in env::args().skip(1) {
        let prefix = format!("{prefix}{library}:");
        match library.as_str() {
            "rslock" => checks::run::<rslock::Party>(&server, &prefix),
            "redlock" => checks::run::<redlock::Party>(&server, &prefix),
            "cluster" => checks::run::<cluster::Party>(&server, &prefix),
            "redis" => checks::run::<raw::Party>(&server, &prefix),
            _ => panic!("no library {library}"),
        }
    }
}
