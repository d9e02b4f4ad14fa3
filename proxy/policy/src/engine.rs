//! The engine that all policies of a process share. It knows nothing of policies; `ticker.rs` stops them by wall clock.
//! Every setting here was measured; its benefit is noted beside it.

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, RegallocAlgorithm,
};

use crate::error::HostError;

/// The most memory that any policy may have; also the address space that each slot of the pool reserves.
pub const MAX_MEMORY_BYTES: usize = 64 << 20;

/// The most instances in the pool, for all threads, namespaces and generations together: 4096 × 64 MiB are 256 GiB of
/// address space, of which only the used part needs memory.
pub(crate) const POOLED_INSTANCES: u32 = 4_096;

/// A guest's stack. Tokio's threads have 2 MiB, and the host's own frames need some of it.
const STACK_BYTES: usize = 512 << 10;

/// An engine, and whether its instances come out of a pool of [`POOLED_INSTANCES`].
pub(crate) struct NewEngine {
    pub(crate) engine: Engine,
    pub(crate) pooled: bool,
}

/// Makes the engine.
pub(crate) fn start() -> Result<NewEngine, HostError> {
    match Engine::new(&pooled_config()) {
        Ok(engine) => Ok(NewEngine { engine, pooled: true }),
        // A limit of the address space (`ulimit -v`) forbids the pool. Without it an instance costs
        // 12 µs instead of 3 to make; a call costs the same.
        Err(error) => {
            tracing::info!(%error, "policies run without an instance pool");
            Ok(NewEngine { engine: Engine::new(&base_config()).map_err(HostError::engine)?, pooled: false })
        }
    }
}

/// An engine whose code runs on any processor of this kind, and not only on the present one.
pub(crate) fn for_any_processor() -> Result<Engine, HostError> {
    let mut config = base_config();
    config.target(env!("TARGET")).map_err(HostError::engine)?;
    Engine::new(&config).map_err(HostError::engine)
}

fn base_config() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // The epoch limits the wall time; fuel stops a loop twenty times sooner and always at the same place. Neither
        // costs more than 3 ns per call.
        .epoch_interruption(true)
        .consume_fuel(true)
        // On by default if the async feature is compiled in, and then each call is 2.5 times slower.
        .concurrency_support(false)
        .max_wasm_stack(STACK_BYTES)
        .cranelift_opt_level(OptLevel::Speed)
        .memory_reservation(MAX_MEMORY_BYTES as u64)
        .memory_guard_size(64 << 10)
        // Features that no policy needs. Security advisories mostly concern rarely used features.
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false);
    // A debug proxy lives for the seconds of a test: there the compiler is the slow part, not what it
    // makes. Fuel is counted by instructions of WebAssembly, so policies behave the same.
    if cfg!(debug_assertions) {
        config.cranelift_opt_level(OptLevel::None).cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    }
    config
}

fn pooled_config() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(POOLED_INSTANCES)
        // A component has up to two small core instances beside its own, which bind its imports.
        .total_core_instances(POOLED_INSTANCES * 3)
        .total_memories(POOLED_INSTANCES)
        .total_tables(POOLED_INSTANCES * 2)
        .max_memory_size(MAX_MEMORY_BYTES)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(4 << 10)
        .pagemap_scan(Enabled::No);
    let mut config = base_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
