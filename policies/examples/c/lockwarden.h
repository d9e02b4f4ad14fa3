/* What a policy in C is written with: the types of the contract lockwarden:policy 1.2, the settings, and the way in and out
 * of the module. It needs clang and wasm-ld, and neither a C library nor a generator:
 *
 *     clang --target=wasm32 -O2 -nostdlib -mbulk-memory -Wl,--no-entry -o policy.wasm policy.c
 *
 * which is what `lockwarden policy build` does. Include it in one file. A policy keeps nothing between two requests. */
#ifndef LOCKWARDEN_H
#define LOCKWARDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at;
    uint32_t length;
} lw_bytes;

/* What a client's command means for the lock, and sets of such operations. */
typedef enum { LW_ACQUIRE, LW_EXTEND, LW_RELEASE, LW_TAKE_OVER, LW_INSPECT, LW_WRITE, LW_GUARDED_WRITE } lw_operation;
typedef uint8_t lw_operations;
#define lw_set_of(operation) ((lw_operations)(1u << (operation)))

/* Proofs of ownership and circumstances of a command, as sets. */
enum { LW_TOKEN = 1, LW_SESSION = 2, LW_OBSERVED = 4, LW_IDENTITY = 8 };
enum { LW_CONDITIONAL = 1, LW_TRANSACTIONAL = 2, LW_SCRIPTED = 4, LW_MONITORED = 8, LW_TOKEN_IS_SHARED = 16, LW_REFUSED_SINCE = 32 };

/* One operation with its facts. All times are milliseconds. */
typedef struct {
    lw_operation operation;
    uint32_t db;
    lw_bytes key;
    bool has_owner_token;
    lw_bytes owner_token;
    bool has_ttl;
    uint64_t ttl_ms;
    uint8_t proofs, traits;
    uint64_t fencing_token; /* the newest that this session was granted for this lock; 0 if none */
    uint64_t remaining_ms;  /* of this session's own lease; 0 if it has none */
    uint32_t attempts;      /* acquires of this lock by this session in the last ten seconds */
    uint64_t client;        /* for lw_describe and lw_certificate */
    uint64_t now_ms;        /* the proxy's clock, Unix milliseconds */
} lw_request;

typedef enum {
    LW_NOT_OWNER, LW_EXPIRED, LW_OVERWRITE, LW_TAKEN_OVER, LW_OPAQUE_WRITE, LW_NO_TTL, LW_TTL_TOO_LONG, LW_SHARED_TOKEN,
    LW_STALE_FENCE, LW_UNSAFE_SCRIPT, LW_BULK_DELETE, LW_LIMITED, LW_OTHER
} lw_code;
typedef enum { LW_NO_FENCE, LW_HYBRID, LW_SEQUENTIAL } lw_fence;
typedef enum { LW_NEVER, LW_AFTER_DEADLINE } lw_take_over_rule;

/* What the proxy does in the same atomic step as the operation. All zero asks for nothing. The layout is the host's. */
typedef struct {
    uint8_t is_set;
    uint64_t ms;
} lw_optional_ms;
typedef struct {
    uint8_t is_set, value;
} lw_optional_small;
typedef struct {
    lw_optional_ms ttl_default, ttl_cap, keep_alive, max_hold;
    lw_optional_small require; /* a set of proofs */
    uint8_t fence;             /* lw_fence */
    uint8_t current_fence_only;
    lw_optional_small take_over; /* lw_take_over_rule */
} lw_obligations;
typedef struct {
    uint8_t code;
    uint32_t has_detail;
    lw_bytes detail;
} lw_denial;
typedef struct {
    uint8_t is_denied;
    union {
        lw_obligations permit;
        lw_denial denial;
    };
} lw_decision;

typedef struct {
    lw_bytes name, user, address;
} lw_identity;
typedef struct lw_settings lw_settings;

/* --- What the policy defines. --- */

/* Reads the settings of one namespace and tells which operations the policy judges; it permits every other one. What is wrong
 * with the settings, unknown names included, is reported to the operator, all at once. */
lw_operations lw_configure(lw_settings *settings);
/* Judges one operation. */
lw_decision lw_decide(const lw_request *request);

/* --- What a compiler without a C library wants to be there. --- */

void *memset(void *to, int byte, size_t length) {
    uint8_t *at = to;
    while (length--)
        *at++ = (uint8_t)byte;
    return to;
}
void *memcpy(void *to, const void *from, size_t length) {
    uint8_t *at = to;
    const uint8_t *source = from;
    while (length--)
        *at++ = *source++;
    return to;
}

/* --- Bytes and texts. --- */

static inline lw_bytes lw_bytes_of(const char *text) {
    uint32_t length = 0;
    while (text[length])
        length++;
    return (lw_bytes){(const uint8_t *)text, length};
}
static inline bool lw_equal(lw_bytes a, lw_bytes b) {
    if (a.length != b.length)
        return false;
    for (uint32_t i = 0; i < a.length; i++)
        if (a.at[i] != b.at[i])
            return false;
    return true;
}
static inline bool lw_is(lw_bytes a, const char *text) { return lw_equal(a, lw_bytes_of(text)); }
/* Whether the bytes begin so; what follows is left in rest. */
static inline bool lw_starts_with(lw_bytes bytes, const char *prefix, lw_bytes *rest) {
    lw_bytes begin = lw_bytes_of(prefix);
    if (bytes.length < begin.length || !lw_equal((lw_bytes){bytes.at, begin.length}, begin))
        return false;
    *rest = (lw_bytes){bytes.at + begin.length, bytes.length - begin.length};
    return true;
}
/* Cuts at the first such byte. Without one, all of it is before. */
static inline bool lw_cut(lw_bytes bytes, uint8_t at, lw_bytes *before, lw_bytes *after) {
    uint32_t i = 0;
    while (i < bytes.length && bytes.at[i] != at)
        i++;
    bool found = i < bytes.length;
    *before = (lw_bytes){bytes.at, i};
    *after = (lw_bytes){bytes.at + i + found, bytes.length - i - found};
    return found;
}
static inline lw_bytes lw_trimmed(lw_bytes bytes) {
    while (bytes.length && bytes.at[0] == ' ')
        bytes.at++, bytes.length--;
    while (bytes.length && bytes.at[bytes.length - 1] == ' ')
        bytes.length--;
    return bytes;
}

/* A text in a buffer of the policy's; what does not fit is left out. It always ends with a zero. */
typedef struct {
    char *at;
    uint32_t length, size;
} lw_text;
static inline lw_text lw_text_in(char *buffer, uint32_t size) {
    buffer[0] = 0;
    return (lw_text){buffer, 0, size};
}
static inline void lw_append_bytes(lw_text *text, lw_bytes bytes) {
    for (uint32_t i = 0; i < bytes.length && text->length + 1 < text->size; i++)
        text->at[text->length++] = (char)bytes.at[i];
    text->at[text->length] = 0;
}
static inline void lw_append(lw_text *text, const char *more) { lw_append_bytes(text, lw_bytes_of(more)); }

/* --- Answers. --- */

static inline lw_decision lw_permit(void) { return (lw_decision){0}; }
static inline lw_decision lw_permit_with(lw_obligations wants) { return (lw_decision){.permit = wants}; }
/* The detail says in a few words what to do instead; it is read after lw_decide has returned, and never holds an owner token. */
static inline lw_decision lw_deny(lw_code code, const char *detail) {
    return (lw_decision){.is_denied = 1, .denial = {(uint8_t)code, 1, lw_bytes_of(detail)}};
}
static inline lw_optional_ms lw_ms(uint64_t ms) { return (lw_optional_ms){1, ms}; }

/* --- Who the client is. Calling these makes the module import them. --- */

__attribute__((import_module("lockwarden:policy/clients@1.2.0"), import_name("describe"))) void lw_describe_(uint64_t client, void *result);
__attribute__((import_module("lockwarden:policy/clients@1.2.0"), import_name("certificate"))) void lw_certificate_(uint64_t client, void *result);
__attribute__((import_module("lockwarden:policy/clients@1.2.0"), import_name("application"))) void lw_application_(uint64_t client, void *result);
static inline bool lw_describe(const lw_request *request, lw_identity *identity) {
    struct {
        uint8_t is_set;
        lw_identity identity;
    } result = {0};
    lw_describe_(request->client, &result);
    *identity = result.identity;
    return result.is_set;
}
typedef struct {
    uint8_t is_set;
    lw_bytes name;
} lw_optional_name;
/* The verified name in its certificate. */
static inline bool lw_certificate(const lw_request *request, lw_bytes *name) {
    lw_optional_name result = {0};
    lw_certificate_(request->client, &result);
    *name = result.name;
    return result.is_set;
}
/* What the proxy calls its application. */
static inline bool lw_application(const lw_request *request, lw_bytes *name) {
    lw_optional_name result = {0};
    lw_application_(request->client, &result);
    *name = result.name;
    return result.is_set;
}

/* --- What clients did lately and hold now, as far as this proxy has seen. --- */

typedef enum { LW_APPLICATION, LW_EVERYONE } lw_whose;
__attribute__((import_module("lockwarden:policy/history@1.2.0"), import_name("tries"))) uint32_t lw_tries_(uint64_t client, uint32_t whose);
__attribute__((import_module("lockwarden:policy/history@1.2.0"), import_name("take"))) uint32_t lw_take_(uint64_t client, const uint8_t *budget, uint32_t length, uint32_t most, uint64_t per_ms);
/* How often clients asked for this lock in the last ten seconds, this time included. */
static inline uint32_t lw_tries(const lw_request *request, lw_whose whose) { return lw_tries_(request->client, (uint32_t)whose); }
/* Takes one from a budget of the client's application, if one is left: it has most, which come back evenly within per_ms. */
static inline bool lw_take(const lw_request *request, lw_bytes budget, uint32_t most, uint64_t per_ms) {
    return lw_take_(request->client, budget.at, budget.length, most, per_ms);
}
typedef struct {
    const lw_bytes *at;
    uint32_t length;
} lw_keys;
__attribute__((import_module("lockwarden:policy/history@1.2.0"), import_name("holds"))) void lw_holds_(uint64_t client, lw_keys *result);
__attribute__((import_module("lockwarden:policy/history@1.2.0"), import_name("held"))) uint32_t lw_held_(uint64_t client);
/* The other locks that its connection holds in the request's database, ordered by their fencing tokens: 32 at most. */
static inline lw_keys lw_holds(const lw_request *request) {
    lw_keys keys = {0};
    lw_holds_(request->client, &keys);
    return keys;
}
/* How many locks all clients of its application hold. */
static inline uint32_t lw_held(const lw_request *request) { return lw_held_(request->client); }

/* --- Words for the author: shown by `lockwarden policy test` and `run` where the module was built with --debug. --- */

#ifdef LOCKWARDEN_DEBUG
__attribute__((import_module("lockwarden:debug/output@1.0.0"), import_name("say"))) void lw_say_(const uint8_t *text, uint32_t length);
static inline void lw_say(lw_bytes text) { lw_say_(text.at, text.length); }
#else
static inline void lw_say(lw_bytes text) { (void)text; }
#endif

/* --- Settings. Readers return the default where a name is not set or its value is wrong. --- */

typedef struct {
    lw_bytes name, value;
} lw_setting;
#define LW_MOST_SETTINGS 64
struct lw_settings {
    const lw_setting *given;
    uint32_t count;
    bool known[LW_MOST_SETTINGS];
    lw_text problems;
};

static inline void lw_problem_begins(lw_settings *settings) {
    if (settings->problems.length)
        lw_append(&settings->problems, "; ");
}
/* Remembers something wrong that the policy found itself. */
static inline void lw_problem(lw_settings *settings, const char *problem) {
    lw_problem_begins(settings);
    lw_append(&settings->problems, problem);
}
static inline bool lw_setting_text(lw_settings *settings, const char *name, lw_bytes *value) {
    for (uint32_t i = 0; i < settings->count && i < LW_MOST_SETTINGS; i++) {
        if (lw_is(settings->given[i].name, name)) {
            settings->known[i] = true;
            *value = lw_trimmed(settings->given[i].value);
            return true;
        }
    }
    return false;
}
static inline void lw_wrong(lw_settings *settings, const char *name, lw_bytes value, const char *what) {
    lw_problem_begins(settings);
    lw_append(&settings->problems, name);
    lw_append(&settings->problems, " = \"");
    lw_append_bytes(&settings->problems, value);
    lw_append(&settings->problems, "\" is not ");
    lw_append(&settings->problems, what);
}
/* Digits alone, at most fifteen of them. */
static inline bool lw_digits(lw_bytes text, uint64_t *number) {
    *number = 0;
    for (uint32_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text.at[i] - '0');
    }
    return text.length > 0 && text.length <= 15;
}
static inline uint64_t lw_setting_number(lw_settings *settings, const char *name, uint64_t fallback) {
    lw_bytes value;
    uint64_t number;
    if (!lw_setting_text(settings, name, &value))
        return fallback;
    if (lw_digits(value, &number))
        return number;
    lw_wrong(settings, name, value, "a whole number");
    return fallback;
}
/* A duration in milliseconds, written with its unit: 500ms, 30s, 5m, 1h, 7d. */
static inline uint64_t lw_setting_duration_ms(lw_settings *settings, const char *name, uint64_t fallback) {
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    lw_bytes value;
    uint64_t number;
    if (!lw_setting_text(settings, name, &value))
        return fallback;
    uint32_t digits = 0;
    while (digits < value.length && value.at[digits] >= '0' && value.at[digits] <= '9')
        digits++;
    for (uint32_t i = 0; i < sizeof units / sizeof *units; i++)
        /* At most a hundred years; beyond it Redis's scripts would no longer be exact. */
        if (lw_is((lw_bytes){value.at + digits, value.length - digits}, units[i].unit) &&
            lw_digits((lw_bytes){value.at, digits}, &number) && number <= 36525ull * 86400000 / units[i].ms)
            return number * units[i].ms;
    lw_wrong(settings, name, value, "a duration such as 30s");
    return fallback;
}

/* A list of texts: the elements of an array. */
#define LW_MOST_ELEMENTS 64
typedef struct {
    lw_bytes elements[LW_MOST_ELEMENTS];
    uint32_t length;
} lw_list;
static inline lw_list lw_setting_list(lw_settings *settings, const char *name) {
    lw_list list = {.length = 0};
    lw_bytes rest, element;
    if (!lw_setting_text(settings, name, &rest))
        return list;
    while (rest.length) {
        lw_cut(rest, ',', &element, &rest);
        element = lw_trimmed(element);
        if (element.length == 0)
            continue;
        if (list.length == LW_MOST_ELEMENTS) {
            lw_wrong(settings, name, element, "within the 64 elements that a list may have");
            break;
        }
        list.elements[list.length++] = element;
    }
    return list;
}
static inline lw_bytes lw_element(const lw_list *list, uint32_t place) { return list->elements[place]; }

/* --- The way in and out: the canonical ABI of the component model. --- */

/* The settings stay; what a request was put into is given back with its answer. */
static uint8_t lw_arena[64 << 10] __attribute__((aligned(16)));
static uint32_t lw_used, lw_kept;

__attribute__((export_name("cabi_realloc"))) void *lw_realloc(void *old, size_t old_size, size_t align, size_t size) {
    lw_used = (lw_used + align - 1) & ~(align - 1);
    if (size > sizeof lw_arena - lw_used)
        __builtin_trap(); /* the settings and a request have more than 64 KiB */
    void *place = lw_arena + lw_used;
    lw_used += size;
    memcpy(place, old, old_size < size ? old_size : size);
    return place;
}
__attribute__((export_name("configure"))) const void *lw_exported_configure(const lw_setting *given, uint32_t count) {
    static char problems[1024];
    static struct {
        uint8_t is_wrong;
        union {
            lw_operations judged;
            lw_bytes problems;
        };
    } answer;
    lw_settings settings = {.given = given, .count = count, .problems = lw_text_in(problems, sizeof problems)};
    lw_operations judged = lw_configure(&settings);
    for (uint32_t i = 0; i < count; i++) {
        if (i < LW_MOST_SETTINGS && settings.known[i])
            continue;
        lw_problem(&settings, "unknown setting ");
        lw_append_bytes(&settings.problems, given[i].name);
    }
    lw_kept = lw_used;
    answer.is_wrong = settings.problems.length > 0;
    if (answer.is_wrong)
        answer.problems = lw_bytes_of(problems);
    else
        answer.judged = judged;
    return &answer;
}
__attribute__((export_name("decide"))) const void *lw_exported_decide(
    uint32_t operation, uint32_t db, const uint8_t *key, uint32_t key_length, uint32_t has_token, const uint8_t *token,
    uint32_t token_length, uint32_t has_ttl, uint64_t ttl_ms, uint32_t proofs, uint32_t traits, uint64_t fencing_token,
    uint64_t remaining_ms, uint32_t attempts, uint64_t client, uint64_t now_ms) {
    static lw_decision answer;
    lw_request request = {
        (lw_operation)operation, db, {key, key_length}, has_token, {token, token_length}, has_ttl, ttl_ms, (uint8_t)proofs,
        (uint8_t)traits, fencing_token, remaining_ms, attempts, client, now_ms};
    answer = lw_decide(&request);
    lw_used = lw_kept;
    return &answer;
}

#endif
