<?php
// phpredis: one Redis object is one connection. phpredis.php HOST PORT

$key = 'lock:stock:lamp';
$redis = new Redis();
$redis->connect($argv[1], (int) $argv[2]);
$redis->set($key, bin2hex(random_bytes(16)), ['nx', 'px' => 30000]);
$fence = $redis->rawCommand('LOCKWARDEN', 'FENCE', $key);
echo $fence, ' ', $redis->rawCommand('LOCKWARDEN', 'CHECK', $key, $fence), "\n";
$redis->del($key);
