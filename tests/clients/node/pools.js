'use strict';
// SET NX and DEL with one value for all, by tasks of one process that share connections: on the wire, a release looks
// the same whoever sends it. `LOCK_VOID` names the setting of `void_after_refusal` that the proxy runs with beside
// `doubt = "refuse"`, or "default" (nothing in front: no variable). Each check asserts what that setting promises, and tells how it went.

const { strict: assert } = require('node:assert');
const { setTimeout: sleep } = require('node:timers/promises');

const Redis = require('ioredis');
const { createClientPool } = require('redis');

const IOREDIS = require('ioredis/package.json').version;
const NODE_REDIS = require('redis/package.json').version;

const TASKS = 6;
const CONNECTIONS = 3;
const ROUNDS = 3;
const TTL_MS = 300;
const WORK_MS = 10;
const WITHIN_MS = 20_000;
// Shorter than what everybody needs who waits for TTLs.
const WAITING_WITHIN_MS = 5000;

const ADDRESS = { host: process.env.LOCK_HOST, port: Number(process.env.LOCK_PORT) };
const VOID = process.env.LOCK_VOID; // undefined, 'default', '', 'identity' or 'session,identity'

/** One connection for all tasks: what ioredis is, unless one makes several. */
const sharedConnection = (more) => async () => {
    const redis = new Redis({ ...ADDRESS, connectionName: 'worker', ...more });
    return {
        setNx: async (key, ttl) => (await redis.set(key, '1', ...(ttl ? ['PX', ttl] : []), 'NX')) === 'OK',
        del: (key) => redis.del(key),
        close: () => redis.disconnect(),
    };
};

/** node-redis gives a command to any connection that is idle. */
async function namedPool() {
    const pool = createClientPool(
        { socket: ADDRESS, name: 'worker' },
        { minimum: CONNECTIONS, maximum: CONNECTIONS, acquireTimeout: WITHIN_MS },
    );
    await pool.connect();
    return {
        setNx: async (key, ttl) => {
            const expiration = ttl ? { expiration: { type: 'PX', value: ttl } } : {};
            return (await pool.set(key, '1', { condition: 'NX', ...expiration })) === 'OK';
        },
        del: (key) => pool.del(key),
        close: () => pool.close(),
    };
}

/** Tasks that take one lock in turns. A lease counts until its TTL at the latest, so that a task which the machine
 * held up is no violation. */
class Contest {
    constructor(client, key, { inFinally, ttl }) {
        Object.assign(this, { client, key, inFinally, ttl, leases: [], freed: [] });
    }

    async run(within) {
        const deadline = performance.now() + within;
        await Promise.all(Array.from({ length: TASKS }, () => this.one(deadline)));
    }

    async one(deadline) {
        let grants = 0;
        while (grants < ROUNDS && performance.now() < deadline) {
            if (await this.attempt()) {
                grants += 1;
            }
            await sleep(1);
        }
    }

    async attempt() {
        const sent = performance.now();
        const granted = await this.client.setNx(this.key, this.ttl);
        const begin = performance.now();
        if (granted) {
            await sleep(WORK_MS);
            this.leases.push([begin, Math.min(performance.now(), sent + TTL_MS)]);
        }
        if (granted || this.inFinally) {
            const deleted = await this.client.del(this.key);
            if (granted && performance.now() < sent + TTL_MS) {
                this.freed.push(deleted);
            }
        }
        return granted;
    }

    get everybodyCameIn() {
        return this.leases.length === TASKS * ROUNDS;
    }

    get overlaps() {
        const leases = this.leases.filter(([begin, end]) => begin < end).sort((one, two) => one[0] - two[0]);
        return leases.slice(1).filter(([begin], before) => begin < leases[before][1]).length;
    }

    /** Grants, of these released by DEL, overlaps. */
    get told() {
        const rest = this.everybodyCameIn ? '' : ', waiting';
        const released = this.freed.reduce((sum, deleted) => sum + deleted, 0);
        return `${this.leases.length}/${released}/${this.overlaps}${rest}`;
    }
}

const ALL = [undefined, 'default', '', 'identity', 'session,identity'];
const NONE = [];

/** `releases` are the settings under which each holder's DEL deletes. Where it need not, the lock goes by its TTL,
 * if it has one of its own. */
async function check(name, [client, version], connect, releases, { inFinally = false, ttl = TTL_MS } = {}) {
    const comesIn = ttl ? ALL : releases;
    const excludes = inFinally ? NONE : ALL;
    const line = { client: `SET NX, DEL (${client})`, version, check: name, result: 'ok' };
    try {
        const connections = await connect();
        const contest = new Contest(
            connections,
            `${process.env.LOCK_PREFIX}pools:${name.replaceAll(/[ ,]+/g, '-')}`,
            { inFinally, ttl },
        );
        await contest.run(comesIn.includes(VOID) ? WITHIN_MS : WAITING_WITHIN_MS);
        await connections.close();
        const { told } = contest;
        line.detail = told;
        assert(!comesIn.includes(VOID) || contest.everybodyCameIn, told);
        assert(!excludes.includes(VOID) || contest.overlaps === 0, told);
        assert(!releases.includes(VOID) || contest.freed.every(Boolean), told);
        // Otherwise the numbers with the proxy would mean nothing.
        assert(VOID !== undefined || !inFinally || contest.overlaps > 0, told);
    } catch (problem) {
        Object.assign(line, { result: 'failed', detail: `${problem}`.slice(0, 400) });
    }
    console.log(JSON.stringify(line));
}

async function main() {
    const ioredis = ['ioredis', IOREDIS];
    const nodeRedis = ['node-redis', NODE_REDIS];
    const ofAConnection = [undefined, 'default', '', 'identity'];
    const ofAPool = [undefined, 'default', ''];
    await check('shared connection', ioredis, sharedConnection({}), ofAConnection);
    await check('shared connection, no TTL', ioredis, sharedConnection({}), ofAConnection, { ttl: 0 });
    await check('auto-pipelining', ioredis, sharedConnection({ enableAutoPipelining: true }), ofAConnection);
    await check('named pool', nodeRedis, namedPool, ofAPool);
    await check('named pool, no TTL', nodeRedis, namedPool, ofAPool, { ttl: 0 });
    // Last, because the proxy remembers what a process does. No setting excludes here: a DEL may come right after another task's
    // grant, on that grant's connection.
    await check('shared connection, DEL in a finally', ioredis, sharedConnection({}), NONE, { inFinally: true });
    await check('named pool, DEL in a finally', nodeRedis, namedPool, NONE, { inFinally: true });
}

main();
