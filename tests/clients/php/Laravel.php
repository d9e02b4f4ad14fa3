<?php
// Laravel's `Cache::lock`, the classes behind it: `PhpRedisLock` over a `PhpRedisConnection`.

declare(strict_types=1);

require_once 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Redis/autoload.php';

use Illuminate\Cache\PhpRedisLock;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Redis\Connections\PhpRedisConnection;

class Laravel extends Client
{
    public bool $extends = false;
    private PhpRedisConnection $connection;

    public function __construct(Server $server)
    {
        parent::__construct($server);
        $this->connection = new PhpRedisConnection($server->connection());
    }

    public function name(): string
    {
        return 'Laravel Cache::lock (phpredis)';
    }

    public function version(): string
    {
        return packageVersion('php-illuminate-cache');
    }

    protected function lock(string $name, int $seconds, ?string $owner = null): PhpRedisLock
    {
        return new PhpRedisLock($this->connection, $name, $seconds, $owner);
    }

    public function take(string $name, int $seconds = LONG_S, bool $wait = false): mixed
    {
        $lock = $this->lock($name, $seconds);
        try {
            $taken = $wait ? $lock->betweenBlockedAttemptsSleepFor(10)->block(5) : $lock->get();
        } catch (LockTimeoutException) {
            return null;
        }
        return $taken ? $lock : null;
    }

    public function release(mixed $lock): bool
    {
        return $lock->release();
    }

    public function stranger(string $name): mixed
    {
        return $this->lock($name, LONG_S);
    }

    public function more(): array
    {
        return [
            'get with a callback' => $this->callback(...),
            'restored by its owner' => $this->restored(...),
            'no seconds' => $this->noSeconds(...),
        ];
    }

    private function callback(string $name): void
    {
        $seen = $this->lock($name, LONG_S)->get(fn () => $this->server->isFree($name) ? 'free' : 'held');
        must($seen === 'held', "it was $seen meanwhile");
        must($this->server->isFree($name), 'still held after the callback');
    }

    /** A queue's worker releases what the request has taken, by the owner that was passed on. */
    private function restored(string $name): void
    {
        $owner = $this->take($name)->owner();
        must($this->party()->lock($name, LONG_S, $owner)->release(), 'refused over another connection');
        must($this->server->isFree($name), 'still held after the release');
    }

    /** The default: SETNX, and no TTL. */
    private function noSeconds(string $name): void
    {
        $lock = $this->take($name, 0);
        must($lock !== null && $this->party()->take($name, 0) === null, 'not held by one party');
        must($lock->release(), 'the holder could not release');
        must($this->server->isFree($name), 'still held after the release');
    }
}
