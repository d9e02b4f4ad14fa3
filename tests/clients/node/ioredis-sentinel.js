'use strict';
// `redlock` 5 over an ioredis that is configured with sentinels: it asks them where the server is.

const Redis = require('ioredis');

const { SENTINELS } = require('./checks');
const Redlock5 = require('./redlock-5');

class IoredisSentinel extends Redlock5 {
    static title = 'redlock 5 (ioredis by Sentinel)';

    connect() {
        return new Redis({ sentinels: SENTINELS, name: 'mymaster' });
    }

    more() {
        return {};
    }
}

module.exports = IoredisSentinel;
