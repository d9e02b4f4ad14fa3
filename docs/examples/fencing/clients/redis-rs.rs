//! redis-rs: one connection. redis-rs HOST PORT

use redis::Commands;

fn main() -> redis::RedisResult<()> {
    let key = "lock:stock:lamp";
    let words: Vec<String> = std::env::args().collect();
    let client = redis::Client::open(format!("redis://{}:{}", words[1], words[2]))?;
    let mut connection = client.get_connection()?;
    let value = format!("worker-{}-{:?}", std::process::id(), std::time::Instant::now());
    let _: Option<String> =
        redis::cmd("SET").arg(key).arg(value).arg("NX").arg("PX").arg(30_000).query(&mut connection)?;
    let lockwarden = || redis::cmd("LOCKWARDEN");
    let fence: u64 = lockwarden().arg("FENCE").arg(key).query(&mut connection)?;
    let current: i64 = lockwarden().arg("CHECK").arg(key).arg(fence).query(&mut connection)?;
    println!("{fence} {current}");
    connection.del(key)
}
