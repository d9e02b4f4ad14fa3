//! Every promise, against the real binary and a real `redis-server`. The idioms of the misuse catalogue come
//! first, each straight to Redis (the damage happens), enforced (it does not) and monitored (it happens, and
//! is counted); then the mistakes that only a proxy can make.

/// Plays a scenario in each world, as tests named after it: `directly`, `enforced`, `monitored`.
/// The second argument configures the proxy.
macro_rules! in_every_world {
    ($scenario:ident) => {
        in_every_world!($scenario, |proxy| proxy);
    };
    ($scenario:ident, $configure:expr) => {
        mod $scenario {
            use lockwarden_tests::{World, WorldKind};

            #[test]
            fn directly() {
                super::$scenario(&World::new(WorldKind::Direct, $configure));
            }

            #[test]
            fn enforced() {
                super::$scenario(&World::new(WorldKind::Enforce, $configure));
            }

            #[test]
            fn monitored() {
                super::$scenario(&World::new(WorldKind::Monitor, $configure));
            }
        }
    };
}

mod applications;
mod arriving;
mod between_processes;
mod comment_words;
mod comparing;
mod data_guards;
mod deadlines;
mod delivery;
mod families;
mod following;
mod foreseeing;
mod forgetting;
mod fuzzing;
mod giving_back;
mod job_systems;
mod jobs;
mod keep_alive_all;
mod keeping;
mod keys_of_commands;
mod long_ttls;
mod overwriting;
mod packaging;
mod pages;
mod paused;
mod recipes;
mod refused_blocks;
mod taking;
mod undelivered;

mod administration;
mod aftermath;
mod audit;
mod balancers;
mod blocks;
mod board;
mod board_axe;
mod board_discovery;
mod board_filters;
mod board_pages;
mod board_pictures;
mod breaking;
mod bypass;
mod durable;
mod enforcing_some;
mod failing_policies;
mod fencing;
mod fencing_clients;
mod fencing_outside;
mod flushing;
mod flushing_globs;
mod guarded;
mod guarding;
mod held;
mod keep_alive;
mod leaping;
mod lease_questions;
mod memory;
mod multiplexed;
mod opaque;
mod outages;
mod policy_cases;
mod policy_languages;
mod pools;
mod prefixes;
mod presenting;
mod primaries;
mod proposing_guards;
mod rates;
mod ready;
mod record_versions;
mod reloading;
mod renewing;
mod replay;
mod reports;
mod rights;
mod rules;
mod scripts;
mod scripts_on_guarded_data;
mod sentinels;
mod several;
mod shortcuts;
mod size;
mod stalling;
mod sweeping;
mod undoing;

mod bench;
mod building;
mod certificate_logins;
mod certificates;
mod checking;
mod cli;
mod cli_audit;
mod cli_lock;
mod cluster_front;
mod cluster_nodes;
mod configuration;
mod connection_age;
mod connections;
mod demo_picture;
mod differential;
mod discovering;
mod discovering_families;
mod documentation;
mod doubt;
mod examples;
mod failing_over;
mod fleet;
mod grace;
mod grafana;
mod grafana_live;
mod grouped;
mod handing_over;
mod hidden;
mod hidden_processes;
mod history;
mod holder_lost;
mod kubernetes;
mod late_ttls;
mod layers;
mod limits;
mod lock_time;
mod logging_in;
mod maintenance;
mod managed;
mod nesting;
mod next_chain;
mod odd_text;
mod operating;
mod operator_commands;
mod orders;
mod own_connection;
mod own_logins;
mod tls;
mod top;
mod transparency;
mod twins;
mod unix_sockets;
mod unknown_commands;
mod unwitnessed;
mod vanishing;
mod versions;
mod view;
mod warm_cache;
mod what_if;
mod wire;
mod without_scripts;
mod words;
mod wrapped;
