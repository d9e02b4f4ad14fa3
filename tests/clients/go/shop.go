package main

// The shop of `lockwarden demo --guard`, with go-redis and bsm/redislock: 20 workers, each with a connection of its own,
// sell 100 items. Each reads the stock under the lock, pauses, and writes it back; a quarter of the pauses are longer than
// the lock's TTL. Where a guard keeps the stock, nothing is sold twice.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const (
	shopItems   = 100
	shopWorkers = 20
	shopTTL     = 150 * time.Millisecond
	shopWithin  = 45 * time.Second
	shopStock   = "stock:7"
)

// Shop is what its workers sold, and what the guard refused.
type Shop struct {
	server        Server
	lock          string
	closes        time.Time
	counting      sync.Mutex
	sold, refused int
	problem       error
}

func runShop(server Server, lock string) {
	result := line{
		Client:  "go-redis, bsm/redislock",
		Version: version("github.com/redis/go-redis/v9"),
		Check:   "a connection for each of 20 workers",
	}
	keepsStock := os.Getenv("LOCK_WORLD") != "direct"
	broken := guarded(func() {
		shop := &Shop{server: server, lock: lock, closes: time.Now().Add(shopWithin)}
		left := shop.sellOut()
		told := fmt.Sprintf("%d sold of %d, %d oversold, %d left", shop.sold, shopItems, max(0, shop.sold-shopItems), left)
		if shop.refused > 0 {
			told += fmt.Sprintf(", %d writes refused", shop.refused)
		}
		result.Detail = told
		require(left == 0, "%s", told)
		// Without the proxy items are sold twice, or the figures with it would mean nothing.
		require((shop.sold == shopItems) == keepsStock, "%s", told)
		require((shop.refused > 0) == keepsStock, "%s", told)
	})
	result.print(broken)
}

// sellOut has the workers sell until nothing is left, or the shop closes; it says what is left.
func (shop *Shop) sellOut() int {
	manager := shop.connection()
	defer func() { must(manager.Close()) }()
	lock, err := redislock.Obtain(ctx, manager, shop.lock, long, nil)
	must(err)
	must(manager.Set(ctx, shopStock, shopItems, 0).Err())
	must(lock.Release(ctx))
	var workers sync.WaitGroup
	for worker := range shopWorkers {
		workers.Add(1)
		go func() {
			defer workers.Done()
			if broken := guarded(func() { shop.works(worker) }); broken != nil {
				shop.counting.Lock()
				defer shop.counting.Unlock()
				shop.problem = broken
			}
		}()
	}
	workers.Wait()
	must(shop.problem)
	left, err := manager.Get(ctx, shopStock).Int()
	must(err)
	return left
}

func (shop *Shop) connection() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: shop.server.address, PoolSize: 1})
}

func (shop *Shop) works(worker int) {
	client := shop.connection()
	defer func() { must(client.Close()) }()
	patience := &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)}
	// Without a deadline of its own the library waits no longer than the TTL.
	untilClosed, cancel := context.WithDeadline(ctx, shop.closes)
	defer cancel()
	for turn := 1; time.Now().Before(shop.closes); turn++ {
		lock, err := redislock.Obtain(untilClosed, client, shop.lock, shopTTL, patience)
		if errors.Is(err, redislock.ErrNotObtained) {
			continue
		}
		must(err)
		stock, err := client.Get(ctx, shopStock).Int()
		must(err)
		if stock > 0 {
			time.Sleep(shopPause(worker, turn))
			shop.writes(client, stock-1)
		}
		// A lock that ran out is nothing that the program minds.
		if err := lock.Release(ctx); !errors.Is(err, redislock.ErrLockNotHeld) {
			must(err)
		}
		if stock == 0 {
			return
		}
	}
}

func (shop *Shop) writes(client *redis.Client, stock int) {
	err := client.Set(ctx, shopStock, stock, 0).Err()
	shop.counting.Lock()
	defer shop.counting.Unlock()
	if err != nil && strings.HasPrefix(err.Error(), "LOCKDENIED stale-fence ") {
		shop.refused++
		return
	}
	must(err)
	shop.sold++
}

func shopPause(worker, turn int) time.Duration {
	spread := turn*7 + worker*3
	if (turn+worker)%4 == 0 {
		return time.Duration(160+spread%40) * time.Millisecond
	}
	return time.Duration(4+spread%8) * time.Millisecond
}
