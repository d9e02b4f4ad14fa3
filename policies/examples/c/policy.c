/* A policy of one team: its locks are called lock:<team>:<thing>, and no client polls for one without end. */
#include "lockwarden.h"

static lw_list teams;
static uint64_t max_attempts;
static char hint[512];

lw_operations lw_configure(lw_settings *settings) {
    teams = lw_setting_list(settings, "teams");
    if (teams.length == 0)
        lw_problem(settings, "teams must name at least one team");
    max_attempts = lw_setting_number(settings, "max_attempts", 100);

    lw_text text = lw_text_in(hint, sizeof hint);
    lw_append(&text, "name the lock lock:<team>:<thing>; teams are ");
    for (uint32_t i = 0; i < teams.length; i++) {
        lw_append(&text, i == 0 ? "" : ", ");
        lw_append_bytes(&text, lw_element(&teams, i));
    }
    return lw_set_of(LW_ACQUIRE);
}

static bool is_named_for_a_team(lw_bytes key) {
    lw_bytes thing, team, rest;
    if (!lw_starts_with(key, "lock:", &rest) || !lw_cut(rest, ':', &team, &thing) || thing.length == 0)
        return false;
    for (uint32_t i = 0; i < teams.length; i++)
        if (lw_equal(team, lw_element(&teams, i)))
            return true;
    return false;
}

lw_decision lw_decide(const lw_request *request) {
    if (!is_named_for_a_team(request->key))
        return lw_deny(LW_LIMITED, hint);
    if (request->attempts > max_attempts)
        return lw_deny(LW_LIMITED, "too many attempts; wait longer between them");
    return lw_permit();
}
