'use strict';
// SETNX, PEXPIRE and DEL as one writes them with ioredis; see `bare.js`.

const Redis = require('ioredis');

const { Bare, nextName } = require('./bare');
const { ADDRESS, LONG_MS, assert } = require('./checks');

class IoredisBare extends Bare {
    static title = 'SETNX, PEXPIRE, DEL (ioredis)';
    static package = 'ioredis';

    async open() {
        this.redis = new Redis({ ...ADDRESS, connectionName: nextName() });
    }

    async setNx(name, ttl) {
        return (await this.redis.setnx(name, '1')) === 1 && this.pexpire(name, ttl);
    }

    pexpire(name, ttl) {
        return this.redis.pexpire(name, ttl);
    }

    del(name) {
        return this.redis.del(name);
    }

    more() {
        return {
            ...super.more(),
            'MULTI of SETNX and PEXPIRE': async (name) => {
                const replies = await this.redis.multi().setnx(name, '1').pexpire(name, LONG_MS).exec();
                assert.deepEqual(replies, [[null, 1], [null, 1]]);
                assert((await this.server.lease(name)).end > 0);
                await this.release(name);
                assert(await this.server.isFree(name));
            },
            pipeline: async (name) => {
                const replies = await this.redis.pipeline()
                    .set(name, '1', 'PX', LONG_MS, 'NX').set(name, '1', 'PX', LONG_MS, 'NX').get(name).del(name)
                    .exec();
                assert.deepEqual(replies, [[null, 'OK'], [null, null], [null, '1'], [null, 1]]);
            },
        };
    }
}

module.exports = IoredisBare;
