//! A real browser: headless Chromium by WebDriver (W3C), as Debian's packages chromium and
//! chromium-driver have it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A directory for pictures of all pages that were looked at.
pub const PICTURES: &str = "LINERATE_PICTURES";

/// A browser with one page, gone when this is.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// What a page may load begins with.
    own: String,
}

impl Browser {
    /// One in which pages may load what begins with `own`, and nothing else.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(own: &str) -> Result<Self, String> {
        let mut driver = Command::new("chromedriver")
            .args(["--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let stdout = driver.stdout.take().ok_or("its output is not there")?;
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            port: port.ok_or("chromedriver says no port")?,
            session: String::new(),
            own: own.to_owned(),
        };
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.send("POST", "/session", &wanted)?;
        let session = made["sessionId"].as_str().ok_or_else(|| made.to_string())?;
        browser.session = format!("/session/{session}");
        Ok(browser)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            let body = if method == "GET" { String::new() } else { body.to_string() };
            let (session, length) = (&self.session, body.len());
            write!(
                stream,
                "{method} {session}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
                 application/json\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )?;
            let mut answer = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while answer.read_line(&mut line)? > 2 {
                let (name, value) = line.split_once(':').unwrap_or_default();
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let mut text = vec![0; length];
            answer.read_exact(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let text = asked().map_err(|error| error.to_string())?;
        let mut answer: Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        match answer["value"]["error"].as_str() {
            Some(_) => Err(answer["value"].to_string()),
            None => Ok(answer["value"].take()),
        }
    }

    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let done = self.send(method, path, body);
        done.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.done("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// So many pixels wide, with a light ground or a dark one.
    pub fn look(&self, width: u32, is_dark: bool) {
        let screen =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.done("POST", "/url", &json!({"url": url}));
    }

    /// What a script says; it returns it.
    pub fn script(&self, script: &str) -> Value {
        self.done("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Presses a key, such as `\u{e004}` for Tab and `\u{e007}` for Enter.
    pub fn press(&self, key: &str) {
        let keys = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keys", "actions": keys}]});
        self.done("POST", "/actions", &actions);
    }

    /// Holds the page that is open to what each page must be: no word on the console, no request to
    /// elsewhere, nothing beyond the right edge; and takes its picture, if [`PICTURES`] says where.
    ///
    /// # Panics
    /// It is not so.
    pub fn examine(&self, name: &str) {
        let logged = |kind: &str| self.done("POST", "/se/log", &json!({"type": kind}));
        let console = logged("browser");
        assert_eq!(console, json!([]), "{name}: the console");
        for entry in logged("performance").as_array().into_iter().flatten() {
            let message: Value =
                serde_json::from_str(entry["message"].as_str().unwrap_or_default())
                    .unwrap_or_default();
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().unwrap_or_default();
                assert!(url.starts_with(&self.own), "{name} asks for {url}");
            }
        }
        let beyond = self.script("return document.documentElement.scrollWidth - window.innerWidth");
        assert!(beyond.as_i64() <= Some(0), "{name} is {beyond} pixels too wide");
        if let Some(directory) = std::env::var_os(PICTURES) {
            let picture =
                self.devtools("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
            let path = PathBuf::from(directory).join(format!("{name}.png"));
            let bytes = from_base64(picture["data"].as_str().unwrap_or_default());
            std::fs::write(&path, bytes)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session; where that failed, with its driver.
        let _ = self.send("DELETE", "", &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// RFC 4648, section 4.
fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| LETTERS.iter().position(|letter| *letter == byte));
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_usize, 0);
    for digit in digits {
        held = (held << 6 | digit) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}
