/* Asks the SDK for all that it has. */
#include "lockwarden.h"

static lw_list names;
static uint64_t wait_ms, count;
static char buffer[512];

lw_operations lw_configure(lw_settings *settings) {
    names = lw_setting_list(settings, "names");
    wait_ms = lw_setting_duration_ms(settings, "wait", 0);
    count = lw_setting_number(settings, "count", 0);
    return lw_set_of(LW_ACQUIRE) | lw_set_of(LW_GUARDED_WRITE);
}

static void append_number(lw_text *text, uint64_t number) {
    char digits[21] = {0};
    int at = 20;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    lw_append(text, text->length ? " " : "");
    lw_append(text, digits + at);
}
static void append_word(lw_text *text, lw_bytes word) {
    lw_append(text, text->length ? " " : "");
    lw_append_bytes(text, word);
}

lw_decision lw_decide(const lw_request *r) {
    lw_text text = lw_text_in(buffer, sizeof buffer);
    if (lw_is(r->key, "facts")) {
        append_number(&text, r->operation);
        append_number(&text, r->db);
        append_word(&text, r->key);
        append_word(&text, r->has_owner_token ? r->owner_token : lw_bytes_of("none"));
        if (r->has_ttl)
            append_number(&text, r->ttl_ms);
        else
            append_word(&text, lw_bytes_of("none"));
        append_number(&text, r->proofs);
        append_number(&text, r->traits);
        append_number(&text, r->fencing_token);
        append_number(&text, r->remaining_ms);
        append_number(&text, r->attempts);
        append_number(&text, r->now_ms);
        return lw_deny(LW_NO_TTL, buffer);
    }
    if (lw_is(r->key, "settings")) {
        for (uint32_t i = 0; i < names.length; i++) {
            lw_append(&text, i ? "+" : "");
            lw_append_bytes(&text, lw_element(&names, i));
        }
        append_number(&text, wait_ms);
        append_number(&text, count);
        return lw_deny(LW_OTHER, buffer);
    }
    if (lw_is(r->key, "client")) {
        lw_identity identity;
        lw_bytes certificate, application;
        lw_describe(r, &identity);
        lw_certificate(r, &certificate);
        lw_application(r, &application);
        append_word(&text, identity.name);
        append_word(&text, identity.user);
        append_word(&text, identity.address);
        append_word(&text, certificate);
        append_word(&text, application);
        return lw_deny(LW_NOT_OWNER, buffer);
    }
    if (lw_is(r->key, "history")) {
        append_number(&text, lw_tries(r, LW_APPLICATION));
        append_number(&text, lw_tries(r, LW_EVERYONE));
        append_number(&text, lw_take(r, lw_bytes_of("left"), 3, 60000));
        append_number(&text, lw_take(r, lw_bytes_of("spent"), 3, 60000));
        lw_keys keys = lw_holds(r);
        for (uint32_t place = 0; place < keys.length; place++) append_word(&text, keys.at[place]);
        append_number(&text, lw_held(r));
        return lw_deny(LW_LIMITED, buffer);
    }
    if (lw_is(r->key, "everything"))
        return lw_permit_with((lw_obligations){lw_ms(1000), lw_ms(2000), lw_ms(3000), lw_ms(4000), {1, LW_TOKEN | LW_OBSERVED},
                                               LW_SEQUENTIAL, true, {1, LW_AFTER_DEADLINE}});
    if (lw_is(r->key, "panics")) {
        lw_say(lw_bytes_of("it is over\n"));
        __builtin_trap();
    }
    return lw_permit();
}
