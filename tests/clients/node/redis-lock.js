'use strict';
// `redis-lock`: a release is a bare DEL as long as the releaser's own clock says that its time is not over, so it
// is as right as the clocks are. `thief` is a party whose clock is behind. Each party has a client name of its own.

const { createClient } = require('redis-4');
const redisLock = require('redis-lock');

const bare = require('./bare');
const checks = require('./checks');

const RETRY_MS = 10;

class RedisLock extends checks.Client {
    static title = 'redis-lock (node-redis 4)';
    static package = 'redis-lock';
    static extends = false;

    async open() {
        this.redis = createClient({ socket: checks.ADDRESS, name: bare.nextName() });
        await this.redis.connect();
    }

    key(name) {
        return `lock.${name}`;
    }

    /** The library waits for a lock, and retries on errors, without end; so its SET is looked at on its way. */
    take(name, { ttl = checks.LONG_MS, wait = false } = {}) {
        return new Promise((resolve, reject) => {
            const never = new Promise(() => {});
            const set = async (...args) => {
                try {
                    const answer = await this.redis.set(...args);
                    if (answer !== null || wait) {
                        return answer;
                    }
                    resolve(null);
                } catch (error) {
                    reject(error);
                }
                return never;
            };
            const seen = { v4: true, set, del: (key) => this.redis.del(key) };
            redisLock(seen, RETRY_MS)(name, ttl).then(resolve, reject);
        });
    }

    release(unlock) {
        return unlock();
    }

    more() {
        return {
            thief: async (name) => {
                const key = this.key(name);
                const behind = await this.party();
                const unlock = await behind.take(name, { ttl: checks.SHORT_MS });
                await this.server.waitUntilFree(key);
                const successor = await this.take(name);
                const lease = await this.server.lease(key);
                await bare.withClock(-checks.LONG_MS, unlock);
                await bare.damaged(this.server, key, lease);
                await this.release(successor);
            },
        };
    }

    disconnect() {
        this.redis.disconnect();
    }
}

module.exports = RedisLock;
