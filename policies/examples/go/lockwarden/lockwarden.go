// Package lockwarden is what a policy in Go is written with: the types of the contract lockwarden:policy 1.2, the
// settings, and the way in and out of the module. It needs the ordinary compiler, Go 1.24 or newer, and no generator:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o policy.wasm .
//
// which is what `lockwarden policy build` does. A policy keeps nothing between two requests.
package lockwarden

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Policy judges operations on locks.
type Policy interface {
	// Judges tells about which operations the policy is asked; it permits every other one.
	Judges() Operations
	// Decide judges one of them.
	Decide(request *Request) Decision
}

// Export makes a policy the exports of this module; call it in an init. configure reads the settings of one namespace.
// What is wrong with them, unknown names included, is reported to the operator, all at once.
func Export(configure func(settings *Settings) Policy) { configured = configure }

// Operation is what a client's command means for the lock.
type Operation uint8

const (
	Acquire Operation = iota
	Extend
	Release
	TakeOver
	Inspect
	Write
	GuardedWrite
)

// Operations is a set of them.
type Operations uint8

// SetOf these operations.
func SetOf(operations ...Operation) (set Operations) {
	for _, operation := range operations {
		set |= 1 << operation
	}
	return set
}

// Proofs of ownership, as a set.
type Proofs uint8

const (
	Token Proofs = 1 << iota
	Session
	Observed
	Identity
)

// Traits are circumstances of a command, as a set.
type Traits uint8

const (
	Conditional Traits = 1 << iota
	Transactional
	Scripted
	Monitored
	TokenIsShared
	RefusedSince
)

// Request is one operation with its facts. All times are milliseconds. Its byte slices are good until Decide returns.
type Request struct {
	Operation  Operation
	DB         uint32
	Key        []byte
	OwnerToken []byte // nil where the command carries none
	TTLMs      *uint64
	Proofs     Proofs
	Traits     Traits
	// FencingToken is the newest one that this session was granted for this lock; 0 if none.
	FencingToken uint64
	// RemainingMs is what is left of this session's own lease; 0 if it has none.
	RemainingMs uint64
	// Attempts are the acquires of this lock by this session in the last ten seconds.
	Attempts uint32
	// NowMs is the proxy's clock, Unix milliseconds.
	NowMs  uint64
	client uint64
}

// Code is why an operation is refused.
type Code uint8

const (
	NotOwner Code = iota
	Expired
	Overwrite
	TakenOver
	OpaqueWrite
	NoTTL
	TTLTooLong
	SharedToken
	StaleFence
	UnsafeScript
	BulkDelete
	Limited
	Other
)

// Fence tells whether a grant is numbered, and how.
type Fence uint8

const (
	NoFence Fence = iota
	Hybrid
	Sequential
)

// TakeOverRule tells whether a lease that is held may be replaced.
type TakeOverRule uint8

const (
	Never TakeOverRule = iota
	AfterDeadline
)

// Obligations are what the proxy does in the same atomic step as the operation. The zero value asks for nothing.
type Obligations struct {
	TTLDefaultMs, TTLCapMs, KeepAliveMs, MaxHoldMs *uint64
	Require                                        *Proofs
	Fence                                          Fence
	CurrentFenceOnly                               bool
	TakeOver                                       *TakeOverRule
}

// Decision is an answer: Permit, PermitWith or Deny.
type Decision struct {
	denied bool
	code   Code
	detail string
	wants  Obligations
}

// Permit the operation without conditions.
func Permit() Decision { return Decision{} }

// PermitWith these obligations.
func PermitWith(wants Obligations) Decision { return Decision{wants: wants} }

// Deny the operation. The detail says in a few words what to do instead, and never holds an owner token.
func Deny(code Code, detail string) Decision {
	return Decision{denied: true, code: code, detail: detail}
}

// ClientIdentity is what a client says of itself: its own words, but for the address.
type ClientIdentity struct{ Name, User, Address string }

// Describe tells who the client of the request is, while it is decided.
func Describe(request *Request) (ClientIdentity, bool) {
	described = [28]byte{}
	describe(request.client, unsafe.Pointer(&described))
	text := func(at int) string { return string(bytesAt(word(described[at:]), word(described[at+4:]))) }
	if described[0] == 0 {
		return ClientIdentity{}, false
	}
	return ClientIdentity{text(4), text(12), text(20)}, true
}

// Certificate is the verified name in the client's certificate, if it gave one.
func Certificate(request *Request) (string, bool) {
	described = [28]byte{}
	certificate(request.client, unsafe.Pointer(&described))
	return string(bytesAt(word(described[4:]), word(described[8:]))), described[0] != 0
}

// Application is what the proxy calls the client's application: by its configuration, or else by what the client says.
func Application(request *Request) (string, bool) {
	described = [28]byte{}
	application(request.client, unsafe.Pointer(&described))
	return string(bytesAt(word(described[4:]), word(described[8:]))), described[0] != 0
}

// Whose tries are meant.
type Whose uint32

// Those of the client's application, or of all clients.
const (
	OfApplication Whose = iota
	OfEveryone
)

// Tries is how often clients asked for this lock in the last ten seconds, this time included, as far as this proxy has seen.
func Tries(request *Request, whose Whose) uint32 { return tries(request.client, uint32(whose)) }

// Take one from a budget of the client's application, if one is left: it has most, which come back evenly within perMs.
func Take(request *Request, budget string, most uint32, perMs uint64) bool {
	return take(request.client, unsafe.Pointer(unsafe.StringData(budget)), uint32(len(budget)), most, perMs) != 0
}

// Holds are the keys of the other locks that the client's connection holds in the request's database, as far as this proxy has
// seen, ordered by their fencing tokens: 32 at most.
func Holds(request *Request) [][]byte {
	described = [28]byte{}
	holds(request.client, unsafe.Pointer(&described))
	at, keys := word(described[0:]), make([][]byte, word(described[4:]))
	for place := range keys {
		key := bytesAt(at+uint32(place)*8, 8)
		keys[place] = bytesAt(word(key), word(key[4:]))
	}
	return keys
}

// Held is how many locks all clients of the same application hold, as far as this proxy has seen.
func Held(request *Request) uint32 { return held(request.client) }

// Settings of one namespace. Readers return the default where a name is not set or its value is wrong.
type Settings struct {
	given    map[string]string
	known    map[string]bool
	problems []string
}

// Text of a setting, if it is there.
func (s *Settings) Text(name string) (string, bool) {
	s.known[name] = true
	value, is := s.given[name]
	return value, is
}

// List of texts: the elements of an array.
func (s *Settings) List(name string) (list []string) {
	value, _ := s.Text(name)
	for _, element := range strings.Split(value, ",") {
		if element = strings.TrimSpace(element); element != "" {
			list = append(list, element)
		}
	}
	return list
}

// Number is a whole number.
func (s *Settings) Number(name string, fallback uint64) uint64 {
	value, is := s.Text(name)
	if !is {
		return fallback
	}
	number, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	if err != nil {
		s.Problem(fmt.Sprintf("%s = %q is not a whole number", name, value))
		return fallback
	}
	return number
}

// DurationMs is a duration in milliseconds, written with its unit: 500ms, 30s, 5m, 1h, 7d.
func (s *Settings) DurationMs(name string, fallback uint64) uint64 {
	value, is := s.Text(name)
	if !is {
		return fallback
	}
	value = strings.TrimSpace(value)
	unit := strings.TrimLeft(value, "0123456789")
	factor := map[string]uint64{"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
	// A hundred years; beyond it Redis's scripts would no longer be exact.
	number, err := strconv.ParseUint(strings.TrimSuffix(value, unit), 10, 42)
	if err != nil || factor == 0 || number > 36_525*86_400_000/factor {
		s.Problem(fmt.Sprintf("%s = %q is not a duration such as 30s", name, value))
		return fallback
	}
	return number * factor
}

// Problem that the policy found itself, for example two settings that do not go together.
func (s *Settings) Problem(problem string) { s.problems = append(s.problems, problem) }

func (s *Settings) finish() string {
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if !s.known[name] {
			s.Problem("unknown setting " + name)
		}
	}
	return strings.Join(s.problems, "; ")
}

// From here on it is the canonical ABI of the component model: how the host's types lie in the module's memory.

// What a request and the settings are put into; given back with each answer.
var (
	arena     [64 << 10]byte
	used      uint32
	answer    [80]byte
	text      string // what an answer points to, until the host has read it
	described [28]byte
	request   Request
	ttl       uint64
)

var (
	configured func(*Settings) Policy
	policy     Policy
)

//go:wasmimport lockwarden:policy/clients@1.2.0 describe
func describe(client uint64, result unsafe.Pointer)

//go:wasmimport lockwarden:policy/clients@1.2.0 certificate
func certificate(client uint64, result unsafe.Pointer)

//go:wasmimport lockwarden:policy/clients@1.2.0 application
func application(client uint64, result unsafe.Pointer)

//go:wasmimport lockwarden:policy/history@1.2.0 tries
func tries(client uint64, whose uint32) uint32

//go:wasmimport lockwarden:policy/history@1.2.0 take
func take(client uint64, budget unsafe.Pointer, length uint32, most uint32, perMs uint64) uint32

//go:wasmimport lockwarden:policy/history@1.2.0 holds
func holds(client uint64, result unsafe.Pointer)

//go:wasmimport lockwarden:policy/history@1.2.0 held
func held(client uint64) uint32

func address(p unsafe.Pointer) uint32 { return uint32(uintptr(p)) }

func bytesAt(p, length uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), p)), length)
}

func word(at []byte) uint32 { return *(*uint32)(unsafe.Pointer(&at[0])) }

func putText(at int, value string) {
	text = value
	*(*uint32)(unsafe.Pointer(&answer[at])) = address(unsafe.Pointer(unsafe.StringData(text)))
	*(*uint32)(unsafe.Pointer(&answer[at+4])) = uint32(len(text))
}

func putMs(at int, value *uint64) {
	if value != nil {
		answer[at] = 1
		*(*uint64)(unsafe.Pointer(&answer[at+8])) = *value
	}
}

func putSmall[T ~uint8](at int, value *T) {
	if value != nil {
		answer[at], answer[at+1] = 1, uint8(*value)
	}
}

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	used = (used + align - 1) &^ (align - 1)
	if size > uint32(len(arena))-used {
		panic("lockwarden: the settings and a request have more than 64 KiB")
	}
	place := address(unsafe.Pointer(&arena)) + used
	copy(bytesAt(place, size), bytesAt(old, min(oldSize, size)))
	used += size
	return place
}

//go:wasmexport configure
func exportedConfigure(settings, length uint32) uint32 {
	given := map[string]string{}
	for at := settings; at < settings+16*length; at += 16 {
		setting := bytesAt(at, 16)
		name := string(bytesAt(word(setting), word(setting[4:])))
		given[name] = string(bytesAt(word(setting[8:]), word(setting[12:])))
	}
	used = 0
	read := Settings{given: given, known: map[string]bool{}}
	policy = configured(&read)
	answer = [80]byte{}
	if problems := read.finish(); problems != "" {
		answer[0] = 1
		putText(4, problems)
	} else {
		answer[4] = byte(policy.Judges())
	}
	return address(unsafe.Pointer(&answer))
}

//go:wasmexport decide
func exportedDecide(operation, db, key, keyLength, hasToken, token, tokenLength, hasTTL uint32, ttlMs uint64,
	proofs, traits uint32, fencingToken, remainingMs uint64, attempts uint32, client, nowMs uint64) uint32 {
	request = Request{Operation: Operation(operation), DB: db, Key: bytesAt(key, keyLength), Proofs: Proofs(proofs),
		Traits: Traits(traits), FencingToken: fencingToken, RemainingMs: remainingMs, Attempts: attempts, NowMs: nowMs,
		client: client}
	if hasToken != 0 {
		request.OwnerToken = bytesAt(token, tokenLength)
	}
	if hasTTL != 0 {
		ttl = ttlMs
		request.TTLMs = &ttl
	}
	decision := policy.Decide(&request)
	used = 0
	answer = [80]byte{}
	if decision.denied {
		answer[0], answer[8] = 1, byte(decision.code)
		if decision.detail != "" {
			answer[12] = 1
			putText(16, decision.detail)
		}
		return address(unsafe.Pointer(&answer))
	}
	wants := &decision.wants
	putMs(8, wants.TTLDefaultMs)
	putMs(24, wants.TTLCapMs)
	putMs(40, wants.KeepAliveMs)
	putMs(56, wants.MaxHoldMs)
	putSmall(72, wants.Require)
	answer[74] = byte(wants.Fence)
	if wants.CurrentFenceOnly {
		answer[75] = 1
	}
	putSmall(76, wants.TakeOver)
	return address(unsafe.Pointer(&answer))
}
