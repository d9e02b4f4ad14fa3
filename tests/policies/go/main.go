// Asks the SDK for all that it has.
package main

import (
	"bytes"
	"fmt"
	"strings"

	"example.com/policy/lockwarden"
)

type probe struct {
	names       []string
	wait, count uint64
}

func configure(settings *lockwarden.Settings) lockwarden.Policy {
	return &probe{settings.List("names"), settings.DurationMs("wait", 0), settings.Number("count", 0)}
}

func (p *probe) Judges() lockwarden.Operations {
	return lockwarden.SetOf(lockwarden.Acquire, lockwarden.GuardedWrite)
}

func (p *probe) Decide(r *lockwarden.Request) lockwarden.Decision {
	switch string(r.Key) {
	case "facts":
		token, ttl := "none", "none"
		if r.OwnerToken != nil {
			token = string(r.OwnerToken)
		}
		if r.TTLMs != nil {
			ttl = fmt.Sprint(*r.TTLMs)
		}
		return lockwarden.Deny(lockwarden.NoTTL, fmt.Sprint(r.Operation, r.DB, " ", string(r.Key), " ", token, " ", ttl, " ",
			r.Proofs, r.Traits, r.FencingToken, r.RemainingMs, r.Attempts, r.NowMs))
	case "settings":
		return lockwarden.Deny(lockwarden.Other, fmt.Sprint(strings.Join(p.names, "+"), " ", p.wait, p.count))
	case "client":
		client, _ := lockwarden.Describe(r)
		certificate, _ := lockwarden.Certificate(r)
		application, _ := lockwarden.Application(r)
		words := []string{client.Name, client.User, client.Address, certificate, application}
		return lockwarden.Deny(lockwarden.NotOwner, strings.Join(words, " "))
	case "history":
		asNumber := map[bool]int{true: 1}
		return lockwarden.Deny(lockwarden.Limited, fmt.Sprint(lockwarden.Tries(r, lockwarden.OfApplication), " ",
			lockwarden.Tries(r, lockwarden.OfEveryone), " ", asNumber[lockwarden.Take(r, "left", 3, 60000)], " ",
			asNumber[lockwarden.Take(r, "spent", 3, 60000)], " ", string(bytes.Join(lockwarden.Holds(r), []byte(" "))), " ",
			lockwarden.Held(r)))
	case "everything":
		ms := func(ms uint64) *uint64 { return &ms }
		require, takeOver := lockwarden.Token|lockwarden.Observed, lockwarden.AfterDeadline
		return lockwarden.PermitWith(lockwarden.Obligations{TTLDefaultMs: ms(1000), TTLCapMs: ms(2000), KeepAliveMs: ms(3000),
			MaxHoldMs: ms(4000), Require: &require, Fence: lockwarden.Sequential, CurrentFenceOnly: true, TakeOver: &takeOver})
	case "panics":
		panic("it is over")
	}
	return lockwarden.Permit()
}

func init() { lockwarden.Export(configure) }

func main() {}
