package main

// What people write themselves: SETNX and DEL with the value 1, no owner token anywhere, on a pool of go-redis. Each
// party has an address of its own, so that it is a machine of its own. Here the worlds must differ where the idiom
// does damage: straight to Redis a late or a stranger's DEL frees the lock, through the proxy it does not.

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var rawLibrary = Library{
	name:   "SETNX, DEL (go-redis)",
	module: "github.com/redis/go-redis/v9",
	party:  newRawParty,
	own: map[string]func(*Checks, string){
		"DEL in a defer":  rawLoser,
		"EXPIRE after it": rawExpireAfter,
		"expiry":          rawLate,
		"pipeline":        rawPipeline,
		"thief":           rawThief,
		"WATCH release":   rawWatch,
	},
}

var machines atomic.Uint32

type rawParty struct {
	redis *redis.Client
}

func newRawParty(server Server) Party {
	number := machines.Add(1)
	host := net.IPv4(127, 78, byte(number>>8), byte(number))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: host}}
	return &rawParty{redis.NewClient(&redis.Options{
		Addr:       server.address,
		ClientName: fmt.Sprintf("worker-%d", number),
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	})}
}

func (party *rawParty) Take(name string, ttl time.Duration, _ bool) Lock {
	got, err := party.redis.SetNX(ctx, name, "1", ttl).Result()
	must(err)
	if !got {
		return nil
	}
	return party.Stranger(name)
}

func (party *rawParty) Stranger(name string) Lock {
	return rawLock{party.redis, name}
}

func (party *rawParty) Close() {
	must(party.redis.Close())
}

type rawLock struct {
	redis *redis.Client
	key   string
}

// Release does not look at the answer, as nobody does.
func (lock rawLock) Release() error {
	return lock.redis.Del(ctx, lock.key).Err()
}

func (lock rawLock) Extend(ttl time.Duration) error {
	return lock.redis.PExpire(ctx, lock.key, ttl).Err()
}

// survives says whether the lock, which was to be seen like this, is gone only where nobody protects it.
func (c *Checks) survives(name string, lease Lease) {
	if damaged {
		lease = noLease
	}
	c.unchanged(name, lease)
}

func rawLate(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	late := taken(one, name, short)
	c.server.waitUntilFree(name)
	successor := taken(other, name, long)
	lease := c.server.lease(name)
	must(late.Release())
	c.survives(name, lease)
	c.released(successor, name)
}

func rawThief(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long)
	lease := c.server.lease(name)
	must(other.Stranger(name).Release())
	c.survives(name, lease)
	c.released(lock, name)
}

func rawLoser(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long)
	lease := c.server.lease(name)
	require(other.Take(name, long, false) == nil, "a second party got it too")
	must(other.Stranger(name).Release())
	c.survives(name, lease)
	c.released(lock, name)
}

// SETNX without a TTL, and an EXPIRE that a crash may prevent.
func rawExpireAfter(c *Checks, name string) {
	party := c.party(c.server).(*rawParty)
	defer party.Close()
	lock := taken(party, name, 0)
	must(lock.Extend(short))
	lease := c.server.lease(name)
	require(time.Until(time.UnixMilli(lease.end)) <= short, "the lock is %v", lease)
	c.released(lock, name)
}

// The library has connections of its own for pipelines, so that a party has two from here on.
func rawPipeline(c *Checks, name string) {
	party := c.party(c.server).(*rawParty)
	defer party.Close()
	var got *redis.BoolCmd
	var there *redis.IntCmd
	_, err := party.redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		got = pipe.SetNX(ctx, name, "1", 0)
		pipe.Expire(ctx, name, long)
		there = pipe.ClientID(ctx)
		return nil
	})
	must(err)
	require(got.Val(), "a free lock was not to be had")
	here, err := party.redis.ClientID(ctx).Result()
	must(err)
	require(here != there.Val(), "the pipeline went over the same connection")
	before := c.server.lease(name)
	require(before.end > 0, "the lock is %v", before)
	time.Sleep(pause)
	must(party.redis.PExpire(ctx, name, long).Err())
	require(c.server.lease(name).end > before.end, "the TTL did not grow")
	_, err = party.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		return pipe.Del(ctx, name).Err()
	})
	must(err)
	require(c.server.isFree(name), "still held after the release")
}

// WATCH, GET, compare, MULTI, DEL, EXEC with a value of one's own: right in both worlds.
func rawWatch(c *Checks, name string) {
	party := c.party(c.server).(*rawParty)
	defer party.Close()
	const value = "6f1e6f6c-5a52-4d0e-9a55-3f1c2b7d9e10"
	got, err := party.redis.SetNX(ctx, name, value, long).Result()
	must(err)
	require(got, "a free lock was not to be had")
	defer onAnotherConnection(party.redis)()
	must(party.redis.Watch(ctx, func(tx *redis.Tx) error {
		now, err := tx.Get(ctx, name).Result()
		must(err)
		require(now == value, "the value is not the one that was stored")
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.Del(ctx, name).Err()
		})
		return err
	}, name))
	require(c.server.isFree(name), "still held after the release")
}

// onAnotherConnection makes the client's next commands go over another connection than the last one, until what it
// returns is called: it keeps that one, the youngest in the pool, busy.
func onAnotherConnection(client *redis.Client) func() {
	last := client.Conn()
	old, err := last.ClientID(ctx).Result()
	must(err)
	now, err := client.ClientID(ctx).Result()
	must(err)
	require(old != now, "it is the same connection")
	return func() { must(last.Close()) }
}
