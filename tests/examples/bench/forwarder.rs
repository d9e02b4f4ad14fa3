//! The least that a proxy made with tokio can do: one thread, one task for each client, bytes copied both
//! ways. It parses and counts nothing; the proxy is compared with it. It is a separate process (`bench
//! forward LISTEN BACKEND`), so that its CPU time is measured alone; it runs until it is killed.

use std::error::Error;
use std::net::SocketAddr;

use tokio::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// Forwards for ever.
pub(crate) fn serve(listen: SocketAddr, backend: SocketAddr) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(async move {
                // The end of one client, whatever the reason, does not concern the others.
                let _ = forward(client, backend).await;
            });
        }
    })
}

async fn forward(mut client: TcpStream, backend: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = TcpStream::connect(backend).await?;
    server.set_nodelay(true)?;
    io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
