'use strict';
// A release and an extension without a script, with node-redis: WATCH, GET, compare, MULTI, DEL or PEXPIRE, EXEC.
// The value is the owner token, so this is right in every world.

const { randomUUID } = require('node:crypto');

const { WatchError, createClient } = require('redis');

const checks = require('./checks');

const { assert } = checks;

/** What this idiom says where the value is somebody else's. */
class NotMine extends Error {}

class NodeRedisWatch extends checks.Client {
    static title = 'SET NX, WATCH, EXEC (node-redis)';
    static package = 'redis';
    static refusals = { extend: NotMine, release: NotMine };

    async open() {
        this.redis = createClient({ socket: checks.ADDRESS });
        await this.redis.connect();
    }

    async take(name, { ttl = checks.LONG_MS } = {}) {
        const lock = { name, value: randomUUID() };
        const answer = await this.redis.set(name, lock.value, {
            condition: 'NX',
            expiration: { type: 'PX', value: ttl },
        });
        return answer === 'OK' ? lock : null;
    }

    stranger(name) {
        return { name, value: randomUUID() };
    }

    async watched({ name, value }) {
        await this.redis.watch(name);
        if ((await this.redis.get(name)) !== value) {
            await this.redis.unwatch();
            throw new NotMine();
        }
    }

    async release(lock) {
        await this.watched(lock);
        assert.deepEqual(await this.redis.multi().del(lock.name).exec(), [1]);
    }

    async extend(lock, ttl) {
        await this.watched(lock);
        assert.deepEqual(await this.redis.multi().pExpire(lock.name, ttl).exec(), [1]);
    }

    more() {
        return {
            'other connection': async (name) => {
                const lock = await this.take(name);
                const other = await this.party();
                await other.extend(lock, checks.LONG_MS);
                await other.release(lock);
                assert(await this.server.isFree(name));
            },
            'lost between GET and EXEC': async (name) => {
                const lock = await this.take(name, { ttl: checks.SHORT_MS });
                await this.watched(lock);
                await this.server.waitUntilFree(name);
                const other = await this.party();
                const successor = await other.take(name);
                const lease = await this.server.lease(name);
                await assert.rejects(this.redis.multi().del(name).exec(), WatchError);
                assert.deepEqual(await this.server.lease(name), lease);
                await other.release(successor);
            },
        };
    }

    disconnect() {
        this.redis.destroy();
    }
}

module.exports = NodeRedisWatch;
