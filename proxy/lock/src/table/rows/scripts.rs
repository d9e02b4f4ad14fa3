//! Scripts and functions.

use super::{FAMILY, NONE, numkeys, row, script};
use crate::table::CommandSpec;
use crate::table::CountRule::{Function, Script};
use crate::table::Effect::{Admin, Neutral};
use crate::table::ScriptVerb::{
    Eval, EvalRo, EvalSha, EvalShaRo, Fcall, FcallRo, ScriptExists, ScriptFlush, ScriptLoad,
};

pub(super) const ROWS: &[CommandSpec] = &[
    row("eval", -3, numkeys(2, 1, Script), script(Eval)),
    row("eval_ro", -3, numkeys(2, 1, Script), script(EvalRo)),
    row("evalsha", -3, numkeys(2, 1, Script), script(EvalSha)),
    row("evalsha_ro", -3, numkeys(2, 1, Script), script(EvalShaRo)),
    row("fcall", -3, numkeys(2, 1, Function), script(Fcall)),
    row("fcall_ro", -3, numkeys(2, 1, Function), script(FcallRo)),
    row("function", -2, FAMILY, Neutral),
    row("function|delete", 3, NONE, Admin),
    row("function|dump", 2, NONE, Neutral),
    row("function|flush", -2, NONE, Admin),
    row("function|help", 2, NONE, Neutral),
    row("function|kill", 2, NONE, Admin),
    row("function|list", -2, NONE, Neutral),
    row("function|load", -3, NONE, Admin),
    row("function|restore", -3, NONE, Admin),
    row("function|stats", 2, NONE, Neutral),
    row("script", -2, FAMILY, Neutral),
    row("script|debug", -3, NONE, Admin),
    row("script|exists", -3, NONE, script(ScriptExists)),
    row("script|flush", -2, NONE, script(ScriptFlush)),
    row("script|help", 2, NONE, Neutral),
    row("script|kill", 2, NONE, Admin),
    row("script|load", 3, NONE, script(ScriptLoad)),
    row("script|show", 3, NONE, Neutral),
];
