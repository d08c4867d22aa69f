//! HTTP, as much of it as a scrape needs.

#![warn(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::Page;

/// Those who want to read the metrics; the port is closed when dropped.
#[derive(Debug)]
pub struct Scrapes {
    wanted: mpsc::Receiver<Scrape>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

/// One who wants to read the metrics.
#[derive(Debug)]
pub struct Scrape(oneshot::Sender<Page>);

/// A port that cannot be listened at.
#[derive(Debug, Error)]
#[error("listening at {address} for metrics: {source}; choose another with --metrics, or in the file's [metrics]")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Most connections at a time; who comes beyond that is turned away.
const CONNECTIONS: usize = 16;
/// How long a connection may last, and a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of a request's head; the least that hyper takes.
const HEAD: usize = 8_192;
/// How long the server waits after an error of the kernel's, as when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);
/// The content type of a page.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reads an address with a port.
pub fn read_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not an address with a port; write 127.0.0.1:9435, or [::1]:9435 for IPv6"))
}

impl Scrapes {
    /// Listens at `address`; needs a Tokio runtime.
    pub async fn listen(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "every host that reaches this address can read the metrics: no TLS, no authentication");
        }
        let (send, wanted) = mpsc::channel(CONNECTIONS);
        Ok(Scrapes { wanted, address, server: tokio::spawn(serve(listener, send)) })
    }

    /// Listens at `address` if there is one; without one no process can read the metrics.
    pub async fn listen_if(address: Option<SocketAddr>) -> Result<Option<Self>, ListenError> {
        match address {
            Some(address) => Scrapes::listen(address).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next who wants to read the metrics.
    pub async fn next(&mut self) -> Scrape {
        match self.wanted.recv().await {
            Some(scrape) => scrape,
            // Only when the server is gone, which lives as long as we do.
            None => std::future::pending().await,
        }
    }

    /// Waits for the next who wants to read the metrics; for ever where no port is open.
    pub async fn next_of(scrapes: &mut Option<Self>) -> Scrape {
        match scrapes {
            Some(scrapes) => scrapes.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Scrapes {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Scrape {
    /// Answers with a page; a reader that has gone away is no error.
    pub fn answer(self, page: Page) {
        let _ = self.0.send(page);
    }
}

async fn serve(listener: TcpListener, wanted: mpsc::Sender<Scrape>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if open.len() < CONNECTIONS => {
                    open.spawn(timeout(PATIENCE, converse(stream, wanted.clone())));
                }
                Ok(_) => tracing::debug!("more than {CONNECTIONS} readers of the metrics"),
                Err(error) => {
                    tracing::warn!(%error, "the port of the metrics accepts no connections");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, wanted: mpsc::Sender<Scrape>) {
    let service = service_fn(|request| {
        let wanted = wanted.clone();
        async move { Ok::<_, Infallible>(answer(&request, &wanted).await) }
    });
    let mut server = http1::Builder::new();
    server.keep_alive(false).max_buf_size(HEAD);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a reader of the metrics");
    }
}

async fn answer(request: &Request<Incoming>, wanted: &mpsc::Sender<Scrape>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n");
    }
    let (send, page) = oneshot::channel();
    let asked = wanted.try_send(Scrape(send)).is_ok();
    let text = match timeout(PATIENCE / 2, page).await {
        Ok(Ok(page)) if asked => page.into_text().ok(),
        _ => None,
    };
    match text {
        Some(text) => {
            let mut response = Response::new(Full::from(text));
            response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(OPENMETRICS));
            response
        }
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "the daemon does not answer\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Metric;

    const UP: Metric = Metric::gauge("up_for_test", "One");

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    async fn daemon() -> (SocketAddr, JoinHandle<()>) {
        let mut scrapes = Scrapes::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = scrapes.address();
        let work = async move {
            loop {
                let mut page = Page::default();
                page.one(UP, 1.0);
                scrapes.next().await.answer(page);
            }
        };
        (address, tokio::spawn(work))
    }

    #[tokio::test]
    async fn a_scrape_gets_the_page_and_nothing_else_does() {
        let (address, daemon) = daemon().await;
        let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains(OPENMETRICS), "{page}");
        assert!(page.ends_with("up_for_test 1.0\n# EOF\n"), "{page}");
        assert!(ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 405"));
        assert!(ask(address, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(HEAD));
        assert!(ask(address, &long).await.starts_with("HTTP/1.1 431"));
        daemon.abort();
        let _ = daemon.await;
        tokio::task::yield_now().await;
        assert!(TcpStream::connect(address).await.is_err(), "the port is closed with the daemon's work");
    }

    #[tokio::test]
    async fn clients_that_send_nothing_keep_no_other_client_out_for_long() {
        let (address, daemon) = daemon().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert!(!ask(address, request).await.contains("200 OK"), "there are too many");
        idle.clear();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(ask(address, request).await.contains("200 OK"));
        daemon.abort();
    }

    #[tokio::test]
    async fn a_port_in_use_says_what_to_do() {
        let (address, daemon) = daemon().await;
        let error = Scrapes::listen(address).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("--metrics"), "{error}");
        daemon.abort();
    }

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(read_address("[::1]:9435"), Ok("[::1]:9435".parse().unwrap()));
        for wrong in ["", "9435", "localhost:9435", "127.0.0.1", "::1:9435x", "127.0.0.1:99999"] {
            assert!(read_address(wrong).unwrap_err().contains("127.0.0.1:9435"), "{wrong}");
        }
    }
}
