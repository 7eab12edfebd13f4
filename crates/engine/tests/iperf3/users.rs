//! Users with passwords, by the real iperf3 and a key that is made for the test.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use linerate_engine::Iperf3Access;
use linerate_testkit::{Need, skip};
use serde_json::Value;
use tempfile::TempDir;

use super::bench::{Bench, LIMITS, finished, is_installed, spawn_client_with};

/// SHA-256 of `{anna}rain`.
const DIGEST: &str = "e7b04bbbc23b9a3b7a50fae04330aaa0c9e9f92845fa6f53ccccd486594fdb6f";

fn openssl(arguments: &str, directory: &Path) -> bool {
    Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// An endpoint with one user, and the directory of her public key.
fn bench(kind: &str) -> Option<(Bench, TempDir)> {
    let directory = TempDir::new().unwrap();
    let made = openssl("genrsa -out made.pem 2048", directory.path())
        && openssl(&format!("rsa -in made.pem {kind} -out private.pem"), directory.path())
        && openssl("rsa -in private.pem -pubout -out public.pem", directory.path());
    if !made {
        skip(Need::Openssl, "needs openssl 3: apt-get install openssl");
        return None;
    }
    let key = fs::read_to_string(directory.path().join("private.pem")).unwrap();
    let access = Iperf3Access::new(&format!("anna,{DIGEST}\n"), &key, true).unwrap();
    let bench = Bench::with_access(Ipv4Addr::LOCALHOST.into(), LIMITS, Some(Arc::new(access)));
    Some((bench, directory))
}

fn client(bench: &Bench, directory: &TempDir, password: &str) -> Value {
    let public = directory.path().join("public.pem");
    let arguments = format!("-n 1M --username anna --rsa-public-key-path {}", public.display());
    finished(
        spawn_client_with(bench.address, &arguments, &[("IPERF3_PASSWORD", password)]),
        &arguments,
    )
}

#[test]
fn a_user_with_her_password_may_test_and_nobody_else() {
    if !is_installed() {
        return;
    }
    // PKCS #8, and PKCS #1 as older versions of openssl write it.
    for kind in ["", "-traditional"] {
        let Some((bench, directory)) = bench(kind) else {
            return;
        };
        assert_eq!(client(&bench, &directory, "rain").get("error"), None);
        assert!(client(&bench, &directory, "snow").get("error").is_some());
        assert!(bench.client("-n 1M").get("error").is_some());
        bench.assert_says("a wrong password");
        bench.assert_says("no token");
        assert_eq!(bench.records(1).len(), 1);
        // From now on nobody's guesses are looked at, right or wrong.
        for password in ["hail", "sleet", "fog", "rain"] {
            assert!(client(&bench, &directory, password).get("error").is_some());
        }
        bench.assert_says("too many wrong tokens");
    }
}

#[test]
fn files_without_users_or_a_key_are_refused() {
    let users = format!("anna,{DIGEST}");
    for (users, key, words) in [
        ("anna", "", "line 1"),
        (&*users, "", "not a private key"),
        (&*users, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "not an RSA key"),
        (&*users, "-----BEGIN ENCRYPTED PRIVATE KEY-----", "it is encrypted"),
    ] {
        let error = Iperf3Access::new(users, key, false).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
