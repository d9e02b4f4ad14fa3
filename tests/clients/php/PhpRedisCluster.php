<?php
// The same with RedisCluster, which asks who has which slots.

declare(strict_types=1);

require_once 'PhpRedis.php';

class PhpRedisCluster extends PhpRedis
{
    public function __construct(Server $server)
    {
        Client::__construct($server);
        $this->redis = new RedisCluster(null, [getenv('LOCK_CLUSTER')]);
    }

    public function name(): string
    {
        return 'phpredis RedisCluster, SET NX and scripts';
    }

    public function more(): array
    {
        return [];
    }
}
