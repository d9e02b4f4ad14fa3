//! Decides from the lock's record who may write guarded data. Only the newest lease counts: a writer with an older one
//! is late, whatever has become of that lease. The rows of the table are explained in `docs/guards.md`.

use crate::record::{DISTINCTIVE, INDEBTED, NO_FLAGS};
use crate::record_version::{VERSION, later_version};
use crate::time::RedisTime;
use crate::token::{FencingToken, Grant, Identity, Process, SessionId};

use super::Unlocked;

/// The length of a record's beginning, up to the time after the fencing token: it says which client was granted the
/// lock last, and when.
pub const HEAD_BYTES: usize = 80;
/// The number of bytes before that time.
const BEFORE_TIME: usize = 67;

/// The beginning of a lock's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// An operator has ended the lease.
    pub is_broken: bool,
    /// The lease may be live: it was not released, and was not seen to expire.
    pub is_open: bool,
    /// A release is owed.
    pub is_indebted: bool,
    /// The identity is distinctive even without a process.
    pub is_distinctive: bool,
    /// The newest lease.
    pub grant: Grant,
    /// The connection to which it was granted.
    pub session: SessionId,
    /// The identity of that client.
    pub identity: Identity,
    /// Its fencing token; 0 where grants are not numbered.
    pub fence: FencingToken,
    /// When it was granted.
    pub granted: RedisTime,
    /// The lock does not exist, and this server may have lost the record of a newer lease: the record does not show who
    /// may write.
    pub is_doubtful: bool,
}

impl RecordHead {
    /// Reads the beginning of a record. `None` if there is none, or only a part. A record of a later version belongs to
    /// a client, but matches no writer.
    pub fn read(bytes: &[u8]) -> Option<RecordHead> {
        if later_version(bytes).is_some() {
            return Some(RecordHead::of_somebody());
        }
        let (front, rest) = bytes.split_at_checked(3)?;
        let [VERSION, state, flags] = *front else {
            return None;
        };
        let mut parts = rest.chunks_exact(16);
        let mut sixteen = || parts.next();
        let (grant, session, identity) = (sixteen()?, sixteen()?, sixteen()?);
        let fence = std::str::from_utf8(sixteen()?).ok()?.parse().ok()?;
        let granted = std::str::from_utf8(bytes.get(BEFORE_TIME..HEAD_BYTES)?).ok()?;
        let flags = flags.checked_sub(NO_FLAGS)?;
        Some(RecordHead {
            is_broken: state == b'B',
            is_open: state == b'L',
            is_indebted: flags & INDEBTED == INDEBTED,
            is_distinctive: flags & DISTINCTIVE == DISTINCTIVE,
            grant: Grant::from_slice(grant)?,
            session: SessionId::from_slice(session)?,
            identity: Identity::from_slice(identity)?,
            fence: FencingToken(fence),
            granted: RedisTime(granted.parse().ok()?),
            is_doubtful: false,
        })
    }

    fn of_somebody() -> RecordHead {
        RecordHead {
            is_broken: false,
            is_open: true,
            is_indebted: false,
            is_distinctive: false,
            grant: Grant([0; 16]),
            session: SessionId([0; 16]),
            identity: Identity([0; 16]),
            fence: FencingToken(0),
            granted: RedisTime(0),
            is_doubtful: true,
        }
    }
}

/// The client that would write.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Its connection.
    pub session: SessionId,
    /// Its identity.
    pub identity: Identity,
    /// Its identity is distinctive even without a process.
    pub is_distinctive: bool,
    /// Its latest lease of this lock that it has not released.
    pub own: Option<Grant>,
}

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The writer had the lock, and no longer has it.
    StaleFence,
    /// It never had it.
    NotOwner,
}

/// The decision about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The newest lease belongs to this connection.
    Holder,
    /// It belonged to this connection; it is over, and the lock was not granted since.
    Late,
    /// The newest lease belongs to another connection of the same client.
    Identity,
    /// The lock is free, and that is allowed.
    Unlocked,
    /// It is refused.
    Refused(Refusal),
}

impl Verdict {
    /// Reads the verdict of `may_write` in wrap.lua.
    pub(crate) fn of_letter(letter: u8) -> Option<Verdict> {
        Some(match letter {
            b'h' => Verdict::Holder,
            b'l' => Verdict::Late,
            b'i' => Verdict::Identity,
            b'u' => Verdict::Unlocked,
            b'S' => Verdict::Refused(Refusal::StaleFence),
            b'N' => Verdict::Refused(Refusal::NotOwner),
            _ => return None,
        })
    }

    /// Whether the write may be carried out.
    pub fn passes(self) -> bool {
        !matches!(self, Verdict::Refused(_))
    }
}

/// Decides whether a write is allowed. `by_identity`: the guard takes the same client for the holder.
pub fn judge(record: Option<&RecordHead>, writer: &Writer, by_identity: bool, unlocked: Unlocked) -> Verdict {
    let had_it = Verdict::Refused(Refusal::StaleFence);
    let never_had_it = Verdict::Refused(Refusal::NotOwner);
    let Some(record) = record else {
        return match (writer.own, unlocked) {
            (Some(_), _) => had_it,
            (None, Unlocked::Allow) => Verdict::Unlocked,
            (None, Unlocked::Refuse) => never_had_it,
        };
    };
    if record.session == writer.session {
        return match (record.is_broken || record.is_doubtful, record.is_open) {
            (true, _) => had_it,
            (false, true) => Verdict::Holder,
            (false, false) => Verdict::Late,
        };
    }
    if writer.own.is_some_and(|own| own != record.grant) {
        return had_it;
    }
    let is_equal = by_identity && !record.is_broken && is_same(record, writer);
    if is_equal {
        return match record.is_indebted || record.is_doubtful {
            true => had_it,
            false => Verdict::Identity,
        };
    }
    match (record.is_open, unlocked) {
        (false, Unlocked::Allow) => Verdict::Unlocked,
        (true, _) | (false, Unlocked::Refuse) => never_had_it,
    }
}

/// Whether they are the same client, with a distinctive identity: `identical` in the scripts.
fn is_same(record: &RecordHead, writer: &Writer) -> bool {
    record.identity == writer.identity
        && match writer.identity.process() {
            Process::Known(_) => true,
            Process::None => record.is_distinctive && writer.is_distinctive,
            Process::Pending => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: SessionId = SessionId([1; 16]);
    const OTHER: SessionId = SessionId([2; 16]);

    fn client(process: &str) -> Identity {
        Identity::of(&[b"app"]).with_process(Process::of(&[process.as_bytes()]))
    }

    fn record(state: u8, flags: u8, session: SessionId, identity: Identity) -> Vec<u8> {
        let front = [b'1', state, NO_FLAGS + flags];
        let fence = b"0000000000000042";
        [&front[..], &[9; 16], &session.0, &identity.0, fence, b"1795409217434rest"].concat()
    }

    fn writer(own: bool) -> Writer {
        Writer { session: ME, identity: client("1"), is_distinctive: false, own: own.then_some(Grant([7; 16])) }
    }

    /// Every row of the table in docs/guards.md.
    #[test]
    fn who_may_write() {
        use Unlocked::{Allow, Refuse};
        use Verdict::{Holder, Identity, Late, Refused, Unlocked as Free};
        let (stale, stranger) = (Refused(Refusal::StaleFence), Refused(Refusal::NotOwner));
        let rows: &[(&str, SessionId, &str, u8, bool, Unlocked, Verdict)] = &[
            // State, whose connection, which process, flags, had a lease, unlocked.
            ("L", ME, "1", 0, true, Refuse, Holder),
            ("L", ME, "1", 0, false, Refuse, Holder),
            ("R", ME, "1", 0, false, Refuse, Late),
            ("E", ME, "1", 0, true, Refuse, Late),
            ("B", ME, "1", 0, true, Allow, stale),
            ("L", OTHER, "1", 0, false, Refuse, Identity),
            ("R", OTHER, "1", 0, false, Refuse, Identity),
            ("L", OTHER, "1", 0, true, Refuse, stale),
            ("L", OTHER, "1", INDEBTED, false, Refuse, stale),
            ("B", OTHER, "1", 0, false, Refuse, stranger),
            ("L", OTHER, "2", 0, true, Allow, stale),
            ("R", OTHER, "2", 0, true, Allow, stale),
            ("L", OTHER, "2", 0, false, Allow, stranger),
            ("L", OTHER, "2", 0, false, Refuse, stranger),
            ("R", OTHER, "2", 0, false, Refuse, stranger),
            ("R", OTHER, "2", 0, false, Allow, Free),
            ("E", OTHER, "2", 0, false, Allow, Free),
            ("B", OTHER, "2", 0, false, Allow, Free),
        ];
        for (state, session, process, flags, had, unlocked, expected) in rows {
            let bytes = record(state.as_bytes()[0], *flags, *session, client(process));
            let head = RecordHead::read(&bytes).expect("a record");
            let verdict = judge(Some(&head), &writer(*had), true, *unlocked);
            assert_eq!(verdict, *expected, "{state} {process} {had} {unlocked:?}");
        }
        assert_eq!(judge(None, &writer(true), true, Allow), stale);
        assert_eq!(judge(None, &writer(false), true, Allow), Free);
        assert_eq!(judge(None, &writer(false), true, Refuse), stranger);
    }

    #[test]
    fn a_record_that_may_not_be_of_the_newest_lease_lets_nobody_write() {
        for (session, process) in [(ME, "1"), (OTHER, "1"), (OTHER, "2")] {
            let bytes = record(b'L', 0, session, client(process));
            let head = RecordHead::read(&bytes).expect("a record");
            let doubtful = RecordHead { is_doubtful: true, ..head };
            let verdict = judge(Some(&doubtful), &writer(false), true, Unlocked::Refuse);
            assert!(!verdict.passes(), "{process}");
        }
    }

    #[test]
    fn an_identity_counts_where_it_can_be_told_from_others() {
        let by = |identity: Identity, flags: u8, is_distinctive: bool, by_identity: bool| {
            let head = RecordHead::read(&record(b'L', flags, OTHER, identity)).expect("a record");
            let writer = Writer { identity, is_distinctive, ..writer(false) };
            judge(Some(&head), &writer, by_identity, Unlocked::Refuse)
        };
        let refused = Verdict::Refused(Refusal::NotOwner);
        let somewhere = Identity::of(&[b"app"]);
        assert_eq!(by(client("1"), 0, false, true), Verdict::Identity);
        assert_eq!(by(client("1"), 0, false, false), refused, "only by session");
        assert_eq!(by(somewhere, DISTINCTIVE, true, true), Verdict::Identity);
        assert_eq!(by(somewhere, 0, true, true), refused);
        assert_eq!(by(somewhere, DISTINCTIVE, false, true), refused);
        let unknown = somewhere.with_process(Process::Pending);
        assert_eq!(by(unknown, DISTINCTIVE, true, true), refused);
    }

    #[test]
    fn what_is_no_record_is_none() {
        let whole = record(b'L', 0, ME, client("1"));
        for length in 0..HEAD_BYTES {
            assert_eq!(RecordHead::read(&whole[..length]), None, "{length}");
        }
        let head = RecordHead::read(&whole[..HEAD_BYTES]).expect("a record");
        assert_eq!(head.fence, FencingToken(42));
        assert_eq!(head.granted, RedisTime(1_795_409_217_434));
        let mut other = whole.clone();
        other[0] = b'2';
        for bytes in [&other[..], b"9Q"] {
            let head = RecordHead::read(bytes).expect("a record of a later version");
            for (own, unlocked) in [(true, Unlocked::Allow), (false, Unlocked::Allow), (false, Unlocked::Refuse)] {
                let verdict = judge(Some(&head), &writer(own), true, unlocked);
                assert!(matches!(verdict, Verdict::Refused(_)), "{own} {unlocked:?}");
            }
        }
    }
}
