<?php
// The shop of `lockwarden demo --guard`, with phpredis as people write locks with it: 20 processes, each with a connection
// of its own, sell 100 items. Each reads the stock under the lock, pauses, and writes it back; a quarter of the pauses are
// longer than the lock's TTL. Where a guard keeps the stock, nothing is sold twice.

declare(strict_types=1);

require 'Checks.php';

const ITEMS = 100;
const WORKERS = 20;
const SHOP_TTL_MS = 150;
const SHOP_WITHIN_S = 45;
const STOCK = 'stock:7';
const RELEASE = <<<'LUA'
    if redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("del", KEYS[1])
    else
        return 0
    end
    LUA;

function pauseUs(int $worker, int $turn): int
{
    $spread = $turn * 7 + $worker * 3;
    return 1000 * (($turn + $worker) % 4 === 0 ? 160 + $spread % 40 : 4 + $spread % 8);
}

/** Waits for the lock. Gives its value, or null where the shop has closed meanwhile. */
function acquire(Redis $redis, string $lock, int $ttlMs, float $closes): ?string
{
    $token = bin2hex(random_bytes(16));
    while (microtime(true) < $closes) {
        if ($redis->set($lock, $token, ['nx', 'px' => $ttlMs])) {
            return $token;
        }
        usleep(random_int(8_000, 15_000));
    }
    return null;
}

/** Counts are kept beside the stock, where nothing guards them. */
function writeStock(Redis $redis, int $stock): void
{
    try {
        must($redis->set(STOCK, (string) $stock), 'the stock was not written');
        $redis->incr('plain:sold');
    } catch (RedisException $refusal) {
        must(str_starts_with($refusal->getMessage(), 'LOCKDENIED stale-fence '), $refusal->getMessage());
        $redis->incr('plain:refused');
    }
}

function works(Redis $redis, string $lock, int $worker, float $closes): void
{
    for ($turn = 1; ($token = acquire($redis, $lock, SHOP_TTL_MS, $closes)) !== null; $turn++) {
        $stock = (int) $redis->get(STOCK);
        if ($stock > 0) {
            usleep(pauseUs($worker, $turn));
            writeStock($redis, $stock - 1);
        }
        // A lock that ran out is nothing that the program minds.
        $redis->eval(RELEASE, [$lock, $token], 1);
        if ($stock === 0) {
            return;
        }
    }
}

function sellOut(Server $server, string $lock): void
{
    $closes = microtime(true) + SHOP_WITHIN_S;
    $manager = $server->connection();
    $token = acquire($manager, $lock, 10_000, $closes);
    must($manager->set(STOCK, (string) ITEMS), 'nothing to sell');
    $manager->eval(RELEASE, [$lock, $token], 1);
    $children = [];
    for ($worker = 0; $worker < WORKERS; $worker++) {
        $child = pcntl_fork();
        must($child >= 0, 'cannot fork');
        if ($child > 0) {
            $children[] = $child;
            continue;
        }
        $own = $server->connection();
        try {
            works($own, $lock, $worker, $closes);
        } catch (Throwable $problem) {
            $own->rPush('plain:problems', $problem->getMessage());
        }
        // Not by exit: a destructor would say good-bye over a connection of the parent's.
        posix_kill(getmypid(), SIGKILL);
    }
    foreach ($children as $child) {
        pcntl_waitpid($child, $status);
    }
    $said = $manager->lRange('plain:problems', 0, -1);
    must($said === [], implode('; ', $said));
}

$server = new Server(getenv('LOCK_HOST'), (int) getenv('LOCK_PORT'));
$guarded = getenv('LOCK_WORLD') !== 'direct';
$line = ['client' => 'phpredis, SET NX and scripts', 'version' => phpversion('redis'),
    'check' => 'a connection for each of 20 processes', 'result' => 'ok'];
try {
    sellOut($server, getenv('LOCK_PREFIX') . 'sale:7');
    $count = fn (string $key): int => (int) $server->redis->get($key);
    [$sold, $refused, $left] = [$count('plain:sold'), $count('plain:refused'), $count(STOCK)];
    $told = sprintf('%d sold of %d, %d oversold, %d left', $sold, ITEMS, max(0, $sold - ITEMS), $left);
    $line['detail'] = $told . ($refused > 0 ? ", $refused writes refused" : '');
    must($left === 0, $line['detail']);
    // Without the proxy items are sold twice, or the figures with it would mean nothing.
    must(($sold === ITEMS) === $guarded, $line['detail']);
    must(($refused > 0) === $guarded, $line['detail']);
} catch (Throwable $problem) {
    $line = ['result' => 'failed', 'detail' => substr($problem->getMessage(), 0, 400)] + $line;
}
echo json_encode($line), "\n";
