//! What applications do to locks, each on one connection and on keys of its own; `{k}` stands for them.

/// One of them.
pub(super) struct Idiom {
    pub(super) name: &'static str,
    pub(super) lines: &'static [&'static str],
}

pub(super) const IDIOMS: &[Idiom] = &[
    Idiom {
        name: "SETNX, EXPIRE, DEL",
        lines: &[
            "SETNX lock:{k} 1",
            "SETNX lock:{k} 2",
            "EXPIRE lock:{k} 9",
            "GET lock:{k}",
            "DEL lock:{k}",
            "DEL lock:{k}",
        ],
    },
    Idiom {
        name: "SET NX PX, PEXPIRE, UNLINK",
        lines: &[
            "SET lock:{k} 6e3d0bcd-9c1e-4a07 NX PX 9000",
            "SET lock:{k} 0a94c2de-6f3b-4a55 NX PX 9000",
            "PEXPIRE lock:{k} 8000",
            "SET lock:{k} 6e3d0bcd-9c1e-4a07 XX PX 9000",
            "PERSIST lock:{k}",
            "EXPIRE lock:{k} 8",
            "UNLINK lock:{k}",
        ],
    },
    Idiom {
        name: "compare and delete",
        lines: &[
            "SET lock:{k} 6e3d0bcd-9c1e-4a07 NX PX 9000",
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:{k} another-token-than-that",
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:{k} 6e3d0bcd-9c1e-4a07",
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:{k} 6e3d0bcd-9c1e-4a07",
        ],
    },
    Idiom {
        name: "redis-py",
        lines: &[
            "SET lock:{k} 6e3d0bcd-9c1e-4a07 NX PX 9000",
            "EVAL \"local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end local expiration = redis.call('pttl', KEYS[1]) if not expiration then expiration = 0 end if expiration < 0 then return 0 end local newttl = ARGV[2] if ARGV[3] == '0' then newttl = ARGV[2] + expiration end redis.call('pexpire', KEYS[1], newttl) return 1\" 1 lock:{k} 6e3d0bcd-9c1e-4a07 500 0",
            "EVAL \"local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call('pexpire', KEYS[1], ARGV[2]) return 1\" 1 lock:{k} 6e3d0bcd-9c1e-4a07 8000",
            "EVAL \"local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1\" 1 lock:{k} 6e3d0bcd-9c1e-4a07",
        ],
    },
    Idiom {
        name: "take or extend",
        lines: &[
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end\" 1 lock:{k} 6e3d0bcd-9c1e-4a07 9000",
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end\" 1 lock:{k} 6e3d0bcd-9c1e-4a07 8000",
            "DEL lock:{k}",
        ],
    },
    Idiom {
        name: "SETEX, GETSET, GETDEL",
        lines: &[
            "SETEX lock:{k} 9 6e3d0bcd-9c1e-4a07",
            "GETSET lock:{k} 6e3d0bcd-9c1e-4a08",
            "GETEX lock:{k} EX 8",
            "GETDEL lock:{k}",
            "GETDEL lock:{k}",
        ],
    },
    Idiom {
        name: "MSETNX and DEL of several",
        lines: &[
            "MSETNX lock:{k} 1 lock:{k}-b 1",
            "MSETNX lock:{k} 1 lock:{k}-b 1",
            "SET other:{k} 1",
            "DEL lock:{k} lock:{k}-b other:{k}",
        ],
    },
    Idiom {
        name: "a hash that counts",
        lines: &[
            "EVAL \"redis.call('INCR', KEYS[2]) if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 9000) return 1 end return 0\" 2 lock:{k} count:{k} 6e3d0bcd-9c1e-4a07",
            "EVAL \"redis.call('INCR', KEYS[2]) if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 9000) return 1 end return 0\" 2 lock:{k} count:{k} 6e3d0bcd-9c1e-4a07",
            "EVAL \"redis.call('INCR', KEYS[2]) if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('DEL', KEYS[1]) return 1 end return 0\" 2 lock:{k} count:{k} 6e3d0bcd-9c1e-4a07",
        ],
    },
    Idiom {
        name: "a job under a lock",
        lines: &[
            "EVAL \"redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 9000)\" 2 lock:{k} jobs:{k} 6e3d0bcd-9c1e-4a07",
            "EVAL \"redis.call('RPUSH', KEYS[2], 'again') redis.call('PEXPIRE', KEYS[1], 8000) return redis.call('GET', KEYS[1])\" 2 lock:{k} jobs:{k} 6e3d0bcd-9c1e-4a07",
            "EVAL \"redis.call('RPOP', KEYS[2]) if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return redis.call('LLEN', KEYS[2])\" 2 lock:{k} jobs:{k} 6e3d0bcd-9c1e-4a07",
        ],
    },
    Idiom {
        name: "in a block",
        lines: &[
            "MULTI",
            "SETNX lock:{k} 1",
            "EXPIRE lock:{k} 9",
            "RPUSH jobs:{k} one",
            "EXEC",
            "MULTI",
            "GET lock:{k}",
            "DEL lock:{k}",
            "RPUSH jobs:{k} two",
            "EXEC",
        ],
    },
    Idiom {
        name: "scripts in a block",
        lines: &[
            "MULTI",
            "SET lock:{k} 6e3d0bcd-9c1e-4a07 NX PX 9000",
            "EVAL \"redis.call('INCR', KEYS[2]) return redis.call('PTTL', KEYS[1]) > 0\" 2 lock:{k} count:{k}",
            "EXEC",
            "MULTI",
            "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:{k} 6e3d0bcd-9c1e-4a07",
            "INCR count:{k}",
            "EXEC",
        ],
    },
];
