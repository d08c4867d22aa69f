//! Any bytes are read as a message of the gRPC interface or refused, and what is read is sent as the same message.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use prost::Message;
use sidestep_api::{BindingUpdate, HostIdentity, PathUpdate, UsageReport, WireError, proto, router_name};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => read::<proto::PathUpdate, PathUpdate>(bytes),
        1 => read::<proto::BindingUpdate, BindingUpdate>(bytes),
        2 => read::<proto::UsageReport, UsageReport>(bytes),
        3 => read::<proto::HostHello, HostIdentity>(bytes),
        _ => {
            if let Ok(name) = proto::RouterHello::decode(bytes).map(router_name) {
                assert!(name.is_err() || name.is_ok_and(|name| !name.chars().any(char::is_control)));
            }
        }
    }
});

fn read<W, T>(bytes: &[u8])
where
    W: Message + Default + From<T>,
    T: TryFrom<W, Error = WireError> + Clone + Debug + PartialEq,
{
    let Ok(wire) = W::decode(bytes) else { return };
    match T::try_from(wire) {
        Ok(read) => assert_eq!(T::try_from(W::from(read.clone())).as_ref(), Ok(&read)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
