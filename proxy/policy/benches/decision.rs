//! What a decision costs, warm, from the question to what the policies of a chain say together, with
//! fuel and deadline armed for each call: `cargo bench -p lockwarden-policy --bench decision`.

use std::sync::Arc;

use divan::{Bencher, black_box};
use lockwarden_lock::decision::{Decide, Operation, Proofs, Question, Traits};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::AskedMs;
use lockwarden_policy::{ChainSpec, Chains, DEFAULT_CHAIN, PolicyHost, PolicySource, builtin};

/// So many times in one sample: the clock counts in steps of some nanoseconds.
const TIMES: u32 = 256;

fn main() {
    divan::Divan::default().sample_size(TIMES).sample_count(400).config_with_args().main();
}

/// A namespace with these policies: those of `more` by their own names, the rest built in.
fn chain<'a>(more: &[PolicySource], names: impl IntoIterator<Item = &'a str>) -> Chains {
    let host = PolicyHost::new().expect("an engine");
    let names = names.into_iter().map(|name| (name.to_owned(), Vec::new()));
    let chain = ChainSpec { namespace: "default".to_owned(), policies: names.collect() };
    let generation = host.load(more, &[chain]).expect("the policies load");
    let mut chains = Chains::that_ask_always();
    chains.follow(&Arc::new(generation));
    chains
}

fn question(operation: Operation) -> Question<'static> {
    let acquires = operation == Operation::Acquire || operation == Operation::TakeOver;
    Question {
        owner_token: acquires.then_some(b"6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2"),
        ttl_ms: (operation == Operation::Acquire).then_some(AskedMs(30_000)),
        proofs: if acquires { Proofs::NONE } else { Proofs::SESSION },
        traits: Traits::CONDITIONAL,
        client: 7,
        ..Question::plain(operation, b"lock:order:42")
    }
}

fn decide(bencher: Bencher<'_, '_>, mut chains: Chains, question: &Question<'_>) {
    bencher.bench_local(|| {
        let decisions = chains.decide(NamespaceId(0), black_box(question), &|_| None);
        black_box(&decisions);
    });
}

/// By the three built-in policies, of which each is asked about what it judges.
#[divan::bench(args = [
    ("acquire, two judge it", Operation::Acquire),
    ("release, one judges it", Operation::Release),
    ("take-over, three judge it", Operation::TakeOver),
    ("persist, denied by the second", Operation::Extend),
])]
fn built_in(bencher: Bencher<'_, '_>, (_, operation): (&str, Operation)) {
    decide(bencher, chain(&[], DEFAULT_CHAIN), &question(operation));
}

/// By so many policies in a chain, each of which judges an acquire: `fencing`, by a name of its own each.
#[divan::bench(args = [1, 2, 4, 8])]
fn chain_of(bencher: Bencher<'_, '_>, policies: usize) {
    let fencing = builtin("fencing").expect("it is built in");
    let more: Vec<PolicySource> = (0..policies)
        .map(|number| PolicySource { name: format!("fencing-{number}"), ..PolicySource::built_in(fencing) })
        .collect();
    let names = more.iter().map(|policy| policy.name.as_str());
    decide(bencher, chain(&more, names), &question(Operation::Acquire));
}
