'use strict';
// `redlock` 4 over ioredis. It counts an error of the server as a vote against and retries, so those are
// collected and fail a check instead of looking like contention.

const bluebird = require('bluebird');
const Redis = require('ioredis');
const Redlock = require('redlock-4');

const checks = require('./checks');
const redlockChecks = require('./redlock-checks');

const { assert } = checks;

class Redlock4 extends checks.Client {
    static title = 'redlock 4 (ioredis)';
    static package = 'redlock-4';
    static refusals = { extend: Redlock.LockError, release: Redlock.LockError };

    async open() {
        this.redis = new Redis(checks.ADDRESS);
        this.once = this.manager({ retryCount: 0 });
        this.patient = this.manager({ retryCount: 100, retryDelay: 20, retryJitter: 10 });
    }

    manager(options) {
        const manager = new Redlock([this.redis], options);
        manager.on('clientError', (error) => {
            this.error ??= error;
        });
        return manager;
    }

    /** What the library was told, unless the server did not like a command. */
    async said(attempt) {
        try {
            return await attempt;
        } finally {
            this.noErrors();
        }
    }

    noErrors() {
        const { error } = this;
        this.error = undefined;
        if (error) {
            throw error;
        }
    }

    async take(name, { ttl = checks.LONG_MS, wait = false } = {}) {
        try {
            return await this.said((wait ? this.patient : this.once).lock(name, ttl));
        } catch (problem) {
            if (problem instanceof Redlock.LockError) {
                return null;
            }
            throw problem;
        }
    }

    release(lock) {
        return this.said(this.once.unlock(lock));
    }

    extend(lock, ttl) {
        return this.said(this.once.extend(lock, ttl));
    }

    stranger(name) {
        return new Redlock.Lock(this.once, name, '0123456789abcdef0123456789abcdef', Date.now() + checks.LONG_MS, 1, 0);
    }

    more() {
        return {
            ...redlockChecks(this, this),
            disposer: async (name) => {
                await this.said(bluebird.using(this.once.disposer(name, checks.LONG_MS), async () => {
                    assert(!(await this.server.isFree(name)));
                }));
                assert(await this.server.isFree(name), 'the disposer released nothing');
            },
        };
    }

    disconnect() {
        this.redis.disconnect();
    }
}

module.exports = Redlock4;
