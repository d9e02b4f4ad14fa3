'use strict';
// `redlock` 5 over ioredis. It counts an error of the server as a vote against, so every error that is not about a
// held lock is collected and fails a check instead of looking like contention.

const Redis = require('ioredis');
const { default: Redlock, ExecutionError, Lock, ResourceLockedError } = require('redlock-5');

const checks = require('./checks');
const redlockChecks = require('./redlock-checks');

const { assert } = checks;

class Redlock5 extends checks.Client {
    static title = 'redlock 5 (ioredis)';
    static package = 'redlock-5';
    static refusals = { extend: ExecutionError, release: ExecutionError };

    connect() {
        return new Redis(checks.ADDRESS);
    }

    async open() {
        this.redis = this.connect();
        this.redlock = new Redlock([this.redis], { retryCount: 0 });
        this.redlock.on('error', (error) => {
            if (!(error instanceof ResourceLockedError)) {
                this.error ??= error;
            }
        });
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

    async take(names, { ttl = checks.LONG_MS, wait = false } = {}) {
        const retries = wait ? { retryCount: 100, retryDelay: 20, retryJitter: 10 } : undefined;
        try {
            return await this.said(this.redlock.acquire([names].flat(), ttl, retries));
        } catch (problem) {
            if (problem instanceof ExecutionError) {
                return null;
            }
            throw problem;
        }
    }

    release(lock) {
        return this.said(this.redlock.release(lock));
    }

    extend(lock, ttl) {
        return this.said(this.redlock.extend(lock, ttl));
    }

    stranger(name) {
        return new Lock(this.redlock, [name], '0123456789abcdef0123456789abcdef', [], Date.now() + checks.LONG_MS);
    }

    more() {
        return {
            ...redlockChecks(this, this),
            using: async (name) => {
                const { server } = this;
                await this.said(this.redlock.using([name], checks.SHORT_MS, async (signal) => {
                    const { value, end } = await server.lease(name);
                    await server.waitUntil('it did not extend by itself', async () => {
                        const now = await server.lease(name);
                        return now.value === value && now.end > end + checks.SHORT_MS;
                    });
                    assert(!signal.aborted);
                }));
                assert(await server.isFree(name), 'still held after the routine');
            },
        };
    }

    disconnect() {
        this.redis.disconnect();
    }
}

module.exports = Redlock5;
