'use strict';
// Job systems: Bull and BullMQ take a lock for each job in the script that moves the job, under a name that the script makes of the
// job's number. Prints a JSON line a check, as `clients.js` does for lock libraries.

const { strict: assert } = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const Redis = require('ioredis');

const { ADDRESS, DAMAGED, isWanted } = require('./checks');

// The lock of a job; the libraries extend it at half of that, and look for jobs whose lock is gone.
const LOCK_MS = 2000;
const STALLED_MS = 1000;
const WITHIN_MS = 60_000;
const JOBS = 40;

async function until(otherwise, condition) {
    const deadline = performance.now() + WITHIN_MS;
    while (!(await condition())) {
        assert(performance.now() < deadline, otherwise);
        await sleep(20);
    }
}

/** One job system behind three verbs. */
class Bull {
    static title = 'Bull';
    static package = 'bull';

    constructor(name) {
        const Queue = require('bull');
        this.name = name;
        this.make = () => {
            const settings = { lockDuration: LOCK_MS, lockRenewTime: LOCK_MS / 2, stalledInterval: STALLED_MS, maxStalledCount: 3 };
            const queue = new Queue(name, { redis: { ...ADDRESS, maxRetriesPerRequest: null }, settings });
            queue.on('error', () => {});
            return queue;
        };
        this.queue = this.make();
    }

    add(data, options) {
        return this.queue.add(data, options);
    }

    /** A worker with connections of its own. Returns how it goes: `dies` leaves its jobs as they are. */
    async work(handler) {
        const queue = this.make();
        queue.process(4, (job) => handler(job));
        await queue.isReady();
        return {
            close: () => queue.close(),
            dies: async () => {
                for (const one of [queue.client, queue.bclient, queue.eclient]) {
                    one?.disconnect();
                }
                await queue.close(true).catch(() => {});
            },
        };
    }

    counts() {
        return this.queue.getJobCounts();
    }

    async close() {
        await this.queue.close();
    }
}

class BullMq {
    static title = 'BullMQ';
    static package = 'bullmq';

    constructor(name) {
        const { Queue } = require('bullmq');
        this.name = name;
        this.connection = { ...ADDRESS, maxRetriesPerRequest: null };
        this.queue = new Queue(name, { connection: this.connection });
        this.queue.on('error', () => {});
    }

    add(data, options) {
        return this.queue.add('job', data, options);
    }

    async work(handler) {
        const { Worker } = require('bullmq');
        const options = { connection: this.connection, concurrency: 4, lockDuration: LOCK_MS, stalledInterval: STALLED_MS, maxStalledCount: 3 };
        const worker = new Worker(this.name, handler, options);
        worker.on('error', () => {});
        await worker.waitUntilReady();
        return { close: () => worker.close(), dies: () => worker.close(true) };
    }

    counts() {
        return this.queue.getJobCounts();
    }

    async close() {
        await this.queue.close();
    }
}

/** Does each job once; counts how often each was begun and ended. */
function diary(worksFor) {
    const begun = new Map();
    const done = new Map();
    const bump = (map, id) => map.set(id, (map.get(id) ?? 0) + 1);
    const handler = async (job) => {
        bump(begun, String(job.id));
        await sleep(worksFor(job));
        bump(done, String(job.id));
    };
    return { begun, done, handler };
}

const CHECKS = {
    async jobs(system) {
        const { begun, done, handler } = diary(() => 20);
        const workers = [await system.work(handler), await system.work(handler)];
        for (let number = 0; number < JOBS; number += 1) {
            await system.add({ number });
        }
        await until('not all jobs were done', async () => (await system.counts()).completed === JOBS);
        assert.deepEqual([begun.size, done.size], [JOBS, JOBS]);
        assert([...begun.values()].every((times) => times === 1), 'a job was begun twice');
        await Promise.all(workers.map((worker) => worker.close()));
    },

    /** The lock is extended while the job goes on: nobody takes it for one that was left. */
    async 'long job'(system) {
        const { begun, handler } = diary(() => 3 * LOCK_MS);
        const workers = [await system.work(handler), await system.work(handler)];
        const { id } = await system.add({});
        await until('the job was not done', async () => (await system.counts()).completed === 1);
        assert.equal(begun.get(String(id)), 1, 'it was begun twice');
        await Promise.all(workers.map((worker) => worker.close()));
    },

    async 'delayed, retried'(system) {
        let tries = 0;
        const worker = await system.work(async () => {
            tries += 1;
            if (tries < 3) {
                throw new Error('not yet');
            }
        });
        await system.add({}, { delay: 200, attempts: 3, backoff: 100 });
        await until('the job was not done', async () => (await system.counts()).completed === 1);
        assert.equal(tries, 3);
        await worker.close();
    },

    /** Another worker takes up the job when the lock has ended by its TTL. */
    async 'worker dies'(system) {
        const held = diary(() => WITHIN_MS);
        const { begun, handler } = diary(() => 10);
        const first = await system.work(held.handler);
        const { id } = await system.add({});
        await until('the job was not begun', () => held.begun.size === 1);
        await first.dies();
        const second = await system.work(handler);
        await until('nobody took up the job', async () => (await system.counts()).completed === 1);
        assert.equal(begun.get(String(id)), 1);
        await second.close();
    },

    /** A bystander deletes the lock of a job: with the proxy it stays, and the job is completed. */
    async stranger(system, server) {
        const { begun, handler } = diary(() => LOCK_MS / 4);
        const worker = await system.work(handler);
        const { id } = await system.add({});
        await until('the job was not begun', () => begun.size === 1);
        const key = `bull:${system.name}:${id}:lock`;
        assert.equal(await server.del(key), DAMAGED ? 1 : 0);
        if (!DAMAGED) {
            assert.equal(await server.exists(key), 1, 'the lock is gone');
            await until('the job was not done', async () => (await system.counts()).completed === 1);
        }
        await worker.close();
    },
};

async function main() {
    const server = new Redis({ ...ADDRESS, connectionName: 'bystander' });
    for (const System of [Bull, BullMq]) {
        const manifest = path.join(process.env.NODE_PATH, System.package, 'package.json');
        const { version } = JSON.parse(fs.readFileSync(manifest, 'utf8'));
        for (const [check, run] of Object.entries(CHECKS).filter(([check]) => isWanted(check))) {
            const system = new System(`${System.package}-${check.replace(/\W+/g, '-')}`);
            const line = { client: System.title, version, check, result: 'ok' };
            try {
                await run(system, server);
            } catch (error) {
                Object.assign(line, { result: 'failed', detail: String(error.message ?? error) });
            }
            console.log(JSON.stringify(line));
            await system.close().catch(() => {});
        }
    }
    server.disconnect();
    // What a worker that died has left open.
    process.exit(0);
}

main();
