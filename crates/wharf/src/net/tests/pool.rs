//! Which connections are kept, how many and for how long, against a server that counts those that are open.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, watch};

use super::connector;
use crate::net::ask::{Address, Ask, Preset};
use crate::net::pool::{Limits, Pool};
use crate::policy::Policy;

const AGE: Duration = Duration::from_secs(90);

struct Server {
    uri: Uri,
    open: watch::Receiver<usize>,
    /// Closes all that are open.
    hang_up: watch::Sender<bool>,
}

/// Answers when so many wait for it at once.
async fn server(together: usize) -> Server {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let uri = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let ((counted, open), (hang_up, hung_up)) = (watch::channel(0), watch::channel(false));
    let (counted, barrier) = (Arc::new(counted), Arc::new(Barrier::new(together)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.send_modify(|open| *open += 1);
            let (counted, barrier, mut hung_up) = (counted.clone(), barrier.clone(), hung_up.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serve(stream, &barrier) => {}
                    _ = hung_up.wait_for(|hung_up| *hung_up) => {}
                }
                counted.send_modify(|open| *open -= 1);
            });
        }
    });
    Server { uri, open, hang_up }
}

async fn serve(mut stream: TcpStream, barrier: &Barrier) {
    let mut asked = Vec::new();
    loop {
        while !asked.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut asked).await.unwrap_or(0) == 0 {
                return;
            }
        }
        asked.clear();
        barrier.wait().await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    }
}

impl Server {
    fn pool(&self, idle: usize) -> Arc<Pool> {
        let (connector, _) = connector(&Policy::strict(), &self.uri.to_string(), vec![vec![]]);
        Pool::new(connector, self.uri.clone(), Limits { idle, age: AGE })
    }

    async fn ask(&self, pool: &Arc<Pool>) {
        let (preset, nothing) = (Preset::default(), Bytes::new());
        let ask = Ask { method: &Method::GET, preset: &preset, own: &[], body: &nothing };
        let answer = pool.send(&Address::new(self.uri.clone()), &ask).await.unwrap();
        assert_eq!(answer.body.read(100).await.unwrap(), "hello");
    }

    async fn until_open(&self, wanted: usize) {
        let mut open = self.open.clone();
        let met = tokio::time::timeout(Duration::from_secs(10), open.wait_for(|open| *open == wanted)).await;
        assert!(met.is_ok(), "{} are open, not {wanted}", *self.open.borrow());
    }
}

#[tokio::test]
async fn l36_not_more_connections_rest_than_may() {
    for (together, kept) in [(2, 2), (3, 3), (4, 3)] {
        let server = server(together).await;
        let pool = server.pool(3);
        for _ in 0..3 {
            join_all((0..together).map(|_| server.ask(&pool))).await;
            assert_eq!(pool.resting(), kept, "{together}");
            server.until_open(kept).await;
        }
    }
}

#[tokio::test]
async fn l30_connections_are_closed_with_their_pool_and_when_it_is_closed() {
    let server = server(1).await;
    let pool = server.pool(3);
    server.ask(&pool).await;
    server.until_open(1).await;
    pool.close();
    server.until_open(0).await;
    server.ask(&pool).await;
    server.until_open(0).await;
    let pool = server.pool(3);
    server.ask(&pool).await;
    assert_eq!(*server.open.borrow(), 1);
    drop(pool);
    server.until_open(0).await;
}

#[tokio::test]
async fn l36_a_connection_is_closed_when_it_rested_for_too_long() {
    let server = server(1).await;
    let pool = server.pool(3);
    server.ask(&pool).await;
    tokio::time::pause();
    tokio::time::advance(AGE - Duration::from_millis(10)).await;
    tokio::task::yield_now().await;
    assert_eq!(pool.resting(), 1);
    tokio::time::advance(Duration::from_millis(20)).await;
    while pool.resting() > 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    server.until_open(0).await;
}

#[tokio::test]
async fn l36_a_connection_that_the_other_side_closed_does_not_rest() {
    let server = server(1).await;
    let pool = server.pool(3);
    server.ask(&pool).await;
    assert_eq!(pool.resting(), 1);
    server.hang_up.send_replace(true);
    let noticed = async {
        while pool.resting() > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), noticed).await.is_ok(), "nobody noticed");
}
