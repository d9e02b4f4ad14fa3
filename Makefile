# What a person types is what CI runs (.ci/run). Every target that builds sets the machine up first where
# something is missing; where nothing is, that costs milliseconds.

CONFIG ?= proxy/server/examples/lockwarden.toml
FUZZ_SECONDS ?= 30
# For all parts of a soak together.
SOAK_SECONDS ?= 600
# Random requests at held locks; some 40 minutes for ten million.
SOAK_REQUESTS ?= 2000000

# rustup puts cargo here, and not every shell knows.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

built := $(or $(CARGO_TARGET_DIR),target)
# In CI a Cargo.lock that lags behind is an error; at a desk it is brought up to date.
locked := $(if $(CI),--locked)
fuzz_targets := $(basename $(notdir $(wildcard proxy/resp/fuzz/fuzz_targets/*.rs)))
otel := lockwarden/otel,lockwarden-tests/otel

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run demo release dashboard test test-servers test-multiplexed test-clients test-otel soak check check-format check-lints check-docs bench bench-parts bench-micro fuzz clean

help: ## say what there is to type
	@awk -F ':[^#]*## ' '/^[a-z-]+:[^#]*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## install what the machine lacks; every other target does this first
	@.ci/setup.sh

run: release ## start the proxy on a private Redis; CONFIG=file for a configuration of your own
	exec $(built)/release/lockwarden run --config $(CONFIG)

demo: release ## the classic accident, first without the proxy and then with it
	exec $(built)/release/lockwarden demo

release: setup ## build the policies and the proxy as people run them
	cargo build $(locked) --release -p lockwarden

dashboard: setup ## write the Grafana dashboard anew, from grafana/rows.py
	@.ci/setup.sh --tests
	target/grafana/bin/python grafana/generate.py

# The build selects what the test run selects, besides the binary that the integration tests drive:
# `-p lockwarden` would resolve other features and build wasmtime a second time.
test: setup ## run every test that needs no foreign client
	@.ci/setup.sh --tests
	cargo build $(locked) --workspace --bins --tests --examples
	cargo test $(locked) --manifest-path tests/wakeups/Cargo.toml --target-dir $(built)/wakeups
	cargo test $(locked) --workspace --no-fail-fast

test-servers: setup ## run the integration tests on Redis 6.2, 7.0, 8.2 and Valkey 9.1; some: SERVERS="redis-6.2 valkey-9.1"
	cargo build $(locked) --workspace --bins --tests --examples
	.ci/test-servers.sh $(SERVERS)

test-multiplexed: setup ## run the integration tests with sessions = "multiplexed"; some: ONLY="wire:: blocks::"
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_TEST_SESSIONS=multiplexed cargo test $(locked) --workspace --test all -- $(ONLY)

test-clients: setup ## run real lock libraries; one language: make test-clients-python; WRITE=1 writes docs/clients.md
	cargo build $(locked) --workspace --bins --examples
	$(built)/debug/examples/clients $(language) $(if $(QUICK),--quick) $(if $(WRITE),--write)

# What builds next without the feature links the proxy anew.
test-otel: setup ## build the proxy with OpenTelemetry, which no other target does, and test that
	@.ci/setup.sh --tests
	cargo build $(locked) --workspace --features $(otel) --bins --tests
	cargo test $(locked) --workspace --features $(otel) --bin lockwarden -- otel config
	cargo test $(locked) --workspace --features $(otel) --test all -- otel::

test-clients-%:
	$(MAKE) test-clients language=$*

# The random script against a real server gets half of the time, random scripts that are refused or guarded an eighth each; the framer's
# properties run meanwhile as many cases as they need, and the fuzz targets, where their tools are installed, share a quarter.
soak: setup ## random traffic for SOAK_SECONDS, SOAK_REQUESTS random requests at held locks, and fuzzing
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 2)) cargo test $(locked) -p lockwarden-tests --test all -- differential --nocapture
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 8)) cargo test $(locked) -p lockwarden-tests --test all -- undoing::random --nocapture
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 8)) cargo test $(locked) -p lockwarden-tests --test all -- guarded::random --nocapture
	LOCKWARDEN_REQUESTS=$(SOAK_REQUESTS) cargo test $(locked) -p lockwarden-tests --test all -- bypass::random --nocapture
	PROPTEST_CASES=20000 cargo test $(locked) -p lockwarden-resp --lib properties
	@if rustup toolchain list | grep -q '^nightly' && command -v cargo-fuzz >/dev/null; then \
	    $(MAKE) fuzz FUZZ_SECONDS=$$(($(SOAK_SECONDS) / 4 / $(words $(fuzz_targets)))); \
	else \
	    echo 'soak: no fuzzing without nightly Rust and cargo-fuzz; make fuzz says how to get them'; \
	fi

check: check-format check-lints check-docs ## format, lints and documentation, without the tests

check-format: setup ## is everything formatted?
	cargo fmt --all --check
	cargo fmt --manifest-path proxy/resp/fuzz/Cargo.toml --check
	cargo fmt --manifest-path tests/clients/rust/Cargo.toml --check
	cargo fmt --manifest-path tests/wakeups/Cargo.toml --check

check-lints: setup ## clippy, with warnings as errors
	cargo clippy $(locked) --workspace --all-targets -- -D warnings

check-docs: setup ## rustdoc, with warnings as errors
	RUSTDOCFLAGS="-D warnings" cargo doc $(locked) --workspace --no-deps

# The goals name what a decision costs, so the bench wants the policies' own one beside it.
# Built together with the proxy, so that wasmtime is built once: alone its package asks for fewer features.
bench: setup ## measure every way to Redis in turns; some: ARGS="--only plain,good --rounds 5"; ARGS=--help says more
	cargo build $(locked) --release -p lockwarden -p lockwarden-policy --bins --example decision_cost
	cargo run $(locked) --release -p lockwarden-tests --example bench -- $(ARGS)

bench-parts: setup ## measure a decision, the scripts by Redis's clock, and what keeping leases alive costs
	cargo build $(locked) --release -p lockwarden -p lockwarden-policy --bins --example decision_cost
	$(built)/release/examples/decision_cost
	cargo run $(locked) --release -p lockwarden-tests --example script_cost
	cargo run $(locked) --release -p lockwarden-tests --example kept_leases

bench-micro: setup ## time framer, classifier, namespaces, plans and decisions by themselves; one: only=namespace
	cargo bench $(locked) -p lockwarden -p lockwarden-resp -p lockwarden-lock -p lockwarden-policy --bench '*' -- $(only)

fuzz: setup ## fuzz the framer for FUZZ_SECONDS a target (needs nightly Rust and cargo-fuzz)
	@rustup toolchain list | grep -q '^nightly' || \
	    { echo 'make fuzz needs nightly Rust: rustup toolchain install nightly'; exit 1; }
	@command -v cargo-fuzz >/dev/null || \
	    { echo 'make fuzz needs cargo-fuzz: cargo install --locked cargo-fuzz'; exit 1; }
	@set -e; cd proxy/resp; for target in $(fuzz_targets); do \
	    set -x; cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS); { set +x; } 2>/dev/null; \
	done

clean: ## remove what was built
	cargo clean
	rm -rf proxy/resp/fuzz/target
