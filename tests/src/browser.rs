//! A headless Chromium, driven over its debugging pipe: it opens a page, runs an expression in it and returns
//! the result. It does nothing that a person with the developer tools could not do.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::deadline::wait_for;
use crate::process::Process;

/// A browser on a machine that others use, too, takes its time to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. Dropping it kills it.
pub struct Browser {
    process: Process,
    orders: ChildStdin,
    answers: Receiver<Value>,
    /// Its unrequested messages: dialogs, breaches of the page's security policy.
    told: VecDeque<Value>,
    session: String,
    last: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. Where none is installed it prints that and returns `None`; in CI this is a failure.
    #[track_caller]
    pub fn start() -> Option<Browser> {
        let found = Command::new("sh").args(["-c", "command -v chromium"]).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CI").is_none(), "there is no chromium; .ci/setup.sh installs it");
            eprintln!("SKIPPED: there is no chromium on this machine");
            return None;
        }
        let profile = tempfile::tempdir().expect("a directory for the profile");
        // It takes orders on descriptor 3 and answers on 4.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args(["--headless=new", "--no-sandbox", "--remote-debugging-pipe"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-extensions", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdout(Stdio::piped());
        let mut process =
            Process::spawn_listening(&mut command).unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let orders = process.child().stdin.take().expect("stdin is piped");
        let stdout = process.child().stdout.take().expect("stdout is piped");
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut messages = BufReader::new(stdout).split(0);
            while let Some(Ok(message)) = messages.next() {
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            process,
            orders,
            answers,
            told: VecDeque::new(),
            session: String::new(),
            last: 0,
            _profile: profile,
        };
        let page = browser.order("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.order("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page.enable", "Log.enable", "Runtime.enable"] {
            browser.order(domain, json!({}));
        }
        Some(browser)
    }

    /// Opens an address and waits until its page is complete.
    #[track_caller]
    pub fn open(&mut self, address: &str) {
        let opened = self.order("Page.navigate", json!({ "url": address }));
        assert!(opened["errorText"].is_null(), "{address}: {opened}");
        self.becomes_true("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn evaluates(&mut self, expression: &str) -> Value {
        let done = self.order("Runtime.evaluate", expressed(expression));
        assert!(done["exceptionDetails"].is_null(), "{expression}: {done}");
        done["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub fn becomes_true(&mut self, expression: &str) {
        wait_for(expression, || {
            let answer = self.answer("Runtime.evaluate", expressed(expression));
            // The page may be on its way to another one, and is asked again then.
            if !answer["error"].is_null() {
                return false;
            }
            let done = &answer["result"];
            assert!(done["exceptionDetails"].is_null(), "{expression}: {done}");
            done["result"]["value"] == json!(true)
        });
    }

    /// Waits until the page shows this.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        self.becomes_true(&format!("document.body?.innerText.includes({})", json!(text)));
    }

    /// Dialogs, and messages about security and scripts that failed, since the start.
    pub fn complaints(&mut self) -> Vec<String> {
        // An answer comes after what was told before it.
        self.evaluates("0");
        let is_one = |told: &&Value| match told["method"].as_str() {
            Some("Page.javascriptDialogOpening" | "Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => told["params"]["entry"]["source"] != "network",
            _ => false,
        };
        self.told.iter().filter(is_one).map(Value::to_string).collect()
    }

    /// Makes the window this large.
    #[track_caller]
    pub fn is_sized(&mut self, (width, height): (u32, u32)) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": false });
        self.order("Emulation.setDeviceMetricsOverride", size);
    }

    /// Prefers `light` or `dark` from now on.
    #[track_caller]
    pub fn is_lit(&mut self, scheme: &str) {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.order("Emulation.setEmulatedMedia", json!({ "features": feature }));
    }

    /// Presses a key, as a person without a mouse does: `Tab`, `Enter`.
    #[track_caller]
    pub fn presses(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            _ => panic!("which key is {key}?"),
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [kind, "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// A picture of a window of this size, in the light or the dark.
    #[track_caller]
    pub fn draws(&mut self, size: (u32, u32), scheme: &str, into: &Path) {
        self.is_sized(size);
        self.is_lit(scheme);
        let picture = self.order("Page.captureScreenshot", json!({ "format": "png" }));
        let data = picture["data"].as_str().expect("a picture");
        fs::write(into, base64(data)).expect("the picture can be written");
    }

    /// Gives an order and waits for its answer.
    #[track_caller]
    fn order(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The same; the answer may be an error.
    #[track_caller]
    fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut order = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            order["sessionId"] = json!(self.session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.answers.recv_timeout(PATIENCE);
            let answer =
                answer.unwrap_or_else(|error| panic!("no answer to {method}: {error}, {:?}", self.process.has_ended()));
            if answer["id"] == json!(self.last) {
                return answer;
            }
            if answer["method"] == "Page.javascriptDialogOpening" {
                // It would wait for ever.
                let close = json!({ "id": 0, "method": "Page.handleJavaScriptDialog", "params": { "accept": false }, "sessionId": self.session });
                let mut bytes = close.to_string().into_bytes();
                bytes.push(0);
                self.orders.write_all(&bytes).expect("the browser listens");
            }
            self.told.push_back(answer);
        }
    }
}

fn expressed(expression: &str) -> Value {
    json!({ "expression": expression, "returnByValue": true, "awaitPromise": true })
}

/// The bytes of a text in base 64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| -> Option<u32> {
        Some(u32::from(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }))
    };
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().map_while(digit) {
        held = (held << 6) | digit;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(held >> bits));
            held &= (1 << bits) - 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_read() {
        assert_eq!(super::base64("bG9ja3dhcmRlbg=="), b"lockwarden");
        assert_eq!(super::base64("AP/+"), [0, 0xff, 0xfe]);
    }
}
