// ioredis: one client is one connection. ioredis.js HOST PORT
const Redis = require('ioredis');
const { randomUUID } = require('node:crypto');

const key = 'lock:stock:lamp';

async function main() {
    const redis = new Redis(Number(process.argv[3]), process.argv[2]);
    await redis.set(key, randomUUID(), 'PX', 30000, 'NX');
    const fence = await redis.call('LOCKWARDEN', 'FENCE', key);
    console.log(fence, await redis.call('LOCKWARDEN', 'CHECK', key, fence));
    await redis.del(key);
    await redis.quit();
}

main();
