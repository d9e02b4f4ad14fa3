//! Shell completions and manual pages, generated from the definitions that parse the command line, so they cannot be out of
//! date. Also the machine code of the policies, which a later build needs from an earlier one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use lockwarden_policy::compile_ahead;

use super::output;
use crate::app::exit_code;
use crate::terminal::complain;

/// Of which shell.
#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Args, Debug)]
pub(super) struct ManArgs {
    /// Write a page for every command into this directory instead of printing the first
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct CompilePoliciesArgs {
    /// Where to, named by LOCKWARDEN_COMPILED_POLICIES in that build
    file: PathBuf,
}

/// Writes the built-in policies as machine code.
pub(super) fn compile_policies(args: &CompilePoliciesArgs) -> ExitCode {
    let written = compile_ahead().map_err(|error| error.to_string()).and_then(|code| {
        std::fs::write(&args.file, code).map_err(|error| format!("cannot write {}: {error}", args.file.display()))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("lockwarden: {error}");
            exit_code::configuration()
        }
    }
}

/// Prints the script that a shell sources.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "lockwarden", &mut script);
    printed(&script)
}

/// Prints lockwarden(1), or writes all pages.
pub(super) fn man(args: &ManArgs, command: Command) -> ExitCode {
    let mut page = Vec::new();
    let made = match &args.dir {
        Some(directory) => all_pages(command, directory),
        None => clap_mangen::Man::new(command).render(&mut page),
    };
    match made {
        Ok(()) => printed(&page),
        Err(error) => {
            complain!("lockwarden: the pages cannot be written: {error}");
            exit_code::configuration()
        }
    }
}

fn all_pages(command: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

fn printed(text: &[u8]) -> ExitCode {
    match output::print(&String::from_utf8_lossy(text)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("lockwarden: {error}");
            exit_code::configuration()
        }
    }
}
