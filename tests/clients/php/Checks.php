<?php
// What every lock library must do. A `Client` is one library behind a few verbs; its own abilities are checks in
// `more`. Checks look at the server over a connection of their own, `Server`. A party that contends is a process.

declare(strict_types=1);

const PARTIES = 8;
const ROUNDS = 5;
// How long eight parties may take together.
const CONTEND_WITHIN_S = 60;
// Whole seconds, because Laravel knows no others.
const SHORT_S = 1;
const LONG_S = 10;

/** The library has no such thing; the message says what. */
class NotThere extends Exception {}

/** The server as a bystander sees it. */
class Server
{
    public Redis $redis;

    public function __construct(public readonly string $host, public readonly int $port)
    {
        $this->redis = $this->connection();
    }

    public function connection(): Redis
    {
        $redis = new Redis();
        $redis->connect($this->host, $this->port);
        return $redis;
    }

    /** Value and end of a lock; both must stay what they are when somebody else tries something. */
    public function lease(string $key): array
    {
        $value = match ($this->redis->type($key)) {
            Redis::REDIS_NOT_FOUND => null,
            Redis::REDIS_ZSET => $this->redis->zRange($key, 0, -1, true),
            default => $this->redis->get($key),
        };
        return [$value, $this->redis->rawCommand('PEXPIRETIME', $key)];
    }

    public function isFree(string $key): bool
    {
        return $this->redis->exists($key) === 0;
    }

    public function waitUntilFree(string $key): void
    {
        $deadline = microtime(true) + LONG_S;
        while (!$this->isFree($key)) {
            must(microtime(true) < $deadline, 'the lock did not end by its TTL');
            usleep(20_000);
        }
    }
}

/** One library. `release` and `extend` answer false, or throw, where the library tells that it was refused. */
abstract class Client
{
    public bool $extends = true;
    /** Whether a refused release can be seen by who sent it. */
    public bool $tells = true;

    public function __construct(protected Server $server) {}

    abstract public function name(): string;

    abstract public function version(): string;

    /** Somebody else: a client of the library with a connection of its own. */
    public function party(): static
    {
        return new static($this->server);
    }

    /** A lock that is held, or null. */
    abstract public function take(string $name, int $seconds = LONG_S, bool $wait = false): mixed;

    abstract public function release(mixed $lock): bool;

    /** So that the TTL is this again. */
    public function extend(mixed $lock, int $seconds): bool
    {
        throw new NotThere('it cannot extend');
    }

    /** A lock object with another owner token that believes it holds. */
    abstract public function stranger(string $name): mixed;

    /** Checks of this library's own, by name, each a function of a lock's name. */
    public function more(): array
    {
        return [];
    }
}

function must(bool $holds, string $otherwise): void
{
    if (!$holds) {
        throw new Exception($otherwise);
    }
}

/** The six checks that all libraries have in common. */
class Checks
{
    public function __construct(private Client $client, private Server $server) {}

    public function run(string $prefix): void
    {
        $checks = [
            'acquire' => $this->acquire(...),
            'contend' => $this->contend(...),
            'extend' => $this->extend(...),
            'release' => $this->release(...),
            'expiry' => $this->expiry(...),
            'thief' => $this->thief(...),
            ...$this->client->more(),
        ];
        $wanted = getenv('LOCK_CHECKS');
        foreach ($checks as $name => $check) {
            if ($wanted !== false && !in_array($name, explode(';', $wanted), true)) {
                continue;
            }
            $line = ['client' => $this->client->name(), 'version' => $this->client->version(), 'check' => $name];
            try {
                $check($prefix . strtr($name, ' ', '-'));
                $line['result'] = 'ok';
            } catch (NotThere $reason) {
                $line += ['result' => 'n/a', 'detail' => $reason->getMessage()];
            } catch (Throwable $problem) {
                $text = get_class($problem) . ": {$problem->getMessage()} (line {$problem->getLine()})";
                $text .= $problem->getPrevious() ? "; {$problem->getPrevious()->getMessage()}" : '';
                $line += ['result' => 'failed', 'detail' => substr($text, 0, 400)];
            }
            echo json_encode($line, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
        }
    }

    private function acquire(string $name): void
    {
        $lock = $this->client->take($name);
        must($lock !== null, 'a free lock was not to be had');
        $lease = $this->server->lease($name);
        must($lease[0] !== null && $lease[1] > 0, 'the lock is not there, or has no end');
        must($this->client->party()->take($name) === null, 'a second party got it too');
        must($this->server->lease($name) === $lease, 'the lock changed');
        must($this->client->release($lock), 'the holder could not release');
    }

    private function contend(string $name): void
    {
        $inside = "plain:$name:inside";
        $entries = "plain:$name:entries";
        $problems = "plain:$name:problems";
        $deadline = microtime(true) + CONTEND_WITHIN_S;
        $children = [];
        for ($party = 0; $party < PARTIES; $party++) {
            $child = pcntl_fork();
            must($child >= 0, 'cannot fork');
            if ($child > 0) {
                $children[] = $child;
                continue;
            }
            $own = $this->server->connection();
            try {
                $this->takeTurns($name, $own, $inside, $entries, $problems, $deadline);
            } catch (Throwable $problem) {
                $own->rPush($problems, $problem->getMessage());
            }
            // Not by exit: a destructor would release, or say good-bye, over a connection of the parent's.
            posix_kill(getmypid(), SIGKILL);
        }
        foreach ($children as $child) {
            pcntl_waitpid($child, $status);
        }
        $said = $this->server->redis->lRange($problems, 0, -1);
        must($said === [], implode('; ', $said));
        must((int) $this->server->redis->get($entries) === PARTIES * ROUNDS, 'not everybody came in');
        must($this->server->isFree($name), 'still held after the last release');
    }

    private function takeTurns(
        string $name, Redis $own, string $inside, string $entries, string $problems, float $deadline
    ): void {
        $party = $this->client->party();
        for ($round = 0; $round < ROUNDS; $round++) {
            $lock = null;
            while ($lock === null) {
                if ($own->lLen($problems) > 0) {
                    return;
                }
                must(microtime(true) < $deadline, 'not let in in time');
                $lock = $party->take($name, wait: true);
            }
            $together = $own->incr($inside);
            must($together === 1, "$together parties at a time");
            usleep(2_000);
            $own->incr($entries);
            $own->decr($inside);
            must($party->release($lock), 'the holder could not release');
        }
    }

    private function extend(string $name): void
    {
        if (!$this->client->extends) {
            throw new NotThere('it cannot extend');
        }
        $lock = $this->client->take($name);
        $end = $this->server->lease($name)[1];
        usleep(100_000); // so that the same TTL from now on ends later
        must($this->client->extend($lock, LONG_S), 'the holder could not extend');
        must($this->server->lease($name)[1] > $end, 'the TTL did not grow');
        must($this->client->release($lock), 'the holder could not release');
        must($this->server->isFree($name), 'still held after the release');
    }

    private function release(string $name): void
    {
        $other = $this->client->party();
        foreach ([$this->client, $other, $this->client] as $party) {
            $lock = $party->take($name);
            must($lock !== null, 'a released lock was not to be had');
            must($party->release($lock), 'the holder could not release');
            must($this->server->isFree($name), 'still held after the release');
        }
    }

    private function expiry(string $name): void
    {
        $late = $this->client->take($name, SHORT_S);
        $this->server->waitUntilFree($name);
        $other = $this->client->party();
        $successor = $other->take($name);
        must($successor !== null, 'a lock that ran out was not to be had');
        $lease = $this->server->lease($name);
        if ($this->client->extends) {
            must(!$this->client->extend($late, LONG_S), 'a late extension went through');
        }
        must(!$this->client->release($late) || !$this->client->tells, 'a late release went through');
        must($this->server->lease($name) === $lease, "the successor's lock changed");
        must($other->release($successor), 'the successor could not release');
        must($this->server->isFree($name), 'still held after the release');
    }

    private function thief(string $name): void
    {
        $lock = $this->client->take($name);
        $lease = $this->server->lease($name);
        $other = $this->client->party();
        if ($this->client->extends) {
            must(!$other->extend($other->stranger($name), 3 * LONG_S), "a thief's extension went through");
        }
        $released = $other->release($other->stranger($name));
        must(!$released || !$this->client->tells, "a thief's release went through");
        must($this->server->lease($name) === $lease, 'the lock changed');
        must($this->client->release($lock), 'the holder could not release');
        must($this->server->isFree($name), 'still held after the release');
    }
}

/** The version of a library that Debian packages, without Debian's own part. */
function packageVersion(string $package): string
{
    $full = (string) shell_exec('dpkg-query -W -f \'${Version}\' ' . escapeshellarg($package));
    return preg_replace('/^\d+:|[+-].*$/', '', $full);
}
