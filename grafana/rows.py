"""The rows of the dashboard and their panels, in reading order. What a panel is: panels.py."""

from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from panels import (
    GREEN, PROXY, RED, STACKED, YELLOW, bars, heatmap, in_view, increase, lines, quantile, rate, select, stat, steps,
    sum_by, table, to_discovery, words,
)

TTL_NONE = 'ttl="none"'
# What a panel says that shows nothing while every namespace is only watched.
WATCHED = " Nothing is to be seen here while all namespaces are in monitor mode, which refuses and changes nothing."
OLDEST = f"time() - {select('lockwarden_oldest_lock_acquired_timestamp_seconds')}"

WRONG = [
    stat("Proxies up", "The share of the chosen proxies that Prometheus could scrape just now.",
         f"sum(up{{{PROXY}}}) / count(up{{{PROXY}}})").unit("percentunit").decimals(0).thresholds(steps(RED, (1, GREEN))),
    stat("Locks held", "Locks held now, as far as these proxies have seen them granted. After a restart a proxy "
         "knows the locks that its walk over the server's keys has found.",
         f"sum({select('lockwarden_locks_held')})").decimals(0),
    stat("Oldest lock", "The age of the lock that is held longest. Nothing is shown while none is held.", f"max({OLDEST})")
    .unit("s").decimals(1).no_value("none held").thresholds(steps(GREEN, (60, YELLOW), (600, RED))),
    stat("Refused", "Operations on locks that were refused in the time shown." + WATCHED,
         f"""sum({in_view('lockwarden_decisions_total', 'decision="deny"')})""")
    .decimals(0).thresholds(steps(GREEN, (1, YELLOW))),
    stat("Would be refused", "Operations in monitor mode that enforce mode would have refused, in the time shown.",
         f"""sum({in_view('lockwarden_decisions_total', 'decision="would-deny"')})""")
    .decimals(0).thresholds(steps(GREEN, (1, YELLOW))),
    stat("Overlaps", "Times a former holder acted while somebody else held the lock: two clients believed they "
         "had it. In enforce mode the act was refused; work outside Redis may have been done twice.",
         f"sum({in_view('lockwarden_lock_overlaps_total')})").decimals(0).thresholds(steps(GREEN, (1, RED))),
    stat("Ran out while held", "Leases whose TTL ended before their holder gave them back, in the time shown.",
         f"sum({in_view('lockwarden_lock_expired_while_held_total')})")
    .decimals(0).thresholds(steps(GREEN, (1, YELLOW))),
    stat("Locks without TTL", "Held locks that never end by themselves: those that were seen granted, and those "
         "that the last walk over the server's keys has found.",
         f"sum({select('lockwarden_locks_held', TTL_NONE)}) + "
         f"sum(max by (job, namespace) ({select('lockwarden_ungoverned_locks', TTL_NONE)}))")
    .decimals(0).thresholds(steps(GREEN, (1, RED))),
]

SAFETY = [
    lines("Refusals by reason", "Refused operations a second. The reasons are those of the error replies: "
          "docs/troubleshooting.md says what each means." + WATCHED,
          sum_by("reason", rate("lockwarden_decisions_total", 'decision="deny"'))).unit("ops").stacking(STACKED),
    lines("Would be refused, by policy and reason", "What enforce mode would have refused in the namespaces that are "
          "only watched. When this stays empty for a day, such a namespace is ready for enforce mode.",
          sum_by("policy, reason", rate("lockwarden_decisions_total", 'decision="would-deny"'), "{{policy}}: {{reason}}"))
    .unit("ops").stacking(STACKED),
    bars("Namespaces by refusals", "The ten namespaces with most operations refused, or that would have been, in the "
         "time shown.",
         f"""topk(10, sum by (namespace) ({in_view('lockwarden_decisions_total', 'decision=~"deny|would-deny"')}))""",
         "{{namespace}}"),
    lines("Ran out while held", "Leases whose TTL ended under their holder: the work takes longer than the TTL, or the "
          "holder has died.", sum_by("namespace", increase("lockwarden_lock_expired_while_held_total"))).span(6),
    lines("Overlaps", "A former holder acted while somebody else held the lock.",
          sum_by("namespace", increase("lockwarden_lock_overlaps_total"))).span(6),
    lines("TTL left at release", "What was left of the TTL when the lock was given back, as a share of what was given: one in "
          "twenty releases had less than this. Near 0 the next slow run loses its lock; half and more is shown as half.",
          (quantile(0.05, "lockwarden_lock_remaining_ttl_ratio", "namespace"), "{{namespace}}"))
    .unit("percentunit").min(0).max(1).span(6),
    lines("Releases by outcome", "not-owner: somebody tried to release a lock that he does not hold; absent: there was "
          "none any more, as after a lease that ran out.",
          sum_by("outcome", rate("lockwarden_lock_releases_total"))).unit("ops").stacking(STACKED).span(6),
    lines("TTLs that the proxy chose", "Leases that got a TTL, or a shorter one, from a policy, and what became of their "
          "renewals while their holder lives. In monitor mode none does; then look at what enforce mode would give or cut, "
          "as lockwarden audit tells by application.",
          (f"""sum({rate('lockwarden_decisions_total', 'decision="modify"')})""", "given or cut"),
          (f"""sum({rate('lockwarden_decisions_total', 'decision="would-modify"')})""", "enforce mode would give or cut"),
          (f"sum({rate('lockwarden_ttl_clamped_total')})", "cut"),
          sum_by("outcome", rate("lockwarden_keep_alive_renewals_total"), "renewal {{outcome}}")).unit("ops"),
    lines("Renewals that are late", "From when a renewal was due until Redis had confirmed it; it is due when a third of its TTL "
          "has passed." + WATCHED,
          (quantile(0.99, "lockwarden_keep_alive_lateness_seconds", "instance"), "99 % {{instance}}")).unit("s")
    .no_value("no lease is kept alive"),
    lines("Kept leases that ran out", "Leases that ran out before they could be renewed, although their holder lived." + WATCHED,
          sum_by("instance", increase("lockwarden_keep_alive_lapsed_total"))),
    bars("Findings about clients", "How applications use their locks, in the time shown. Each kind asks for a setting: "
         "docs/ownership.md, section about the reports.", *sum_by("kind", in_view("lockwarden_observations_total"))),
    lines("Grants that nobody read", "Leases whose holder was gone before it read that it has them. A lock marked so is not "
          "renewed, and is told to its client if that asks again.",
          sum_by("outcome", increase("lockwarden_undelivered_grants_total"))),
    lines("Holders that died", "Leases whose holder was gone before it gave them back; holder_lost says what becomes of them. A line that comes "
          "again and again is a worker that crashes with its lock." + WATCHED,
          sum_by("namespace", increase("lockwarden_holders_lost_total"))).decimals(0),
]

CONTENTION = [
    lines("Acquires by outcome", "Attempts to take a lock a second. contended: somebody else holds it.",
          sum_by("outcome", rate("lockwarden_lock_acquires_total"))).unit("ops").stacking(STACKED),
    lines("Contended share by namespace", "The share of attempts that met somebody else's lock. High is normal for clients "
          "that poll; rising means that they wait longer.",
          (f"""sum by (namespace) ({rate('lockwarden_lock_acquires_total', 'outcome="contended"')}) / """
           f"(sum by (namespace) ({rate('lockwarden_lock_acquires_total')}) > 0)", "{{namespace}}"))
    .unit("percentunit").min(0).max(1),
    lines("Locks held", "Locks held at each moment, by namespace.", sum_by("namespace", select("lockwarden_locks_held"))),
    lines("Hold time", "How long leases lasted: the median and the slowest in a hundred. A TTL should lie well above "
          "the second.",
          (quantile(0.5, "lockwarden_lock_hold_duration_seconds", "namespace"), "median {{namespace}}"),
          (quantile(0.99, "lockwarden_lock_hold_duration_seconds", "namespace"), "99 % {{namespace}}")).unit("s"),
    heatmap("Hold times", "How many leases lasted how long, over time.",
            f"sum by (le) ({increase('lockwarden_lock_hold_duration_seconds_bucket')})", "s"),
    lines("Oldest lock by namespace", "The age of the lock that is held longest. A line that rises for ever is a holder that "
          "does not give back.", (f"max by (namespace) ({OLDEST})", "{{namespace}}")).unit("s"),
    lines("Wait time", "From a connection's first refused attempt until it has the lock, the slowest in twenty.",
          (quantile(0.95, "lockwarden_lock_wait_duration_seconds", "namespace"), "{{namespace}}")).unit("s").span(12),
    lines("Waiters", "Connections that poll for a lock which somebody else holds.",
          sum_by("namespace", select("lockwarden_lock_waiters"))).span(12),
]

DISCOVERY = [
    stat("Lock patterns in no namespace", "Patterns of keys that are used as locks and that the configuration does not name, "
         "on the proxy that saw most of them. The board names them, and the configuration that would govern them.",
         f"max({select('lockwarden_unclaimed_lock_patterns')})")
    .decimals(0).thresholds(steps(GREEN, (1, YELLOW))).span(6).height(8).links(to_discovery()),
    lines("Lock patterns in no namespace, by proxy", "Each proxy knows the keys that went through it since its start. The line "
          "falls when a namespace is added that has them.",
          sum_by("instance", select("lockwarden_unclaimed_lock_patterns"))).span(9).links(to_discovery()),
    lines("Namespaces that are only watched", "1 while nothing is enforced in a namespace on any proxy. It falls when the "
          "namespace is switched to enforce mode, also for some of its applications.",
          (f"1 - max by (namespace) ({select('lockwarden_namespace_enforced')})", "{{namespace}}"))
    .min(0).max(1).span(9),
]

COVERAGE = [
    lines("Operations on locks without a record", "Answered by Redis alone, because the lease is older than the proxy or was "
          "taken around it.", sum_by("namespace", rate("lockwarden_ungoverned_operations_total"))).unit("ops").span(6),
    lines("Locks without a record", "What the last walk over the server's keys has found; several proxies in front of one "
          "Redis find the same. It falls as such locks end.",
          sum_by("ttl", f"max by (job, namespace, ttl) ({select('lockwarden_ungoverned_locks')})", "TTL {{ttl}}")).span(6),
    lines("Commands on locks that went unjudged", "Forwarded without being judged, and why: docs/metrics.md names each word.",
          sum_by("why", rate("lockwarden_unjudged_commands_total"))).unit("ops").span(6),
    lines("Leases changed around the proxy", "Leases that were changed, or ended before their time, without any proxy having "
          "done it: somebody talks to Redis directly, or Redis lost keys.",
          sum_by("namespace", increase("lockwarden_lock_bypass_total"))).span(6),
]

COST = [
    lines("Added latency", "The proxy's own time for a command, without waiting for Redis: the median and the slowest in a "
          "hundred. One passed-through command in 64 is timed, a lock command always.",
          (quantile(0.5, "lockwarden_added_latency_seconds", "path"), "median {{path}}"),
          (quantile(0.99, "lockwarden_added_latency_seconds", "path"), "99 % {{path}}")).unit("s"),
    lines("Redis's latency for lock commands", "From sending a step until its answer.",
          (quantile(0.5, "lockwarden_backend_latency_seconds", "backend"), "median"),
          (quantile(0.99, "lockwarden_backend_latency_seconds", "backend"), "99 %")).unit("s"),
    lines("Commands", "Commands of clients, by the way they went and how they ended.",
          sum_by("class, result", rate("lockwarden_commands_total"))).unit("ops").stacking(STACKED),
    lines("Connections", "Of clients, and to Redis: every client has one of its own.",
          (f"sum({select('lockwarden_client_connections')})", "clients"),
          sum_by("state", select("lockwarden_backend_connections"), "backend {{state}}")),
    lines("Lock commands under way", "How many lock commands wait for Redis at a moment, on average: the time that they "
          "waited in a second.", (f"sum({rate('lockwarden_backend_latency_seconds_sum')})", "under way")),
    lines("Bytes", "From clients and to them.", sum_by("direction", rate("lockwarden_client_bytes_total"))).unit("Bps"),
    lines("Threads at work", "The share of the serving threads' time that they worked. Near 1 the proxy needs more cores.",
          (f"sum by (instance) ({rate('lockwarden_runtime_busy_seconds_total')}) / "
           f"sum by (instance) ({select('lockwarden_runtime_workers')})", "{{instance}}")).unit("percentunit").min(0),
    lines("Work that waits", "Tasks that could run and wait for a thread. It should be near 0.",
          sum_by("instance", select("lockwarden_runtime_queue_depth"))),
    lines("CPU and memory", "Of the whole process.",
          sum_by("instance", f"rate(process_cpu_seconds_total{{{PROXY}}}[$__rate_interval])", "CPUs {{instance}}"),
          sum_by("instance", f"process_resident_memory_bytes{{{PROXY}}}", "memory {{instance}}"))
    .override_by_regexp("memory.*", [DynamicConfigValue("unit", "bytes"), DynamicConfigValue("custom.axisPlacement", "right")]),
]

POLICIES = [
    table("Loaded policies", "Which policies are in force, with the digest of their module and the modes of the namespaces "
          "that they serve.", "lockwarden_policy_info"),
    lines("Evaluation", "How long a policy took for a decision, the slowest in a hundred. One decision in 64 is timed.",
          (quantile(0.99, "lockwarden_policy_evaluation_duration_seconds", "policy"), "{{policy}}")).unit("s"),
    lines("Decisions asked", "How often each policy was asked.",
          sum_by("policy", rate("lockwarden_policy_calls_total"))).unit("ops"),
    lines("Failures", "Times a policy did not answer: it trapped, or passed its limit of time, fuel or memory, or answered "
          "nonsense. `on_fault` says what then happens to the command.",
          sum_by("policy, kind", increase("lockwarden_policy_failures_total"))),
    lines("Policies not asked", "Breakers that are open: for so many threads, namespaces and operations a policy is not asked, "
          "because its failures took too much time. `on_fault` is the answer meanwhile.",
          sum_by("policy", select("lockwarden_policy_open_breakers"))),
    lines("Fuel for one decision", "About one for each WebAssembly instruction. It grows with what a policy does.",
          (f"sum by (policy) ({rate('lockwarden_policy_fuel_consumed_total')}) / "
           f"(sum by (policy) ({rate('lockwarden_policy_calls_total')}) > 0)", "{{policy}}")),
    lines("Memory of policies", "Linear memory of all live instances.",
          sum_by("policy", select("lockwarden_policy_memory_bytes"))).unit("bytes"),
]

TOPOLOGY = [
    lines("Changes of the primary", "Times another server became the primary, or the same one was started again. Each proxy counts "
          "what it has seen.", sum_by("instance", increase("lockwarden_backend_era_changes_total"))),
    lines("Sentinels heard", "Sentinels that answered within the last 5 s, and those that are asked. With none of them a failover would "
          "not be noticed. 0 of 0 where the backend's URL names no sentinels.",
          (f"min by (instance) ({select('lockwarden_sentinels_heard')})", "{{instance}} heard"),
          (f"max by (instance) ({select('lockwarden_sentinels_known')})", "{{instance}} asked"),
          (f"max by (instance) ({select('lockwarden_sentinels_dissenting')})", "{{instance}} name another primary")).min(0).decimals(0),
    lines("Leases lost in failovers", "Leases that the server which became the primary does not have. Their holders were not told, and "
          "work on without a lock: the board names them.",
          sum_by("namespace", increase("lockwarden_leases_lost_total"))).decimals(0),
    lines("Locks that are unknown", "Locks that were held when the primary changed, and that nobody has looked for on the new one yet. It "
          "is above 0 for a moment only, unless the new primary cannot be asked.",
          sum_by("namespace", select("lockwarden_locks_unknown"))),
    lines("Quarantine", "How much longer no free lock is granted. It is 0 where free locks are granted; a line in years is a "
          "quarantine of which nobody knows the end yet.",
          (f"max by (namespace) (clamp_min({select('lockwarden_quarantine_until_timestamp_seconds')} - time(), 0))", "{{namespace}}"))
    .unit("s").min(0).no_value("no quarantine"),
    lines("Connections of clients, by proxy", "How the clients share the proxies. After a change of the primary all of them "
          "connect again.", sum_by("instance", select("lockwarden_client_connections"))),
    lines("Backend, by proxy", "1 while the primary answers the proxy, and clients are served.",
          (f"min by (instance) ({select('lockwarden_backend_up')})", "{{instance}}"))
    .min(0).max(1).mappings(words("down", "up")).span(24).height(5),
]

GUARDS = [
    lines("Guarded writes", "Writes of data that a guard keeps for holders of a lock, by what was said to them. In monitor mode stale-fence and "
          "not-owner went through.",
          sum_by("guard, mode, result", rate("lockwarden_guarded_writes_total"), "{{guard}} {{mode}} {{result}}")).unit("ops").no_value("no guards"),
    lines("Writes that were not checked", "Refused in enforce mode, let through in monitor mode.",
          sum_by("guard, why", increase("lockwarden_guard_unchecked_total"), "{{guard}} {{why}}")).no_value("no guards"),
    lines("Time of a guarded write", "From when it was read until Redis had answered, 99 in 100 of them.",
          (f"histogram_quantile(0.99, sum by (le, guard) ({rate('lockwarden_guard_seconds_bucket')}))", "{{guard}}")).unit("s").no_value("no guards"),
]

# This row is folded until somebody opens it.
HEALTH = [
    lines("Backend", "1 while Redis answers the proxy. Without it clients are closed at once, as by a server that is down.",
          (f"min by (instance) ({select('lockwarden_backend_up')})", "{{instance}}"))
    .min(0).max(1).mappings(words("down", "up")),
    lines("Connections made again", "The proxy's own connection to Redis, and why it was lost.",
          sum_by("reason", increase("lockwarden_backend_reconnects_total"))),
    lines("Redirections", "Replies that send a client to another node, and so past the proxy.",
          sum_by("kind", increase("lockwarden_backend_redirects_total"))),
    lines("Protocol errors", "Connections closed because of bytes that are not the Redis protocol.",
          sum_by("side, kind", increase("lockwarden_protocol_errors_total"))),
    lines("Clients turned away", "New clients that were told that there are too many, and clients that were closed because "
          "they held most when memory was short.",
          (f"sum({increase('lockwarden_client_connections_refused_total')})", "refused"),
          (f"sum({increase('lockwarden_clients_evicted_total')})", "closed")),
    lines("Clients of each proxy", "Connections of clients, and those that ended because they were old (`max_connection_age`). "
          "Where one proxy has most of them, they came when it was alone.",
          sum_by("instance", select("lockwarden_client_connections")),
          sum_by("instance", increase("lockwarden_clients_aged_total"), "{{instance}} ended")),
    lines("Buffers of clients", "Unread replies and unfinished requests of clients, and what they may take together.",
          sum_by("instance", select("lockwarden_client_buffers_bytes")),
          sum_by("instance", select("lockwarden_client_buffers_max_bytes"), "{{instance}} at most")).unit("bytes"),
    lines("Audit records", "Records written to each sink, and those that were lost.",
          sum_by("sink", rate("lockwarden_audit_records_total")),
          sum_by("sink", rate("lockwarden_audit_records_dropped_total"), "{{sink}} lost")).unit("ops"),
    lines("Label values without room", "Things that were counted under `__other__`: more namespaces, policies or reasons than "
          "have series of their own.", sum_by("label", increase("lockwarden_label_overflow_total"))),
    stat("Last reload", "Whether the configuration that was read last is in force. If not, the one before still is.",
         f"min({select('lockwarden_config_last_reload_successful')})")
    .mappings(words("refused", "loaded")).thresholds(steps(RED, (1, GREEN))).span(4),
    stat("Configuration age", "Since the configuration was last loaded with success, on the proxy where that is longest ago.",
         f"max(time() - {select('lockwarden_config_last_reload_success_timestamp_seconds')})")
    .unit("s").decimals(0).span(4),
    stat("Series of one proxy", "How many series the proxy with most of them exports. It stays below 6,000.",
         f"max(scrape_samples_scraped{{{PROXY}}})").decimals(0).thresholds(steps(GREEN, (6000, RED))),
    table("Versions", "What is running.", "lockwarden_build_info").span(13).height(6),
    table("Rules", "What the configuration of each proxy means for locks, as a hash: equal hashes, equal rules.",
          "lockwarden_config_info").span(24).height(6),
]

ROWS = {
    "Is anything wrong?": WRONG,
    "Safety": SAFETY,
    "Contention": CONTENTION,
    "Guarded data": GUARDS,
    "Locks that nobody has named": DISCOVERY,
    "What the proxy does not govern": COVERAGE,
    "Topology": TOPOLOGY,
    "What the proxy costs": COST,
    "Policies": POLICIES,
}
