//! What one decision of the default chain costs, warm, where its policies are asked, and where their answers are kept:
//! `cargo run --release -p lockwarden-policy --example decision_cost`. Prints the median of many rounds in nanoseconds a decision.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::decision::{Decide, Operation, Proofs, Question, Traits};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::AskedMs;
use lockwarden_policy::{ChainSpec, Chains, DEFAULT_CHAIN, LoadError, PolicyHost};

const ROUNDS: usize = 101;
const DECISIONS_A_ROUND: u32 = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let host = PolicyHost::new()?;
    let default_chain = ChainSpec {
        namespace: "default".to_owned(),
        policies: DEFAULT_CHAIN.map(|name| (name.to_owned(), Vec::new())).to_vec(),
    };
    let started = Instant::now();
    let generation = host.load(&[], &[default_chain]).map_err(in_one_text)?;
    println!("{:<36}{:>8.1} ms", "compile and check the chain", started.elapsed().as_secs_f64() * 1e3);

    let (mut asking, mut keeping) = (Chains::that_ask_always(), Chains::new());
    let generation = Arc::new(generation);
    asking.follow(&generation);
    keeping.follow(&generation);
    let acquire = Question {
        owner_token: Some(b"6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2"),
        ttl_ms: Some(AskedMs(30_000)),
        traits: Traits::CONDITIONAL,
        client: 7,
        ..Question::plain(Operation::Acquire, b"lock:order:42")
    };
    let release = Question {
        operation: Operation::Release,
        owner_token: None,
        ttl_ms: None,
        proofs: Proofs::SESSION,
        ..acquire.clone()
    };
    let take_over = Question { operation: Operation::TakeOver, ttl_ms: None, ..acquire.clone() };
    let persist = Question { operation: Operation::Extend, ..release.clone() };
    for (what, question) in [
        ("acquire: permit, two judge it", &acquire),
        ("release: permit, one judges it", &release),
        ("GETSET: permit, three judge it", &take_over),
        ("PERSIST: deny by the second, a hint", &persist),
    ] {
        let [asked, kept] =
            [&mut asking, &mut keeping].map(|chains| median((0..ROUNDS).map(|_| round(chains, question)).collect()));
        println!("{what:<36}{kept:>8} ns kept{asked:>8} ns");
    }
    Ok(())
}

fn round(chains: &mut Chains, question: &Question<'_>) -> u128 {
    let start = Instant::now();
    for _ in 0..DECISIONS_A_ROUND {
        black_box(chains.decide(NamespaceId(0), black_box(question), &|_| None));
    }
    start.elapsed().as_nanos() / u128::from(DECISIONS_A_ROUND)
}

fn median(mut rounds: Vec<u128>) -> u128 {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

fn in_one_text(errors: Vec<LoadError>) -> String {
    errors.iter().map(LoadError::to_string).collect::<Vec<_>>().join("\n")
}
