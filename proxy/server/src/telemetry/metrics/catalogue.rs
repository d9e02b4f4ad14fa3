//! The names, types, labels and help texts of all metrics: the only table of them. What registers
//! a metric and `docs/metrics.md` both read it here. It holds no values.

#[cfg(test)]
use std::fmt::Write as _;

/// What kind of series a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, and starts at 0 with the process.
    Counter,
    /// A value of now.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

#[cfg(test)]
impl Kind {
    /// The word of the exposition format.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One label and what it can be, in words for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabelDoc {
    /// The label.
    pub(crate) name: &'static str,
    /// Its values.
    pub(crate) values: &'static str,
}

/// One metric, as documented and as registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricDoc {
    /// The full name.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) kind: Kind,
    /// Its labels, in the order of registration.
    pub(crate) labels: &'static [LabelDoc],
    /// What it says, as on the page.
    pub(crate) help: &'static str,
}

/// Every metric of the proxy, in reading order.
#[cfg(test)]
pub(crate) fn catalogue() -> Vec<MetricDoc> {
    ALL.to_vec()
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal { $($label:literal : $values:expr),* } $help:literal;)*) => {
        $(
            pub(super) const $constant: MetricDoc = MetricDoc {
                name: $name,
                kind: Kind::$kind,
                labels: &[$(LabelDoc { name: $label, values: $values }),*],
                help: $help,
            };
        )*
        #[cfg(test)]
        const ALL: &[MetricDoc] = &[$($constant),*];
    };
}

const NAMESPACE: &str = "a `name` of the configuration, or `__other__`";
const POLICY: &str = "a policy's name, or `__other__`";
const GUARD: &str = "a `name` of a `[[guard]]`";
const ONE: &str = "`default`";

metrics! {
    BUILD_INFO = Gauge "lockwarden_build_info" {
        "version": "of the proxy",
        "revision": "of the source",
        "wasmtime": "version",
        "policy_abi": "the newest WIT version that policies may use"
    } "Always 1; the labels say what is running.";

    COMMANDS = Counter "lockwarden_commands_total" {
        "class": "`passthrough`, `policy`, `admin`",
        "result": "`ok`, `error`, `denied`, `proxy-error`"
    } "Commands of clients, by the way they went and how they ended.";
    DECISIONS = Counter "lockwarden_decisions_total" {
        "namespace": NAMESPACE,
        "operation": "`acquire`, `extend`, `release`, `write`, `other`",
        "decision": "`allow`, `deny`, `would-deny`, `modify`, `would-modify`",
        "reason": "a reason of the error replies; empty where nothing was refused",
        "policy": "the policy that refused; empty where nothing was refused",
        "mode": "`enforce`, `monitor`"
    } "Operations on locks, by what was decided about them.";
    APPLICATION_DECISIONS = Counter "lockwarden_application_decisions_total" {
        "application": "a `name` of an `[[application]]`, or `__other__`",
        "decision": "`allow`, `deny`, `would-deny`, `modify`, `would-modify`"
    } "Operations on locks, by application and what was decided about them.";
    ACQUIRES = Counter "lockwarden_lock_acquires_total" {
        "namespace": NAMESPACE,
        "outcome": "`acquired`, `contended`, `repeated`, `denied`, `error`"
    } "Attempts to acquire a lock, by outcome.";
    RELEASES = Counter "lockwarden_lock_releases_total" {
        "namespace": NAMESPACE,
        "outcome": "`released`, `not-owner`, `absent`, `denied`"
    } "Attempts to release a lock, by outcome.";
    HOLDERS_LOST = Counter "lockwarden_holders_lost_total" {
        "namespace": NAMESPACE
    } "Leases whose holders were found to be gone before they gave them back; with `holder_lost = \"shorten:…\"` they were shortened.";
    EXPIRED_WHILE_HELD = Counter "lockwarden_lock_expired_while_held_total" {
        "namespace": NAMESPACE
    } "Leases whose TTL ran out before their holder released them, and those that were evicted or deleted on Redis itself.";
    OVERLAPS = Counter "lockwarden_lock_overlaps_total" {
        "namespace": NAMESPACE
    } "Times a former holder acted while somebody else held the lock.";
    LEASES_LOST = Counter "lockwarden_leases_lost_total" {
        "namespace": NAMESPACE
    } "Leases that the server which became the primary does not have: their holders work on without a lock. Each is an ERROR line of the log with its holder.";
    GUARDED_WRITES = Counter "lockwarden_guarded_writes_total" {
        "guard": GUARD,
        "mode": "`enforce`, `monitor`",
        "result": "`holder`, `late`, `identity`, `unlocked`, `exempt`, `stale-fence`, `not-owner`"
    } "Writes of guarded data (`[[guard]]`), by what was said to them; in monitor mode, what enforce mode would say.";
    GUARD_UNCHECKED = Counter "lockwarden_guard_unchecked_total" {
        "guard": GUARD,
        "why": "`blocking`, `watch-in-force`, `no-rights`, `too-long`, `with-locks`, `other-database`, `computed-names`"
    } "Writes of guarded data that cannot be checked: refused in enforce mode, forwarded in monitor mode; `computed-names` counts scripts that may be such, and are not refused.";
    GUARD_AGAIN = Counter "lockwarden_guard_again_total" {
        "guard": GUARD
    } "Times that the lock's record changed between the look at it and the write, which was then checked again.";
    GUARD_SECONDS = Histogram "lockwarden_guard_seconds" {
        "guard": GUARD
    } "From when a guarded write was read until Redis had answered it, in enforce mode.";
    TTL_CLAMPED = Counter "lockwarden_ttl_clamped_total" {
        "namespace": NAMESPACE
    } "Leases whose TTL was cut to what a policy allows.";
    LATE_TTLS = Counter "lockwarden_late_ttls_total" {
        "namespace": NAMESPACE
    } "Leases that were taken without a TTL in monitor mode and got the default once they were enforced.";
    KEEP_ALIVE = Counter "lockwarden_keep_alive_renewals_total" {
        "namespace": NAMESPACE,
        "outcome": "`renewed`, `ended`, `skipped`"
    } "Renewals of TTLs that the proxy chose, while their holder lives.";
    RENEWAL_LATENESS = Histogram "lockwarden_keep_alive_lateness_seconds" {
    } "From when a renewal was due, a third of its TTL after the one before, until Redis had confirmed it.";
    LAPSED = Counter "lockwarden_keep_alive_lapsed_total" {
    } "Leases that ran out before they could be renewed, although their holder lived, or whose record was evicted or deleted.";
    UNDELIVERED = Counter "lockwarden_undelivered_grants_total" {
        "namespace": NAMESPACE,
        "outcome": "`marked`, `over`, `failed`"
    } "Leases whose holder did not read that it was granted them.";
    DURABILITY = Counter "lockwarden_durability_total" {
        "namespace": NAMESPACE,
        "result": "`enough`, `too-few`, `unknown`"
    } "Grants, extensions and renewals that replicas had to confirm (`durability`), by what came of that.";
    WAIT_SECONDS = Histogram "lockwarden_wait_seconds" {
    } "How long clients waited for replicas (`durability`) once Redis had answered their lock command.";
    UNGOVERNED = Counter "lockwarden_ungoverned_operations_total" {
        "namespace": NAMESPACE
    } "Operations on leases without a record, answered by the backend alone.";
    BYPASS = Counter "lockwarden_lock_bypass_total" {
        "namespace": NAMESPACE
    } "Leases that were changed or ended before their time without any proxy having done it.";
    SCRIPT_EFFECTS_LEFT = Counter "lockwarden_script_effects_left_total" {
        "namespace": NAMESPACE
    } "Refusals of a script whose locks were put back, while what it did to other keys stands.";
    UNJUDGED = Counter "lockwarden_unjudged_commands_total" {
        "namespace": NAMESPACE,
        "why": "`no-rights`, `no-scripts`, `unknown-command`, `tracking`, `unknown-script`, `forwarded-script`, `computed-names`, `too-long`, `digest`, `trusted-function`"
    } "Commands on locks that were forwarded unjudged: scripts and functions that the configuration lets run in any mode, the others in monitor mode.";
    OBSERVATIONS = Counter "lockwarden_observations_total" {
        "namespace": NAMESPACE,
        "kind": "`debt`, `outlived`, `shared-session`, `refused-then-released`, `shared-token`, `handed-over`, `ran-out-connected`, `ran-out-alive`, `shared-guard`, `end-unseen`"
    } "Findings about how clients use their locks.";

    LOCKS_HELD = Gauge "lockwarden_locks_held" {
        "namespace": NAMESPACE,
        "ttl": "`finite`, `none`"
    } "Locks held now, as far as this proxy has seen.";
    LOCKS_UNKNOWN = Gauge "lockwarden_locks_unknown" {
        "namespace": NAMESPACE
    } "Locks that were held when another server became the primary, and that nobody has looked for there yet.";
    QUARANTINE_UNTIL = Gauge "lockwarden_quarantine_until_timestamp_seconds" {
        "namespace": NAMESPACE
    } "Until then no free lock is granted, because the server has become the primary so lately (`quarantine`), or is not what strict `durability` needs; 0 where that is over.";
    NAMESPACE_ENFORCED = Gauge "lockwarden_namespace_enforced" {
        "namespace": NAMESPACE
    } "1 where enforce mode holds, for everybody or for some (`enforce_for`), 0 where a namespace is only watched.";
    ENFORCE_HARMS = Gauge "lockwarden_enforce_harms" {
        "namespace": NAMESPACE
    } "1 where enforcing harms: within ten minutes after a switch less than half as many locks were granted as before, though clients ask as before, or more than 5 % of lock time was lost. For ten minutes also after the proxy has set the namespace back (`auto_back`). Else 0.";
    UNGOVERNED_LOCKS = Gauge "lockwarden_ungoverned_locks" {
        "namespace": NAMESPACE,
        "ttl": "`finite`, `none`"
    } "Locks without a record that the last walk over the server's keys has found: older than the proxy, or taken around it.";
    OLDEST_LOCK = Gauge "lockwarden_oldest_lock_acquired_timestamp_seconds" {
        "namespace": NAMESPACE
    } "When the lock that is held longest was acquired, Unix time; absent while none is held.";
    WAITERS = Gauge "lockwarden_lock_waiters" {
        "namespace": NAMESPACE
    } "Connections that were refused a lock at least twice while it was held, and go on trying.";
    WAIT_DURATION = Histogram "lockwarden_lock_wait_duration_seconds" {
        "namespace": NAMESPACE
    } "From the first refused try to the acquire of the same connection.";
    REMAINING_TTL = Histogram "lockwarden_lock_remaining_ttl_ratio" {
        "namespace": NAMESPACE
    } "How much of the TTL was left when a lock was given back, as a share of the TTL given last; near 0 is about to be unsafe. Leases that the proxy renews are left out.";
    HOLD_DURATION = Histogram "lockwarden_lock_hold_duration_seconds" {
        "namespace": NAMESPACE,
        "end": "`released`, also by an operator; `expired`"
    } "How long leases lasted, by how they ended.";

    ADDED_LATENCY = Histogram "lockwarden_added_latency_seconds" {
        "path": "`passthrough`, `policy`"
    } "The proxy's own time for a command, without waiting for the backend.";
    BACKEND_LATENCY = Histogram "lockwarden_backend_latency_seconds" {
        "backend": ONE
    } "From sending a command to the backend until its answer began.";

    POLICY_EVALUATION = Histogram "lockwarden_policy_evaluation_duration_seconds" {
        "policy": POLICY
    } "How long one policy took for one decision; one decision in 64 is timed.";
    POLICY_FAILURES = Counter "lockwarden_policy_failures_total" {
        "policy": POLICY,
        "kind": "`trap`, `timeout`, `fuel`, `memory`, `bad-reply`, `breaker-open`"
    } "Times a policy did not answer.";
    POLICY_FUEL = Counter "lockwarden_policy_fuel_consumed_total" {
        "policy": POLICY
    } "Fuel that a policy used, about one per WebAssembly instruction.";
    POLICY_CALLS = Counter "lockwarden_policy_calls_total" {
        "policy": POLICY
    } "Decisions that a policy was asked for, failed ones included.";
    POLICY_MEMORY = Gauge "lockwarden_policy_memory_bytes" {
        "policy": POLICY
    } "Linear memory of all live instances of a policy.";
    POLICY_OPEN_BREAKERS = Gauge "lockwarden_policy_open_breakers" {
        "policy": POLICY
    } "For how many threads, namespaces and operations a policy is not asked now, because its failures took too much time.";
    POLICY_INFO = Gauge "lockwarden_policy_info" {
        "policy": POLICY,
        "version": "the policy's own",
        "digest": "first 12 hex digits of its SHA-256",
        "mode": "`enforce`, `monitor`, `mixed`, `unused`"
    } "Always 1; the labels say which policies are loaded.";

    CLIENT_CONNECTIONS = Gauge "lockwarden_client_connections" {
        "listener": ONE
    } "Open connections of clients.";
    CLIENT_CONNECTIONS_MAX = Gauge "lockwarden_client_connections_max" {
        "listener": ONE
    } "How many connections of clients there may be: `max_clients`, or what the limit of open files leaves room for.";
    CLIENTS_REFUSED = Counter "lockwarden_client_connections_refused_total" {
    } "New clients that were told `max number of clients reached`.";
    CLIENT_BUFFERS = Gauge "lockwarden_client_buffers_bytes" {
        "listener": ONE
    } "Unread replies and unfinished requests of all clients that hold 16 KiB or more of them.";
    CLIENT_BUFFERS_MAX = Gauge "lockwarden_client_buffers_max_bytes" {
        "listener": ONE
    } "What they may take together: `max_memory`.";
    CLIENTS_EVICTED = Counter "lockwarden_clients_evicted_total" {
    } "Clients that were closed because they held most when `max_memory` was reached.";
    CLIENTS_AGED = Counter "lockwarden_clients_aged_total" {
    } "Clients that were closed because their connections were as old as `max_connection_age` says.";
    CLIENT_BYTES = Counter "lockwarden_client_bytes_total" {
        "direction": "`in`, `out`"
    } "Bytes from clients and to them.";
    UNCLAIMED_LOCK_PATTERNS = Gauge "lockwarden_unclaimed_lock_patterns" {
    } "Patterns of keys that are used as locks and that no namespace has. `lockwarden discover` names them.";
    BACKEND_CONNECTIONS = Gauge "lockwarden_backend_connections" {
        "backend": ONE,
        "state": "`connecting`, `open`"
    } "Connections to the backend.";
    BACKEND_UP = Gauge "lockwarden_backend_up" {
        "backend": ONE
    } "1 while the backend answers the proxy, else 0.";
    SENTINELS_HEARD = Gauge "lockwarden_sentinels_heard" {
    } "Sentinels that answered within the last 5 s; 0 where the backend's URL names none.";
    SENTINELS_KNOWN = Gauge "lockwarden_sentinels_known" {
    } "Sentinels that are asked: those of the backend's URL and those that they name; 0 where the URL names none. A name and its address count once.";
    SENTINELS_DISSENTING = Gauge "lockwarden_sentinels_dissenting" {
    } "Sentinels that name another server as the primary than the one that is followed; 0 until they have done so for 5 s, which no failover takes.";
    BACKEND_ERAS = Counter "lockwarden_backend_era_changes_total" {
        "backend": ONE
    } "Times another server became the primary, or the same one was started again; the first one that is found is not counted.";
    BACKEND_EVICTS_LOCKS = Gauge "lockwarden_backend_evicts_locks" {
        "backend": ONE
    } "1 where the backend's `maxmemory-policy` (`allkeys-*`, `volatile-*`) drops locks that are held when its memory is full, else 0; asked once a minute.";
    BACKEND_RECONNECTS = Counter "lockwarden_backend_reconnects_total" {
        "backend": ONE,
        "reason": "`refused`, `closed`, `timeout`, `protocol`, `demoted`"
    } "Times the proxy's own connection to the backend had to be made again.";
    LOGIN_REFRESHES = Counter "lockwarden_login_refreshes_total" {
        "result": "`ok`: it was read; `failed`: it was not; `refused`: one that was read was not accepted on a connection"
    } "Times the password of `[backend_login]` was read again for open connections.";
    TWIN_LOGINS = Counter "lockwarden_twin_logins_total" {
        "result": "`ok`, `failed`: the server refuses the twin, or there is no password for it; `not-back`: the client's own user was not let in again afterwards"
    } "Logins as the twin of a client's user (`[[user_map]]`), each before something that touches a lock.";
    BACKEND_REDIRECTS = Counter "lockwarden_backend_redirects_total" {
        "kind": "`moved`, `ask`: to another node of a cluster; `moving`: a notice of maintenance with an address, which was kept from the client; `replicas`: an answer to `ROLE` or `INFO replication` that names some"
    } "Replies that lead a client to another server, and so past the proxy.";
    PROTOCOL_ERRORS = Counter "lockwarden_protocol_errors_total" {
        "side": "`client`, `backend`",
        "kind": "`malformed`, `limit`, `unexpected`; `no-tls`: not TLS, at a listener with TLS; `tls`: TLS, at one without"
    } "Connections closed because of bytes that are not the protocol.";

    TLS_HANDSHAKES = Counter "lockwarden_tls_handshakes_total" {
        "side": "`client`, `backend`",
        "result": "`ok`, `no-certificate`, `unknown-ca`, `expired`, `protocol`, `timeout`, `other`",
        "resumed": "`true` where an earlier session went on, which costs less; else `false`"
    } "Handshakes of TLS.";
    TLS_HANDSHAKE_DURATION = Histogram "lockwarden_tls_handshake_duration_seconds" {
        "side": "`client`, `backend`"
    } "How long handshakes of TLS took that ended well.";
    TLS_CERTIFICATE_EXPIRY = Gauge "lockwarden_tls_certificate_expiry_timestamp_seconds" {
        "side": "`client`, `backend`",
        "role": "`own`: shown by the proxy; `ca`: the first to end of those by which it believes others"
    } "When a certificate that is in use ends, Unix time. There while there is such a certificate.";
    TLS_RELOAD_SUCCESSFUL = Gauge "lockwarden_tls_reload_last_successful" {
    } "1 if the files of `[tls]` and `[backend_tls]` could be used when they were looked at last, else 0.";
    AUDIT_RECORDS = Counter "lockwarden_audit_records_total" {
        "sink": "`file`, `stdout`"
    } "Lines of the audit trail that were written.";
    AUDIT_DROPPED = Counter "lockwarden_audit_records_dropped_total" {
        "sink": "`file`, `stdout`"
    } "Lines of the audit trail that were lost, because writing failed or fell behind.";
    RUNTIME_WORKERS = Gauge "lockwarden_runtime_workers" {
    } "Threads that serve clients.";
    RUNTIME_BUSY = Counter "lockwarden_runtime_busy_seconds_total" {
    } "Time that those threads were at work, together.";
    RUNTIME_TASKS = Gauge "lockwarden_runtime_tasks" {
    } "Tasks that live on them: one a client, and a few of the proxy's own.";
    RUNTIME_QUEUE = Gauge "lockwarden_runtime_queue_depth" {
    } "Tasks that could run and wait in the common queue for a thread.";

    LABEL_OVERFLOW = Counter "lockwarden_label_overflow_total" {
        "label": "`namespace`, `policy`, `decision`"
    } "Times something was counted under __other__ because a label had no room left.";
    CONFIG_INFO = Gauge "lockwarden_config_info" {
        "hash": "the first 12 hex digits of a SHA-256 over what the configuration means for locks (docs/operations.md)"
    } "Always 1; proxies with the same hash judge every command alike.";
    RELOAD_SUCCESSFUL = Gauge "lockwarden_config_last_reload_successful" {
    } "1 if the last attempt to load the configuration succeeded, else 0.";
    RELOAD_TIMESTAMP = Gauge "lockwarden_config_last_reload_success_timestamp_seconds" {
    } "When the configuration was last loaded with success, Unix time.";
}

#[cfg(test)]
/// The catalogue as the page `docs/metrics.md`.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for metric in ALL {
        let _ = writeln!(page, "\n### `{}`\n\n{}. {}", metric.name, metric.kind.word(), metric.help);
        if !metric.labels.is_empty() {
            page.push('\n');
        }
        for label in metric.labels {
            let _ = writeln!(page, "- `{}`: {}", label.name, label.values);
        }
    }
    page.push_str(TAIL);
    page
}

#[cfg(test)]
const HEAD: &str = "\
<!-- Made from proxy/server/src/telemetry/metrics/catalogue.rs. To write it anew:
     UPDATE_DOCS=1 cargo test -p lockwarden metrics -->
# Metrics

`GET /metrics` on the admin address, and on the `metrics` address where one is configured, answers
in the Prometheus text format 0.0.4.

- Labels come from small closed sets. A lock key, an owner token, a fencing token, a user or an
  address is never a label; those are fields of log lines.
- Every series that an alert could need is there at 0 from the start, because `increase()` does not
  see a series that is born with its first event. Refusals that the built-in policies cannot make
  appear with their first one.
- At most `metrics_max_namespaces` (30) namespaces have a name of their own, the rest are counted
  together as `__other__`; at most 10 policies likewise. With the defaults a proxy has fewer than
  6,000 series, whatever its clients do.
- Where the same question can be asked of one proxy and of several, sum: each proxy counts what went
  through itself. `lockwarden_locks_held` counts what this proxy has seen granted.

What to look at first:

| question | expression |
|---|---|
| What was refused? | `sum by (namespace, reason) (increase(lockwarden_decisions_total{decision=\"deny\"}[1h]))` |
| What would enforce mode refuse? | `sum by (namespace, reason) (increase(lockwarden_decisions_total{decision=\"would-deny\"}[1d]))` |
| Did two holders overlap? | `increase(lockwarden_lock_overlaps_total[10m]) > 0` |
| Which locks never end? | `lockwarden_locks_held{ttl=\"none\"} > 0` |
| Did a kept lock run out under its holder? | `increase(lockwarden_keep_alive_lapsed_total[10m]) > 0` |
| How old is the oldest lock? | `max(time() - lockwarden_oldest_lock_acquired_timestamp_seconds)` |
| What does the proxy cost? | `histogram_quantile(0.99, sum by (le, path) (rate(lockwarden_added_latency_seconds_bucket[5m])))` |

## The metrics
";

#[cfg(test)]
const TAIL: &str = "
### `process_*`

What the Prometheus client libraries say about every process: CPU, memory, open files, start time.

## Buckets

| histogram | first | last | why |
|---|---|---|---|
| `lockwarden_lock_hold_duration_seconds` | 10 ms | 30 min | shorter holds are a few round trips; longer ones are looked up one by one |
| `lockwarden_lock_wait_duration_seconds` | 10 ms | 60 s | who waits less was refused once; longer than that people wait, too |
| `lockwarden_lock_remaining_ttl_ratio` | 0.05 | 0.5 | below the first the next slow day is an overlap; above the last there is room |
| `lockwarden_keep_alive_lateness_seconds` | 5 ms | 60 s | within the first a renewal is on time; two thirds of a default TTL are 20 s |
| `lockwarden_added_latency_seconds` | 10 µs | 1 s | a passed-through command costs less than the first; a second is a fault |
| `lockwarden_backend_latency_seconds` | 50 µs | 5 s | a loopback round trip; longer than that clients give up |
| `lockwarden_guard_seconds` | 50 µs | 250 ms | two round trips on a loopback; longer than that Redis is slow |
| `lockwarden_policy_evaluation_duration_seconds` | 250 ns | 10 ms | a warm built-in policy; above the largest sensible deadline |
";
