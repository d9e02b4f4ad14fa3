<?php
// Symfony's Lock component with its RedisStore: a sorted set a lock, a member a holder.

declare(strict_types=1);

require_once 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\Store\RedisStore;

class Symfony extends Client
{
    // It asks afterwards whether it still holds, and is content if not.
    public bool $tells = false;
    private RedisStore $store;

    public function __construct(Server $server)
    {
        parent::__construct($server);
        $this->store = new RedisStore($server->connection(), LONG_S);
    }

    public function name(): string
    {
        return 'Symfony Lock, RedisStore (phpredis)';
    }

    public function version(): string
    {
        return packageVersion('php-symfony-lock');
    }

    protected function lock(string $name, int $seconds = LONG_S): Lock
    {
        return new Lock(new Key($name), $this->store, $seconds, autoRelease: false);
    }

    public function take(string $name, int $seconds = LONG_S, bool $wait = false): mixed
    {
        $lock = $this->lock($name, $seconds);
        return $lock->acquire(blocking: $wait) ? $lock : null;
    }

    public function release(mixed $lock): bool
    {
        $lock->release();
        return true;
    }

    public function extend(mixed $lock, int $seconds): bool
    {
        try {
            $lock->refresh($seconds);
            return true;
        } catch (LockConflictedException) {
            return false;
        }
    }

    public function stranger(string $name): mixed
    {
        return $this->lock($name);
    }

    public function more(): array
    {
        return [
            'is acquired' => $this->isAcquired(...),
            'read and write' => $this->readAndWrite(...),
            'promotion' => $this->promotion(...),
        ];
    }

    private function isAcquired(string $name): void
    {
        $lock = $this->take($name);
        must($lock->isAcquired() && !$this->party()->stranger($name)->isAcquired(), 'the wrong one holds');
        $lock->release();
        must(!$lock->isAcquired(), 'held after the release');
    }

    /** Two readers at a time, no writer meanwhile; a writer when both have gone, and no reader then. */
    private function readAndWrite(string $name): void
    {
        $other = $this->party();
        [$one, $two, $writer] = [$this->lock($name), $other->lock($name), $other->lock($name)];
        must($one->acquireRead() && $two->acquireRead(), 'two readers were not let in');
        must(!$writer->acquire(), 'a writer came in beside readers');
        $one->release();
        must($two->isAcquired() && !$writer->acquire(), 'the second reader lost its lock');
        $two->release();
        must($writer->acquire(), 'a writer was not let in');
        must(!$one->acquireRead(), 'a reader came in beside a writer');
        $writer->release();
        must($this->server->isFree($name), 'still held after the release');
    }

    private function promotion(string $name): void
    {
        [$one, $two] = [$this->lock($name), $this->party()->lock($name)];
        must($one->acquireRead() && $one->acquire(), 'the only reader could not become a writer');
        must(!$two->acquireRead(), 'a reader came in beside a writer');
        must($one->acquireRead() && $two->acquireRead(), 'it could not become a reader again');
        $one->release();
        $two->release();
        must($this->server->isFree($name), 'still held after the release');
    }
}
