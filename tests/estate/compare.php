<?php
// phpredis: SET NX with a random value, and a script that compares it before it deletes.
declare(strict_types=1);

const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

[$client, $direct] = [new Redis(), new Redis()];
$client->connect('127.0.0.1', (int) getenv('LOCK_PORT'));
$direct->connect('127.0.0.1', (int) getenv('WITNESS_PORT'));

while (true) {
    $key = 'invoice:' . random_int(7000, 7002);
    $token = bin2hex(random_bytes(16));
    if (!$client->set($key, $token, ['nx', 'px' => 5000])) {
        usleep(5000);
        continue;
    }
    $direct->hIncrBy('grants', getenv('NAME'), 1);
    $alone = $direct->set("witness:$key", $token, ['nx', 'px' => 3000]);
    if (!$alone) {
        $direct->hIncrBy('overlaps', getenv('NAME'), 1);
    }
    usleep(20000);
    if ($alone && $direct->get("witness:$key") === $token) {
        $direct->del("witness:$key");
    }
    $client->evalSha(sha1(RELEASE), [$key, $token], 1) !== false || $client->eval(RELEASE, [$key, $token], 1);
}
