'use strict';
// `redis-semaphore` over ioredis: its mutex. An extension is what it does for a lock that was handed over by its
// identifier; its own is on a timer. Its semaphore is shown to pass through untouched: that is no lock, and its key
// (`semaphore:…`) is not among those that the proxy looks at.

const Redis = require('ioredis');
const { LostLockError, Mutex, Semaphore, TimeoutError } = require('redis-semaphore');

const checks = require('./checks');

const { assert } = checks;

class RedisSemaphore extends checks.Client {
    static title = 'redis-semaphore Mutex (ioredis)';
    static package = 'redis-semaphore';
    // A release tells nobody how it ended.
    static refusals = { extend: TimeoutError, release: undefined };

    async open() {
        this.redis = new Redis(checks.ADDRESS);
    }

    key(name) {
        return `mutex:${name}`;
    }

    mutex(name, options) {
        return new Mutex(this.redis, name, { lockTimeout: checks.LONG_MS, refreshInterval: 0, ...options });
    }

    async take(name, { ttl = checks.LONG_MS, wait = false } = {}) {
        const mutex = this.mutex(name, { lockTimeout: ttl, acquireAttemptsLimit: wait ? Infinity : 1 });
        return (await mutex.tryAcquire()) ? { name, mutex } : null;
    }

    release(lock) {
        return lock.mutex.release();
    }

    async extend({ name, mutex: { identifier } }, ttl) {
        await this.mutex(name, { identifier, acquiredExternally: true, lockTimeout: ttl }).acquire();
    }

    stranger(name) {
        return { name, mutex: this.mutex(name, { identifier: 'somebody else', acquiredExternally: true }) };
    }

    more() {
        const { server } = this;
        return {
            refresh: async (name) => {
                const mutex = this.mutex(name, { lockTimeout: checks.SHORT_MS, refreshInterval: 200 });
                await mutex.acquire();
                const { value, end } = await server.lease(this.key(name));
                await server.waitUntil('it did not refresh by itself', async () => {
                    const now = await server.lease(this.key(name));
                    return now.value === value && now.end > end + checks.SHORT_MS;
                });
                await mutex.release();
                assert(await server.isFree(this.key(name)));
            },
            'lock lost': async (name) => {
                const other = await this.party();
                let lost;
                const mutex = this.mutex(name, {
                    lockTimeout: checks.SHORT_MS,
                    refreshInterval: checks.SHORT_MS + 300,
                    onLockLost: (error) => {
                        lost = error;
                    },
                });
                await mutex.acquire();
                await server.waitUntilFree(this.key(name));
                const successor = await other.take(name);
                const lease = await server.lease(this.key(name));
                await server.waitUntil('nobody was told', () => lost !== undefined);
                assert(lost instanceof LostLockError, `${lost}`);
                assert.deepEqual(await server.lease(this.key(name)), lease);
                await other.release(successor);
            },
            'handed over': async (name) => {
                const { mutex } = await this.take(name);
                const other = await this.party();
                await other.mutex(name, { identifier: mutex.identifier, acquiredExternally: true }).release();
                assert(await server.isFree(this.key(name)), 'its identifier did not release it');
            },
            semaphore: async (name) => {
                const seat = () => new Semaphore(this.redis, name, 2, { acquireAttemptsLimit: 1, refreshInterval: 0 });
                const [one, two, three] = [seat(), seat(), seat()];
                assert((await one.tryAcquire()) && (await two.tryAcquire()));
                assert(!(await three.tryAcquire()), 'three on two seats');
                await one.release();
                assert(await three.tryAcquire(), 'a seat that was left was not to be had');
                await two.release();
                await three.release();
                assert(await server.isFree(`semaphore:${name}`));
            },
        };
    }

    disconnect() {
        this.redis.disconnect();
    }
}

module.exports = RedisSemaphore;
