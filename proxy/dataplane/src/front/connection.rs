//! What clients set on their connections. Each shard's session has to know it, including those that are opened later:
//! so these requests are kept, and are the first that a new session gets. The client gets the reply of one session.

use bytes::{Bytes, BytesMut};
use lockwarden_lock::table::SessionVerb;
use lockwarden_resp::{Protocol, RequestLimits};

use super::said::{Reply, TRACKING};
use super::{Front, OK, Over};
use crate::session::error_frame;

const CLIENT_REPLY_ON: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n";

impl Front {
    /// The present request, copied.
    pub(super) fn request_frame(&self) -> Bytes {
        Bytes::copy_from_slice(self.inbox.request().frame())
    }

    /// Its arguments, including the name.
    pub(super) fn words(&self) -> Vec<Bytes> {
        self.inbox.request().args().map(Bytes::copy_from_slice).collect()
    }

    pub(super) async fn session_verb(&mut self, verb: SessionVerb) -> Result<(), Over> {
        match verb {
            SessionVerb::Multi => self.begin_block(),
            // Outside of a block, any server gives the error for them.
            SessionVerb::Exec | SessionVerb::Discard => {
                let home = self.home().await?;
                self.send(home);
            }
            SessionVerb::Watch => self.watch().await?,
            SessionVerb::Unwatch => self.unwatch().await?,
            SessionVerb::Subscribe(_) | SessionVerb::Unsubscribe(_) => self.subscribe(verb).await?,
            SessionVerb::ClientReply => self.client_reply().await?,
            SessionVerb::ClientTracking => self.track().await?,
            SessionVerb::Reset => {
                self.said.clear();
                self.watching = None;
                self.listening.clear();
                (self.reply, self.protocol) = (Reply::On, Protocol::Resp2);
                self.tell_all(b"").await?;
            }
            SessionVerb::Quit => {
                self.answer(OK);
                self.settle().await?;
                return Err(Over::Done);
            }
            SessionVerb::Auth => {
                let reply = self.log_in(b"AUTH").await?;
                self.answer(reply);
            }
            SessionVerb::Hello => self.hello().await?,
            SessionVerb::Select => self.tell_all(b"SELECT").await?,
            SessionVerb::ClientSetName => self.tell_all(b"SETNAME").await?,
            SessionVerb::ClientSetInfo => {
                let what = self.inbox.request().arg(2).to_ascii_uppercase();
                self.tell_all(&what).await?;
            }
            SessionVerb::ClientMaintNotifications => self.tell_all(b"MAINT").await?,
            // The route of these shows already that they are for one server.
            SessionVerb::Asking | SessionVerb::Monitor | SessionVerb::Replication => {}
        }
        Ok(())
    }

    /// `CLIENT NO-EVICT`, `CLIENT NO-TOUCH`.
    pub(super) async fn set_flag(&mut self) -> Result<(), Over> {
        let kind = self.inbox.request().arg(1).to_ascii_uppercase();
        self.tell_all(&kind).await
    }

    /// Sends the request to all sessions, and keeps it for later ones if it was accepted. The client gets the reply
    /// of one.
    async fn tell_all(&mut self, kind: &[u8]) -> Result<(), Over> {
        let frame = self.request_frame();
        let reply = self.told_to_all(kind, &frame).await?;
        self.answer(reply);
        Ok(())
    }

    async fn told_to_all(&mut self, kind: &[u8], frame: &Bytes) -> Result<Bytes, Over> {
        let home = self.home().await?;
        let reply = self.ask(home, frame).await?;
        if reply.starts_with(b"-") {
            return Ok(reply);
        }
        for at in 0..self.legs.len() {
            if at != home && self.legs[at].as_ref().is_some_and(|leg| !leg.ended) {
                // If one has accepted it, the others must too.
                if self.ask_aside(at, frame).await?.starts_with(b"-") {
                    return Err(self.is_unlike(at));
                }
            }
        }
        if !kind.is_empty() {
            self.said.note(kind, frame);
        }
        Ok(reply)
    }

    async fn log_in(&mut self, kind: &[u8]) -> Result<Bytes, Over> {
        let frame = self.request_frame();
        let reply = self.told_to_all(kind, &frame).await?;
        if !reply.starts_with(b"-") {
            self.said.must_log_in = false;
            self.inbox.set_limits(RequestLimits::default());
        }
        Ok(reply)
    }

    async fn hello(&mut self) -> Result<(), Over> {
        let words = self.words();
        let logs_in = words.iter().skip(2).any(|word| word.eq_ignore_ascii_case(b"AUTH"));
        let reply = match logs_in {
            true => self.log_in(b"HELLO AUTH").await?,
            false => self.told_to_all(b"HELLO", &self.request_frame()).await?,
        };
        if !reply.starts_with(b"-") {
            match words.get(1).map(|word| &word[..]) {
                Some(b"3") => self.protocol = Protocol::Resp3,
                Some(_) => self.protocol = Protocol::Resp2,
                None => {}
            }
        }
        let reply = match self.face {
            Some(_) => reply,
            None => replaced(&reply, b"$7\r\ncluster\r\n", b"$10\r\nstandalone\r\n"),
        };
        self.answer(reply);
        Ok(())
    }

    /// Sessions always reply; the front leaves out the replies. One session is asked whether the user may do this at
    /// all.
    async fn client_reply(&mut self) -> Result<(), Over> {
        let mode = self.inbox.request().arg(2).to_ascii_uppercase();
        let home = self.home().await?;
        let may = self.ask_aside(home, CLIENT_REPLY_ON).await?;
        match &mode[..] {
            _ if may.starts_with(b"-") => self.answer(may),
            b"ON" => {
                self.reply = Reply::On;
                self.answer(OK);
            }
            b"OFF" => self.reply = Reply::Off,
            // After OFF nothing changes, as on Redis.
            b"SKIP" if self.reply == Reply::Off => {}
            b"SKIP" => self.reply = Reply::SkipNext,
            _ => self.answer(error_frame("ERR syntax error")),
        }
        Ok(())
    }

    /// `CLIENT TRACKING`: invalidations come from each shard over its own connection, so they cannot be redirected to
    /// another one.
    async fn track(&mut self) -> Result<(), Over> {
        let request = self.inbox.request();
        if request.args().any(|word| word.eq_ignore_ascii_case(b"REDIRECT")) {
            self.answer(error_frame(
                "ERR lockwarden stands before a whole cluster: invalidations come by the connection itself, with HELLO 3",
            ));
            return Ok(());
        }
        self.tell_all(TRACKING).await
    }

    /// `CLIENT CACHING` is for the next command, and only one session gets that: so it is sent to that session, right
    /// before the command.
    pub(super) async fn caching(&mut self) -> Result<(), Over> {
        if self.said.tracks() {
            self.ahead = Some(self.request_frame());
            self.answer(OK);
            return Ok(());
        }
        // Any server gives the error for it.
        let home = self.home().await?;
        self.send(home);
        Ok(())
    }

    /// `INFO` of one server, which describes itself as part of a cluster.
    pub(super) async fn show_info(&mut self) -> Result<(), Over> {
        let home = self.home().await?;
        let frame = self.request_frame();
        let reply = self.ask(home, &frame).await?;
        self.answer(as_standalone(&reply));
        Ok(())
    }
}

/// The text of `INFO` as an ordinary Redis gives it: if it names a cluster, clients connect to other nodes by
/// themselves.
fn as_standalone(reply: &Bytes) -> Bytes {
    let (Some(kind @ (b'$' | b'=')), Some(line)) = (reply.first(), memchr::memchr(b'\n', reply)) else {
        return reply.clone();
    };
    let Some(text) = reply.get(line + 1..reply.len() - 2) else {
        return reply.clone();
    };
    let text = replaced(text, b"redis_mode:cluster", b"redis_mode:standalone");
    let text = replaced(&text, b"server_mode:cluster", b"server_mode:standalone");
    let text = replaced(&text, b"cluster_enabled:1", b"cluster_enabled:0");
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&[*kind]);
    frame.extend_from_slice(text.len().to_string().as_bytes());
    frame.extend_from_slice(b"\r\n");
    frame.extend_from_slice(&text);
    frame.extend_from_slice(b"\r\n");
    frame.freeze()
}

/// The same text with the first of these words replaced by the other, if it is there.
fn replaced(text: &[u8], word: &[u8], other: &[u8]) -> Bytes {
    match memchr::memmem::find(text, word) {
        Some(at) => [&text[..at], other, &text[at + word.len()..]].concat().into(),
        None => Bytes::copy_from_slice(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_cluster_reads_as_of_a_single_server() {
        let text = "# Server\r\nredis_mode:cluster\r\ncluster_enabled:1\r\n";
        let expected = "# Server\r\nredis_mode:standalone\r\ncluster_enabled:0\r\n";
        for (kind, before) in [('$', ""), ('=', "txt:")] {
            let frame = |text: &str| format!("{kind}{}\r\n{before}{text}\r\n", before.len() + text.len());
            assert_eq!(as_standalone(&frame(text).into()), frame(expected));
        }
        for other in ["-NOPERM no\r\n", "$-1\r\n", "$0\r\n\r\n"] {
            assert_eq!(as_standalone(&Bytes::from_static(other.as_bytes())), other);
        }
    }
}
