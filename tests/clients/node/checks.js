'use strict';
// What every lock library must do. A `Client` is one library behind five verbs: `take`, `release`, `extend`,
// `stranger` and `party`; its own abilities are functions in `more`. Checks look at the server over a connection
// of their own, `Server`, and end by returning, or by throwing an error or `NotThere`.

const { strict: assert } = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const Redis = require('ioredis');

const ADDRESS = { host: process.env.LOCK_HOST, port: Number(process.env.LOCK_PORT) };
function addresses(variable) {
    const listed = process.env[variable]?.split(',') ?? [];
    return listed.map((address) => {
        const [host, port] = address.split(':');
        return { host, port: Number(port) };
    });
}
// Two that call the server `mymaster`; and where a cluster is.
const SENTINELS = addresses('LOCK_SENTINELS');
const [CLUSTER] = addresses('LOCK_CLUSTER');
// Whether misuse does its damage here.
const DAMAGED = process.env.LOCK_WORLD === 'direct';
const PARTIES = 8;
const ROUNDS = 5;
// How long eight parties may take together.
const CONTEND_WITHIN_MS = 60_000;
const SHORT_MS = 1000;
const LONG_MS = 10_000;

/** Whether a check is wanted; by default all are. */
function isWanted(check) {
    return process.env.LOCK_CHECKS?.split(';').includes(check) ?? true;
}

/** The library has no such thing; the message says what. */
class NotThere extends Error {}

/** The server as a bystander sees it. */
class Server {
    constructor() {
        this.redis = new Redis(ADDRESS);
    }

    /** Value and end of a lock; both must stay what they are when somebody else tries something. */
    async lease(key) {
        return { value: await this.redis.get(key), end: await this.redis.call('PEXPIRETIME', key) };
    }

    async isFree(key) {
        return (await this.redis.exists(key)) === 0;
    }

    async waitUntilFree(key) {
        await this.waitUntil('the lock did not end by its TTL', () => this.isFree(key));
    }

    async waitUntil(otherwise, condition) {
        const deadline = performance.now() + LONG_MS;
        while (!(await condition())) {
            assert(performance.now() < deadline, otherwise);
            await sleep(20);
        }
    }

    close() {
        this.redis.disconnect();
    }
}

/** One library. A subclass says what it is called and how it does the five verbs. */
class Client {
    static title;
    static package;
    // What `extend` and `release` throw when they are refused; nothing where the library does not tell.
    static refusals = { extend: undefined, release: undefined };
    static extends = true;

    constructor(server) {
        this.server = server;
        this.parties = [];
    }

    version() {
        const manifest = path.join(process.env.NODE_PATH, this.constructor.package, 'package.json');
        return JSON.parse(fs.readFileSync(manifest, 'utf8')).version.replace(/^v/, '');
    }

    /** Connects. */
    async open() {}

    /** Somebody else: a client of the library with a connection of its own. */
    async party() {
        const party = new this.constructor(this.server);
        this.parties.push(party);
        await party.open();
        return party;
    }

    /** The key that the library makes of a name. */
    key(name) {
        return name;
    }

    /** A lock that is held, or null. */
    async take(_name, { ttl: _ttl = LONG_MS, wait: _wait = false } = {}) {
        throw new Error('every library can');
    }

    async release(_lock) {
        throw new Error('every library can');
    }

    /** So that the TTL is this again. */
    async extend(_lock, _ttl) {
        throw new NotThere('it cannot extend');
    }

    /** A lock object with another owner token that believes it holds. */
    stranger(_name) {
        throw new NotThere('it has no lock objects');
    }

    /** Checks of this library's own, by name, each a function of a lock's name. */
    more() {
        return {};
    }

    async close() {
        for (const party of this.parties.splice(0)) {
            await party.close();
        }
        this.disconnect();
    }

    disconnect() {}
}

async function run(client, server, prefix) {
    const bystander = new Checks(client, server);
    const all = {
        acquire: (name) => bystander.acquire(name),
        contend: (name) => bystander.contend(name),
        extend: (name) => bystander.extend(name),
        release: (name) => bystander.release(name),
        expiry: (name) => bystander.expiry(name),
        thief: (name) => bystander.thief(name),
        ...client.more(),
    };
    for (const [check, play] of Object.entries(all).filter(([check]) => isWanted(check))) {
        const line = { client: client.constructor.title, version: client.version(), check, result: 'ok' };
        try {
            await play(prefix + check.replaceAll(' ', '-'));
        } catch (problem) { // whatever a library throws is a result
            if (problem instanceof NotThere) {
                Object.assign(line, { result: 'n/a', detail: problem.message });
            } else {
                const where = /\(?[^ (]*\.js:\d+/.exec(problem?.stack?.split('\n    at ')[1] ?? '');
                const text = `${problem} ${where ? path.basename(where[0]) : ''}`;
                Object.assign(line, { result: 'failed', detail: text.slice(0, 400) });
            }
        }
        console.log(JSON.stringify(line));
    }
}

/** The six checks that all libraries have in common. */
class Checks {
    constructor(client, server) {
        this.client = client;
        this.server = server;
    }

    get traits() {
        return this.client.constructor;
    }

    async acquire(name) {
        const key = this.client.key(name);
        const lock = await this.client.take(name);
        assert(lock, 'a free lock was not to be had');
        const lease = await this.server.lease(key);
        assert(lease.value !== null && lease.end > 0, `the lock on the server is ${JSON.stringify(lease)}`);
        const other = await this.client.party();
        assert.equal(await other.take(name), null, 'a second party got it too');
        assert.deepEqual(await this.server.lease(key), lease);
        await this.client.release(lock);
    }

    async contend(name) {
        const inside = `plain:${name}:inside`;
        const entries = `plain:${name}:entries`;
        const deadline = performance.now() + CONTEND_WITHIN_MS;
        const problems = [];
        const one = async () => {
            const party = await this.client.party();
            for (let round = 0; round < ROUNDS; round += 1) {
                let lock = null;
                while (lock === null) {
                    if (problems.length > 0) {
                        return;
                    }
                    assert(performance.now() < deadline, 'not let in in time');
                    lock = await party.take(name, { wait: true });
                }
                const together = await this.server.redis.incr(inside);
                assert.equal(together, 1, `${together} parties at a time`);
                await sleep(2);
                await this.server.redis.incr(entries);
                await this.server.redis.decr(inside);
                await party.release(lock);
            }
        };
        const parties = Array.from({ length: PARTIES }, () => one().catch((problem) => problems.push(problem)));
        await Promise.all(parties);
        if (problems.length > 0) {
            throw problems[0];
        }
        assert.equal(Number(await this.server.redis.get(entries)), PARTIES * ROUNDS);
        assert(await this.server.isFree(this.client.key(name)), 'still held after the last release');
    }

    async extend(name) {
        if (!this.traits.extends) {
            throw new NotThere('it cannot extend');
        }
        const key = this.client.key(name);
        const lock = await this.client.take(name);
        const before = await this.server.lease(key);
        await sleep(100); // so that the same TTL from now on ends later
        await this.client.extend(lock, LONG_MS);
        const after = await this.server.lease(key);
        assert(after.end > before.end, `the TTL did not grow: ${after.end} after ${before.end}`);
        assert.equal(after.value, before.value);
        await this.client.release(lock);
        assert(await this.server.isFree(key));
    }

    async release(name) {
        const other = await this.client.party();
        for (const party of [this.client, other, this.client]) {
            const lock = await party.take(name);
            assert(lock, 'a released lock was not to be had');
            await party.release(lock);
            assert(await this.server.isFree(this.client.key(name)), 'still held after the release');
        }
    }

    async expiry(name) {
        const key = this.client.key(name);
        const late = await this.client.take(name, { ttl: SHORT_MS });
        await this.server.waitUntilFree(key);
        const other = await this.client.party();
        const successor = await other.take(name);
        assert(successor, 'a lock that ran out was not to be had');
        const lease = await this.server.lease(key);
        if (this.traits.extends) {
            await this.refused('extend', 'a late extension', () => this.client.extend(late, LONG_MS));
        }
        await this.refused('release', 'a late release', () => this.client.release(late));
        assert.deepEqual(await this.server.lease(key), lease, "the successor's lock changed");
        await other.release(successor);
        assert(await this.server.isFree(key));
    }

    async thief(name) {
        const key = this.client.key(name);
        const lock = await this.client.take(name);
        const lease = await this.server.lease(key);
        const other = await this.client.party();
        if (this.traits.extends) {
            await this.refused('extend', "a thief's extension", () => other.extend(other.stranger(name), 3 * LONG_MS));
        }
        await this.refused('release', "a thief's release", () => other.release(other.stranger(name)));
        assert.deepEqual(await this.server.lease(key), lease, 'the lock changed');
        await this.client.release(lock);
        assert(await this.server.isFree(key));
    }

    async refused(verb, what, attempt) {
        const refusal = this.traits.refusals[verb];
        try {
            await attempt();
        } catch (problem) {
            if (refusal && problem instanceof refusal) {
                return;
            }
            throw problem;
        }
        assert(!refusal, `${what} went through`);
    }
}

module.exports = { ADDRESS, CLUSTER, Client, DAMAGED, LONG_MS, SENTINELS, SHORT_MS, Server, assert, isWanted, run, sleep };
