//! A connection that sends a command, waits for its reply, and fails if the reply is not the expected one.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::load::{Script, Texts};
use crate::replies::{Expected, Found};

/// Under callgrind and on a busy machine a first acquire takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Connection {
    stream: TcpStream,
    came: Vec<u8>,
}

impl Connection {
    /// Connects and gets a PONG.
    pub(crate) fn open(to: SocketAddr) -> Result<Connection, Box<dyn Error>> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut connection = Connection { stream, came: Vec::new() };
        connection.say(&lockwarden_tests::encode(&["PING"]), b"+PONG\r\n")?;
        Ok(connection)
    }

    /// Says it, and reads what must come.
    pub(crate) fn say(&mut self, request: &[u8], reply: &[u8]) -> Result<(), Box<dyn Error>> {
        self.stream.write_all(request)?;
        while self.came.len() < reply.len() {
            self.read()?;
        }
        if !self.came.starts_with(reply) {
            return Err(self.wrong().into());
        }
        self.came.drain(..reply.len());
        Ok(())
    }

    /// The next commands of a script of the bench, so many times, each after the reply to the one before.
    pub(crate) fn follow(&mut self, script: &mut Script, texts: &Texts, times: u64) -> Result<(), Box<dyn Error>> {
        let (mut request, mut awaited) = (Vec::new(), VecDeque::new());
        for _ in 0..times {
            request.clear();
            script.put(texts, &mut request, &mut awaited);
            self.stream.write_all(&request)?;
            while let Some(expected) = awaited.pop_front() {
                let granted = self.hear(expected, &texts.value_reply)?;
                script.heard(granted);
            }
        }
        Ok(())
    }

    fn hear(&mut self, expected: Expected, value: &[u8]) -> Result<bool, Box<dyn Error>> {
        loop {
            match expected.find(value, &self.came) {
                Found::Reply { length, granted } => {
                    self.came.drain(..length);
                    return Ok(granted);
                }
                Found::Part => self.read()?,
                Found::Other => return Err(self.wrong().into()),
            }
        }
    }

    fn read(&mut self) -> Result<(), Box<dyn Error>> {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes).map_err(|error| format!("no reply from the proxy: {error}"))? {
            0 => Err("the proxy closed a connection".into()),
            length => {
                self.came.extend_from_slice(&bytes[..length]);
                Ok(())
            }
        }
    }

    fn wrong(&self) -> String {
        format!("a wrong reply from the proxy: {}", self.came.escape_ascii())
    }
}
