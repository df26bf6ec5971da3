//! Requests as traces, for those who collect them: over OTLP, to a collector that was named in the configuration.
//!
//! A trace has the fields of the request's span and nothing else: never what was said, nor any token. A collector that
//! is not there costs a line in the log now and then, and nothing else.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

/// A collector that takes longer loses a batch.
const WITHIN: Duration = Duration::from_secs(5);

/// Sends traces until it is dropped, and the last of them then.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// `endpoint` is the collector's address without a path, as in `http://127.0.0.1:4318`.
    pub fn to(endpoint: &str) -> Result<Self, String> {
        let address = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(address)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(WITHIN)
            .build()
            .map_err(|error| format!("log.otlp_endpoint: {error}"))?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name("loadline").with_attribute(version).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Self(provider))
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.0.tracer("loadline")
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Best effort: whoever collects may have gone first.
        let _ = self.0.shutdown_with_timeout(WITHIN);
    }
}
