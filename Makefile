# What a person types is what CI runs (.ci/run). Every target that builds sets the machine up first where
# something is missing; where nothing is, that costs milliseconds.

CONFIG ?= proxy/server/examples/lockwarden.toml
FUZZ_SECONDS ?= 30
# For all parts of a soak together.
SOAK_SECONDS ?= 600
# Random requests at held locks; some 40 minutes for ten million.
SOAK_REQUESTS ?= 2000000
# Random scripts whose text is read; some 20 minutes for a million.
SOAK_SCRIPTS ?= 300000

# rustup puts cargo here, and not every shell knows.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

built := $(or $(CARGO_TARGET_DIR),target)
# In CI a Cargo.lock that lags behind is an error; at a desk it is brought up to date.
locked := $(if $(CI),--locked)
fuzz_targets := $(basename $(notdir $(wildcard proxy/resp/fuzz/fuzz_targets/*.rs)))

# What is packaged, and where it is installed. Packagers set DESTDIR and PREFIX=/usr.
BINARY ?= $(built)/dist/lockwarden
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR ?= $(PREFIX)/lib/systemd/system
version := $(shell sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"/\1/p' Cargo.toml)
DEB ?= $(built)/lockwarden_$(version).deb
IMAGE ?= $(built)/lockwarden_$(version).oci.tar
share = $(DESTDIR)$(PREFIX)/share
# Pages are named as they are found where they are installed.
pages_installed = s|docs/[a-z-]*\.md|$(PREFIX)/share/doc/lockwarden/&|
installed_config = $(DESTDIR)$(SYSCONFDIR)/lockwarden/lockwarden.toml

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run demo quick release dashboard test test-servers test-multiplexed test-unix test-tls test-cluster test-languages test-clients test-estate mutants soak install uninstall deb image check check-format check-lints check-docs check-dependencies check-budget bench bench-parts bench-micro fuzz clean

help: ## say what there is to type
	@awk -F ':[^#]*## ' '/^[a-z-]+:[^#]*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## install what the machine lacks; every other target does this first
	@.ci/setup.sh

run: quick ## start the proxy on a private Redis; CONFIG=file for a configuration of your own
	exec $(built)/release/lockwarden run --config $(CONFIG)

demo: quick ## the classic accident, then a shop that sells items twice, each without the proxy and with it
	$(built)/release/lockwarden demo
	@echo
	$(built)/release/lockwarden demo --guard

# Without optimisation at link time, which takes as long as the rest and four fifths of a build after a change.
quick: setup
	@test -e $(built)/release/lockwarden || echo 'Building 330 crates, half of them the compiler of WebAssembly: some six minutes on two cores, once.'
	cargo build $(locked) --release -p lockwarden

release: setup ## build the policies and the proxy as they are installed and packaged
	.ci/package/build.sh

# A binary that is there already is installed as it is: BINARY=… make install.
install: $(BINARY) ## install binary, manual pages, completions, systemd unit, an example configuration, docs, dashboard and alerts
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/lockwarden
	install -d $(share)/man/man1 $(share)/bash-completion/completions $(share)/zsh/site-functions $(share)/fish/vendor_completions.d
	pages=$$(mktemp -d) && trap 'rm -rf "$$pages"' EXIT && $(BINARY) man --dir "$$pages" && gzip -9n "$$pages"/*.1 && install -m 0644 "$$pages"/*.1.gz $(share)/man/man1/
	$(BINARY) completions bash >$(share)/bash-completion/completions/lockwarden
	$(BINARY) completions zsh >$(share)/zsh/site-functions/_lockwarden
	$(BINARY) completions fish >$(share)/fish/vendor_completions.d/lockwarden.fish
	install -d $(DESTDIR)$(UNITDIR)
	sed -e '$(pages_installed)' -e 's|/usr/local/bin|$(PREFIX)/bin|' -e 's|/etc/lockwarden|$(SYSCONFDIR)/lockwarden|' docs/examples/lockwarden.service >$(DESTDIR)$(UNITDIR)/lockwarden.service
	install -D -m 0644 docs/examples/lockwarden-processes.conf $(DESTDIR)$(UNITDIR)/lockwarden.service.d/processes.conf
	for file in $$(find docs grafana/dashboards grafana/prometheus/*.yml grafana/provisioning -type f) README.md CHANGELOG.md LICENSE; do \
	    install -D -m 0644 $$file $(share)/doc/lockwarden/$$file || exit; \
	done
	install -D -m 0644 docs/examples/lockwarden-processes.conf $(share)/doc/lockwarden/examples/lockwarden-processes.conf
	sed -e '$(pages_installed)' docs/examples/lockwarden.toml >$(share)/doc/lockwarden/examples/lockwarden.toml
	chmod 0644 $(share)/doc/lockwarden/examples/lockwarden.toml
	@test -e $(installed_config) || install -D -m 0640 $(share)/doc/lockwarden/examples/lockwarden.toml $(installed_config)

uninstall: ## remove what was installed; the configuration stays
	rm -f $(DESTDIR)$(PREFIX)/bin/lockwarden $(share)/man/man1/lockwarden.1.gz $(share)/man/man1/lockwarden-*.1.gz $(DESTDIR)$(UNITDIR)/lockwarden.service
	rm -f $(share)/bash-completion/completions/lockwarden $(share)/zsh/site-functions/_lockwarden $(share)/fish/vendor_completions.d/lockwarden.fish
	rm -f $(DESTDIR)$(UNITDIR)/lockwarden.service.d/processes.conf
	rm -rf $(share)/doc/lockwarden
	-rmdir $(DESTDIR)$(UNITDIR)/lockwarden.service.d 2>/dev/null || true

deb: $(BINARY) ## make a Debian package
	@stage=$$(mktemp -d) && chmod 0755 $$stage && trap 'rm -rf "$$stage"' EXIT && \
	$(MAKE) --no-print-directory install BINARY=$(BINARY) DESTDIR=$$stage PREFIX=/usr UNITDIR=/lib/systemd/system && \
	.ci/package/deb.sh $$stage $(version) $(DEB)

image: $(BINARY) ## make an OCI image, without a daemon
	@stage=$$(mktemp -d) && trap 'rm -rf "$$stage"' EXIT && \
	install -D -m 0755 $(BINARY) $$stage/usr/local/bin/lockwarden && \
	python3 .ci/package/image.py $$stage $(version) $(IMAGE) && echo $(IMAGE)

$(built)/dist/lockwarden:
	$(MAKE) release

dashboard: setup ## write the Grafana dashboard anew, from grafana/rows.py
	@.ci/setup.sh --tests
	target/grafana/bin/python grafana/generate.py

# The build selects what the test run selects, besides the binary that the integration tests drive:
# `-p lockwarden` would resolve other features and build wasmtime a second time.
test: setup ## run every test that needs no foreign client; some: ONLY="wire:: blocks::"
	@.ci/setup.sh --tests
	cargo build $(locked) --workspace --bins --tests --examples
	cargo test $(locked) --manifest-path tests/wakeups/Cargo.toml --target-dir $(built)/wakeups
	cargo test $(locked) --workspace --no-fail-fast -- $(ONLY)

test-servers: setup ## run the integration tests on Redis 6.2, 7.0, 8.2 and Valkey 9.1; some: SERVERS="redis-6.2 valkey-9.1"
	cargo build $(locked) --workspace --bins --tests --examples
	ONLY='$(ONLY)' .ci/test-servers.sh $(SERVERS)

test-multiplexed: setup ## run the integration tests with sessions = "multiplexed"; some: ONLY="wire:: blocks::"
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_TEST_SESSIONS=multiplexed cargo test $(locked) --workspace --test all -- $(ONLY)

# undelivered:: looks into the queues of TCP sockets.
test-unix: setup ## run the integration tests with Redis behind its unix socket; some: ONLY="wire:: blocks::"
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_TEST_BACKEND=unix cargo test $(locked) --workspace --test all -- --skip undelivered:: $(ONLY)

# documentation:: types what pages say, limits:: hears lines that are said before TLS is, bench:: has ways of its own, tls:: counts.
test-tls: setup ## run the integration tests over TLS on both sides; some: ONLY="wire:: blocks::"
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_TEST_BACKEND=tls cargo test $(locked) --workspace --test all -- --skip documentation:: --skip limits:: --skip bench:: --skip tls:: $(ONLY)

# Each server is a cluster of one node, with the proxy before the whole of it. Many tests have keys in several slots in one command or
# block, or several databases, which no cluster takes; `once` are the files that have none.
once := applications:: arriving:: bypass:: deadlines:: delivery:: fencing_clients:: grace:: holder_lost:: jobs:: keep_alive:: keeping:: leaping:: lock_time:: long_ttls:: nesting:: next_chain:: overwriting:: paused::
test-cluster: setup ## run the integration tests of locks before a cluster; some: ONLY="wire:: blocks::"
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_TEST_BACKEND=cluster cargo test $(locked) --workspace --test all -- $(or $(ONLY),$(once))

test-languages: setup ## build and ask policies in JavaScript and Python, too, whose tools (500 MB) it installs below target
	cargo build $(locked) --workspace --bins --tests --examples
	python3 -m venv $(built)/languages
	$(built)/languages/bin/pip install --quiet componentize-py==0.25.1
	npm install --silent --prefix $(built)/languages --no-save @bytecodealliance/componentize-js@0.23.0
	cargo test $(locked) --workspace --test all -- policy_languages:: --nocapture

test-clients: setup ## run real lock libraries; one language: make test-clients-python; CLUSTER=1 before a cluster; WRITE=1 writes docs/clients.md
	cargo build $(locked) --workspace --bins --examples
	$(built)/debug/examples/clients $(language) $(if $(QUICK),--quick) $(if $(CLUSTER),--cluster) $(if $(WRITE),--write)

test-estate: setup ## put real programs in four languages behind the proxy, watch and enforce them: the first hour; ARGS="--seconds 20 --only pool"
	cargo build $(locked) --workspace --bins --examples
	@mkdir -p target/clients && for language in python node php; do tests/clients/$$language/setup.sh; done
	$(built)/debug/examples/estate $(ARGS)

test-clients-%:
	$(MAKE) test-clients language=$*

# The random script against a real server gets a quarter of the time, histories of clients among faults, failovers (each takes half a minute), random scripts
# that are refused or guarded an eighth each; the framer's properties run meanwhile as many cases as they need, and the fuzz targets, where their tools are
# installed, share a quarter.
soak: setup ## random traffic and faults for SOAK_SECONDS, SOAK_REQUESTS random requests at held locks, SOAK_SCRIPTS random scripts, and fuzzing
	cargo build $(locked) --workspace --bins --tests --examples
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 4)) cargo test $(locked) -p lockwarden-tests --test all -- differential --nocapture
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 8)) cargo test $(locked) -p lockwarden-tests --test all -- history::dedicated history::multiplexed --nocapture
	LOCKWARDEN_FAILOVERS=$$(($(SOAK_SECONDS) / 240 + 1)) cargo test $(locked) -p lockwarden-tests --test all -- history::failovers --nocapture
	LOCKWARDEN_FAILOVERS=$$(($(SOAK_SECONDS) / 240 + 1)) cargo test $(locked) -p lockwarden-tests --test all -- history::parted --include-ignored --nocapture
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 8)) cargo test $(locked) -p lockwarden-tests --test all -- undoing::random --nocapture
	LOCKWARDEN_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 8)) cargo test $(locked) -p lockwarden-tests --test all -- guarded::random --nocapture
	LOCKWARDEN_EXPLORE=7 cargo test $(locked) -p lockwarden-lock --lib promise::explorer -- --nocapture
	LOCKWARDEN_REQUESTS=$(SOAK_REQUESTS) cargo test $(locked) -p lockwarden-tests --test all -- bypass::random --nocapture
	$(built)/debug/examples/fuzz_scripts --count $(SOAK_SCRIPTS) --seed $$(date +%s)
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

check-dependencies: setup ## licences, sources and duplicates of the dependencies, as deny.toml says; builds cargo-deny where something of that has changed
	@.ci/check-dependencies.sh

# It counts on the test build, which `make test` has made before: nothing is built twice for it.
mutants: setup ## plant faults in a crate, one at a time, and list those that its own tests do not catch: CRATE=lockwarden-resp SHARD=1/40
	@command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
	@git diff --quiet || { echo 'commit first: the faults are planted in this tree'; exit 1; }
	PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 cargo mutants --in-place --package $(or $(CRATE),lockwarden-lock) --shard $(or $(SHARD),1/130) --output target --cargo-test-arg=--lib

check-budget: setup ## does a command, a start, a connection and a lock cost what docs/performance.md says? UPDATE_DOCS=1 writes the new numbers
	cargo build $(locked) --workspace --bins --tests --examples
	$(built)/debug/examples/budget

# The goals name what a decision costs, so the bench wants the policies' own one beside it.
# Built together with the proxy, so that wasmtime is built once: alone its package asks for fewer features.
bench: setup ## measure every way to Redis in turns; some: ARGS="--only plain,good --rounds 5"; ARGS=--help says more
	.ci/package/build.sh -p lockwarden-policy --bins --example decision_cost
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example bench -- $(ARGS)

bench-parts: setup ## measure a decision, a policy in each language, the scripts by Redis's clock, and what keeping leases alive, waiting for replicas and guards cost
	.ci/package/build.sh -p lockwarden-policy --bins --example decision_cost
	$(built)/dist/examples/decision_cost
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example language_cost
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example script_cost
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example kept_leases
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example durable_cost
	LOCKWARDEN_BIN=$(built)/dist/lockwarden cargo run $(locked) --release -p lockwarden-tests --example guard_cost

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
