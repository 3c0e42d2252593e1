fn main() {}
mod http;
