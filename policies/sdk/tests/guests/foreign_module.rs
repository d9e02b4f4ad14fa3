//! A guest whose core module imports functions that no interface of the contract has.

use lockwarden_policy_sdk::{Decision, Policy, Request, Settings, export_policy};

struct Foreign;

#[cfg(target_family = "wasm")]
mod host {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(crate) safe fn sched_yield() -> i32;
    }
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(crate) safe fn launch_missiles() -> i32;
    }
}

impl Policy for Foreign {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        settings.finish()?;
        Ok(Foreign)
    }

    fn decide(&self, _request: &Request) -> Decision {
        #[cfg(target_family = "wasm")]
        std::hint::black_box(host::sched_yield() + host::launch_missiles());
        Decision::permit()
    }
}

export_policy!(Foreign);
