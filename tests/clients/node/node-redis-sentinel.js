'use strict';
// SET NX PX, PEXPIRE and DEL with a node-redis that is configured with sentinels: it asks them where the server is. See
// `bare.js`.

const { createSentinel } = require('redis');

const { nextName } = require('./bare');
const { SENTINELS } = require('./checks');
const NodeRedisBare = require('./node-redis-bare');

class NodeRedisSentinel extends NodeRedisBare {
    static title = 'SET NX, PEXPIRE, DEL (node-redis by Sentinel)';

    async open() {
        this.redis = createSentinel({
            name: 'mymaster',
            sentinelRootNodes: SENTINELS,
            nodeClientOptions: { name: nextName() },
        });
        await this.redis.connect();
    }
}

module.exports = NodeRedisSentinel;
