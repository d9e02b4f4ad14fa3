// go-redis, with the locks of bsm/redislock: Conn takes one connection out of the pool. go-redis.go HOST PORT
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const key = "lock:stock:lamp"

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(os.Args[1], os.Args[2])})
	connection := client.Conn()
	defer connection.Close()
	lock, err := redislock.New(connection).Obtain(ctx, key, 30*time.Second, nil)
	must(err)
	defer lock.Release(ctx)
	fence, err := connection.Do(ctx, "LOCKWARDEN", "FENCE", key).Int64()
	must(err)
	current, err := connection.Do(ctx, "LOCKWARDEN", "CHECK", key, fence).Int64()
	must(err)
	fmt.Println(fence, current)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
