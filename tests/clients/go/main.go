// Clients runs the lock libraries that it is told, against the server that the environment names, and
// prints a JSON line a check. Start at checks.go; each library has a file of its own.
package main

import (
	"context"
	"log"
	"os"
	"runtime/debug"
)

var libraries = map[string]Library{
	"redislock":          redislockLibrary("bsm/redislock", 3),
	"redislock-resp2":    redislockLibrary("bsm/redislock (RESP2)", 2),
	"redislock-sentinel": redislockSentinelLibrary(),
	"redislock-cluster":  redislockClusterLibrary(),
	"redsync":            redsyncLibrary,
	"raw":                rawLibrary,
}

func main() {
	server := serverFromEnvironment()
	prefix := os.Getenv("LOCK_PREFIX")
	for _, name := range os.Args[1:] {
		if name == "shop" {
			runShop(server, prefix+"sale:7")
			continue
		}
		if name == "jobs" {
			runJobs(server)
			continue
		}
		library, known := libraries[name]
		if !known {
			log.Fatalf("no library %s", name)
		}
		run(library, server, prefix+name+":")
	}
}

// version is that of a module in this program.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version[1:]
			}
		}
	}
	return "unknown"
}

var ctx = context.Background()
