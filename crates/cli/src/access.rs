//! Who may read the pages of `web`, `probe` and `monitor --metrics`: requests that ask for this
//! host by a name of its own, or that have the password.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use linerate_core::foreign::iperf3::from_base64;
use linerate_core::units::one_host;
use linerate_core::wire::is_same_secret;
use linerate_web::{Answer, Ask};

use crate::failure::Failure;

/// Serves pages at the address that `option` gave, to those who may read them: with a password to
/// those who know it.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn serve(
    option: &str,
    listen: SocketAddr,
    password: Option<String>,
    answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> Result<SocketAddr, Failure> {
    let names = own_names();
    let wrong = Mutex::new(WrongPasswords::default());
    let answer = move |ask: &Ask| {
        let refused = match &password {
            None => refuse_name(&ask.host, listen.ip(), &names),
            Some(password) => {
                let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                wrong.check(password, &ask.authorization, ask.peer, Instant::now()).err()
            }
        };
        refused.unwrap_or_else(|| answer(ask))
    };
    linerate_web::serve(listen, answer)
        .with_context(|| format!("{option} {listen}"))
        .map_err(Failure::failed)
}

/// The names by which others ask for this host: its own one, alone and in the domains in which its
/// resolver searches.
fn own_names() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let host = read("/proc/sys/kernel/hostname").trim_end().to_ascii_lowercase();
    let resolver = read("/etc/resolv.conf");
    let lines = resolver.lines().map(str::split_ascii_whitespace);
    let searched = lines.filter_map(|mut words| {
        let key = words.next()?;
        ["search", "domain"].contains(&key).then_some(words)
    });
    let in_domains = searched.flatten().map(|domain| format!("{host}.{domain}"));
    in_domains.chain([host.clone()]).collect()
}

/// Refuses a request that asks for this host by a name that is not its own: it comes from a page of
/// another site, whose name an attacker made resolve to this host (DNS rebinding). No page can do
/// that with an address. Who listens on loopback is asked for by loopback's names alone.
fn refuse_name(host: &str, listen: IpAddr, names: &[String]) -> Option<Answer> {
    let without_port = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = without_port.unwrap_or_default().to_ascii_lowercase();
    let is_own = match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || !listen.is_loopback(),
        Err(_) => name == "localhost" || (!listen.is_loopback() && names.contains(&name)),
    };
    let own = if listen.is_loopback() { "localhost" } else { names.last().map_or("", |it| it) };
    let why = format!("ask for it by its address or as {own}\n");
    (!is_own).then(|| Answer::plain(403, why))
}

/// The addresses that gave a wrong password lately: when first, and how many.
#[derive(Debug, Default)]
struct WrongPasswords(HashMap<IpAddr, (Instant, u32)>);

/// Wrong passwords of an address within [`PAUSE`]; with one more it has to wait for its end.
const MAX_WRONG: u32 = 10;
const PAUSE: Duration = Duration::from_secs(60);
/// Most addresses that are remembered. With more the oldest is forgotten: to count several as one
/// would let them shut out others.
const MAX_ADDRESSES: usize = 1024;

impl WrongPasswords {
    /// # Errors
    /// The header `Authorization` has not the password, or its sender must wait.
    fn check(
        &mut self,
        password: &str,
        authorization: &str,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(), Answer> {
        let bytes = authorization.strip_prefix("Basic ").and_then(from_base64).unwrap_or_default();
        let name_and_password = String::from_utf8_lossy(&bytes);
        let Some((_, given)) = name_and_password.split_once(':') else {
            return Err(Answer::who_asks());
        };
        self.0.retain(|_, (since, _)| now.duration_since(*since) < PAUSE);
        let address = one_host(peer);
        if self.0.get(&address).is_some_and(|(_, count)| *count >= MAX_WRONG) {
            return Err(Answer::later(429, PAUSE, "too many wrong passwords\n"));
        }
        if is_same_secret(given.as_bytes(), password.as_bytes()) {
            self.0.remove(&address);
            return Ok(());
        }
        if self.0.len() >= MAX_ADDRESSES
            && !self.0.contains_key(&address)
            && let Some((oldest, _)) = self.0.iter().min_by_key(|(_, (since, _))| *since)
        {
            let oldest = *oldest;
            self.0.remove(&oldest);
        }
        self.0.entry(address).or_insert((now, 0)).1 += 1;
        Err(Answer::who_asks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_asks_by_a_name_that_is_not_this_hosts() {
        let names = ["pit.example.org", "pit"].map(str::to_owned);
        let [loopback, all]: [IpAddr; 2] = [[127, 0, 0, 1].into(), [0, 0, 0, 0].into()];
        let refused = |host: &str, listen| refuse_name(host, listen, &names).is_some();
        for host in ["localhost:9478", "LOCALHOST", "127.0.0.1", "[::1]:80"] {
            assert!(!refused(host, loopback) && !refused(host, all), "{host}");
        }
        for host in ["pit:9476", "Pit.example.org", "192.0.2.1:9476", "[2001:2::1]"] {
            assert!(refused(host, loopback) && !refused(host, all), "{host}");
        }
        for host in ["evil.example", "127.evil.example", "pit.evil.example:9476", "", "[", ":"] {
            assert!(refused(host, loopback) && refused(host, all), "{host}");
        }
    }

    #[test]
    fn after_wrong_passwords_an_address_waits_and_no_other_one_does() {
        const WRONG: &str = "Basic eDpz";
        // x:secret
        const RIGHT: &str = "Basic eDpzZWNyZXQ=";
        let (mut wrong, now) = (WrongPasswords::default(), Instant::now());
        let [here, there]: [IpAddr; 2] = [[198, 18, 0, 1].into(), [198, 18, 0, 2].into()];
        let mut check = |given, peer, now| wrong.check("secret", given, peer, now);
        for _ in 0..2 * MAX_WRONG {
            assert_eq!(check("", here, now), Err(Answer::who_asks()), "it is no guess");
        }
        for _ in 0..MAX_WRONG {
            assert_eq!(check(WRONG, here, now), Err(Answer::who_asks()));
        }
        for given in [WRONG, RIGHT] {
            let refused = check(given, here, now + PAUSE / 2).unwrap_err();
            assert_ne!(refused, Answer::who_asks());
        }
        assert_eq!(check(RIGHT, there, now), Ok(()));
        assert_eq!(check(RIGHT, here, now + PAUSE), Ok(()));
        // However many guess: the memory is bounded, and the right user comes in.
        for number in 0..10 * MAX_ADDRESSES as u32 {
            let peer = IpAddr::from((0xC612_0000 + number).to_be_bytes());
            assert!(check(WRONG, peer, now + PAUSE).is_err());
        }
        assert_eq!(check(RIGHT, there, now + PAUSE), Ok(()));
        assert!(wrong.0.len() <= MAX_ADDRESSES);
    }
}
