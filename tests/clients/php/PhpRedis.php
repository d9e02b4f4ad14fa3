<?php
// phpredis as people write locks with it: SET NX PX with a random owner token, and two short scripts by EVAL.

declare(strict_types=1);

class PhpRedis extends Client
{
    private const RELEASE = <<<'LUA'
        if redis.call("get", KEYS[1]) == ARGV[1] then
            return redis.call("del", KEYS[1])
        else
            return 0
        end
        LUA;
    private const EXTEND = <<<'LUA'
        if redis.call("get", KEYS[1]) == ARGV[1] then
            return redis.call("pexpire", KEYS[1], ARGV[2])
        end
        return 0
        LUA;

    protected Redis|RedisCluster $redis;

    public function __construct(Server $server)
    {
        parent::__construct($server);
        $this->redis = $server->connection();
    }

    public function name(): string
    {
        return 'phpredis, SET NX and scripts';
    }

    public function version(): string
    {
        return phpversion('redis');
    }

    public function take(string $name, int $seconds = LONG_S, bool $wait = false): mixed
    {
        $token = bin2hex(random_bytes(16));
        for ($try = 0; $try < ($wait ? 200 : 1); $try++) {
            if ($this->redis->set($name, $token, ['nx', 'px' => 1000 * $seconds])) {
                return [$name, $token];
            }
            usleep(5_000);
        }
        return null;
    }

    public function release(mixed $lock): bool
    {
        return $this->script(self::RELEASE, $lock) === 1;
    }

    public function extend(mixed $lock, int $seconds): bool
    {
        return $this->script(self::EXTEND, [...$lock, 1000 * $seconds]) === 1;
    }

    public function stranger(string $name): mixed
    {
        return [$name, bin2hex(random_bytes(16))];
    }

    private function script(string $text, array $arguments): mixed
    {
        $this->redis->clearLastError();
        $answer = $this->redis->eval($text, $arguments, 1);
        must($this->redis->getLastError() === null, (string) $this->redis->getLastError());
        return $answer;
    }

    public function more(): array
    {
        return [
            'release by EVALSHA' => $this->releaseBySha(...),
            'other connection' => $this->otherConnection(...),
            'WATCH release' => $this->watchRelease(...),
            'deadline as value' => $this->deadline(...),
            'pipeline' => $this->pipeline(...),
        ];
    }

    private function releaseBySha(string $name): void
    {
        [, $token] = $this->take($name);
        $sha = $this->redis->script('load', self::RELEASE);
        must($this->redis->evalSha($sha, [$name, 'no such owner token'], 1) === 0, 'a stranger released');
        must($this->redis->evalSha($sha, [$name, $token], 1) === 1, 'the holder could not release');
    }

    /** PHP's next request comes over another connection: the owner token proves it. */
    private function otherConnection(string $name): void
    {
        $lock = $this->take($name);
        $next = $this->party();
        must($next->extend($lock, LONG_S) && $next->release($lock), 'refused over another connection');
        must($this->server->isFree($name), 'still held after the release');
    }

    private function watchRelease(string $name): void
    {
        [, $token] = $this->take($name);
        $this->redis->watch($name);
        must($this->redis->get($name) === $token, 'another value');
        must($this->redis->multi()->del($name)->exec() === [1], 'the holder could not release');
        must($this->server->isFree($name), 'still held after the release');
    }

    /** SETNX with a deadline as value; two waiters read that it has passed and send GETSET: one wins. */
    private function deadline(string $name): void
    {
        [$two, $three] = [$this->server->connection(), $this->server->connection()];
        $passed = (string) (time() - 1);
        must($this->redis->setnx($name, $passed), 'a free lock was not to be had');
        must($two->get($name) === $passed && $three->get($name) === $passed, 'another value');
        $next = (string) (time() + 20);
        must($two->getSet($name, $next) === $passed, 'the first waiter did not win');
        must($three->getSet($name, (string) (time() + 21)) === $next, 'the second waiter did not see that it lost');
        must($two->del($name) === 1, 'the winner could not release');
    }

    private function pipeline(string $name): void
    {
        $token = bin2hex(random_bytes(16));
        $answers = $this->redis->pipeline()
            ->set("plain:$name", 'x')
            ->set($name, $token, ['nx', 'px' => 1000 * LONG_S])
            ->eval(self::RELEASE, [$name, $token], 1)
            ->get("plain:$name")
            ->exec();
        must($answers === [true, true, 1, 'x'], json_encode($answers));
        must($this->server->isFree($name), 'still held after the release');
    }
}
