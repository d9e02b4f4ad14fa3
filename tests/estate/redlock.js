'use strict';
// node-redlock over ioredis: random owner tokens, scripts sent by their digests.

const { randomInt, randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');

const Redis = require('ioredis');
const { default: Redlock } = require('redlock-5');

const NAME = process.env.NAME;
const client = new Redis({ host: '127.0.0.1', port: Number(process.env.LOCK_PORT) });
const direct = new Redis({ host: '127.0.0.1', port: Number(process.env.WITNESS_PORT) });
const redlock = new Redlock([client], { retryCount: -1, retryDelay: 20 });

async function works(key) {
    const [mine, witness] = [randomUUID(), `witness:${key}`];
    await direct.hincrby('grants', NAME, 1);
    const alone = await direct.set(witness, mine, 'PX', 3000, 'NX');
    if (!alone) {
        await direct.hincrby('overlaps', NAME, 1);
    }
    await sleep(30);
    if (alone && (await direct.get(witness)) === mine) {
        await direct.del(witness);
    }
}

async function goesOn() {
    for (;;) {
        const key = `cart:${randomInt(500, 503)}:lock`;
        const lock = await redlock.acquire([key], 5000);
        await works(key);
        await lock.release();
    }
}

for (let task = 0; task < 3; task += 1) {
    goesOn();
}
