'use strict';
// What both versions of `redlock` do beyond one lock: several resources in one call, all or none.

const { LONG_MS, assert, sleep } = require('./checks');

module.exports = (client, verbs) => ({
    'two resources': async (name) => {
        const { server } = client;
        const [one, two] = [`${name}:one`, `${name}:two`];
        const other = await client.party();
        const held = await other.take(two);
        const lease = await server.lease(two);
        assert.equal(await verbs.take([one, two]), null, 'two were to be had though one was held');
        assert(await server.isFree(one), 'half of a refused lock stayed');
        assert.deepEqual(await server.lease(two), lease);
        await other.release(held);

        const both = await verbs.take([one, two]);
        const before = [await server.lease(one), await server.lease(two)];
        assert.equal(before[0].value, before[1].value);
        assert.equal(await other.take(one), null);
        await sleep(100); // so that the same TTL from now on ends later
        const extended = await client.extend(both, LONG_MS);
        for (const [number, key] of [one, two].entries()) {
            const { value, end } = await server.lease(key);
            assert(value === before[number].value && end > before[number].end, `${key} was not extended`);
        }
        await client.release(extended);
        assert((await server.isFree(one)) && (await server.isFree(two)), 'not both were released');
    },
});
