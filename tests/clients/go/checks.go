package main

// What every lock library must do. A Party is somebody who uses a Library, with connections of its own. Checks look
// at the server over a connection of their own, Server, and end in a panic where something is not as it must be.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	parties = 8
	rounds  = 5
	// How long eight parties may take together.
	contendWithin = time.Minute
	short         = 800 * time.Millisecond
	long          = 10 * time.Second
	pause         = 20 * time.Millisecond
)

// Whether misuse does its damage here.
var damaged = os.Getenv("LOCK_WORLD") == "direct"

// isWanted is whether a check is to run; by default all are.
func isWanted(check string) bool {
	wanted, some := os.LookupEnv("LOCK_CHECKS")
	return !some || slices.Contains(strings.Split(wanted, ";"), check)
}

// Library is one lock library.
type Library struct {
	name, module string
	party        func(Server) Party
	// Whether this is how a release or an extension is refused; nil where the library does not tell.
	refused func(error) bool
	// Checks of its own, by name; they replace those that all have.
	own map[string]func(*Checks, string)
}

// Party is somebody who uses the library.
type Party interface {
	// Take gives a lock that is held, or nil where somebody else holds it.
	Take(name string, ttl time.Duration, wait bool) Lock
	// Stranger is a lock with another owner token that believes it is held.
	Stranger(name string) Lock
	Close()
}

// Lock is one that a party holds, or believes it holds.
type Lock interface {
	Release() error
	// Extend makes the TTL this again.
	Extend(ttl time.Duration) error
}

// Server is the server as a bystander sees it.
type Server struct {
	address string
	redis   *redis.Client
}

func serverFromEnvironment() Server {
	address := net.JoinHostPort(os.Getenv("LOCK_HOST"), os.Getenv("LOCK_PORT"))
	return Server{address, redis.NewClient(&redis.Options{Addr: address})}
}

// Lease is what a lock must stay when somebody else tries something.
type Lease struct {
	value string
	// When it ends, in milliseconds of Unix time; -2 where there is no lock.
	end int64
}

var noLease = Lease{"", -2}

func (server Server) lease(key string) Lease {
	value, err := server.redis.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		must(err)
	}
	end, err := server.redis.Do(ctx, "PEXPIRETIME", key).Int64()
	must(err)
	return Lease{value, end}
}

func (server Server) isFree(key string) bool {
	there, err := server.redis.Exists(ctx, key).Result()
	must(err)
	return there == 0
}

func (server Server) waitUntilFree(key string) {
	for deadline := time.Now().Add(long); !server.isFree(key); time.Sleep(pause) {
		require(time.Now().Before(deadline), "the lock did not end by its TTL")
	}
}

type failure string

// require ends the check where this does not hold.
func require(holds bool, format string, arguments ...any) {
	if !holds {
		panic(failure(fmt.Sprintf(format, arguments...)))
	}
}

func must(err error) {
	require(err == nil, "%v", err)
}

// guarded is how something that may panic ended. Only a broken promise is caught: a bug here shall be seen.
func guarded(do func()) (broken error) {
	defer func() {
		if reason := recover(); reason != nil {
			text, expected := reason.(failure)
			if !expected {
				panic(reason)
			}
			broken = errors.New(string(text))
		}
	}()
	do()
	return nil
}

type line struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Check   string `json:"check"`
	Result  string `json:"result"`
	Detail  string `json:"detail,omitempty"`
}

func (result line) print(broken error) {
	result.Result = "ok"
	if broken != nil {
		result.Result, result.Detail = "failed", broken.Error()
	}
	text, err := json.Marshal(result)
	must(err)
	fmt.Println(string(text))
}

// Checks are the six that all libraries have in common.
type Checks struct {
	Library
	server Server
}

func run(library Library, server Server, prefix string) {
	checks := &Checks{library, server}
	all := map[string]func(*Checks, string){
		"acquire": (*Checks).acquire,
		"contend": (*Checks).contend,
		"extend":  (*Checks).extend,
		"release": (*Checks).release,
		"expiry":  (*Checks).expiry,
		"thief":   (*Checks).thief,
	}
	names := []string{"acquire", "contend", "extend", "release", "expiry", "thief"}
	for _, name := range slices.Sorted(maps.Keys(library.own)) {
		if all[name] == nil {
			names = append(names, name)
		}
		all[name] = library.own[name]
	}
	for _, name := range names {
		if !isWanted(name) {
			continue
		}
		result := line{Client: library.name, Version: version(library.module), Check: name}
		result.print(guarded(func() { all[name](checks, prefix+strings.ReplaceAll(name, " ", "-")) }))
	}
}

// taken is a lock that had to be free.
func taken(party Party, name string, ttl time.Duration) Lock {
	lock := party.Take(name, ttl, false)
	require(lock != nil, "a free lock was not to be had")
	return lock
}

func (c *Checks) released(lock Lock, name string) {
	must(lock.Release())
	require(c.server.isFree(name), "still held after the release")
}

func (c *Checks) refuses(what string, err error) {
	if c.refused != nil {
		require(err != nil, "%s went through", what)
		require(c.refused(err), "%s was refused by %v", what, err)
	}
}

func (c *Checks) unchanged(name string, lease Lease) {
	now := c.server.lease(name)
	require(now == lease, "the lock is %v, it was %v", now, lease)
}

func (c *Checks) acquire(name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long)
	lease := c.server.lease(name)
	require(lease.value != "" && lease.end > 0, "the lock on the server is %v", lease)
	require(other.Take(name, long, false) == nil, "a second party got it too")
	c.unchanged(name, lease)
	c.released(lock, name)
}

func (c *Checks) contend(name string) {
	deadline := time.Now().Add(contendWithin)
	inside, entries := "plain:"+name+":inside", "plain:"+name+":entries"
	var broken atomic.Pointer[error]
	one := func() {
		party := c.party(c.server)
		defer party.Close()
		for range rounds {
			lock := party.Take(name, long, true)
			for ; lock == nil; lock = party.Take(name, long, true) {
				if broken.Load() != nil {
					return
				}
				require(time.Now().Before(deadline), "not let in in time")
			}
			together, err := c.server.redis.Incr(ctx, inside).Result()
			must(err)
			require(together == 1, "%d parties at a time", together)
			time.Sleep(2 * time.Millisecond)
			must(c.server.redis.Incr(ctx, entries).Err())
			must(c.server.redis.Decr(ctx, inside).Err())
			must(lock.Release())
		}
	}
	var all sync.WaitGroup
	for range parties {
		all.Go(func() {
			if err := guarded(one); err != nil {
				broken.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := broken.Load(); err != nil {
		must(*err)
	}
	came, err := c.server.redis.Get(ctx, entries).Int()
	must(err)
	require(came == parties*rounds, "%d of %d came in", came, parties*rounds)
	require(c.server.isFree(name), "still held after the last release")
}

func (c *Checks) extend(name string) {
	party := c.party(c.server)
	defer party.Close()
	lock := taken(party, name, long)
	before := c.server.lease(name)
	time.Sleep(pause) // so that the same TTL from now on ends later
	must(lock.Extend(long))
	after := c.server.lease(name)
	require(after.end > before.end, "the TTL did not grow: %v after %v", after, before)
	require(after.value == before.value, "the value changed: %v after %v", after, before)
	c.released(lock, name)
}

func (c *Checks) release(name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	for _, party := range []Party{one, other, one} {
		c.released(taken(party, name, long), name)
	}
}

func (c *Checks) expiry(name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	late := taken(one, name, short)
	c.server.waitUntilFree(name)
	successor := taken(other, name, long)
	lease := c.server.lease(name)
	c.refuses("a late extension", late.Extend(2*long))
	c.refuses("a late release", late.Release())
	c.unchanged(name, lease)
	c.released(successor, name)
}

func (c *Checks) thief(name string) {
	one, other := c.party(c.server), c.party(c.server)
	defer one.Close()
	defer other.Close()
	lock := taken(one, name, long)
	lease := c.server.lease(name)
	c.refuses("a thief's extension", other.Stranger(name).Extend(2*long))
	c.refuses("a thief's release", other.Stranger(name).Release())
	c.unchanged(name, lease)
	c.released(lock, name)
}
