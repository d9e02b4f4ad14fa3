'use strict';
// `redlock` 5 over an ioredis that is configured with a cluster: it asks who has which slots.

const Redis = require('ioredis');

const { CLUSTER } = require('./checks');
const Redlock5 = require('./redlock-5');

class IoredisCluster extends Redlock5 {
    static title = 'redlock 5 (ioredis Cluster)';

    connect() {
        return new Redis.Cluster([CLUSTER]);
    }

    more() {
        return {};
    }
}

module.exports = IoredisCluster;
