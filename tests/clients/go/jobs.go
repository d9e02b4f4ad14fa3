package main

// asynq: a task that may be queued only once has a lock, taken where it is queued and given back by the server that has done it. The scripts declare
// that lock, but for those of the inspector.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	asynqModule = "github.com/hibiken/asynq"
	asynqTask   = "mail"
	// How long a task is unique, at most.
	uniqueFor = time.Minute
)

// asynqRun has what the checks need: a queue of their own.
type asynqRun struct {
	server Server
	client *asynq.Client
	option asynq.RedisClientOpt
}

// queued queues a task that must not be queued already. It returns its id.
func (run asynqRun) queued(queue string) string {
	info, err := run.client.Enqueue(asynq.NewTask(asynqTask, nil), asynq.Queue(queue), asynq.Unique(uniqueFor))
	must(err)
	return info.ID
}

func (run asynqRun) isRefused(queue string) {
	_, err := run.client.Enqueue(asynq.NewTask(asynqTask, nil), asynq.Queue(queue), asynq.Unique(uniqueFor))
	require(errors.Is(err, asynq.ErrDuplicateTask), "it was queued twice: %v", err)
}

// lock is the key of the lock of the one task of a queue.
func (run asynqRun) lock(queue string) string {
	found, err := run.server.redis.Keys(ctx, "asynq:*"+queue+"*:unique:*").Result()
	must(err)
	require(len(found) == 1, "there are %d locks", len(found))
	return found[0]
}

// does runs a server of asynq until the function returns.
func (run asynqRun) does(queue string, task func(), do func()) {
	server := asynq.NewServer(run.option, asynq.Config{
		Concurrency: 2, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 100 * time.Millisecond,
	})
	must(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		task()
		return nil
	})))
	defer server.Shutdown()
	do()
}

func (run asynqRun) againAndAgain() {
	var done atomic.Int32
	run.does("again", func() { done.Add(1) }, func() {
		for number := int32(1); number <= rounds; number++ {
			run.queued("again")
			for deadline := time.Now().Add(long); done.Load() < number; time.Sleep(pause) {
				require(time.Now().Before(deadline), "the task was not done")
			}
			for deadline := time.Now().Add(long); ; time.Sleep(pause) {
				found, err := run.server.redis.Keys(ctx, "asynq:*again*:unique:*").Result()
				must(err)
				if len(found) == 0 {
					break
				}
				require(time.Now().Before(deadline), "the lock was not given back")
			}
		}
	})
}

func (run asynqRun) queuedOnce() {
	run.queued("once")
	run.isRefused("once")
}

// stranger deletes the lock of a task that waits.
func (run asynqRun) stranger() {
	run.queued("stranger")
	bystander := redis.NewClient(&redis.Options{Addr: run.server.address, ClientName: "bystander"})
	deleted, err := bystander.Del(ctx, run.lock("stranger")).Result()
	must(err)
	require((deleted == 1) == damaged, "DEL answered %d", deleted)
	if !damaged {
		run.isRefused("stranger")
	}
}

// deleted has the inspector delete a task: its script finds the name of the lock in the task.
func (run asynqRun) deleted() {
	id := run.queued("deleted")
	inspector := asynq.NewInspector(run.option)
	defer inspector.Close()
	must(inspector.DeleteTask("deleted", id))
	run.queued("deleted")
}

func runJobs(server Server) {
	option := asynq.RedisClientOpt{Addr: server.address}
	run := asynqRun{server, asynq.NewClient(option), option}
	defer run.client.Close()
	for _, check := range []struct {
		name string
		do   func()
	}{
		{"queued once", run.queuedOnce},
		{"done again and again", run.againAndAgain},
		{"stranger", run.stranger},
		{"deleted", run.deleted},
	} {
		if !isWanted(check.name) {
			continue
		}
		line{Client: "asynq", Version: version(asynqModule), Check: check.name}.print(guarded(check.do))
	}
}
