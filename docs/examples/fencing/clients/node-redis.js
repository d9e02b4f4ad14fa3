// node-redis: one client is one connection. node-redis.js HOST PORT
const { createClient } = require('redis');
const { randomUUID } = require('node:crypto');

const key = 'lock:stock:lamp';

async function main() {
    const redis = createClient({ socket: { host: process.argv[2], port: Number(process.argv[3]) } });
    await redis.connect();
    await redis.set(key, randomUUID(), { PX: 30000, NX: true });
    const fence = await redis.sendCommand(['LOCKWARDEN', 'FENCE', key]);
    console.log(fence, await redis.sendCommand(['LOCKWARDEN', 'CHECK', key, String(fence)]));
    await redis.del(key);
    await redis.close();
}

main();
