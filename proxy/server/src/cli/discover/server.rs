//! The server to inspect, where no proxy is asked.

use std::sync::Arc;

use lockwarden_control::config;
use lockwarden_control::config::{Backend, Config};
use lockwarden_control::net::tls::Unobserved;
use lockwarden_dataplane::backend::Address;

use super::super::api_client::{ApiError, load_config};
use super::arguments::DiscoverArgs;

/// The configuration, and the selected server.
pub(super) fn server(args: &DiscoverArgs) -> Result<(Config, Address), ApiError> {
    let config = load_config(args.fleet.api().config()).map_err(|error| ApiError::Usage(error.to_string()))?;
    let backend = match &args.backend_url {
        Some(url) => config::parse_backend(url).map_err(|error| ApiError::Usage(format!("--backend-url: {error}")))?,
        None => config.backend.clone(),
    };
    match backend {
        Backend::Redis(url) => {
            // A URL on the command line has its own login.
            let login = config.backend_login.clone();
            let login = login.filter(|_| args.backend_url.is_none());
            let files = config.backend_tls.clone();
            let address = Address::new(url, login, files.as_ref(), Arc::new(Unobserved));
            let address = address.map_err(|error| ApiError::Usage(format!("backend_tls: {error}")))?;
            Ok((config, address))
        }
        Backend::Private => Err(ApiError::Usage(
            "the backend is private: name a server with --backend-url redis://host:port".to_owned(),
        )),
    }
}

/// Runs the questions to the server to their end.
pub(super) fn on_a_runtime<T>(asking: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ApiError::Usage(error.to_string()))?;
    runtime.block_on(asking)
}
