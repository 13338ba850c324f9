//! Turns etcd's messages into Rust, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "etcd")]
    {
        println!("cargo::rerun-if-changed=proto/etcd.proto");
        let descriptors = protox::compile(["proto/etcd.proto"], ["proto"])?;
        tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(descriptors)?;
    }
    Ok(())
}
