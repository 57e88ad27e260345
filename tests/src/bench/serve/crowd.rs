//! Clients that ask at once, all on one thread, as those of the engine are: a thread for each would wake with each token,
//! on the cores that the engine computes on.
//!
//! Invariant: every byte is read, as soon as the system says that there are some.

use super::{
    client::{PATIENCE, request},
    stream::{Reading, Stream},
};
use crate::Result;
use mio::{Events, Interest, Poll, Token, net::TcpStream};
use serde_json::Value;
use std::{
    io::{self, Read, Write},
    net::{self, SocketAddr},
};

/// Bytes that are read at once: some events.
const BYTES: usize = 16 << 10;

/// One of them: its connection, and what has come of its stream.
#[derive(Debug)]
struct Asker {
    socket: TcpStream,
    stream: Stream,
    /// A line whose end has not come yet.
    rest: Vec<u8>,
}

/// Asks for these streams at once, each on a connection of its own, and reads all of them to their ends; `sent` comes
/// between.
///
/// # Errors
/// One is no stream, or does not come to its end; and those of `sent`.
pub(super) fn streams(
    address: SocketAddr,
    bodies: &[Value],
    sent: impl FnOnce() -> Result<()>,
) -> Result<Vec<Reading>> {
    let mut poll = Poll::new()?;
    let mut sockets = Vec::with_capacity(bodies.len());
    for index in 0..bodies.len() {
        let socket = net::TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(index), Interest::READABLE)?;
        sockets.push(socket);
    }
    let mut askers = Vec::with_capacity(bodies.len());
    for (mut socket, body) in sockets.into_iter().zip(bodies) {
        let stream = Stream::new();
        // A connection that was never written to takes this much at once.
        socket.write_all(request(body).as_bytes())?;
        askers.push(Asker { socket, stream, rest: Vec::new() });
    }
    sent()?;
    let (mut events, mut bytes) = (Events::with_capacity(bodies.len()), vec![0; BYTES]);
    while !askers.iter().all(|asker| asker.stream.is_over()) {
        match poll.poll(&mut events, Some(PATIENCE)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        if events.is_empty() {
            return Err("the server sends nothing more".into());
        }
        for event in &events {
            askers[event.token().0].read(&mut bytes)?;
        }
    }
    askers.into_iter().map(|asker| asker.stream.reading()).collect()
}

impl Asker {
    /// Reads what is there.
    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        loop {
            match self.socket.read(bytes) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Ok(count) => self.take(&bytes[..count])?,
                // Only then the system tells of what comes later.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(line);
            if line.ends_with(b"\n") {
                self.stream.line(str::from_utf8(&self.rest)?.trim_end())?;
                self.rest.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread, time::Duration};

    /// A stream of one text of two bytes a character.
    const STREAM: &str = "HTTP/1.1 200 OK\r\n\r\n30\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\n\r\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n\r\n\
        data: [DONE]\n\n\r\n0\r\n\r\n";

    /// Answers so many connections, each with these bytes in pieces.
    fn serve(listener: TcpListener, connections: usize, bytes: &'static [u8]) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let accepted: Vec<_> = (0..connections).flat_map(|_| listener.accept()).collect();
            for piece in bytes.chunks(21) {
                accepted.iter().for_each(|(socket, _)| {
                    // A client that gives up reads no more.
                    let _ = (&mut &*socket).write_all(piece);
                });
                thread::sleep(Duration::from_micros(200));
            }
        })
    }

    fn read(bytes: &'static [u8]) -> Result<Vec<Reading>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = serve(listener, 3, bytes);
        let readings = streams(address, &[Value::Null, Value::Null, Value::Null], || Ok(()));
        server.join().map_err(|_| "the server has panicked")?;
        readings
    }

    #[test]
    fn all_streams_are_read_to_their_ends_in_whatever_pieces_they_come() -> Result<()> {
        let cut = STREAM.find('é').map(|place| place + 1);
        assert_eq!(cut.map(|cut| cut % 21), Some(0), "a piece ends within the character");
        let readings = read(STREAM.as_bytes())?;
        assert_eq!(readings.iter().map(|reading| reading.tokens).collect::<Vec<_>>(), [(7, 1); 3]);
        Ok(())
    }

    #[test]
    fn a_connection_that_is_closed_early_is_an_error() {
        assert!(read(&STREAM.as_bytes()[..STREAM.len() - 2]).is_err());
    }
}
