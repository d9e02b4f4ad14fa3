'use strict';
// What people write themselves: SET NX or SETNX, and DEL, with the value 1, no owner token anywhere. Each party has
// a connection and a client name of its own, so that it is a process of its own. Here the worlds must differ
// where the idiom does damage: straight to Redis a late or a stranger's DEL frees the lock, through the proxy it
// does not.

const checks = require('./checks');

const { assert } = checks;

let parties = 0;

/** A client name that nobody has. */
function nextName() {
    parties += 1;
    return `party-${parties}`;
}

/** The lock, which was seen like this, is gone where nobody protects it. */
async function damaged(server, key, held) {
    assert.deepEqual(await server.lease(key), checks.DAMAGED ? { value: null, end: -2 } : held);
}

/** Calls, and as far as it goes at once, the clock is this much off. */
function withClock(offset, call) {
    const { now } = Date;
    Date.now = () => now() + offset;
    try {
        return call();
    } finally {
        Date.now = now;
    }
}

/** A subclass says how it sends `setNx`, `pexpire` and `del`, each by its answer as a number or a truth. */
class Bare extends checks.Client {
    async take(name, { ttl = checks.LONG_MS } = {}) {
        return (await this.setNx(name, ttl)) ? name : null;
    }

    async release(name) {
        return this.del(name);
    }

    async extend(name, ttl) {
        return this.pexpire(name, ttl);
    }

    /** A DEL that should not be sent: what it is answered is what became of the lock. */
    async misuse(party, name) {
        const lease = await this.server.lease(name);
        assert.equal(await party.del(name), checks.DAMAGED ? 1 : 0);
        await damaged(this.server, name, lease);
    }

    more() {
        return {
            expiry: async (name) => {
                await this.take(name, { ttl: checks.SHORT_MS });
                await this.server.waitUntilFree(name);
                const other = await this.party();
                assert(await other.take(name));
                await this.misuse(this, name);
                await other.release(name);
            },
            thief: async (name) => {
                await this.take(name);
                await this.misuse(await this.party(), name);
                await this.release(name);
            },
            'DEL in a finally': async (name) => {
                await this.take(name);
                const other = await this.party();
                assert.equal(await other.take(name), null);
                await this.misuse(other, name);
                await this.release(name);
            },
        };
    }

    disconnect() {
        this.redis.disconnect();
    }
}

module.exports = { Bare, damaged, nextName, withClock };
