package main

// go-redsync with one server: SET NX to acquire, scripts for the rest. Its refusals tell apart whether the lock is
// somebody else's or nobody's.

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var redsyncLibrary = Library{
	name:   "go-redsync",
	module: "github.com/go-redsync/redsync/v4",
	party: func(server Server) Party {
		client := redis.NewClient(&redis.Options{Addr: server.address})
		return &redsyncParty{client, redsync.New(goredis.NewPool(client))}
	},
	refused: redsyncTaken,
	own: map[string]func(*Checks, string){
		"already expired":  redsyncAlreadyExpired,
		"default settings": redsyncDefaultSettings,
		"handed over":      redsyncHandedOver,
		"other connection": redsyncOtherConnection,
		"SETNX on extend":  redsyncSetNXOnExtend,
		"valid":            redsyncValid,
	},
}

func redsyncTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

type redsyncParty struct {
	redis   *redis.Client
	redsync *redsync.Redsync
}

func (party *redsyncParty) mutex(name string, ttl time.Duration, options ...redsync.Option) redsyncLock {
	// By default an attempt may take a twentieth of the TTL, which a busy machine does not always keep.
	options = append(options, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5), redsync.WithRetryDelay(pause))
	return redsyncLock{party.redsync.NewMutex(name, options...)}
}

func (party *redsyncParty) Take(name string, ttl time.Duration, wait bool) Lock {
	tries := 1
	if wait {
		tries = 50
	}
	lock := party.mutex(name, ttl, redsync.WithTries(tries))
	err := lock.Lock()
	if redsyncTaken(err) || errors.Is(err, redsync.ErrFailed) {
		return nil
	}
	must(err)
	return lock
}

func (party *redsyncParty) Stranger(name string) Lock {
	return party.mutex(name, 2*long, redsync.WithValue("c29tZWJvZHkgZWxzZSBhbHRvZ2V0aGVyIQ=="))
}

func (party *redsyncParty) Close() {
	must(party.redis.Close())
}

type redsyncLock struct {
	*redsync.Mutex
}

func (lock redsyncLock) Release() error {
	return told(lock.Unlock())
}

// Extend makes it the TTL that the mutex was made with: the library knows no other.
func (lock redsyncLock) Extend(time.Duration) error {
	return told(lock.Mutex.Extend())
}

func told(done bool, err error) error {
	if err == nil && !done {
		return errors.New("false, and no error")
	}
	return err
}

func redsyncAlreadyExpired(c *Checks, name string) {
	party := c.party(c.server)
	defer party.Close()
	lock := taken(party, name, short)
	c.server.waitUntilFree(name)
	err := lock.Release()
	require(errors.Is(err, redsync.ErrLockAlreadyExpired), "a release when the TTL is over gave %v", err)
	err = lock.Extend(short)
	require(redsyncTaken(err), "an extension when the TTL is over gave %v", err)
	require(c.server.isFree(name), "there is a lock again")
}

func redsyncDefaultSettings(c *Checks, name string) {
	party := c.party(c.server).(*redsyncParty)
	defer party.Close()
	lock := redsyncLock{party.redsync.NewMutex(name)}
	must(lock.Lock())
	left := time.Until(lock.Until())
	require(0 < left && left <= 8*time.Second, "%v are left", left)
	c.released(lock, name)
}

// Whoever is told the value may release: another process, another connection.
func redsyncHandedOver(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server).(*redsyncParty)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long).(redsyncLock)
	before := c.server.lease(name)
	heir := other.mutex(name, 2*long, redsync.WithValue(lock.Value()))
	must(heir.Extend(2 * long))
	require(c.server.lease(name).end > before.end, "the TTL did not grow")
	c.released(heir, name)
}

func redsyncOtherConnection(c *Checks, name string) {
	party := c.party(c.server).(*redsyncParty)
	defer party.Close()
	lock := taken(party, name, long)
	defer onAnotherConnection(party.redis)()
	must(lock.Extend(long))
	c.released(lock, name)
}

func redsyncSetNXOnExtend(c *Checks, name string) {
	one, other := c.party(c.server).(*redsyncParty), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := one.mutex(name, short, redsync.WithSetNXOnExtend())
	must(lock.Lock())
	before := c.server.lease(name)
	time.Sleep(pause)
	must(lock.Extend(short))
	require(c.server.lease(name).end > before.end, "the TTL did not grow")
	c.server.waitUntilFree(name)
	must(lock.Extend(short))
	require(c.server.lease(name).value == lock.Value(), "a lock that had ended was not taken again")
	require(other.Take(name, long, false) == nil, "a second party got it too")
	c.server.waitUntilFree(name)
	successor := taken(other, name, long)
	lease := c.server.lease(name)
	err := lock.Extend(short)
	require(redsyncTaken(err), "an extension of the successor's lock gave %v", err)
	c.unchanged(name, lease)
	c.released(successor, name)
}

func redsyncValid(c *Checks, name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long).(redsyncLock)
	valid, err := lock.Valid()
	must(err)
	require(valid, "the lock is not valid")
	valid, err = other.Stranger(name).(redsyncLock).Valid()
	require(!valid && redsyncTaken(err), "whether a stranger's lock is valid: %v, %v", valid, err)
	c.released(lock, name)
}
