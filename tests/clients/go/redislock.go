package main

// bsm/redislock: all its operations are scripts. The owner token is the beginning of the value, metadata may follow.

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func redislockLibrary(name string, protocol int) Library {
	return Library{
		name:   name,
		module: "github.com/bsm/redislock",
		party: func(server Server) Party {
			client := redis.NewClient(&redis.Options{Addr: server.address, Protocol: protocol})
			return &redislockParty{client}
		},
		refused: func(err error) bool {
			return errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained)
		},
		own: map[string]func(*Checks, string){
			"metadata":         redislockMetadata,
			"obtain again":     redislockObtainsAgain,
			"other connection": redislockOtherConnection,
			"retries":          redislockRetries,
			"scripts flushed":  redislockScriptsFlushed,
			"TTL":              redislockTTL,
		},
	}
}

// redislockSentinelLibrary is that of an application that is configured with sentinels: it asks them where the server is.
func redislockSentinelLibrary() Library {
	library := redislockLibrary("bsm/redislock (by Sentinel)", 3)
	library.own = nil
	library.party = func(Server) Party {
		// Otherwise the library writes down every answer of a sentinel.
		logging.Disable()
		return &redislockParty{redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName:    "mymaster",
			SentinelAddrs: strings.Split(os.Getenv("LOCK_SENTINELS"), ","),
		})}
	}
	return library
}

// redislockClusterLibrary is that of an application that is configured with a cluster: it asks who has which slots.
func redislockClusterLibrary() Library {
	library := redislockLibrary("bsm/redislock (ClusterClient)", 3)
	library.own = nil
	library.party = func(Server) Party {
		return &redislockParty{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{os.Getenv("LOCK_CLUSTER")},
		})}
	}
	return library
}

type redislockParty struct {
	redis redis.UniversalClient
}

// obtain gives nil where somebody else holds the lock.
func (party *redislockParty) obtain(name string, ttl time.Duration, options *redislock.Options) *redislock.Lock {
	lock, err := redislock.Obtain(ctx, party.redis, name, ttl, options)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil
	}
	must(err)
	return lock
}

func (party *redislockParty) Take(name string, ttl time.Duration, wait bool) Lock {
	options := &redislock.Options{}
	if wait {
		options.RetryStrategy = redislock.LimitRetry(redislock.LinearBackoff(pause), 50)
	}
	if lock := party.obtain(name, ttl, options); lock != nil {
		return redislockLock{lock}
	}
	return nil
}

func (party *redislockParty) Stranger(name string) Lock {
	lock, err := redislock.Obtain(ctx, &believing{UniversalClient: party.redis}, name, long, nil)
	must(err)
	return redislockLock{lock}
}

func (party *redislockParty) Close() {
	must(party.redis.Close())
}

type redislockLock struct {
	*redislock.Lock
}

func (lock redislockLock) Release() error {
	return lock.Lock.Release(ctx)
}

func (lock redislockLock) Extend(ttl time.Duration) error {
	return lock.Refresh(ctx, ttl, nil)
}

// believing makes a library believe that its first script got the lock: nothing is sent.
type believing struct {
	redis.UniversalClient
	believes bool
}

func (client *believing) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if client.believes {
		return client.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	client.believes = true
	return redis.NewCmdResult("OK", nil)
}

func redislockMetadata(c *Checks, name string) {
	party := c.party(c.server).(*redislockParty)
	defer party.Close()
	lock := party.obtain(name, long, &redislock.Options{Metadata: "host-7"})
	require(lock.Metadata() == "host-7", "the metadata are %q", lock.Metadata())
	value := c.server.lease(name).value
	require(value == lock.Token()+"host-7", "the value does not end in the metadata")
	before := c.server.lease(name)
	time.Sleep(pause)
	must(lock.Refresh(ctx, long, nil))
	require(c.server.lease(name).end > before.end, "the TTL did not grow")
	c.released(redislockLock{lock}, name)
}

// Who knows the owner token gets the lock once more: over any connection, and with any metadata.
func redislockObtainsAgain(c *Checks, name string) {
	one, other := c.party(c.server).(*redislockParty), c.party(c.server).(*redislockParty)
	defer one.Close()
	defer other.Close()
	const token = "0f8fad5b-d9cb-469f-a165-70867728950e"
	before := Lease{}
	again := func(party *redislockParty, metadata string) *redislock.Lock {
		lock := party.obtain(name, long, &redislock.Options{Token: token, Metadata: metadata})
		require(lock != nil, "the owner token did not get it")
		after := c.server.lease(name)
		require(after.value == token+metadata, "the metadata are others")
		require(after.end > before.end, "the TTL did not grow: %v after %v", after, before)
		before = after
		time.Sleep(pause)
		return lock
	}
	first := again(one, "first")
	again(other, "first")
	again(one, "second")
	second := again(other, "third")
	stranger := other.obtain(name, long, &redislock.Options{Token: "7c9e6679-7425-40de-944b-e07fc1f90ae7"})
	require(stranger == nil, "another owner token got it too")
	// The value is another one now, and that is what a release compares.
	c.refuses("the first's release", first.Release(ctx))
	c.unchanged(name, before)
	c.released(redislockLock{second}, name)
}

func redislockOtherConnection(c *Checks, name string) {
	party := c.party(c.server).(*redislockParty)
	defer party.Close()
	lock := taken(party, name, long)
	defer onAnotherConnection(party.redis.(*redis.Client))()
	must(lock.Extend(2 * long))
	c.released(lock, name)
}

func redislockRetries(c *Checks, name string) {
	one, other := c.party(c.server).(*redislockParty), c.party(c.server)
	defer one.Close()
	defer other.Close()
	first := one.obtain(name, short, nil)
	require(first != nil, "a free lock was not to be had")
	second := other.Take(name, long, true)
	require(second != nil, "it was not got when the first one's TTL was over")
	c.released(second, name)
}

// The server may forget scripts at any time: the library sends their texts then.
func redislockScriptsFlushed(c *Checks, name string) {
	party := c.party(c.server)
	defer party.Close()
	lock := taken(party, name, long)
	must(c.server.redis.ScriptFlush(ctx).Err())
	must(lock.Extend(long))
	must(c.server.redis.ScriptFlush(ctx).Err())
	c.released(lock, name)
	must(c.server.redis.ScriptFlush(ctx).Err())
	c.released(taken(party, name, long), name)
}

func redislockTTL(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long).(redislockLock)
	left, err := lock.TTL(ctx)
	must(err)
	require(0 < left && left <= long, "%v are left", left)
	left, err = other.Stranger(name).(redislockLock).TTL(ctx)
	must(err)
	require(left == 0, "%v are left to a stranger", left)
	c.released(lock, name)
}
