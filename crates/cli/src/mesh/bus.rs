//! The bus of `--bus`, where this program was built with NATS.

use std::sync::Arc;

use linerate_mesh::bus::Bus;

use crate::args::{BusOptions, MeshPermissionsArgs};
use crate::failure::Failure;

#[cfg(feature = "nats")]
pub(super) use with::{connect, permissions};
#[cfg(not(feature = "nats"))]
pub(super) use without::{connect, permissions};

/// What is said of the connection.
fn say(text: &str) {
    crate::output::note(text);
}

#[cfg(not(feature = "nats"))]
mod without {
    use anyhow::anyhow;

    use super::{Arc, Bus, BusOptions, Failure, MeshPermissionsArgs};

    /// There is none.
    pub(in super::super) fn connect(
        _: &str,
        _: &BusOptions,
        _: Option<&str>,
    ) -> Result<Arc<dyn Bus>, Failure> {
        Err(lacking("--bus"))
    }

    /// There are none.
    pub(in super::super) fn permissions(_: &MeshPermissionsArgs) -> Result<(), Failure> {
        Err(lacking("mesh permissions"))
    }

    fn lacking(what: &str) -> Failure {
        let _ = super::say as fn(&str);
        Failure::unsupported(anyhow!(
            "{what}: this linerate knows no NATS; build it with: cargo build --release --features nats"
        ))
    }
}

#[cfg(feature = "nats")]
mod with {
    use std::fmt::Write as _;
    use std::fs::{self, DirBuilder, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    use std::path::Path;

    use anyhow::{Context, anyhow};
    use linerate_web::nats::{self, NatsBus, NatsOptions};

    use super::{Arc, Bus, BusOptions, Failure, MeshPermissionsArgs, say};
    use crate::{files, output};

    /// Longest file of credentials, bytes.
    const MAX_CREDENTIALS: u64 = 64 << 10;

    /// Connects; `site` is an agent's.
    pub(in super::super) fn connect(
        url: &str,
        options: &BusOptions,
        site: Option<&str>,
    ) -> Result<Arc<dyn Bus>, Failure> {
        let credentials = options.credentials.as_deref().map(|path| {
            let bytes = files::read_of("--credentials", path, MAX_CREDENTIALS)?;
            anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        if let Some(ca) = &options.ca {
            files::read_of("--ca", ca, MAX_CREDENTIALS).map_err(Failure::usage)?;
        }
        let options = NatsOptions {
            servers: url.to_owned(),
            credentials: credentials.transpose().map_err(Failure::usage)?,
            ca: options.ca.clone(),
            site: site.map(str::to_owned),
        };
        let bus = NatsBus::connect(&options, Arc::new(say));
        let bus = bus.with_context(|| format!("--bus {url}"));
        Ok(Arc::new(bus.map_err(Failure::failed)?))
    }

    /// Prints the accounts of all sites and of the coordinator.
    pub(in super::super) fn permissions(args: &MeshPermissionsArgs) -> Result<(), Failure> {
        let mesh = super::super::read(&args.file)?;
        let place = || format!("--keys {}", args.keys.display());
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&args.keys);
        made.with_context(place).map_err(Failure::usage)?;
        let mut users = String::new();
        let sites = mesh.sites.iter().map(|site| Some(site.name.as_str()));
        for site in [None].into_iter().chain(sites) {
            let key = key(&args.keys, site.unwrap_or("coordinator"));
            let key = key.with_context(place).map_err(Failure::usage)?;
            let [publish, subscribe] = nats::permissions(site).map(|list| quoted(&list));
            let name = site.unwrap_or("the coordinator");
            let _ = write!(
                users,
                "    # {name}\n    {{ nkey: {key}, permissions: {{\n      publish: {{ allow: \
                 {publish} }}\n      subscribe: {{ allow: {subscribe} }} }} }}\n"
            );
        }
        output::print(&format!(
            "# Users of a nats-server: include it in the server's file, beside\n\
             # jetstream {{ store_dir: \"/var/lib/nats\" }}\n\
             authorization {{\n  users = [\n{users}  ]\n}}\n"
        ))
    }

    fn quoted(list: &[String]) -> String {
        let quoted: Vec<String> = list
            .iter()
            .map(|subject| format!("\"{subject}\""))
            .collect();
        format!("[{}]", quoted.join(", "))
    }

    /// The public key of `NAME.nk`, which is made where it is not there.
    fn key(directory: &Path, name: &str) -> anyhow::Result<String> {
        let path = directory.join(format!("{name}.nk"));
        let named = || path.display().to_string();
        if path.exists() {
            let seed = fs::read_to_string(&path).with_context(named)?;
            return nats::public_key(&seed)
                .ok_or_else(|| anyhow!("no seed of a user's NKey"))
                .with_context(named);
        }
        let [seed, public] = nats::new_key()?;
        let mut file = OpenOptions::new();
        let mut file = file
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(named)?;
        writeln!(file, "{seed}").with_context(named)?;
        Ok(public)
    }
}
