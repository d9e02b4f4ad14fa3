// A policy of one team: its locks are called lock:<team>:<thing>, and no client polls for one without end.
package main

import (
	"bytes"
	"slices"
	"strings"

	"example.com/policy/lockwarden"
)

type teamNaming struct {
	teams       []string
	maxAttempts uint64
}

func configure(settings *lockwarden.Settings) lockwarden.Policy {
	teams := settings.List("teams")
	if len(teams) == 0 {
		settings.Problem("teams must name at least one team")
	}
	return &teamNaming{teams, settings.Number("max_attempts", 100)}
}

func (p *teamNaming) Judges() lockwarden.Operations {
	return lockwarden.SetOf(lockwarden.Acquire)
}

func (p *teamNaming) Decide(request *lockwarden.Request) lockwarden.Decision {
	if !p.isNamedForATeam(request.Key) {
		return lockwarden.Deny(lockwarden.Limited,
			"name the lock lock:<team>:<thing>; teams are "+strings.Join(p.teams, ", "))
	}
	if uint64(request.Attempts) > p.maxAttempts {
		return lockwarden.Deny(lockwarden.Limited, "too many attempts; wait longer between them")
	}
	return lockwarden.Permit()
}

func (p *teamNaming) isNamedForATeam(key []byte) bool {
	parts := bytes.SplitN(key, []byte(":"), 3)
	return len(parts) == 3 && string(parts[0]) == "lock" && slices.Contains(p.teams, string(parts[1])) && len(parts[2]) > 0
}

func init() { lockwarden.Export(configure) }

func main() {}
