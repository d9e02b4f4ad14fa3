'use strict';
// SET NX PX, PEXPIRE and DEL with a node-redis that is configured with a cluster: it asks who has which slots. See `bare.js`.

const { createCluster } = require('redis');

const { nextName } = require('./bare');
const { CLUSTER } = require('./checks');
const NodeRedisBare = require('./node-redis-bare');

class NodeRedisCluster extends NodeRedisBare {
    static title = 'SET NX, PEXPIRE, DEL (node-redis createCluster)';

    async open() {
        this.redis = createCluster({
            rootNodes: [{ socket: CLUSTER }],
            defaults: { name: nextName() },
        });
        await this.redis.connect();
    }
}

module.exports = NodeRedisCluster;
