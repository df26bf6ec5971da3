//! Where the server is, and how it is reached: encrypted and with its name checked, unless it is on this machine.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use postgres::{Client, NoTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::ConfigVerifierExt;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::schema;
use super::session::{Driven, PATIENCE, Session};
use super::waiting;
use crate::store::StoreError;
use crate::store::error::Failure;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// After this long without an answer to what was sent, the way is cut.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// How often a quiet connection is looked after.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// What a connection asks of the server for itself. An engine that does not know one of them does without.
const MANNERS: [&str; 4] = [
    "SET statement_timeout = '10s'",
    "SET lock_timeout = '5s'",
    // A process that hangs in the middle of a transaction must not hold others up for ever.
    "SET idle_in_transaction_session_timeout = '30s'",
    "SET client_min_messages = 'warning'",
];

/// Why an address is none. It does not quote what was written: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("must look like postgres://user:password@host/database ({0})")]
    NotAUrl(String),
    #[error("must name a host")]
    NoHost,
    #[error("the certificates cannot be read: {0}")]
    Certificates(String),
}

/// A server, with what it takes to be let in.
#[derive(Clone)]
pub struct Address {
    config: Box<Config>,
    tls: Option<MakeRustlsConnect>,
    /// Without the password.
    place: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({})", self.place)
    }
}

/// For people.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.place)
    }
}

impl Address {
    /// Reads an address. A password that is kept elsewhere is put in, and certificates of an authority of one's own
    /// stand in for those of the system.
    pub fn new(url: &str, password: Option<&str>, authority: Option<&Path>) -> Result<Self, AddressError> {
        let wrong = |error: tokio_postgres::Error| {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            AddressError::NotAUrl(reason)
        };
        let mut config = Config::from_str(url).map_err(wrong)?;
        if config.get_hosts().is_empty() {
            return Err(AddressError::NoHost);
        }
        let variable = std::env::var("PGPASSWORD").ok().filter(|_| config.get_password().is_none());
        if let Some(password) = password.map(str::to_owned).or(variable) {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(LOST_AFTER);
        }
        config.keepalives_idle(ALIVE_EVERY).keepalives_interval(ALIVE_EVERY).keepalives_retries(2);
        if config.get_application_name().is_none() {
            config.application_name("loadline");
        }
        // Nobody listens in on this machine. Elsewhere an encrypted connection is not a matter of luck.
        let written = url.contains("sslmode=");
        if !written {
            let local = config.get_hosts().iter().all(is_local);
            config.ssl_mode(if local { SslMode::Disable } else { SslMode::Require });
        }
        let encrypted = config.get_ssl_mode() != SslMode::Disable;
        let tls = encrypted.then(|| tls(authority)).transpose()?;
        let place = place(&config);
        Ok(Self { config: Box::new(config), tls, place })
    }

    /// A connection, with whatever schema is there.
    pub(super) fn connect(&self) -> Result<Session, Failure> {
        let session = Session::new(self.driven()?);
        for manner in MANNERS {
            match session.batch(manner) {
                Err(failure) if failure.is_lost() => return Err(failure),
                _known_there_or_not => {}
            }
        }
        Ok(session)
    }

    fn driven(&self) -> Result<Driven, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|_| Failure::Odd("there is no room for another connection"))?;
        let connecting = async {
            // How a connection ended is told to whoever uses it next.
            Ok::<_, postgres::Error>(match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    (client, tokio::spawn(async { drop(connection.await) }))
                }
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    (client, tokio::spawn(async { drop(connection.await) }))
                }
            })
        };
        let connected = runtime.block_on(async { tokio::time::timeout(PATIENCE, connecting).await });
        let (client, connection) = connected.map_err(|_| Failure::Silent)??;
        Ok(Driven { runtime, client: Some(client), connection })
    }

    /// A connection that hears what others say.
    pub(super) fn listener(&self) -> Result<Client, postgres::Error> {
        let config = postgres::Config::from((*self.config).clone());
        match &self.tls {
            Some(tls) => config.connect(tls.clone()),
            None => config.connect(NoTls),
        }
    }

    /// Whether the schema is there, and is the one that is known.
    pub fn check(&self) -> Result<(), StoreError> {
        waiting(|| {
            let session = self.connect().map_err(|failure| failure.on(self))?;
            schema::check(&session, self)
        })
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        Host::Unix(_) => true,
    }
}

fn tls(authority: Option<&Path>) -> Result<MakeRustlsConnect, AddressError> {
    let failed = |error: &dyn fmt::Display| AddressError::Certificates(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| failed(&error))?;
    let config = match authority {
        None => {
            let _another_was_first = rustls::crypto::ring::default_provider().install_default();
            ClientConfig::with_platform_verifier().map_err(|error| failed(&error))?
        }
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
                let certificate = certificate.map_err(|error| failed(&error))?;
                roots.add(certificate).map_err(|error| failed(&error))?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |number: usize| ports.get(number).or(ports.first()).copied().unwrap_or(5432);
    let host = |(number, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(number)),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    let schema = config.get_options().and_then(|options| options.split("search_path=").nth(1));
    let schema = schema.and_then(|rest| rest.split_whitespace().next());
    let schema = schema.map(|schema| format!(" (schema {schema})")).unwrap_or_default();
    format!("postgres://{}/{database}{schema}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Address::new(url, None, None).expect("an address").config.get_ssl_mode()
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let address = Address::new("postgres://u:hush@db.example:6000/chats", None, None).expect("an address");
        assert_eq!(address.to_string(), "postgres://db.example:6000/chats");
        assert!(!format!("{address:?}").contains("hush"));
        let wrong = Address::new("postgres://u:hush@db.example/chats?nonsense=1", None, None).expect_err("no address");
        assert!(!wrong.to_string().contains("hush") && wrong.to_string().contains("nonsense"), "{wrong}");
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_it_is_said_otherwise() {
        assert_eq!(mode("postgres://u@127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u@localhost/d"), SslMode::Disable);
        assert_eq!(mode("postgres:///d?host=/run/postgresql&user=u"), SslMode::Disable);
        assert_eq!(mode("postgres://u@db.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://u@db.example/d?sslmode=disable"), SslMode::Disable);
    }
}
