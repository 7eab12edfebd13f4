//! A PostgreSQL server of a test's own, on a Unix socket in a temporary directory.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Need, eventually, made_or_skip};

/// Ends with this value, and takes its files with it.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    directory: PathBuf,
    owner: Option<(u32, u32)>,
    child: Child,
}

impl Server {
    /// A server without databases of users; none, after saying why, where PostgreSQL is not
    /// installed.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<Self> {
        let programs = made_or_skip(Need::Postgres, programs())?;
        let owner = made_or_skip(Need::Postgres, owner())?;
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-postgres-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.expect("the temporary directory is writable");
        if let Some((user, group)) = owner {
            chown(&directory, Some(user), Some(group)).expect("root gives files away");
        }
        let data = directory.join("data");
        let mut initdb = command(&programs.join("initdb"), owner, &directory);
        initdb.args([
            "-U",
            "linerate",
            "--auth=trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
            "-D",
        ]);
        let made = initdb.arg(&data).output().expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut postgres = command(&programs.join("postgres"), owner, &directory);
        postgres.arg("-D").arg(&data).arg("-k").arg(&directory);
        postgres.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "log_min_messages=fatal",
        ]);
        let child = postgres.stderr(Stdio::null()).spawn().expect("it starts");
        let server = Self { programs, directory, owner, child };
        eventually("the server answers", || server.sql("SELECT 1").is_ok());
        Some(server)
    }

    /// Makes a database; its URL.
    ///
    /// # Panics
    /// The server does not make it.
    pub fn database(&self, name: &str) -> String {
        let made = self.sql(&format!("CREATE DATABASE {name}"));
        made.unwrap_or_else(|error| panic!("{error}"));
        format!("postgresql:///{name}?host={}&user=linerate", self.directory.display())
    }

    /// Ends all connections, as a server that is started again.
    ///
    /// # Panics
    /// The server does not do it.
    pub fn end_connections(&self) {
        let sql =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
        self.sql(sql).unwrap_or_else(|error| panic!("{error}"));
    }

    fn sql(&self, sql: &str) -> Result<(), String> {
        let mut psql = command(&self.programs.join("psql"), self.owner, &self.directory);
        psql.args(["-X", "-q", "-U", "linerate", "-d", "postgres", "-c", sql, "-h"]);
        let done = psql.arg(&self.directory).output().map_err(|error| error.to_string())?;
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(error) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its own processes end with it; one that does not is killed.
        let mut stop = command(&self.programs.join("pg_ctl"), self.owner, &self.directory);
        let stop = stop.args(["stop", "-m", "immediate", "-D"]);
        let stopped = stop.arg(self.directory.join("data")).output();
        if !stopped.is_ok_and(|done| done.status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// As the owner, who is not root: PostgreSQL refuses to run as root.
fn command(program: &Path, owner: Option<(u32, u32)>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    if let Some((user, group)) = owner {
        command.gid(group).uid(user);
    }
    command
}

/// The directory of the programs: Debian's packages keep those of each version apart.
fn programs() -> Result<PathBuf, &'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    let mut places = std::env::split_paths(&path).chain(versions);
    let is_there = |place: &PathBuf| {
        ["initdb", "postgres", "pg_ctl", "psql"].iter().all(|it| place.join(it).is_file())
    };
    places.find(is_there).ok_or("no initdb (apt-get install postgresql)")
}

/// Whom the server runs as where the test is root's.
fn owner() -> Result<Option<(u32, u32)>, &'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines().filter_map(|line| line.strip_prefix("Uid:"));
    if lines.next().and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let user = fields.find(|fields| fields.len() > 3 && fields[0] == name)?;
        Some((user[2].parse().ok()?, user[3].parse().ok()?))
    };
    let found = ids("postgres").or_else(|| ids("nobody"));
    found.map(Some).ok_or("neither a user postgres nor nobody is in /etc/passwd")
}
