'use strict';
// SET NX PX, PEXPIRE and DEL as one writes them with node-redis; see `bare.js`.

const { createClient } = require('redis');

const { Bare, nextName } = require('./bare');
const { ADDRESS } = require('./checks');

class NodeRedisBare extends Bare {
    static title = 'SET NX, PEXPIRE, DEL (node-redis)';
    static package = 'redis';

    async open() {
        this.redis = createClient({ socket: ADDRESS, name: nextName() });
        await this.redis.connect();
    }

    async setNx(name, ttl) {
        const answer = await this.redis.set(name, '1', {
            condition: 'NX',
            expiration: { type: 'PX', value: ttl },
        });
        return answer === 'OK';
    }

    pexpire(name, ttl) {
        return this.redis.pExpire(name, ttl);
    }

    del(name) {
        return this.redis.del(name);
    }

    disconnect() {
        this.redis.destroy();
    }
}

module.exports = NodeRedisBare;
