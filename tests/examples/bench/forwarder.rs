//! The least that a proxy of tokio can do: one thread, one task a client, bytes copied both ways. No
//! frame, no count; the floor that the proxy is held against. A process of its own (`bench forward LISTEN
//! BACKEND`), so that its CPU time is its own; it ends when it is killed.

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
                // One client's end, whatever the reason, is no other's business.
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
