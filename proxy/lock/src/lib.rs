//! The domain of lockwarden, pure: what a command means for a lock, what may be done about it, the atomic step that
//! does it, and what its reply means. Nothing here does I/O or reads a clock; time and random bytes come in as
//! arguments.
//!
//! In reading order: the words ([`reason`], [`record`], [`token`], [`time`], [`decision`]), which keys are locks
//! ([`glob`], [`namespace`], [`companion`], [`hidden`]), which commands there are ([`table`]), what is
//! known of an application's script ([`script_facts`], [`library_scripts`]; the crate `lockwarden-lua` reads it), what a
//! command means ([`classify`], [`op`]), what it may do ([`rules`], [`promise`], [`evidence`], [`settle`],
//! [`administration`], [`operator_command`]), who may forward it ([`pass_through`]), how it is done ([`scripts`],
//! [`own_request`], [`plan`]), what came of it ([`outcome`]) and the view of it all ([`lease`]).

pub mod reason;
pub mod record;
pub mod record_version;
pub mod time;
pub mod token;

pub mod db_key;
pub mod decision;

pub mod glob;
pub mod job_scripts;
pub mod key_sets;
pub mod namespace;

pub mod companion;
pub mod hidden;

pub mod table;

pub mod library_scripts;
pub mod script_facts;

pub mod op;

pub mod rules;

pub mod era;
pub mod promise;

pub mod pass_through;

pub mod classify;
pub mod data_guard;

pub mod evidence;

pub mod settle;

pub mod administration;
pub mod operator_command;

pub mod scripts;

pub mod own_request;

pub mod plan;

pub mod outcome;

pub mod lease;
