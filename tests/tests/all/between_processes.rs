//! Locks that one process of an application takes and another gives back, as queues of jobs do: celery-singleton
//! takes a lock for a job in the process that queues it, and deletes the lock, by key alone, in the process that
//! did the job; celery-once likewise. Each client comes from a different machine.

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, World, wait_for};

const RENEWED: &str = "lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}";
const HANDED_OVER: &str = "lockwarden_observations_total{namespace=\"locks\",kind=\"handed-over\"}";

/// What celery-singleton 0.3 sends to queue a job. Returns whether it was queued.
fn singleton_queues(producer: &Client, lock: &str) -> bool {
    let job = "7f4c1e2a-0b9d-4f7e-9c55-3a1d20f6b8e4";
    let taken = producer.sends(format!("SET {lock} {job} NX")).reply();
    if taken.to_string() == "nil" {
        producer.sends(format!("GET {lock}")).text();
    }
    taken.to_string() == "+OK"
}

/// And what it sends when the job was done.
fn singleton_is_done(worker: &Client, lock: &str) -> i64 {
    worker.sends(format!("DEL {lock}")).integer()
}

/// Three jobs, one after the other: how many of them are done.
fn jobs_done(producer: &Client, worker: &Client, lock: &str) -> usize {
    let queued = |_: &usize| {
        let queued = singleton_queues(producer, lock);
        if queued {
            singleton_is_done(worker, lock);
        }
        queued
    };
    (0..3).filter(queued).count()
}

fn called(client: Client, name: &str) -> Client {
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// Without the setting the second job is not queued; straight to Redis all of them are done.
fn jobs_of_a_queue(world: &World) {
    let (producer, worker) = (world.client(), world.client());
    let done = jobs_done(&producer, &worker, "lock:job");
    assert_eq!(done, world.either(3, 1));
}
in_every_world!(jobs_of_a_queue);

fn handing_over(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).namespace("hand_over", "true")
}

#[test]
fn a_worker_gives_back_what_another_process_of_its_name_has_taken() {
    let redis = Redis::start();
    let proxy = handing_over(&redis).start();
    let producer = called(proxy.client(), "orders");
    let worker = called(proxy.client(), "orders");
    assert_eq!(jobs_done(&producer, &worker, "lock:job"), 3);

    // celery-once takes an hour, and asks what is left of it where it is queued already.
    for _ in 0..2 {
        let take = "SET lock:qo_tasks.add_a-1 5c9e2f708d1b4a33 NX PX 3600000";
        producer.sends(take).gets("+OK");
        producer.sends(take).gets("nil");
        assert!(producer.sends("PTTL lock:qo_tasks.add_a-1").integer() > 0);
        worker.sends("DEL lock:qo_tasks.add_a-1").gets(":1");
    }

    // In every spelling of a release.
    for release in [
        "UNLINK lock:job",
        "GETDEL lock:job",
        "DEL plain lock:job",
        "EXPIRE lock:job 0",
        "EVAL \"local n = redis.call('del', KEYS[1]) redis.call('incr', KEYS[2]) return n\" 2 lock:job runs",
    ] {
        assert!(singleton_queues(&producer, "lock:job"));
        worker.sends(release).reply();
        assert!(redis.is_free("lock:job"), "{release}");
    }
    assert!(singleton_queues(&producer, "lock:job"));
    worker.pipelines(&["MULTI", "DEL lock:job", "EXEC"], &["+OK", "+QUEUED", "[:1]"]);
    assert_eq!(proxy.metric(HANDED_OVER), 0.0);
}

#[test]
fn a_worker_may_be_the_same_user_under_another_name_and_come_by_another_proxy() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER orders on >secret ~* &* +@all").gets("+OK");
    let proxies = [0, 1].map(|_| handing_over(&redis).start());
    let [producer, worker] = [("web", 0), ("celery@one", 1)].map(|(name, at)| {
        let client = proxies[at].client();
        client.sends("AUTH orders secret").gets("+OK");
        called(client, name)
    });
    assert_eq!(jobs_done(&producer, &worker, "lock:job"), 3);
}

/// The process that queues a job may end long before the job is done. The application keeps the lock alive.
#[test]
fn a_lock_outlives_the_process_that_took_it_while_its_application_is_there() {
    let redis = Redis::start();
    let proxy = handing_over(&redis).setting("ttl-ceiling", "default", "\"2s\"").start();
    let _web = called(proxy.client(), "orders");
    let producer = called(proxy.client(), "orders");
    assert!(singleton_queues(&producer, "lock:job"));
    drop(producer);
    let renewed = proxy.metric(RENEWED);
    wait_for("another connection to keep it alive for more than its TTL", || proxy.metric(RENEWED) >= renewed + 4.0);
    assert!(!redis.is_free("lock:job"));
    // A worker that comes only now gives it back.
    let worker = called(proxy.client(), "orders");
    assert_eq!(singleton_is_done(&worker, "lock:job"), 1);
}

/// A worker that was refused the lock itself, as a job that queues its successor is.
#[test]
fn a_worker_that_was_refused_the_lock_gives_it_back_all_the_same() {
    let redis = Redis::start();
    let proxy = handing_over(&redis).start();
    let producer = called(proxy.client(), "orders");
    let worker = called(proxy.client(), "orders");
    for _ in 0..2 {
        assert!(singleton_queues(&producer, "lock:job"));
        assert!(!singleton_queues(&worker, "lock:job"));
        assert_eq!(singleton_is_done(&worker, "lock:job"), 1);
    }
}

/// A worker that died leaves the lock to its TTL. It does not cost the next job its release.
#[test]
fn a_lock_that_ran_out_leaves_no_debt_to_the_next_job() {
    let redis = Redis::start();
    let proxy = handing_over(&redis).start();
    let producer = called(proxy.client(), "orders");
    let worker = called(proxy.client(), "orders");
    producer.sends("SET lock:job 5c9e2f708d1b4a33 NX PX 9000").gets("+OK");
    redis.runs_out(&producer, "lock:job");
    assert_eq!(jobs_done(&producer, &worker, "lock:job"), 3);
}

#[test]
fn a_stranger_gives_back_nothing_and_neither_does_who_does_not_say_who_it_is() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER other on >secret ~* &* +@all").gets("+OK");
    let proxy = handing_over(&redis).start();
    let producer = called(proxy.client(), "orders");
    assert!(singleton_queues(&producer, "lock:job"));
    let before = redis.lease("lock:job");

    let namesake = proxy.client();
    namesake.sends("AUTH other secret").gets("+OK");
    let strangers = [proxy.client(), called(proxy.client(), "invoices"), called(namesake, "orders")];
    for stranger in &strangers {
        for release in ["DEL lock:job", "UNLINK lock:job", "EXPIRE lock:job 0", "CAD lock:job 0b9d4f7e9c553a1d"] {
            stranger.sends(release).gets(":0");
        }
        stranger.sends("SET lock:job 0b9d4f7e9c553a1d").gets_error("LOCKDENIED overwrite");
    }
    assert_eq!(redis.lease("lock:job"), before);

    // A client that names the stored value is believed, as everywhere.
    strangers[0].sends("CAD lock:job 7f4c1e2a-0b9d-4f7e-9c55-3a1d20f6b8e4").gets(":1");

    // Two clients without a name are not the same client.
    let (nameless, other) = (proxy.client(), proxy.client());
    assert!(singleton_queues(&nameless, "lock:job"));
    assert_eq!(singleton_is_done(&other, "lock:job"), 0);
}

/// In another namespace of the same proxy a name alone does not identify a client.
#[test]
fn only_the_namespace_that_says_so_is_handed_over() {
    let redis = Redis::start();
    let proxy = handing_over(&redis)
        .more("[[namespace]]\nname = \"others\"\nkeys = [\"other:*\"]\nmode = \"enforce\"\n")
        .start();
    let producer = called(proxy.client(), "orders");
    let worker = called(proxy.client(), "orders");
    assert_eq!(jobs_done(&producer, &worker, "other:job"), 1);
    // Locks of both in one command: each by the rules of its own namespace.
    for key in ["lock:a", "lock:b"] {
        assert!(singleton_queues(&producer, key));
    }
    worker.sends("DEL lock:a other:job lock:b").gets(":2");
    assert!(!redis.is_free("other:job"));
    assert!(singleton_queues(&producer, "lock:a"));
    worker.sends("DEL other:job lock:a").gets(":1");
}

/// The report by which an operator sees that the setting is needed, in both modes: at the third time, for any
/// job.
#[test]
fn locks_that_others_give_back_again_and_again_are_reported() {
    for monitors in [false, true] {
        let redis = Redis::start();
        let builder = Proxy::builder(&redis);
        let proxy = match monitors {
            true => builder.mode(lockwarden_tests::Mode::Monitor),
            false => builder,
        }
        .start();
        let (producer, worker) = (proxy.client(), proxy.client());
        for (job, seen) in [("a1", 0.0), ("b22", 0.0), ("c333", 1.0), ("d4", 2.0)] {
            let lock = format!("lock:SINGLETONLOCK_{job}");
            assert!(singleton_queues(&producer, &lock));
            singleton_is_done(&worker, &lock);
            proxy.counts(HANDED_OVER, seen);
        }
        proxy.logs(&["\"kind\":\"handed-over\"", "lock:SINGLETONLOCK_c333"]);

        // A `finally` that deletes a lock that it was refused does not count, nor does a late release.
        let before = proxy.metric(HANDED_OVER);
        for job in 1..=4 {
            let lock = format!("lock:finally_{job}");
            assert!(singleton_queues(&producer, &lock));
            assert!(!singleton_queues(&worker, &lock));
            singleton_is_done(&worker, &lock);
        }
        wait_for("nothing more to be reported", || proxy.metric(HANDED_OVER) == before);
    }
}
