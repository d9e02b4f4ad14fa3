'use strict';
// node-redlock over ioredis, version 4 and 5: `PORT ROUNDS`.

const Redis = require('ioredis');
const Redlock4 = require('redlock-4');
const { default: Redlock5 } = require('redlock-5');

const [port, rounds] = process.argv.slice(2).map(Number);

async function works() {
    const client = new Redis({ host: '127.0.0.1', port });
    const [four, five] = [new Redlock4([client], { retryCount: 0 }), new Redlock5([client], { retryCount: 0 })];
    for (let round = 10; round < 10 + rounds; round += 1) {
        const old = await four.lock(`stock:${round}:lock`, 8000);
        await four.extend(old, 8000);
        await four.unlock(old);
        const lock = await five.acquire([`cart:${round}:lock`], 8000);
        await lock.extend(8000);
        await lock.release();
        // Both or none, in one call of a script.
        const both = await five.acquire([`cart:${round}:lock`, `cart:${round + 1}:lock`], 8000);
        await both.release();
    }
    await client.quit();
}

works().catch((error) => {
    console.error(error);
    process.exit(1);
});
